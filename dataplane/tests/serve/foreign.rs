//! Clients that share no code with us: kdig (knot-dnsutils) and curl, where they are installed. Others cover the same
//! promises in any case: `tls`, `https` and `quic`.

use std::io::Write;
use std::process::{Command, Stdio};

use dataplane::serve::Encrypted;

use crate::harness::{House, OURS, Reply, query};
use crate::https::patient;
use crate::missing::{cannot, not_installed};
use crate::tls::{NAME, Secret};

/// A server on all three, and what its clients must trust.
fn serve(over: &Encrypted, name: &str) -> (House, u16, Secret) {
    let secret = Secret::new(name);
    secret.renew();
    let house = House::on(&["127.0.0.1:0"], patient());
    let served = house.serving.serve_encrypted(over, 0, secret.0.clone()).expect("a port");
    (house, served[0].port(), secret)
}

fn https() -> Encrypted {
    Encrypted::Https { path: "/dns-query".to_owned() }
}

/// What `kdig` prints for our name, asked this way; `None` where this machine's cannot.
fn kdig(over: &Encrypted, name: &str, flags: &[&str]) -> Option<String> {
    let (_house, port, secret) = serve(over, name);
    let authority = format!("+tls-ca={}", secret.0.join("tls.crt").display());
    // The transport comes behind the flags of TLS: kdig 3.2.6 crashes where `+quic` comes first.
    let output = Command::new("kdig")
        .args(["@127.0.0.1", "-p", &port.to_string(), "+timeout=20", "+retry=0"])
        .args([&authority, &format!("+tls-hostname={NAME}")])
        .args(flags)
        .args([OURS, "A"])
        .output();
    let Ok(output) = output else {
        not_installed("kdig");
        return None;
    };
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let (printed, complaint) = (text(&output.stdout), text(&output.stderr));
    // Only this message means that the option is unknown. Others, such as "unknown CA", are failures.
    if complaint.contains("invalid option") {
        cannot(&format!("kdig with {flags:?} ({})", complaint.trim()));
        return None;
    }
    assert!(output.status.success(), "{printed}{complaint}");
    Some(printed)
}

/// An answer, padded as kdig asks for (WR14).
fn expect_padded(printed: Option<String>) {
    let Some(printed) = printed else { return };
    assert!(printed.contains("status: NOERROR"), "{printed}");
    assert!(printed.contains("10.96.10.1"), "{printed}");
    assert!(printed.contains("Received 468 B"), "{printed}");
}

#[test]
fn wr14_kdig_gets_padded_answers_over_tls() {
    expect_padded(kdig(&Encrypted::Tls, "kdig-tls", &["+padding"]));
}

#[test]
fn wr14_kdig_gets_padded_answers_over_https_by_post_and_get() {
    expect_padded(kdig(&https(), "kdig-post", &["+https=/dns-query", "+padding"]));
    expect_padded(kdig(&https(), "kdig-get", &["+https=/dns-query", "+https-get", "+padding"]));
}

#[test]
fn wr14_kdig_gets_padded_answers_over_quic() {
    expect_padded(kdig(&Encrypted::Quic, "kdig-quic", &["+quic", "+padding"]));
}

#[test]
fn wr14_what_kdig_does_not_pad_is_not_padded() {
    let Some(printed) = kdig(&Encrypted::Tls, "kdig-short", &["+tls", "+nopadding"]) else {
        return;
    };
    assert!(printed.contains("10.96.10.1") && !printed.contains("Received 468 B"), "{printed}");
}

#[test]
fn t8_curl_is_answered_in_both_versions_of_http() {
    let (_house, port, secret) = serve(&https(), "curl");
    let url = format!("https://{NAME}:{port}/dns-query");
    for version in ["--http1.1", "--http2"] {
        let started = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "20", version])
            .args(["--resolve", &format!("{NAME}:{port}:127.0.0.1"), "--noproxy", "*"])
            .arg("--cacert")
            .arg(secret.0.join("tls.crt"))
            .args(["-H", "Content-Type: application/dns-message", "--data-binary", "@-", &url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut curl) = started else {
            not_installed("curl");
            return;
        };
        // One that cannot do this version does not read its input.
        let _ = curl.stdin.take().unwrap().write_all(&query(3, OURS));
        let output = curl.wait_with_output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        if complaint.contains("does not support this") {
            cannot(&format!("curl with {version}"));
            continue;
        }
        assert!(output.status.success(), "{version}: {complaint}");
        assert_eq!(Reply::parse(&output.stdout), Reply::ours(3), "{version}");
    }
}
