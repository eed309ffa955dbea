//! The pods while a configuration is on trial: they start with the document of the one before.

use operator::desired::{Desired, Kind};
use operator::observe::observed::Certificate;

use super::*;

/// The cluster after this spec was applied: its workload is there.
fn applied(spec: &str) -> (Desired, Observed) {
    let mut observed = observed();
    for name in ["a", "b", "c"] {
        observed.certificates.insert(name.to_owned(), Certificate::Usable);
    }
    let desired = desired(&dns(spec), &observed, |_| ());
    observed.deployment = Some(object(&desired, Kind::Deployment));
    (desired, observed)
}

/// What should exist while this spec is on trial, and all pods run the document of the one before. The Secrets of the latter may
/// be ones that the operator is not allowed to look at any more.
fn on_trial(before: &str, asked: &str) -> Desired {
    let (_, mut observed) = applied(before);
    let (stable, config) = [before, asked].map(|it| crds::check_resource(&dns(it)).unwrap()).into();
    observed.certificates.retain(|name, _| config.listeners.certificates().any(|it| it == name));
    desired(&dns(asked), &observed, |plan| {
        plan.rollout.state.stable = stable.revision();
        plan.rollout.stable = stable.to_json();
        plan.rollout.desired_revision = config.revision();
        plan.rollout.canary = Some(config.to_json());
    })
}

/// A pod that starts meanwhile reads the document of before.
#[test]
fn o7_pods_keep_ports_and_secrets_of_their_document_until_another_is_promoted() {
    let listener = |name: &str, secret: &str, port: u16| {
        format!("{name}: {{port: {port}, certificate: {{name: {secret}}}}}")
    };
    let of = |listeners: &[String]| format!("{{listeners: {{{}}}}}", listeners.join(", "));
    let tls = |secret, port| listener("tls", secret, port);
    let https = |secret, port| listener("https", secret, port);
    let own_zone = "{federations: [{name: x, domain: x.example}]}".to_owned();
    let written = "{federations: [{name: x, domain: x.example, zone: z, region: r}]}".to_owned();
    for (before, asked) in [
        (of(&[tls("a", 853)]), of(&[tls("a", 8853)])),
        (of(&[tls("a", 853)]), of(&[tls("b", 853)])),
        (of(&[tls("a", 853)]), "{}".to_owned()),
        (of(&[tls("a", 853), https("b", 443)]), of(&[tls("a", 853)])),
        // The port of one that closes or moves.
        (of(&[tls("a", 853)]), of(&[https("b", 853)])),
        (of(&[https("a", 443)]), of(&[https("a", 8443), tls("a", 443)])),
        (own_zone.clone(), written.clone()),
        (own_zone.clone(), "{}".to_owned()),
    ] {
        let (kept, _) = applied(&before);
        let meanwhile = on_trial(&before, &asked);
        assert_eq!(template(&meanwhile), template(&kept), "{before} -> {asked}");
        let promoted = applied(&asked).0;
        assert_ne!(template(&promoted), template(&kept), "{before} -> {asked}: replaced after it");
    }
    // What is new harms no pod, and is there when it is tried.
    for (before, asked) in [
        ("{}".to_owned(), of(&[tls("a", 853)])),
        (of(&[tls("a", 853)]), of(&[tls("a", 853), https("c", 443)])),
        ("{}".to_owned(), own_zone.clone()),
        (written, own_zone),
    ] {
        let meanwhile = on_trial(&before, &asked);
        assert_eq!(template(&meanwhile), template(&applied(&asked).0), "{before} -> {asked}");
    }
}

/// As when cert-manager issues it a moment after the edit: else all pods would be replaced by ones without a certificate, and again.
#[test]
fn o7_pods_are_not_replaced_for_a_secret_that_is_not_there_yet() {
    let tls = |secret: &str| format!("{{listeners: {{tls: {{certificate: {{name: {secret}}}}}}}}}");
    let (kept, mut observed) = applied(&tls("a"));
    for state in [Certificate::Missing, Certificate::Unread] {
        observed.certificates = [("new".to_owned(), state)].into();
        let meanwhile = desired(&dns(&tls("new")), &observed, |_| ());
        assert_eq!(template(&meanwhile), template(&kept), "{state:?}");
    }
    observed.certificates = [("new".to_owned(), Certificate::Usable)].into();
    let then = desired(&dns(&tls("new")), &observed, |_| ());
    let secrets: Vec<_> = pod(&then).volumes.clone().unwrap().into_iter().collect();
    let secrets: Vec<_> = secrets.into_iter().filter_map(|it| it.secret?.secret_name).collect();
    assert_eq!(secrets, ["new"]);
}

#[test]
fn o7_a_pod_declares_each_port_once_while_dns_moves_to_the_port_of_a_listener() {
    let spec = |dns: u16, tls: u16| {
        format!(
            "{{service: {{podPort: {dns}}}, listeners: {{tls: {{port: {tls}, certificate: {{name: a}}}}}}}}"
        )
    };
    let meanwhile = on_trial(&spec(1053, 8853), &spec(8853, 853));
    let ports = pod(&meanwhile).containers[0].ports.clone().unwrap().into_iter();
    let ports: Vec<_> = ports.map(|it| (it.name.unwrap(), it.container_port)).collect();
    let expected = [("dns", 8853), ("dns-tcp", 8853), ("metrics", 9153)];
    assert_eq!(ports, expected.map(|(name, port)| (name.to_owned(), port)));
}
