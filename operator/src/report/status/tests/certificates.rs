//! Certificates of encrypted listeners, as pods report them.

use super::*;
use crate::observe::observed::{Certificate, ClosedListener, UsedCertificate};

/// A certificate that is valid this many hours before and after a time.
fn used(secret: &str, before: i64, after: i64) -> UsedCertificate {
    let at = |hours: i64| crate::fixtures::at(10) + jiff::SignedDuration::from_hours(hours);
    UsedCertificate {
        secret: secret.to_owned(),
        validity: Some((at(-before), at(after))),
        trouble: None,
    }
}

#[test]
fn t8_a_certificate_that_expires_is_a_condition_until_it_is_renewed() {
    let day = 24;
    for (what, before, after, reason) in [
        ("90 days, 8 left", 82 * day, 8 * day, "False=AsExpected"),
        ("90 days, 6 left", 84 * day, 6 * day, "True=CertificateExpiring"),
        ("90 days, none left", 90 * day, 0, "True=CertificateExpired"),
        ("ended long ago", 90 * day, -day, "True=CertificateExpired"),
        ("a day, 5 hours left", 19, 5, "False=AsExpected"),
        ("a day, 3 hours left", 21, 3, "True=CertificateExpiring"),
    ] {
        let mut story = Story::settled("{}");
        let report = |story: &mut Story, pod: &str, used| {
            reported(&mut story.observed, pod).certificates = vec![used];
        };
        report(&mut story, "dns-0", used("dns-tls", before, after));
        report(&mut story, "dns-1", used("dns-tls", 0, 90 * day));
        let status = story.reconcile(10);
        let degraded = condition(&status, "Degraded").unwrap();
        assert_eq!(format!("{}={}", degraded.status, degraded.reason), reason, "{what}");
        assert_eq!(reason != "False=AsExpected", degraded.message.contains("Secret dns-tls at"));
        assert_eq!(story.reconcile(11), status, "{what}: an unchanged status");
        report(&mut story, "dns-0", used("dns-tls", 0, 90 * day));
        let renewed = story.reconcile(12);
        assert_eq!(condition(&renewed, "Degraded").unwrap().status, "False", "{what}");
    }
}

#[test]
fn t8_a_certificate_that_is_not_valid_yet_is_a_condition_until_it_is() {
    for (begins_in, reason) in [(2, "True=CertificateNotYetValid"), (0, "False=AsExpected")] {
        let mut story = Story::settled("{}");
        let early = used("dns-tls", -begins_in, 90 * 24);
        reported(&mut story.observed, "dns-0").certificates = vec![early];
        let status = story.reconcile(10);
        let degraded = condition(&status, "Degraded").unwrap();
        assert_eq!(format!("{}={}", degraded.status, degraded.reason), reason);
        assert_eq!(begins_in > 0, degraded.message.contains("Secret dns-tls from"));
    }
}

#[test]
fn t8_a_certificate_that_pods_cannot_use_is_a_condition_that_says_why() {
    let mut story = Story::settled("{}");
    let bad =
        UsedCertificate { trouble: Some("tls.crt is not PEM".to_owned()), ..used("a", 1, 99) };
    let none = UsedCertificate { validity: None, secret: "b".to_owned(), ..bad.clone() };
    reported(&mut story.observed, "dns-0").certificates = vec![bad, none];
    let status = story.reconcile(10);
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!(degraded.reason, "CertificateUnusable");
    for part in [
        "Secret a (pod dns-0: tls.crt is not PEM; the last good one stays in use)",
        "Secret b (pod dns-0: tls.crt is not PEM; its listener is off)",
    ] {
        assert!(degraded.message.contains(part), "{}", degraded.message);
    }
}

#[test]
fn o18_a_listener_that_pods_cannot_open_is_a_condition_that_says_why() {
    let mut story = Story::settled("{}");
    let closed = ClosedListener {
        listener: "TLS".to_owned(),
        port: 853,
        why: "cannot listen on 0.0.0.0:853: Permission denied".to_owned(),
    };
    for pod in ["dns-0", "dns-1"] {
        reported(&mut story.observed, pod).closed_listeners = vec![closed.clone()];
    }
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=ListenerClosed", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    let named =
        "TLS at port 853 (pod dns-0: cannot listen on 0.0.0.0:853: Permission denied). With";
    assert!(message.contains(named), "{message}");
    // The advice is about what the system said.
    for pod in ["dns-0", "dns-1"] {
        let taken = ClosedListener { why: "Address in use".to_owned(), ..closed.clone() };
        reported(&mut story.observed, pod).closed_listeners = vec![taken];
    }
    let status = story.reconcile(20);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("Address in use). Each is tried again"), "{message}");
    assert!(!message.contains("podPort"), "{message}");
}

#[test]
fn o18_a_secret_that_is_gone_is_a_condition_that_says_what_pods_do() {
    let spec = "{listeners: {tls: {certificate: {name: a}}, https: {certificate: {name: b}}}}";
    let mut story = Story::settled(spec);
    story.observed.certificates.insert("a".to_owned(), Certificate::Missing);
    story.observed.certificates.insert("b".to_owned(), Certificate::Gone);
    // The pods read the empty folder.
    let trouble = Some("cannot read tls.crt".to_owned());
    let used =
        ["a", "b"].map(|name| UsedCertificate { trouble: trouble.clone(), ..used(name, 1, 99) });
    reported(&mut story.observed, "dns-0").certificates = used.to_vec();
    let status = story.reconcile(10);
    let degraded = condition(&status, "Degraded").unwrap();
    assert_eq!(degraded.reason, "CertificateMissing");
    for part in [
        "these certificates are off, or keep the certificate from before, because there is no such Secret beside the Service: a; pods keep",
        "of pods that start are off, because there is no such Secret beside the Service: b. Create",
    ] {
        assert!(degraded.message.contains(part), "{}", degraded.message);
    }
    assert!(!degraded.message.contains("cannot read"), "{}", degraded.message);
    assert!(degraded.message.contains("unless certificates.names"), "the label is one of two ways");
}
