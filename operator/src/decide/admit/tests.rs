//! Which ClusterDNS the operator acts on, and why not on others: each test has a cluster of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::fixtures::{config, deploy, dns, from, own_service, settings, unready};
use crate::observe::ca_bundles::Bundle;
use crate::observe::observed::Certificate;
use crds::bounds::CONFIG_BYTES;
use serde_json::json;

const PEM: &str = "-----BEGIN CERTIFICATE-----\nMIIBAAAA\n-----END CERTIFICATE-----\n";

fn refused(dns: &ClusterDNS, observed: &Observed) -> Option<(&'static str, String)> {
    let refusal = admit(dns, &config(dns), observed, &settings()).err()?;
    assert!(!refusal.message.is_empty());
    Some((refusal.reason, refusal.field))
}

fn is(reason: &'static str, field: &str) -> Option<(&'static str, String)> {
    Some((reason, field.to_owned()))
}

fn other(name: &str, created: &str, uid: &str, spec: &str) -> ClusterDNS {
    let mut other = dns(spec);
    other.metadata.name = Some(name.to_owned());
    other.metadata.uid = Some(uid.to_owned());
    let time = created.parse().expect("a time");
    other.metadata.creation_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
    other
}

#[test]
fn a_namespace_or_name_that_is_not_managed_is_refused() {
    let ours = dns("{}");
    assert_eq!(refused(&ours, &Observed::default()), None);
    let elsewhere = dns("{service: {namespace: dns}}");
    assert_eq!(
        refused(&elsewhere, &Observed::default()),
        is("NamespaceNotManaged", "spec.service.namespace")
    );
    let only = Settings { instances: vec!["other".to_owned()], ..settings() };
    let refusal = admit(&ours, &config(&ours), &Observed::default(), &only).unwrap_err();
    assert_eq!((refusal.reason, refusal.field.as_str()), ("NameNotManaged", "metadata.name"));
}

#[test]
fn o3_of_two_that_claim_one_service_the_older_wins_then_the_smaller_uid() {
    let ours = dns("{}");
    for (created, uid, spec, expected) in [
        ("2025-12-31T00:00:00Z", "z", "{}", is("Conflict", "spec.service.name")),
        ("2026-01-01T00:00:00Z", "a", "{}", is("Conflict", "spec.service.name")),
        ("2026-01-01T00:00:00Z", "z", "{}", None),
        ("2026-01-02T00:00:00Z", "a", "{}", None),
        // Several may serve one domain on different Services.
        ("2025-12-31T00:00:00Z", "a", "{service: {name: second}}", None),
        ("2025-12-31T00:00:00Z", "a", "{service: {namespace: second}}", None),
    ] {
        let observed = Observed {
            others: vec![Arc::new(other("second", created, uid, spec))],
            ..Observed::default()
        };
        assert_eq!(refused(&ours, &observed), expected, "{created} {uid} {spec}");
    }
}

#[test]
fn o3_a_cluster_ip_is_one_service_too() {
    let ours = dns("{service: {name: mine, clusterIPs: [\"fd00::a\"]}}");
    let spec = "{service: {name: theirs, clusterIPs: [10.96.0.10, \"fd00:0::A\"]}}";
    let older =
        other("second", "2025-12-31T00:00:00Z", "a", &spec.replace("fd00:0::A", "fd00:0::a"));
    let observed = Observed { others: vec![Arc::new(older)], ..Observed::default() };
    assert_eq!(refused(&ours, &observed), is("Conflict", "spec.service.clusterIPs"));

    let mut older = other("second", "2025-12-31T00:00:00Z", "a", "{service: {name: theirs}}");
    let status = crds::v1alpha1::ClusterDNSStatus {
        cluster_ips: vec!["10.96.0.10".to_owned()],
        ..Default::default()
    };
    older.status = Some(status);
    let mut observed = Observed { others: vec![Arc::new(older)], ..Observed::default() };
    let ours = dns("{service: {name: mine, clusterIPs: [10.96.0.10]}}");
    assert_eq!(refused(&ours, &observed), is("Conflict", "spec.service.clusterIPs"));
    observed.service = Some(own_service());
    assert_eq!(refused(&ours, &observed), None, "our Service has it");
}

#[test]
fn o2_an_upstream_that_is_our_own_service_is_refused() {
    let observed = Observed { service: Some(own_service()), ..Observed::default() };
    let ours = dns(
        "{stubDomains: [{domain: a.example, servers: [{address: 10.0.0.1}, {address: 10.96.0.10}]}]}",
    );
    assert_eq!(
        refused(&ours, &observed),
        is("UpstreamIsOwnService", "spec.stubDomains[0].servers[1].address")
    );
    assert_eq!(refused(&ours, &Observed::default()), None, "no other has that address yet");
}

#[test]
fn one_pod_per_node_is_for_five_hundred_nodes() {
    let ours = dns("{scaling: {perNode: {}}}");
    let mut observed = Observed::default();
    observed.size.nodes = 501;
    for fit in [20, 500] {
        observed.nodes_that_fit = fit;
        assert_eq!(refused(&ours, &observed), None, "{fit} of 501");
    }
    observed.nodes_that_fit = 501;
    assert_eq!(refused(&ours, &observed), is("PerNodeTooLarge", "spec.scaling.perNode"));
    assert_eq!(refused(&dns("{}"), &observed), None);
    // A cluster that grew while it ran is no mistake of the spec, also after its DaemonSet was deleted.
    let mut accepted = ours.clone();
    accepted.status = Some(from(json!({"conditions": [{"type": "Accepted", "status": "True",
        "observedGeneration": 1, "reason": "Valid", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]})));
    assert_eq!(refused(&accepted, &observed), None);
    accepted.metadata.generation = Some(2);
    assert_eq!(refused(&accepted, &observed), is("PerNodeTooLarge", "spec.scaling.perNode"));
    observed.daemon_set = Some(from(json!({"metadata": {"name": "clusterdns-default"}})));
    assert_eq!(refused(&accepted, &observed), None, "an edit of one that has its pods");
}

#[test]
fn a_placement_that_matches_no_node_is_refused_only_where_it_ends_every_pod() {
    let ours = dns("{placement: {nodeSelector: {pool: infra}}}");
    let misfit = Some(Misfit::NodeSelector);
    let mut observed = Observed { no_node_fits: misfit, ..Observed::default() };
    observed.size.nodes = 3;
    deploy(&mut observed, 2);
    assert_eq!(refused(&ours, &observed), None, "a pool that is scaled from zero");
    let per_node = dns("{placement: {nodeSelector: {pool: infra}}, scaling: {perNode: {}}}");
    assert_eq!(
        refused(&per_node, &observed),
        is("PlacementMatchesNoNode", "spec.placement.nodeSelector")
    );
    for misfit in [Misfit::NodeAffinity, Misfit::Tolerations] {
        observed.no_node_fits = Some(misfit);
        assert_eq!(refused(&per_node, &observed), is("PlacementMatchesNoNode", misfit.field()));
    }
    observed.no_node_fits_daemon_set = true;
    assert_eq!(refused(&per_node, &observed), None, "all nodes got a taint: any edit");
    observed.no_node_fits = None;
    assert_eq!(refused(&per_node, &observed), None);
    observed.no_node_fits = misfit;
    assert!(refused(&per_node, &observed).is_some(), "labels");
    observed.pods.clear();
    assert_eq!(refused(&per_node, &observed), None, "no pod can be lost");
}

#[test]
fn a_placement_by_which_a_daemon_set_ends_every_ready_pod_is_refused() {
    let ours = dns("{scaling: {perNode: {}}, placement: {nodeSelector: {pool: web}}}");
    let mut observed = Observed::default();
    deploy(&mut observed, 3);
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "clusterdns-default", "uid": "u",
        "controller": true}]);
    for (place, pod) in observed.pods.iter_mut().enumerate() {
        pod.spec = Some(from(json!({"nodeName": format!("node-{place}"), "containers": []})));
        pod.metadata.owner_references = Some(from(owner.clone()));
    }
    let unfit = |nodes: &[&str]| {
        let all = nodes.iter().map(|node| ((*node).to_owned(), Misfit::NodeSelector));
        all.collect::<BTreeMap<_, _>>()
    };
    observed.unfit_nodes = unfit(&["node-0", "node-1", "node-2"]);
    assert_eq!(refused(&ours, &observed), None, "there is no DaemonSet yet");
    observed.daemon_set = Some(from(json!({"metadata": {"name": "clusterdns-default"}})));
    assert_eq!(
        refused(&ours, &observed),
        is("PlacementEndsEveryPod", "spec.placement.nodeSelector")
    );
    let fixed = dns("{scaling: {fixed: {replicas: 3}}, placement: {nodeSelector: {pool: web}}}");
    assert_eq!(refused(&fixed, &observed), None, "they stay until those of a Deployment serve");
    let mut with_others = observed.clone();
    with_others.pods[1].metadata.owner_references = None;
    assert_eq!(refused(&ours, &with_others), None, "one of the Deployment before stays");
    observed.unfit_nodes = unfit(&["node-0", "node-2"]);
    assert_eq!(refused(&ours, &observed), None, "one stays");
    observed.pods[1] = unready(observed.pods[1].clone());
    assert_eq!(
        refused(&ours, &observed),
        is("PlacementEndsEveryPod", "spec.placement.nodeSelector"),
        "it answers no one"
    );
}

fn encrypted() -> Config {
    config(&dns(
        "{upstreams: {servers: [{address: 192.0.2.1, transport: TLS, tls: {serverName: dns.example, caBundle: {name: ca}}}]}, \
         stubDomains: [{domain: a.example, servers: [{address: 192.0.2.2, transport: TLS, tls: {serverName: d.example, \
         caBundle: {name: ca, key: other.pem}}}]}]}",
    ))
}

fn bundles(first: Result<&str, &str>, second: &str) -> Observed {
    let key = |key: &str| ("ca".to_owned(), key.to_owned());
    let first = match first {
        Ok(text) => Bundle::Text(text.to_owned()),
        Err(why) => Bundle::Missing(why.to_owned()),
    };
    let second = Bundle::Text(second.to_owned());
    Observed {
        ca_bundles: [(key("ca.crt"), first), (key("other.pem"), second)].into(),
        ..Observed::default()
    }
}

#[test]
fn certificates_are_copied_in_and_nothing_else_is() {
    let text = format!(
        "# ours\n{PEM}-----BEGIN PRIVATE KEY-----\nMIIsecret\n-----END PRIVATE KEY-----\n{PEM}"
    );
    let config = with_bundles(&encrypted(), &bundles(Ok(&text), PEM)).unwrap();
    let json = config.to_json();
    assert!(
        !json.contains("configMap") && !json.contains("secret") && !json.contains("# ours"),
        "{json}"
    );
    assert_eq!(json.matches("BEGIN CERTIFICATE").count(), 3);
    assert!(Config::from_json(&json).is_ok());
}

#[test]
fn a_bundle_that_is_missing_or_none_is_refused_by_its_field() {
    let field = "spec.upstreams.servers[0].tls.caBundle";
    for (text, reason) in [
        (Err("it does not exist"), "CABundleMissing"),
        (Ok(""), "CABundleInvalid"),
        (Ok("hello"), "CABundleInvalid"),
        (Ok("-----BEGIN CERTIFICATE-----\nMIIBAAAA\n"), "CABundleInvalid"),
        (Ok("-----BEGIN CERTIFICATE-----\nMII!AAAA\n-----END CERTIFICATE-----"), "CABundleInvalid"),
        (Ok("-----BEGIN CERTIFICATE-----\nMIIBAAA\n-----END CERTIFICATE-----"), "CABundleInvalid"),
        (Ok("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----"), "CABundleInvalid"),
    ] {
        let refusal = with_bundles(&encrypted(), &bundles(text, PEM)).unwrap_err();
        assert_eq!((refusal.reason, refusal.field.as_str()), (reason, field), "{text:?}");
    }
    let refusal = with_bundles(&encrypted(), &Observed::default()).unwrap_err();
    assert_eq!(refusal.reason, "CABundleMissing");
}

#[test]
fn a_configuration_with_its_certificates_is_bounded_like_one_without() {
    let many = PEM.repeat(CONFIG_BYTES / PEM.len());
    let refusal = with_bundles(&encrypted(), &bundles(Ok(PEM), &many)).unwrap_err();
    assert_eq!(refusal.reason, "TooLarge");
}

/// Why this spec is refused, with what the administrator allows.
fn refused_with(
    spec: &str,
    observed: &Observed,
    allowed: &crate::settings::Allowed,
) -> Option<(&'static str, String)> {
    let ours = dns(spec);
    let settings = Settings { allowed: allowed.clone(), ..settings() };
    let refusal = admit(&ours, &config(&ours), observed, &settings).err()?;
    assert!(refusal.message.contains("chart") || refusal.message.contains("name one"));
    Some((refusal.reason, refusal.field))
}

#[test]
fn s14_an_image_of_another_repository_is_refused() {
    let mut allowed = crate::settings::Allowed::default();
    let refusal = is("ImageNotAllowed", "spec.image");
    let evil = "{image: 'attacker.example/x'}";
    for (image, expected) in [
        ("clusterdns:0.0.9", None),
        ("clusterdns-evil:1", refusal.clone()),
        ("clusterdns/evil:1", refusal.clone()),
        ("attacker.example/clusterdns:1", refusal.clone()),
    ] {
        let spec = format!("{{image: '{image}'}}");
        assert_eq!(refused_with(&spec, &Observed::default(), &allowed), expected, "{image}");
    }
    assert_eq!(refused_with(evil, &Observed::default(), &allowed), refusal);
    allowed.images = vec!["registry.example/dns/".to_owned()];
    let own = "{image: 'clusterdns:0.0.9'}";
    assert_eq!(refused_with(own, &Observed::default(), &allowed), refusal, "a list replaces it");
    let listed = "{image: 'registry.example/dns/clusterdns:1'}";
    assert_eq!(refused_with(listed, &Observed::default(), &allowed), None);
}

#[test]
fn s14_a_secret_that_is_no_certificate_for_dns_is_refused() {
    let allowed = crate::settings::Allowed::default();
    let spec = "{listeners: {https: {certificate: {name: any}}}}";
    let refusal = is("CertificateNotAllowed", "spec.listeners.https.certificate.name");
    for (state, expected) in [
        (Certificate::Usable, None),
        (Certificate::Missing, None),
        (Certificate::Gone, None),
        (Certificate::OtherType, refusal.clone()),
        (Certificate::NotMarked, refusal.clone()),
        (Certificate::NotReadable, refusal.clone()),
    ] {
        let observed =
            Observed { certificates: [("any".to_owned(), state)].into(), ..Observed::default() };
        assert_eq!(refused_with(spec, &observed, &allowed), expected, "{state:?}");
    }
}

#[test]
fn s14_keys_that_injectors_read_are_refused_unless_the_administrator_lists_them() {
    let mut allowed = crate::settings::Allowed::default();
    let annotations = is("PodMetadataNotAllowed", "spec.placement.podAnnotations");
    let labels = is("PodMetadataNotAllowed", "spec.placement.podLabels");
    for (spec, expected) in [
        ("{placement: {podAnnotations: {owner: a}, podLabels: {team: a}}}", None),
        ("{placement: {podAnnotations: {sidecar.istio.io/inject: 'true'}}}", annotations.clone()),
        ("{placement: {podAnnotations: {sidecar.istio.io/userVolume: 'x'}}}", annotations.clone()),
        ("{placement: {podLabels: {linkerd.io/inject: enabled}}}", labels),
        ("{placement: {podAnnotations: {prometheus.io/scrape: 'true'}}}", annotations.clone()),
    ] {
        assert_eq!(refused_with(spec, &Observed::default(), &allowed), expected, "{spec}");
    }
    allowed.pod_annotations = vec!["prometheus.io/".to_owned(), "example.com/owner".to_owned()];
    for (key, expected) in [
        ("prometheus.io/scrape", None),
        ("example.com/owner", None),
        ("example.com/owner2", annotations.clone()),
        ("prometheus.io.evil.example/x", annotations),
    ] {
        let spec = format!("{{placement: {{podAnnotations: {{{key}: 'true'}}}}}}");
        assert_eq!(refused_with(&spec, &Observed::default(), &allowed), expected, "{key}");
    }
}

#[test]
fn s14_labels_that_another_service_selects_by_are_refused() {
    let selector = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    let services = [
        ("metrics-server".to_owned(), selector("k8s-app", "metrics-server")),
        ("everything-of-ours".to_owned(), selector("app.kubernetes.io/name", "clusterdns")),
        ("headless".to_owned(), BTreeMap::new()),
    ];
    let observed = Observed { selectors: services.into(), ..Observed::default() };
    for (spec, expected) in [
        (
            "{placement: {podLabels: {k8s-app: metrics-server}}, service: {name: trial}}",
            is("PodLabelsSelected", "spec.placement.podLabels"),
        ),
        ("{placement: {podLabels: {team: a}}}", None),
        // Our own label is stronger, so that this one is never on a pod.
        ("{placement: {podLabels: {k8s-app: metrics-server}}}", None),
        ("{}", None),
    ] {
        assert_eq!(refused(&dns(spec), &observed), expected, "{spec}");
    }
}

#[test]
fn s14_a_required_anti_affinity_keeps_no_pods_of_others_off_the_nodes() {
    let field = "spec.placement.affinity.podAntiAffinity";
    let with = |kind: &str, term: &str| {
        let term = match kind {
            "required" => format!("requiredDuringSchedulingIgnoredDuringExecution: [{term}]"),
            _ => format!(
                "preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 1, podAffinityTerm: {term}}}]"
            ),
        };
        let spec = format!("{{placement: {{affinity: {{podAntiAffinity: {{{term}}}}}}}}}");
        refused(&dns(&spec), &Observed::default())
    };
    let own = "labelSelector: {matchLabels: {clusterdns.dev/instance: default}}";
    let excluding = |expression: &str| {
        format!("{{topologyKey: zone, labelSelector: {{matchExpressions: [{expression}]}}}}")
    };
    for (kind, term, is_refused) in [
        ("required", "{topologyKey: kubernetes.io/os, labelSelector: {}}".to_owned(), true),
        ("required", format!("{{topologyKey: zone, {own}, namespaceSelector: {{}}}}"), true),
        ("required", format!("{{topologyKey: zone, {own}, namespaces: [shop]}}"), true),
        ("required", format!("{{topologyKey: zone, {own}, namespaces: [shop, dns]}}"), true),
        ("required", format!("{{topologyKey: zone, {own}, namespaces: [kube-system]}}"), false),
        ("required", excluding("{key: app, operator: NotIn, values: [a]}"), true),
        ("required", excluding("{key: app, operator: DoesNotExist}"), true),
        ("required", excluding("{key: controller-revision-hash, operator: Exists}"), true),
        (
            "required",
            excluding("{key: app, operator: Exists}, {key: app, operator: NotIn, values: [a]}"),
            true,
        ),
        (
            "required",
            excluding("{key: app, operator: Exists}, {key: app, operator: In, values: [a]}"),
            false,
        ),
        ("required", excluding("{key: clusterdns.dev/instance, operator: Exists}"), false),
        ("required", excluding("{key: app, operator: In, values: [a]}"), false),
        ("required", format!("{{topologyKey: kubernetes.io/hostname, {own}}}"), false),
        ("preferred", "{topologyKey: kubernetes.io/os, labelSelector: {}}".to_owned(), false),
    ] {
        let expected = is_refused.then(|| ("AffinityTooWide", field.to_owned()));
        assert_eq!(with(kind, &term), expected, "{kind} {term}");
    }
}
