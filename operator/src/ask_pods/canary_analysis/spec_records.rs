//! What the spec writes itself: the RRsets of hosts and of extra records, as a pod must answer them. Those that are new or were
//! changed are asked for, and a few others. Pure.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use crds::Config;
use crds::config::{RecordData, ServiceTarget};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, NULL, SRV, TXT};
use hickory_proto::rr::{Name, RData, RecordType};
use hickory_proto::serialize::binary::BinEncodable;

use super::question::{Expects, Question, question};
use crate::names;

/// RRsets that are asked for although they did not change.
const UNCHANGED: usize = 2;
/// A name below a wildcard that no other record has.
const BELOW_WILDCARD: &str = "clusterdns-canary";

/// One RRset that the spec writes.
#[derive(PartialEq, Eq)]
struct Written {
    data: Vec<RData>,
    /// The first address of which it gives a PTR (RR79).
    pointer: Option<IpAddr>,
}

/// RRsets by owner and type.
type All = HashMap<(String, RecordType), Written>;

/// Questions for what is new or was changed, then for some of the rest.
pub(super) fn questions(config: &Config, before: &Config) -> (Vec<Question>, Vec<Question>) {
    let (known, written): (All, _) = (rrsets(before).into_iter().collect(), rrsets(config));
    let (unchanged, changed): (Vec<_>, Vec<_>) =
        written.into_iter().partition(|(key, written)| known.get(key) == Some(written));
    // PTRs last: a change of thousands of hosts may not be asked in full. A Service may own the address (RR64), so what the
    // PTR says is not judged.
    let pointers: Vec<Question> = changed
        .iter()
        .filter_map(|(_, written)| {
            question(&names::reverse(written.pointer?), RecordType::PTR, Expects::Records)
        })
        .collect();
    let ask = |((name, kind), written): ((String, RecordType), Written),
               expects: fn(Vec<RData>) -> Expects| {
        question(&name, kind, expects(written.data))
    };
    let changed = changed.into_iter().filter_map(|it| ask(it, Expects::Written));
    let unchanged = unchanged.into_iter().take(UNCHANGED);
    let unchanged = unchanged.filter_map(|it| ask(it, Expects::Has));
    let mut changed: Vec<Question> = changed.chain(pointers).collect();
    let mut seen = HashSet::new();
    changed.retain(|question| seen.insert(question.what.clone()));
    (changed, unchanged.collect())
}

/// Every RRset of hosts and extra records, with the name to ask for.
fn rrsets(config: &Config) -> Vec<((String, RecordType), Written)> {
    let mut all = Vec::new();
    let mut add = |owner: &str, kind: RecordType, data: Vec<RData>, reverse: bool| {
        let is_wildcard = owner.starts_with("*.");
        let address = data.first().and_then(RData::ip_addr);
        let pointer = address.filter(|_| reverse && !is_wildcard);
        let name = owner.replacen('*', BELOW_WILDCARD, 1);
        if !data.is_empty() {
            all.push(((name, kind), Written { data, pointer }));
        }
    };
    for host in &config.hosts {
        let of = |is_wanted: fn(&IpAddr) -> bool| -> Vec<RData> {
            host.addresses.iter().copied().filter(is_wanted).map(address).collect()
        };
        add(&host.name, RecordType::A, of(IpAddr::is_ipv4), host.reverse);
        add(&host.name, RecordType::AAAA, of(IpAddr::is_ipv6), host.reverse);
    }
    for record in &config.records {
        let (kind, data) = match &record.data {
            RecordData::A(ips) => (RecordType::A, ips.iter().map(|ip| RData::A(A(*ip))).collect()),
            RecordData::Aaaa(ips) => {
                (RecordType::AAAA, ips.iter().map(|ip| RData::AAAA(AAAA(*ip))).collect())
            }
            RecordData::Cname(target) => (
                RecordType::CNAME,
                name(target).map(|it| RData::CNAME(CNAME(it))).into_iter().collect(),
            ),
            // The owner itself: what is synthesised below it may be too long (RR85).
            RecordData::Dname(target) => (RecordType::DNAME, dname(target).into_iter().collect()),
            RecordData::Txt(strings) => {
                (RecordType::TXT, vec![RData::TXT(TXT::new(strings.clone()))])
            }
            RecordData::Srv(targets) => (RecordType::SRV, targets.iter().filter_map(srv).collect()),
        };
        add(&record.name, kind, data, record.reverse);
    }
    all
}

pub(super) fn address(ip: IpAddr) -> RData {
    match ip {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    }
}

fn srv(target: &ServiceTarget) -> Option<RData> {
    let ServiceTarget { priority, weight, port, target } = target;
    Some(RData::SRV(SRV::new(*priority, *weight, *port, name(target)?)))
}

/// Its one field is a name, which is never compressed (RFC 6672 section 2.5). hickory-proto reads it as octets.
fn dname(target: &str) -> Option<RData> {
    let rdata = NULL::with(name(target)?.to_bytes().ok()?);
    Some(RData::Unknown { code: RecordType::DNAME, rdata })
}

fn name(text: &str) -> Option<Name> {
    Name::from_ascii(format!("{}.", text.trim_end_matches('.'))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{config, dns};

    fn asked(spec: &str, before: &str) -> (Vec<Question>, Vec<Question>) {
        questions(&config(&dns(spec)), &config(&dns(before)))
    }

    fn names(list: &[Question]) -> Vec<&str> {
        list.iter().map(|question| question.what.as_str()).collect()
    }

    #[test]
    fn o17_every_kind_of_record_that_changed_is_asked_with_all_of_its_data() {
        let spec = |port: u16| {
            format!(
                "{{hosts: [{{name: h.example, addresses: [10.0.0.1, 10.0.0.2, 'fd00::1']}}],
                records: [{{name: a.example, type: A, addresses: [10.0.0.2], reverse: false}},
                    {{name: c.example, type: CNAME, target: h.example}}, {{name: d.example, type: DNAME, target: e.example}},
                    {{name: '*.t.example', type: TXT, strings: [x1, y2]}},
                    {{name: _s._tcp.example, type: SRV, services: [{{port: {port}, target: h.example}}]}}]}}"
            )
        };
        let of_ip6 = format!("1.{}d.f.ip6.arpa. PTR", "0.".repeat(29));
        let all = [
            "h.example. A",
            "h.example. AAAA",
            "a.example. A",
            "c.example. CNAME",
            "d.example. DNAME",
            "clusterdns-canary.t.example. TXT",
            "_s._tcp.example. SRV",
            "1.0.0.10.in-addr.arpa. PTR",
            &of_ip6,
        ];
        let (changed, unchanged) = asked(&spec(80), "{}");
        assert_eq!((names(&changed), names(&unchanged)), (all.to_vec(), Vec::new()));
        let wanted = |what: &str| -> Vec<String> {
            match &changed.iter().find(|question| question.what == what).unwrap().expects {
                Expects::Written(data) => data.iter().map(ToString::to_string).collect(),
                other => panic!("{what}: {other:?}"),
            }
        };
        assert_eq!(wanted("h.example. A"), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(wanted("c.example. CNAME"), ["h.example."]);
        assert_eq!(wanted("clusterdns-canary.t.example. TXT"), ["x1y2"]);
        assert_eq!(wanted("_s._tcp.example. SRV"), ["0 0 80 h.example."]);
        // Of what did not change two are asked, and PTRs of none.
        let (changed, unchanged) = asked(&spec(80), &spec(81));
        assert_eq!(names(&changed), ["_s._tcp.example. SRV"]);
        assert_eq!(names(&unchanged), ["h.example. A", "h.example. AAAA"]);
    }
}
