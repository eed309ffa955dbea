//! Rows R14 to R18: which records an answer has.

use std::collections::BTreeMap;

use hickory_proto::op::Message;
use serde_json::json;
use tests::client::{Question, Transport};
use tests::mutate::Random;

use super::{SOA, gets, headless, shop, shop_with};

#[test]
fn r14_srv_has_one_record_per_target_and_port_and_its_addresses() {
    let ports = json!([
        {"name": "http", "port": 8080, "protocol": "TCP"},
        {"name": "also-http", "port": 8080, "protocol": "TCP"},
        {"port": 9100, "protocol": "TCP"},
    ]);
    let endpoints = [
        json!({"addresses": ["10.244.7.1"], "hostname": "w-0", "conditions": {"ready": true}}),
        json!({"addresses": ["10.244.7.2"], "conditions": {"ready": true}}),
    ];
    let core = shop_with(&headless("workers", &endpoints, &ports));
    // Named: the slice's port, one record an endpoint name, and A of each target.
    gets(
        &core,
        "_http._tcp.workers.data.svc.cluster.local. SRV",
        "status: NOERROR  flags: qr aa rd ra
ANSWER      _http._tcp.workers.data.svc.cluster.local. 5 SRV 0 100 8080 w-0.workers.data.svc.cluster.local.
            _http._tcp.workers.data.svc.cluster.local. 5 SRV 0 100 8080 10-244-7-2.workers.data.svc.cluster.local.
ADDITIONAL  w-0.workers.data.svc.cluster.local. 5 A 10.244.7.1
            10-244-7-2.workers.data.svc.cluster.local. 5 A 10.244.7.2",
    );
    // All ports, the unnamed too; two names for one number are one record.
    gets(
        &core,
        "workers.data.svc.cluster.local. SRV",
        "status: NOERROR  flags: qr aa rd ra
ANSWER      workers.data.svc.cluster.local. 5 SRV 0 100 8080 w-0.workers.data.svc.cluster.local.
            workers.data.svc.cluster.local. 5 SRV 0 100 9100 w-0.workers.data.svc.cluster.local.
            workers.data.svc.cluster.local. 5 SRV 0 100 8080 10-244-7-2.workers.data.svc.cluster.local.
            workers.data.svc.cluster.local. 5 SRV 0 100 9100 10-244-7-2.workers.data.svc.cluster.local.
ADDITIONAL  w-0.workers.data.svc.cluster.local. 5 A 10.244.7.1
            10-244-7-2.workers.data.svc.cluster.local. 5 A 10.244.7.2",
    );
    // Dual stack, of an endpoint and of a cluster IP.
    gets(
        &core,
        "_https._tcp.api.shop.svc.cluster.local. SRV",
        "status: NOERROR  flags: qr aa rd ra
ANSWER      _https._tcp.api.shop.svc.cluster.local. 5 SRV 0 100 443 api.shop.svc.cluster.local.
ADDITIONAL  api.shop.svc.cluster.local. 5 A 10.96.10.2
            api.shop.svc.cluster.local. 5 AAAA fd00:96::102",
    );
    gets(
        &core,
        "db-0.db.data.svc.cluster.local. SRV",
        "status: NOERROR  flags: qr aa rd ra
ANSWER      db-0.db.data.svc.cluster.local. 5 SRV 0 100 5432 db-0.db.data.svc.cluster.local.
ADDITIONAL  db-0.db.data.svc.cluster.local. 5 A 10.244.1.21
            db-0.db.data.svc.cluster.local. 5 AAAA fd00:244::21",
    );
}

#[test]
fn r14_a_service_without_ports_has_no_srv_also_behind_a_cname() {
    let bare = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "bare", "namespace": "shop"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.10.77", "clusterIPs": ["10.96.10.77"]},
    });
    let alias = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "to-bare", "namespace": "shop"},
        "spec": {"type": "ExternalName", "externalName": "bare.shop.svc.cluster.local"},
    });
    let core = shop_with(&[bare, alias]);
    gets(
        &core,
        "bare.shop.svc.cluster.local. SRV",
        &format!("status: NOERROR  flags: qr aa rd ra\n{SOA}"),
    );
    gets(
        &core,
        "to-bare.shop.svc.cluster.local. SRV",
        &format!(
            "status: NOERROR  flags: qr aa rd ra
ANSWER      to-bare.shop.svc.cluster.local. 5 CNAME bare.shop.svc.cluster.local.
{SOA}"
        ),
    );
}

#[test]
fn r15_ptr_names_the_service_the_endpoint_or_nothing() {
    let core = shop();
    let found = |question: &str, target: &str| {
        let expected =
            format!("status: NOERROR  flags: qr aa rd ra\nANSWER {question} 5 PTR {target}");
        gets(core, &format!("{question} PTR"), &expected);
    };
    found("1.10.96.10.in-addr.arpa.", "cart.shop.svc.cluster.local.");
    found("22.2.244.10.in-addr.arpa.", "db-1.db.data.svc.cluster.local.");
    found("51.1.244.10.in-addr.arpa.", "twin.twins.data.svc.cluster.local.");
    found("11.1.244.10.in-addr.arpa.", "10-244-1-11.cart.shop.svc.cluster.local.");
    let reverse_soa = |apex: &str| {
        format!(
            "status: NXDOMAIN  flags: qr aa rd ra
AUTHORITY {apex} 5 SOA ns.dns.cluster.local. hostmaster.cluster.local. <serial> 7200 1800 86400 5"
        )
    };
    gets(core, "9.9.96.10.in-addr.arpa. PTR", &reverse_soa("96.10.in-addr.arpa."));
    gets(core, "200.200.244.10.in-addr.arpa. PTR", &reverse_soa("244.10.in-addr.arpa."));
    let outside = Question::parse("7.113.0.203.in-addr.arpa. PTR").unwrap();
    let outcome = core.ask(&outside.packet, Transport::Udp, 1).unwrap();
    assert_eq!(outcome.forwarded_to[0].to_string(), "10.0.0.2");
}

/// Several slices may list one address, with the same name as `hostname` and as the name made of the address.
#[test]
fn r15_an_address_with_many_names_has_each_once_and_hostnames_first() {
    let endpoint = |hostname: Option<String>| {
        let ready = json!({"ready": true});
        json!({"addresses": ["10.244.11.1"], "hostname": hostname, "conditions": ready})
    };
    let hostnames = (0..20).map(|n| format!("n-{}", n % 10)).chain(["10-244-11-1".into()]);
    let mut endpoints: Vec<_> = hostnames.map(|hostname| endpoint(Some(hostname))).collect();
    endpoints.push(endpoint(None));
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    let [service, slice] = headless("crowd", &endpoints, &ports);
    let [_, mut again] = headless("crowd", &endpoints, &ports);
    again["metadata"]["name"] = json!("crowd-2");
    // Another Service names it after its address only, and comes last.
    let [other, other_slice] = headless("axle", &[endpoint(None)], &ports);
    let core = shop_with(&[service, slice, again, other, other_slice]);
    let packet = Question::parse("1.11.244.10.in-addr.arpa. PTR").unwrap().packet;
    for transport in super::BOTH {
        let message = Message::from_vec(&super::reply(&core, &packet, transport)).unwrap();
        let names = message.answers.iter().map(|record| record.data.to_string());
        let expected = ["10-244-11-1".to_owned()]
            .into_iter()
            .chain((0..10).map(|n| format!("n-{n}")))
            .map(|label| format!("{label}.crowd.data.svc.cluster.local."))
            .chain(["10-244-11-1.axle.data.svc.cluster.local.".to_owned()]);
        assert!(names.eq(expected), "{message}");
    }
    gets(
        &core,
        "10-244-11-1.crowd.data.svc.cluster.local. A",
        "status: NOERROR  flags: qr aa rd ra\nANSWER 10-244-11-1.crowd.data.svc.cluster.local. 5 A 10.244.11.1",
    );
}

#[test]
fn r16_dns_version_is_1_1_0() {
    gets(
        shop(),
        "dns-version.cluster.local. TXT",
        "status: NOERROR  flags: qr aa rd ra\nANSWER dns-version.cluster.local. 28800 TXT \"1.1.0\"",
    );
}

/// The chi-square statistic of counts that should be equal.
fn chi_square(counts: &BTreeMap<String, u32>) -> f64 {
    let expected = f64::from(counts.values().sum::<u32>()) / counts.len() as f64;
    counts.values().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum()
}

#[test]
fn r17_every_address_of_a_headless_service_is_first_equally_often() {
    let endpoints: Vec<_> = (1..=7)
        .map(|n| json!({"addresses": [format!("10.244.8.{n}")], "conditions": {"ready": true}}))
        .collect();
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    let core = shop_with(&headless("seven", &endpoints, &ports));
    for question in [
        "seven.data.svc.cluster.local. A",
        "_http._tcp.seven.data.svc.cluster.local. A",
        "_http._tcp.seven.data.svc.cluster.local. SRV",
    ] {
        let packet = Question::parse(question).unwrap().packet;
        let mut random = Random::new(17);
        let mut firsts = BTreeMap::new();
        for _ in 0..10_000 {
            let reply = core.ask(&packet, Transport::Udp, random.number()).unwrap().reply.unwrap();
            let message = Message::from_vec(&reply).unwrap();
            assert_eq!(message.answers.len(), 7);
            *firsts.entry(message.answers[0].data.to_string()).or_default() += 1;
        }
        assert_eq!(firsts.len(), 7);
        // Six degrees of freedom: 22.5 is passed by chance once in a thousand runs, and the seeds are fixed.
        assert!(chi_square(&firsts) < 22.5, "{question}: {firsts:?}");
    }
}

#[test]
fn r18_names_that_begin_with_a_digit_are_served() {
    let core = shop();
    gets(
        core,
        "1st.shop.svc.cluster.local. A",
        "status: NOERROR  flags: qr aa rd ra\nANSWER 1st.shop.svc.cluster.local. 5 A 10.96.10.5",
    );
    gets(
        core,
        "10-1-2-3.shop.svc.cluster.local. A",
        "status: NOERROR  flags: qr aa rd ra\nANSWER 10-1-2-3.shop.svc.cluster.local. 5 A 10.96.10.6",
    );
    gets(
        core,
        "6.10.96.10.in-addr.arpa. PTR",
        "status: NOERROR  flags: qr aa rd ra
ANSWER 6.10.96.10.in-addr.arpa. 5 PTR 10-1-2-3.shop.svc.cluster.local.",
    );
}

/// A Pod with `hostnameOverride` has a whole name as its host name; its slice has no label of it, or one that is not
/// valid.
#[test]
fn r18_a_hostname_that_is_no_label_leaves_the_endpoint_its_address() {
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    let endpoints = [
        json!({"addresses": ["10.244.9.1"], "hostname": "db.example.com", "conditions": {"ready": true}}),
        json!({"addresses": ["10.244.9.2"], "hostname": "2nd", "conditions": {"ready": true}}),
        json!({"addresses": ["10.244.9.3"], "conditions": {"ready": true}}),
    ];
    let core = shop_with(&headless("fqdn", &endpoints, &ports));
    for (name, address) in [
        ("10-244-9-1.fqdn.data.svc.cluster.local.", "10.244.9.1"),
        ("2nd.fqdn.data.svc.cluster.local.", "10.244.9.2"),
        ("10-244-9-3.fqdn.data.svc.cluster.local.", "10.244.9.3"),
    ] {
        gets(
            &core,
            &format!("{name} A"),
            &format!("status: NOERROR  flags: qr aa rd ra\nANSWER {name} 5 A {address}"),
        );
    }
    gets(
        &core,
        r"db\.example\.com.fqdn.data.svc.cluster.local. A
          db.fqdn.data.svc.cluster.local. A",
        &format!("status: NXDOMAIN  flags: qr aa rd ra\n{SOA}"),
    );
}
