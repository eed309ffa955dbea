//! The questions of a soak: names that could exist among its objects, names next to those, and names of others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dataplane_core::Transport;

use super::churn::{CLUSTER_V4, CLUSTER_V6, HOSTNAMES, PORTS, SERVICES, V4, V6};
use super::objects::{NAMESPACES, PILLAR, ZONE};
use super::upstreams::outside;
use crate::mutate::Random;
use crate::oracle::expected::{Edns, Question, rtype};
use crate::oracle::names::Name;

const TYPES: [u16; 14] = [
    rtype::A,
    rtype::A,
    rtype::A,
    rtype::A,
    rtype::AAAA,
    rtype::AAAA,
    rtype::SRV,
    rtype::SRV,
    rtype::SRV,
    rtype::ANY,
    rtype::TXT,
    rtype::CNAME,
    rtype::PTR,
    rtype::HTTPS,
];

const FIXED: [&str; 20] = [
    "@",
    "svc.@",
    "pod.@",
    "dns.@",
    "ns.dns.@",
    "dns-version.@",
    "x.@",
    "nons.svc.@",
    "*.shop.svc.@",
    "_tcp.cart.shop.svc.@",
    "registry.corp.example",
    "second.corp.example",
    "x.apps.corp.example",
    "api.apps.corp.example",
    "mark.soak.example",
    "a.localhost",
    "x.invalid",
    "y.onion",
    "1.0.0.127.in-addr.arpa",
    "0.0.127.in-addr.arpa",
];

/// A question about a name of ours, or one that a CNAME of ours may lead elsewhere.
pub fn own(random: &mut Random) -> Question {
    let mut qtype = *random.choose(&TYPES);
    let text = match random.below(23) {
        0..=12 => service(random),
        13 => format!("{}.{}.@", random.choose(&NAMESPACES), random.choose(&["svc", "pod"])),
        14..=15 => {
            let label = random.choose(&V4).replace('.', "-");
            format!("{label}.{}.pod.@", random.choose(&NAMESPACES))
        }
        16..=17 => {
            qtype = if random.below(6) > 0 { rtype::PTR } else { qtype };
            reverse(random)
        }
        18..=20 => format!("{PILLAR}.{}.svc.@", random.choose(&NAMESPACES)),
        _ => {
            let name = *random.choose(&FIXED);
            qtype = match name {
                "@" => *random.choose(&[rtype::SOA, rtype::NS, rtype::A]),
                "dns-version.@" => rtype::TXT,
                _ => qtype,
            };
            name.to_owned()
        }
    };
    question(&text.replace('@', ZONE), qtype, random)
}

/// A question for upstreams.
pub fn foreign(random: &mut Random) -> Question {
    let qtype = *random.choose(&[rtype::A, rtype::A, rtype::A, rtype::AAAA, rtype::TXT]);
    let mut question = question(&outside(random), qtype, random);
    question.rd = true;
    question
}

/// The plain question that a program asks first.
pub fn plain(name: &str, qtype: u16) -> Question {
    Question {
        name: Name::text(name).to_wire(),
        qtype,
        class: rtype::CLASS_IN,
        rd: true,
        cd: false,
        edns: None,
        client: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        transport: Transport::Udp,
    }
}

fn service(random: &mut Random) -> String {
    let below = match random.below(16) {
        0..=7 => String::new(),
        8..=9 => format!("{}.", random.choose(&HOSTNAMES)),
        10..=11 => format!("{}.", random.choose(&V4).replace('.', "-")),
        12 => "fd00-244--1.".to_owned(),
        13 => "below.".to_owned(),
        _ => {
            let port = *random.choose(&PORTS);
            let port = if port.is_empty() { "ftp" } else { port };
            format!("_{port}.{}.", random.choose(&["_tcp", "_tcp", "_udp", "_sctp"]))
        }
    };
    format!("{below}{}.{}.svc.@", random.choose(&SERVICES), random.choose(&NAMESPACES))
}

fn reverse(random: &mut Random) -> String {
    let pool: &[&str] = match random.below(4) {
        0 => &CLUSTER_V4,
        1 => &V6[..2],
        2 => &CLUSTER_V6[..1],
        _ => &V4[..6],
    };
    reverse_name(random.choose(pool).parse().expect("an address of the pools"))
}

/// The name that has the PTRs of an address.
pub fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let digits = format!("{:032x}", u128::from(address));
            let labels: Vec<String> = digits.chars().rev().map(String::from).collect();
            format!("{}.ip6.arpa", labels.join("."))
        }
    }
}

fn question(name: &str, qtype: u16, random: &mut Random) -> Question {
    let mut question = plain(name, qtype);
    if random.below(5) == 0 {
        let bits = random.number();
        for (place, octet) in question.name.iter_mut().enumerate() {
            // Lengths of labels are below the letters.
            if octet.is_ascii_lowercase() && bits >> (place % 64) & 1 == 1 {
                octet.make_ascii_uppercase();
            }
        }
    }
    question.rd = random.below(12) > 0;
    question.cd = random.below(8) == 0;
    question.edns = (random.below(5) > 0).then(|| Edns {
        payload: *random.choose(&[1232, 1232, 512, 4096]),
        version: u8::from(random.below(40) == 0),
        dnssec_ok: random.below(4) == 0,
        nsid: random.below(4) == 0,
    });
    question.transport = if random.below(8) == 0 { Transport::Tcp } else { Transport::Udp };
    question
}
