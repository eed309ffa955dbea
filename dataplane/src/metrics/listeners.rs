//! What metrics say of encrypted listeners: the results of requests, and their certificates.

use std::fmt;
use std::sync::atomic::Ordering;

use crate::serve::ServeCounters;
use process::metrics::Page;

pub(super) fn write(page: &mut Page<'_>, serving: &ServeCounters) -> fmt::Result {
    let rows =
        serving.encrypted.https_responses().map(|(status, count)| ([("status", status)], count));
    page.counters("https_responses", "Responses of DNS over HTTPS, by HTTP status", rows)?;
    let rows = serving.encrypted.http2_resets().map(|(code, count)| ([("code", code)], count));
    let help = "Streams of DNS over HTTPS that were refused with a reset of HTTP/2, by error code (RFC 9113)";
    page.counters("https_streams_reset", help, rows)?;
    let rows = serving.encrypted.quic_responses().map(|(code, count)| ([("code", code)], count));
    let help = "Streams of DNS over QUIC answered (0) or ended with an error, by code (RFC 9250)";
    page.counters("quic_responses", help, rows)?;
    let retries = serving.encrypted.retries.load(Ordering::Relaxed);
    let help = "Clients of QUIC that had to show that they have their address (Retry)";
    page.counter("quic_retries", help, retries)?;

    // Listeners may share a Secret: it is one series.
    let mut certificates = serving.certificates();
    certificates.sort_by(|one, other| one.secret.cmp(&other.secret));
    certificates.dedup_by(|one, other| one.secret == other.secret);
    let rows = certificates.iter().filter_map(|certificate| {
        let expires = certificate.not_after_seconds?;
        Some(([("secret", certificate.secret.as_str())], expires as f64))
    });
    let help = "When the certificate in use expires, in seconds since 1970";
    page.gauges("certificate_expiry_timestamp_seconds", help, rows)?;
    // With both an alert knows the life of a certificate: a week is much of one and most of another.
    let rows = certificates.iter().filter_map(|certificate| {
        let begins = certificate.not_before_seconds?;
        Some(([("secret", certificate.secret.as_str())], begins as f64))
    });
    let help = "When the certificate in use begins to be valid, in seconds since 1970";
    page.gauges("certificate_start_timestamp_seconds", help, rows)?;
    let rows = certificates.iter().map(|certificate| {
        let is_bad = certificate.trouble.is_some();
        ([("secret", certificate.secret.as_str())], f64::from(u8::from(is_bad)))
    });
    let help =
        "1 while the mounted certificate cannot be used; the last good one, if there is one, stays";
    page.gauges("certificate_is_bad", help, rows)
}
