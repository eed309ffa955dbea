//! The program between clients and resolvers that share no code with us: `kdig` and `curl` ask it, over each transport that it
//! serves, and it asks Unbound and dnsmasq.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tests::client::{self, Names, Question, Transport};
use tests::control_plane::{not_allowed, not_installed};
use tests::data_plane::DataPlane;
use tests::netns::inside;
use tests::scratch::Scratch;
use tests::upstream::Credentials;

use super::encrypted::NAME;
use super::resolvers::{PLAIN, dnsmasq, unbound};

/// What a name is answered with, and by whom: Unbound over UDP, and dnsmasq over TCP.
const KNOWN: [(&str, &str); 2] = [("www.example", "192.0.2.80"), ("any.own.test", "192.0.2.99")];
/// How `kdig` asks over each transport.
const OVER: [&[&str]; 6] = [
    &["+notcp"],
    &["+tcp"],
    &["+tls"],
    &["+https=/dns-query"],
    &["+https=/dns-query", "+https-get"],
    &["+quic"],
];
/// The first of these, which the program does not serve at the usual port here.
const PLAINLY: usize = 2;

/// The output of a program; nothing where it is not installed.
fn run(program: &str, arguments: &[String]) -> Option<Output> {
    let output = Command::new(program).args(arguments).output();
    if output.is_err() {
        not_installed(program);
    }
    output.ok()
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

#[test]
fn fw2_kdig_and_curl_get_from_the_program_what_unbound_and_dnsmasq_say() {
    inside(async || {
        let credentials = Credentials::of(NAME).expect("a certificate");
        let (Some(unbound), Some(dnsmasq)) = (unbound(&credentials), dnsmasq()) else { return };
        let folder = Scratch::new("program").expect("a folder");
        let of_listeners = folder.path().join("certificates");
        let manifests = folder.path().join("manifests");
        fs::create_dir_all(of_listeners.join("dns-tls")).expect("created");
        fs::create_dir(&manifests).expect("created");
        let authority = folder.write("authority.pem", &credentials.authority).expect("written");
        folder
            .write("certificates/dns-tls/tls.crt", &credentials.certificate_pem)
            .expect("written");
        folder.write("certificates/dns-tls/tls.key", &credentials.key_pem).expect("written");
        let resource = format!(
            "apiVersion: clusterdns.dev/v1alpha1
kind: ClusterDNS
metadata: {{name: cluster}}
spec:
  upstreams: {{servers: [{{address: {}, port: {PLAIN}}}]}}
  stubDomains:
  - domain: own.test
    servers: [{{address: {}, port: {PLAIN}, transport: TCP}}]
  listeners:
    tls: {{certificate: {{name: dns-tls}}}}
    https: {{certificate: {{name: dns-tls}}}}
    quic: {{certificate: {{name: dns-tls}}}}
",
            unbound.ip, dnsmasq.ip
        );
        folder.write("manifests/clusterdns.yaml", resource).expect("written");
        let of_listeners = of_listeners.display().to_string();
        let flags = ["--certificates-dir", &of_listeners];
        let plane = DataPlane::of_manifests_with(&manifests, &flags);
        plane.wait_until_ready();

        let patience = ["@127.0.0.1", "+timeout=20", "+retry=0"].map(str::to_owned);
        // Each of these makes it ask over TLS.
        let trust = [format!("+tls-ca={}", authority.display()), format!("+tls-hostname={NAME}")];
        let port = ["-p".to_owned(), plane.address().port().to_string()];
        let asked = OVER.iter().enumerate().flat_map(|over| KNOWN.map(|known| (over, known)));
        for ((place, over), (name, address)) in asked {
            let mut arguments = patience.to_vec();
            arguments.extend_from_slice(if place < PLAINLY { &port } else { &trust });
            arguments.extend(over.iter().chain(&[name, "A"]).map(|&flag| flag.to_owned()));
            let Some(output) = run("kdig", &arguments) else { return };
            let (printed, complaint) = (text(&output.stdout), text(&output.stderr));
            // Its builds differ in what they can.
            if complaint.contains("invalid option") {
                not_allowed(&format!("kdig {over:?}"));
                continue;
            }
            assert!(output.status.success(), "{over:?}: {printed}{complaint}");
            assert!(printed.contains("status: NOERROR"), "{over:?}: {printed}{complaint}");
            assert!(printed.contains(address), "{over:?}: {printed}{complaint}");
        }

        let question = Question::parse("www.example. A").expect("a question");
        let query = folder.write("query", &question.packet).expect("written");
        let arguments = [
            "--silent",
            "--show-error",
            "--max-time",
            "20",
            "--noproxy",
            "*",
            "--resolve",
            &format!("{NAME}:443:127.0.0.1"),
            "--cacert",
            &authority.display().to_string(),
            "--header",
            "Content-Type: application/dns-message",
            "--data-binary",
            &format!("@{}", query.display()),
            &format!("https://{NAME}/dns-query"),
        ]
        .map(str::to_owned);
        if let Some(output) = run("curl", &arguments) {
            assert!(output.status.success(), "{}", text(&output.stderr));
            let names = Names { version: String::new(), pod_name: String::new() };
            let reply = client::read(&question, Some(&output.stdout), Transport::Tcp, &names);
            assert!(format!("{reply:?}").contains(KNOWN[0].1), "{reply:?}");
        }

        let upstreams: Value = serde_json::from_str(&plane.get("/upstreams").1).expect("JSON");
        let groups = upstreams["groups"].as_array().expect("groups");
        let [of_unbound, of_dnsmasq] = [0, 1]
            .map(|group: usize| groups[group]["servers"][0]["good"].as_u64().expect("a count"));
        // The cache answers the others. What dnsmasq says here has a TTL of 0.
        assert!(of_unbound == 1 && of_dnsmasq >= 1, "{upstreams}");
    });
}
