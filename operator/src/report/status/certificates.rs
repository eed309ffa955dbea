//! What pods say of the certificates of encrypted listeners: one that expires, or cannot be used, is a reason of `Degraded`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::problem::{Problem, named, problem};
use crate::observe::observed::{Certificate, ClosedListener, Observed, UsedCertificate};
use crate::observe::pods;

/// A certificate that is not renewed this long before its end is reported, if its whole life is long enough.
const EXPIRES_SOON: SignedDuration = SignedDuration::from_hours(7 * 24);
/// One that lives shorter is reported when this part of its life is left: those who renew it do so with a third left.
const PART_OF_LIFE: i32 = 6;

/// By how much clocks may differ.
const CLOCKS: SignedDuration = SignedDuration::from_mins(5);

/// A certificate that ends soon or has ended. It stays in use: a listener without one would serve no client at all.
pub(super) fn certificate_expires(observed: &Observed, now: Timestamp) -> Option<Problem> {
    // The earliest end of each: a pod that was not given the new one is one to look at.
    let mut ends: BTreeMap<&str, (Timestamp, Timestamp)> = BTreeMap::new();
    for (_, certificate) in used(observed) {
        let Some((begin, end)) = certificate.validity else { continue };
        let earliest = ends.entry(&certificate.secret).or_insert((begin, end));
        if end < earliest.1 {
            *earliest = (begin, end);
        }
    }
    let soon = ends.into_iter().filter(|(_, (begin, end))| expires_soon(*begin, *end, now));
    let soon: Vec<(&str, Timestamp)> = soon.map(|(secret, (_, end))| (secret, end)).collect();
    let first = soon.iter().map(|(_, end)| *end).min()?;
    let shown = soon.iter().map(|(secret, end)| format!("Secret {secret} at {end:.0}")).collect();
    let named = named(shown);
    if first > now {
        return problem(
            "CertificateExpiring",
            format!(
                "these certificates of listeners expire soon: {named}. Renew them; pods take the new ones without a restart"
            ),
        );
    }
    problem(
        "CertificateExpired",
        format!(
            "these certificates of listeners expire soon or have expired, and clients that check them get no answer over TLS, HTTPS \
             and QUIC: {named}. Renew them; pods take the new ones without a restart"
        ),
    )
}

fn expires_soon(begin: Timestamp, end: Timestamp, now: Timestamp) -> bool {
    let life = end.duration_since(begin);
    end.duration_since(now) < EXPIRES_SOON.min(life / PART_OF_LIFE)
}

/// A certificate that is not valid yet: it is in use, and clients that check it refuse it.
pub(super) fn certificate_not_yet_valid(observed: &Observed, now: Timestamp) -> Option<Problem> {
    let begins = used(observed).filter_map(|(_, it)| Some((it.secret.as_str(), it.validity?.0)));
    let early: BTreeMap<&str, Timestamp> =
        begins.filter(|(_, begin)| begin.duration_since(now) > CLOCKS).collect();
    if early.is_empty() {
        return None;
    }
    let shown = early.iter().map(|(secret, begin)| format!("Secret {secret} from {begin:.0} on"));
    problem(
        "CertificateNotYetValid",
        format!(
            "these certificates of listeners are not valid yet, and clients that check them get no answer over TLS, HTTPS and \
             QUIC: {}. Write a certificate that is valid now, or correct the clock of its issuer",
            named(shown.collect())
        ),
    )
}

/// Pods cannot use the content of the Secret. A missing Secret has a reason of its own.
pub(super) fn certificate_unusable(observed: &Observed) -> Option<Problem> {
    let mut found: BTreeMap<&str, String> = BTreeMap::new();
    for (pod, certificate) in used(observed) {
        let is_missing = matches!(
            observed.certificates.get(&certificate.secret),
            Some(Certificate::Missing | Certificate::Gone)
        );
        let Some(trouble) = certificate.trouble.as_ref().filter(|_| !is_missing) else { continue };
        let effect = match certificate.validity {
            Some(_) => "the last good one stays in use",
            None => "its listener is off",
        };
        found.entry(&certificate.secret).or_insert_with(|| {
            format!("Secret {} (pod {pod}: {trouble}; {effect})", certificate.secret)
        });
    }
    if found.is_empty() {
        return None;
    }
    problem(
        "CertificateUnusable",
        format!(
            "pods cannot use these certificates of listeners: {}. tls.crt must be PEM with the certificate first, tls.key its \
             private key",
            named(found.into_values().collect())
        ),
    )
}

/// Pods could not open the ports of encrypted listeners. UDP and TCP are served.
pub(super) fn listener_closed(observed: &Observed) -> Option<Problem> {
    let mut found: BTreeMap<(&str, u16), String> = BTreeMap::new();
    for pod in pods::ready(observed) {
        for closed in pods::known(observed, pod).into_iter().flat_map(|it| &it.closed_listeners) {
            let ClosedListener { listener, port, why } = closed;
            found.entry((listener, *port)).or_insert_with(|| {
                format!("{listener} at port {port} (pod {}: {why})", pods::name(pod))
            });
        }
    }
    if found.is_empty() {
        return None;
    }
    let is_forbidden = found.values().any(|text| text.contains("ermission denied"));
    let remedy = match is_forbidden {
        true => {
            ". With a podPort from 1024 up pods ask for no sysctl: then give listeners ports from 1024 up too"
        }
        false => ". Each is tried again every 10 s",
    };
    problem(
        "ListenerClosed",
        format!(
            "pods cannot open these listeners, and clients are refused there: {}{remedy}",
            named(found.into_values().collect())
        ),
    )
}

/// The report of each ready pod about each certificate, by the pod's name.
fn used(observed: &Observed) -> impl Iterator<Item = (&str, &UsedCertificate)> {
    pods::ready(observed).flat_map(|pod| {
        let reported = pods::known(observed, pod).into_iter();
        let name = pods::name(pod);
        reported.flat_map(|reported| &reported.certificates).map(move |it| (name, it))
    })
}
