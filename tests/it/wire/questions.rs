//! Rows R1 to R8, R13 and R19: header bits, EDNS, and replies without answer records.

use std::sync::Arc;

use dataplane_core::{
    Action, CacheCounters, Counters, Identity, Index, Query, Transport, WorkerCounters, respond,
};
use hickory_proto::op::Message;
use tests::client::Question;

use super::{SOA, gets, shop};

/// NODATA and NXDOMAIN of the cluster's zone.
fn denied(status: &str) -> String {
    format!("status: {status}  flags: qr aa rd ra\n{SOA}")
}

#[test]
fn r1_an_unknown_type_is_nodata_with_soa() {
    gets(
        shop(),
        "cart.shop.svc.cluster.local. TYPE1000
         cart.shop.svc.cluster.local. TYPE65534
         db.data.svc.cluster.local. TYPE1000
         db-0.db.data.svc.cluster.local. TYPE1000
         cart.shop.svc.cluster.local. HTTPS
         cluster.local. TYPE1000",
        &denied("NOERROR"),
    );
}

#[test]
fn r1_without_edns_the_reply_has_none() {
    gets(
        shop(),
        "cart.shop.svc.cluster.local. TYPE1000 +noedns",
        &format!("{}\nEDNS: none", denied("NOERROR")),
    );
}

#[test]
fn r2_ad_and_z_are_cleared_and_cd_is_copied() {
    let answer = "ANSWER      cart.shop.svc.cluster.local. 5 A 10.96.10.1";
    let core = shop();
    gets(
        core,
        "cart.shop.svc.cluster.local. A +adflag
         cart.shop.svc.cluster.local. A +zflag
         cart.shop.svc.cluster.local. A +adflag +zflag",
        &format!("status: NOERROR  flags: qr aa rd ra\n{answer}"),
    );
    gets(
        core,
        "cart.shop.svc.cluster.local. A +cdflag
         cart.shop.svc.cluster.local. A +cdflag +adflag +zflag",
        &format!("status: NOERROR  flags: qr aa rd ra cd\n{answer}"),
    );
}

#[test]
fn r3_names_not_ours_are_refused_without_rd() {
    let core = shop();
    gets(
        core,
        "www.example.org. A +norecurse
         wiki.corp.example. A +norecurse
         7.113.0.203.in-addr.arpa. PTR +norecurse",
        "status: REFUSED  flags: qr ra\nEDE: 20",
    );
    gets(
        core,
        "cart.shop.svc.cluster.local. A +norecurse",
        "status: NOERROR  flags: qr aa ra\nANSWER cart.shop.svc.cluster.local. 5 A 10.96.10.1",
    );
    // A CNAME of ours is the whole answer (RR43).
    gets(
        core,
        "legacy.shop.svc.cluster.local. A +norecurse",
        "status: NOERROR  flags: qr aa ra\nANSWER legacy.shop.svc.cluster.local. 5 CNAME mail.example.com.",
    );
}

#[test]
fn r4_the_family_a_service_does_not_have_is_nodata() {
    gets(
        shop(),
        "cart.shop.svc.cluster.local. AAAA
         noport.data.svc.cluster.local. AAAA
         six.data.svc.cluster.local. A
         _http._tcp.cart.shop.svc.cluster.local. AAAA",
        &denied("NOERROR"),
    );
}

#[test]
fn r5_names_that_do_not_exist_are_nxdomain_for_every_type() {
    let core = shop();
    for name in [
        "x.cart.shop.svc.cluster.local.",
        "a.b.cart.shop.svc.cluster.local.",
        "cart.nons.svc.cluster.local.",
        "nons.svc.cluster.local.",
        "cart.shop.cluster.local.",
        "nothere.cluster.local.",
        "_http._tcp.idle2.shop.svc.cluster.local.",
        "http._tcp.cart.shop.svc.cluster.local.",
        "_http._dccp.cart.shop.svc.cluster.local.",
    ] {
        for qtype in ["A", "AAAA", "SRV", "TXT", "SOA", "NS", "ANY", "CNAME", "TYPE1000"] {
            gets(core, &format!("{name} {qtype}"), &denied("NXDOMAIN"));
        }
    }
}

#[test]
fn r6_an_empty_non_terminal_is_nodata_for_every_type() {
    let core = shop();
    for name in [
        "svc.cluster.local.",
        "pod.cluster.local.",
        "dns.cluster.local.",
        "shop.svc.cluster.local.",
        "shop.pod.cluster.local.",
        "_tcp.cart.shop.svc.cluster.local.",
        "_tcp.db.data.svc.cluster.local.",
    ] {
        for qtype in ["A", "AAAA", "SRV", "TXT", "SOA", "NS", "ANY", "CNAME", "TYPE1000"] {
            gets(core, &format!("{name} {qtype}"), &denied("NOERROR"));
        }
    }
}

#[test]
fn r7_any_is_one_hinfo_or_the_cname() {
    let core = shop();
    for (name, ttl_s) in [
        ("cart.shop.svc.cluster.local.", 5),
        ("db.data.svc.cluster.local.", 5),
        ("cluster.local.", 5),
        ("dns-version.cluster.local.", 5),
        ("registry.corp.example.", 5),
        ("1.10.96.10.in-addr.arpa.", 5),
    ] {
        gets(
            core,
            &format!("{name} ANY"),
            &format!(
                "status: NOERROR  flags: qr aa rd ra\nANSWER {name} {ttl_s} HINFO \"RFC8482\" \"\""
            ),
        );
    }
    gets(
        core,
        "legacy.shop.svc.cluster.local. ANY",
        "status: NOERROR  flags: qr aa rd ra\nANSWER legacy.shop.svc.cluster.local. 5 CNAME mail.example.com.",
    );
}

#[test]
fn r8_edns_outcomes_are_those_of_rfc_8906() {
    let answer = "ANSWER      cart.shop.svc.cluster.local. 5 A 10.96.10.1";
    let core = shop();
    // Plain EDNS, an unknown option, and several.
    gets(
        core,
        "cart.shop.svc.cluster.local. A
         cart.shop.svc.cluster.local. A +ednsopt=100
         cart.shop.svc.cluster.local. A +ednsopt=100 +ednsopt=65001 +subnet",
        &format!("status: NOERROR  flags: qr aa rd ra\n{answer}"),
    );
    // DO comes back, other flags do not.
    gets(
        core,
        "cart.shop.svc.cluster.local. A +dnssec
         cart.shop.svc.cluster.local. A +dnssec +ednsopt=100",
        &format!(
            "status: NOERROR  flags: qr aa rd ra\n{answer}\nEDNS: version 0, udp 1232, flags do"
        ),
    );
    let z_flags = "hex 1234 0100 0001 0000 0000 0001 04\"cart\" 04\"shop\" 03\"svc\" 07\"cluster\" 05\"local\" 00 0001 0001 \
                   00 0029 04d0 00 00 7fff 0000";
    gets(core, z_flags, &format!("status: NOERROR  flags: qr aa rd ra\n{answer}"));
    // Another version, also with options, unknown ones, DO, and for a type we have nothing of.
    gets(
        core,
        "cart.shop.svc.cluster.local. A +edns=1
         cart.shop.svc.cluster.local. A +edns=255
         cart.shop.svc.cluster.local. A +edns=1 +ednsopt=100
         cart.shop.svc.cluster.local. A +edns=1 +nsid
         nothere.shop.svc.cluster.local. TYPE1000 +edns=1",
        "status: BADVERS  flags: qr rd ra",
    );
    gets(
        core,
        "cart.shop.svc.cluster.local. A +edns=1 +dnssec",
        "status: BADVERS  flags: qr rd ra\nEDNS: version 0, udp 1232, flags do",
    );
    // Errors have the OPT too.
    gets(core, "cluster.local. AXFR", "status: REFUSED  flags: qr rd ra\nEDE: 21");
}

#[test]
fn r13_the_question_comes_back_octet_for_octet_and_case_does_not_matter() {
    let core = shop();
    for name in ["CART.SHOP.SVC.CLUSTER.LOCAL.", "cArT.sHoP.sVc.ClUsTeR.lOcAl."] {
        gets(
            core,
            &format!("{name} A"),
            &format!("status: NOERROR  flags: qr aa rd ra\nANSWER {name} 5 A 10.96.10.1"),
        );
    }
    // What follows the question may share its letters by compression, never change them (WR3).
    gets(
        core,
        "NOTHERE.shop.svc.CLUSTER.local. A",
        "status: NXDOMAIN  flags: qr aa rd ra
AUTHORITY CLUSTER.local. 5 SOA ns.dns.CLUSTER.local. hostmaster.CLUSTER.local. <serial> 7200 1800 86400 5",
    );
    gets(
        core,
        "VERSION.BIND. CH TXT",
        "status: NOERROR  flags: qr aa rd ra\nANSWER VERSION.BIND. 0 CH TXT \"clusterdns-<version>\"",
    );
    gets(core, "Nosuch.Bind. CH TXT", "status: REFUSED  flags: qr rd ra\nEDE: 21");
}

#[test]
fn r19_nsid_is_answered_and_other_options_are_not_echoed() {
    let answer = "ANSWER      cart.shop.svc.cluster.local. 5 A 10.96.10.1";
    let core = shop();
    gets(
        core,
        "cart.shop.svc.cluster.local. A +nsid
         cart.shop.svc.cluster.local. A +cookie +nsid +subnet +ednsopt=11",
        &format!("status: NOERROR  flags: qr aa rd ra\n{answer}\nNSID: <pod name>"),
    );
    // Cookie, client subnet, keepalive (11), padding (12) outside TLS, key tag (14), and an NSID with something in it.
    gets(
        core,
        "cart.shop.svc.cluster.local. A +cookie
         cart.shop.svc.cluster.local. A +subnet
         cart.shop.svc.cluster.local. A +ednsopt=11
         cart.shop.svc.cluster.local. A +ednsopt=12
         cart.shop.svc.cluster.local. A +ednsopt=14
         cart.shop.svc.cluster.local. A +ednsopt=3",
        &format!("status: NOERROR  flags: qr aa rd ra\n{answer}"),
    );
    gets(
        core,
        "nothere.shop.svc.cluster.local. A +nsid",
        &format!("{}\nNSID: <pod name>", denied("NXDOMAIN")),
    );
}

/// A denial always fits in 512 octets (WR22): a long question, a long cluster domain and a long pod name leave no room
/// for all three of them, and then the NSID is left out.
#[test]
fn r19_wr22_a_long_nsid_never_truncates_a_denial() {
    let label = "z".repeat(59);
    let resource: crds::ClusterDNS = serde_json::from_value(serde_json::json!({
        "apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
        "metadata": {"name": "default"}, "spec": {"domain": format!("{label}.{label}")},
    }))
    .unwrap();
    let config = crds::check_local(&resource).unwrap();
    let mut index = Index::new(dataplane::settings::of(&config).unwrap());
    index.publish(1_760_000_000);
    let identity = Identity { pod_name: "p".repeat(63), ..Identity::default() };
    let own = [Arc::<WorkerCounters>::default()];
    let cache = CacheCounters::default();
    let counters =
        Counters { own: &own[0], all: &own, servers: &[], cache: &cache, identity: &identity };
    let mut with_nsid = 0;
    // `invalid.` takes 9 octets of the name, each label a length octet and at most 63 more.
    for octets in 2..=246_usize {
        let labels: Vec<String> = std::iter::successors(Some(octets), |left| left.checked_sub(64))
            .map(|left: usize| "x".repeat(left.min(64).saturating_sub(1)))
            .filter(|label| !label.is_empty())
            .collect();
        let text = format!("{}.invalid. A +nsid +bufsize=512", labels.join("."));
        let packet = Question::parse(&text).unwrap().packet;
        let query = Query {
            packet: &packet,
            client: ([10, 0, 0, 1], 4000).into(),
            transport: Transport::Udp,
            now_s: 1_760_000_000,
            seed: 0,
        };
        let mut buffer = [0; 512];
        let records = index.records();
        let (action, _) = respond(&records, &query, &counters, &mut buffer);
        let Action::Reply(length) = action else { panic!("{action:?}") };
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        assert!(!reply.metadata.truncation && reply.authorities.len() == 1, "{octets}: {reply}");
        with_nsid += usize::from(!reply.edns.unwrap().options().as_ref().is_empty());
    }
    assert!(with_nsid > 100 && with_nsid < 245, "{with_nsid} replies have an NSID");
}
