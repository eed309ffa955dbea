//! The Service that clients ask.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::*;

fn service(spec: &str) -> Service {
    object(&desired(&dns(spec), &observed(), |_| ()), Kind::Service)
}

/// The spec, the clusterIPs that it asks for, and the families and policy that follow.
type Row<'a> = (&'a str, &'a [&'a str], Option<&'a [&'a str]>, Option<&'a str>);

#[test]
fn an_own_service_has_the_addresses_asked_for_and_the_policy_of_their_number() {
    let rows: [Row<'_>; 4] = [
        ("{}", &[], None, None),
        ("{clusterIPs: [10.96.0.10]}", &["10.96.0.10"], Some(&["IPv4"]), Some("SingleStack")),
        ("{clusterIPs: ['fd00::a']}", &["fd00::a"], Some(&["IPv6"]), Some("SingleStack")),
        (
            "{clusterIPs: ['fd00::a', 10.96.0.10]}",
            &["fd00::a", "10.96.0.10"],
            Some(&["IPv6", "IPv4"]),
            Some("RequireDualStack"),
        ),
    ];
    for (written, ips, families, policy) in rows {
        let spec = service(&format!("{{service: {written}}}")).spec.unwrap();
        assert_eq!(spec.cluster_ip.as_deref(), ips.first().copied(), "{written}");
        assert_eq!(spec.cluster_ips.unwrap_or_default(), ips, "{written}");
        let families = families.map(|f| f.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>());
        assert_eq!(spec.ip_families, families, "{written}");
        assert_eq!(spec.ip_family_policy.as_deref(), policy, "{written}");
    }
}

#[test]
fn an_own_service_has_the_ports_of_kube_dns_and_leads_to_container_ports() {
    let spec = "{service: {podPort: 1053}, listeners: {tls: {certificate: {name: c}}, https: {port: 8443, certificate: {name: c}}}}";
    let desired = desired(&dns(spec), &observed(), |_| ());
    let service: Service = object(&desired, Kind::Service);
    let container = pod(&desired).containers[0].ports.clone().unwrap();
    let mut found = Vec::new();
    for port in service.spec.unwrap().ports.unwrap() {
        let Some(IntOrString::String(target)) = &port.target_port else { panic!("{port:?}") };
        let led_to =
            container.iter().find(|c| c.name.as_ref() == Some(target)).expect("a container port");
        assert_eq!(led_to.protocol, port.protocol);
        found.push((port.name.unwrap(), port.port, port.protocol.unwrap(), led_to.container_port));
    }
    let expected = [
        ("dns", 53, "UDP", 1053),
        ("dns-tcp", 53, "TCP", 1053),
        ("metrics", 9153, "TCP", 9153),
        ("dns-tls", 853, "TCP", 853),
        ("dns-https", 8443, "TCP", 8443),
    ];
    let expected =
        expected.map(|(name, port, protocol, to)| (name.to_owned(), port, protocol.to_owned(), to));
    assert_eq!(found, expected);
}

#[test]
fn queries_stay_in_the_zone_or_on_the_node_where_the_api_server_knows_how() {
    let rows = [
        ("{}", Size::Replicas(2), 36, None),
        ("{}", Size::PerNode, 34, Some("PreferSameNode")),
        ("{}", Size::PerNode, 33, Some("PreferClose")),
        ("{trafficDistribution: PreferSameZone}", Size::Replicas(2), 34, Some("PreferSameZone")),
        ("{trafficDistribution: PreferSameZone}", Size::Replicas(2), 33, Some("PreferClose")),
        ("{trafficDistribution: PreferSameZone}", Size::PerNode, 36, Some("PreferSameZone")),
    ];
    for (written, size, minor, expected) in rows {
        let mut observed = observed();
        observed.offers.minor = minor;
        let dns = dns(&format!("{{service: {written}}}"));
        let desired = desired(&dns, &observed, |plan| plan.size = size);
        let spec = object::<Service>(&desired, Kind::Service).spec.unwrap();
        assert_eq!(spec.traffic_distribution.as_deref(), expected, "{written} {size:?} 1.{minor}");
        // A node whose pod is down would have no DNS; and who sets Local is undone.
        assert_eq!(spec.internal_traffic_policy.as_deref(), Some("Cluster"));
    }
}

#[test]
fn only_the_service_called_kube_dns_is_found_as_the_clusters_dns() {
    let label = |spec| service(spec).metadata.labels.unwrap().get("k8s-app").cloned();
    assert_eq!(label("{}").as_deref(), Some("kube-dns"));
    assert_eq!(label("{service: {name: dns-trial}}"), None);
}

#[test]
fn o15_an_adopted_service_is_never_applied() {
    for (name, dns) in examples() {
        for plan_of in [
            ServicePlan::Adopted { labels: Default::default(), patch: None },
            ServicePlan::Released { labels: Default::default(), patch: None },
        ] {
            let desired = desired(&dns, &observed(), |plan| plan.service = plan_of);
            assert!(desired.get(Kind::Service).is_none(), "{name}");
        }
    }
}

#[test]
fn o9_service_and_configuration_are_written_as_they_were_looked_at() {
    let version =
        |desired: &Desired, kind| desired.get(kind).unwrap().metadata.resource_version.clone();
    let fresh = desired(&dns("{}"), &observed(), |_| ());
    assert_eq!((version(&fresh, Kind::Service), version(&fresh, Kind::ConfigMap)), (None, None));
    let seen = |version: &str| ObjectMeta {
        resource_version: Some(version.to_owned()),
        ..ObjectMeta::default()
    };
    let mut looked = observed();
    looked.service = Some(Service { metadata: seen("7"), ..Service::default() });
    looked.config_map =
        Some(k8s_openapi::api::core::v1::ConfigMap { metadata: seen("8"), ..Default::default() });
    let desired = desired(&dns("{}"), &looked, |_| ());
    assert_eq!(version(&desired, Kind::Service).as_deref(), Some("7"));
    assert_eq!(version(&desired, Kind::ConfigMap).as_deref(), Some("8"));
    assert_eq!(
        version(&desired, Kind::Deployment),
        None,
        "what autoscalers write too is not refused"
    );
}

/// The label that NetworkPolicies and addons find the pods of cluster DNS by, beside these Services, which serve DNS.
fn found_by(spec: &str, services: &[(&str, &[(&str, &str)])]) -> Option<String> {
    found_in(observed(), spec, services, false)
}

/// The same in this cluster, where these Services lead to pods of others too, or do not.
fn found_in(
    mut looked: Observed,
    spec: &str,
    services: &[(&str, &[(&str, &str)])],
    has_other_pods: bool,
) -> Option<String> {
    let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let service = |selector: &[(&str, &str)]| DnsService {
        selector: selector.iter().map(text).collect(),
        has_other_pods,
    };
    looked.dns_services =
        services.iter().map(|(name, selector)| ((*name).to_owned(), service(selector))).collect();
    let desired = desired(&dns(spec), &looked, |_| ());
    template(&desired).metadata.unwrap().labels.unwrap().get("k8s-app").cloned()
}

#[test]
fn pods_behind_our_own_kube_dns_are_found_as_those_of_the_clusters_dns() {
    let kube_dns = Some("kube-dns".to_owned());
    assert_eq!(found_by("{}", &[]), kube_dns);
    let unrelated = [("metrics", &[("k8s-app", "metrics-server")][..]), ("headless", &[])];
    assert_eq!(found_by("{}", &unrelated), kube_dns);
    // NodeLocal DNSCache asks the pods behind kube-dns through it.
    assert_eq!(found_by("{}", &[("kube-dns-upstream", &[("k8s-app", "kube-dns")])]), kube_dns);
    assert_eq!(found_by("{service: {name: dns-trial}}", &[]), None);
}

#[test]
fn the_label_goes_only_for_a_service_that_has_other_pods_too() {
    let of_others: (&str, &[(&str, &str)]) = ("exposed", &[("k8s-app", "kube-dns")]);
    let labels = template(&desired(&dns("{}"), &observed(), |_| ())).metadata.unwrap().labels;
    let mut running = observed();
    running.deployment = Some(
        serde_json::from_value(serde_json::json!({"spec": {"selector": {},
            "template": {"metadata": {"labels": labels}}}}))
        .unwrap(),
    );
    let kept = found_in(running.clone(), "{}", &[of_others], false);
    assert_eq!(kept.as_deref(), Some("kube-dns"), "its clients would have no DNS without our pods");
    let dropped = found_in(running, "{}", &[of_others], true);
    assert_eq!(dropped, None, "another DNS server is behind it");
}

#[test]
fn no_pod_of_ours_answers_for_another_service_by_that_label() {
    let of_coredns: (&str, &[(&str, &str)]) = ("coredns", &[("k8s-app", "kube-dns")]);
    assert_eq!(found_by("{}", &[of_coredns]), None);
    let more: (&str, &[(&str, &str)]) =
        ("other", &[("k8s-app", "kube-dns"), ("clusterdns.dev/instance", "default")]);
    assert_eq!(found_by("{}", &[more]), None);
    let fewer: (&str, &[(&str, &str)]) = ("other", &[("k8s-app", "kube-dns"), ("tier", "other")]);
    assert_eq!(found_by("{}", &[fewer]).as_deref(), Some("kube-dns"), "it selects more than that");
}
