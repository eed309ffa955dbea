//! Differences that the contract means (docs/dns.md §8), as data: the id, its sentence, and how a difference is known
//! to be this one. The first that fits is reported. A row must fit nothing but what its sentence says: a difference
//! without a row is unknown, and fails a pipeline.

mod ipv6_labels;

use std::collections::BTreeSet;

use crds::between_planes::ede;
use hickory_proto::rr::RecordType;

use super::pair::{Line, Pair, Said};
use ipv6_labels::is_other_text_of_ipv6;

/// An answer section as long as this fills a message of 65,535 octets: no record of an RRset that is cut is longer than
/// what is left.
const FULL_OCTETS: usize = 60_000;

/// Differences of docs/dns.md §8 that have no row. Replies do not show them, or not in a form that differs from that of a
/// fault: then a person decides.
pub const NOT_SEEN: &[&str] = &[
    // Zones and objects: the same replies come of a lost record.
    "DF2", "DF5", "DF7", "DF12", "DF16", "DF32", "DF35", "DF42", "DF48",
    // The time before all data is there, and restarts.
    "DF15", "DF27", "DF30", "DF46", // Questions are sent with RD.
    "DF33", // Sizes, and how upstreams are asked.
    "DF19", "DF20", "DF21", "DF22", "DF23", "DF24", "DF25", "DF26",
];

/// A difference that the contract explains.
#[derive(Clone, Copy)]
pub struct Known {
    /// Its id in docs/dns.md.
    pub id: &'static str,
    /// The rule, as a sentence for people.
    pub words: &'static str,
    fits: fn(&Pair) -> bool,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}

const fn known(id: &'static str, words: &'static str, fits: fn(&Pair) -> bool) -> Known {
    Known { id, words, fits }
}

/// All of them, in the order in which they are tried.
pub const KNOWN: &[Known] = &[
    known("N30", "every denial has an SOA, also behind an alias", |it| {
        it.with.rcode == it.against.rcode
            && it.with.records() == it.against.records()
            && it.with.has_soa
            && !it.against.has_soa
    }),
    known("RR74", "TTLs are those of this configuration, or count down in a cache", |it| {
        is_same_but_for_ttls(it) && it.with.answer != it.against.answer
    }),
    known("DF17", "AA is 1 for names of ours and 0 for cached ones; RA is 1", |it| {
        is_same_but_for_ttls(it) && it.with.flags != it.against.flags
    }),
    known(
        "WR23",
        "an RRset too large for a message is cut to records that fit, from a random one on",
        |it| {
            let is_full = |said: &Said| said.octets() > FULL_OCTETS;
            let kind = it.asked.kind;
            is_full(&it.with)
                && is_full(&it.against)
                && only(&it.with.answer, kind)
                && only(&it.against.answer, kind)
        },
    ),
    known(
        "DF1",
        "an SOA query at a missing name is NXDOMAIN, as for every type; CoreDNS gives NODATA",
        |it| {
            it.asked.kind == RecordType::SOA
                && is_in_our_zones(it)
                && it.with.is("NXDOMAIN")
                && it.against.is_nodata()
        },
    ),
    known("DF34", "the zone above is asked for the DS record of `Z`; CoreDNS denies it", |it| {
        let is_apex = in_domain(it).is_some_and(|labels| labels.is_empty());
        it.asked.kind == RecordType::DS && is_apex && it.against.is_nodata()
    }),
    known(
        "DF40",
        "dns-version has the version of the specification; kube-dns has no such name",
        |it| is_at(it, "dns-version") && it.with.is_found() && !it.against.is_found(),
    ),
    known(
        "DF18",
        "ANY is answered with one HINFO record (RFC 8482); CoreDNS gives NODATA, kube-dns REFUSED",
        |it| it.asked.kind == RecordType::ANY && it.with.has(RecordType::HINFO),
    ),
    known("DF11", "the NS record is ns.dns of the zone, the same on every replica", |it| {
        it.asked.kind == RecordType::NS
            && it.with.is_found()
            && it.with.answer.iter().all(|line| line.data == format!("ns.dns.{}", it.domain))
    }),
    known(
        "DF31",
        "TTL and MINIMUM of the SOA are at most 5 s, its serial and names those of the zone",
        |it| {
            it.asked.kind == RecordType::SOA
                && is_in_our_zones(it)
                && it.with.is_found()
                && it.against.is_found()
                && only(&it.with.answer, RecordType::SOA)
                && only(&it.against.answer, RecordType::SOA)
        },
    ),
    known("DF43", "`*` and `any` are ordinary labels; kube-dns takes them for wildcards", |it| {
        let is_wildcard = |label: &String| label == "*" || label == "any";
        let has_one = || in_domain(it).is_some_and(|labels| labels.iter().any(is_wildcard));
        it.with.is("NXDOMAIN") && it.against.is_found() && has_one()
    }),
    known("DF8", "names of ports need their underscores; CoreDNS answers without them", |it| {
        it.with.is("NXDOMAIN")
            && it.against.is_found()
            && below_svc(it).is_some_and(|labels| {
                labels.len() == 4 && !(labels[0].starts_with('_') && labels[1].starts_with('_'))
            })
    }),
    known("DF6", "labels left of a pod name make another name, which does not exist", |it| {
        it.with.is("NXDOMAIN") && it.against.is_found() && left_of_pod_name(it)
    }),
    known(
        "DF9",
        "a name that has names below it exists (RFC 8020): NODATA, where CoreDNS gives NXDOMAIN",
        |it| {
            let is_parent = || {
                below_svc(it).is_some_and(|labels| labels.len() == 3 && labels[0].starts_with('_'))
                    || is_at(it, "dns")
                    || is_at(it, "dns-version")
            };
            it.with.is_nodata() && it.against.is("NXDOMAIN") && is_parent()
        },
    ),
    known(
        "DF4",
        "an alias whose target does not exist or fails shows the CNAME and that code; CoreDNS gives NOERROR, with or without \
         the CNAME",
        |it| {
            let is_alone = || {
                only(&it.against.answer, RecordType::CNAME)
                    && it.with.records() == it.against.records()
            };
            it.with.has(RecordType::CNAME)
                && (it.with.is("NXDOMAIN") || it.with.is("SERVFAIL"))
                && (it.against.is_nodata() || it.against.is("NOERROR") && is_alone())
        },
    ),
    known(
        "RR48",
        "a loop of aliases, or more than ten of them, is a failure; CoreDNS gives NODATA",
        |it| {
            it.with.is("SERVFAIL")
                && it.with.answer.is_empty()
                && it.ede == [ede::OTHER]
                && in_domain(it).is_some()
                && it.against.is_nodata()
        },
    ),
    known(
        "DF3",
        "an ExternalName is an alias for every type; CoreDNS gives NODATA for most",
        |it| {
            it.with.is("NOERROR")
                && in_domain(it).is_some()
                && it.with.has(RecordType::CNAME)
                && ![RecordType::A, RecordType::AAAA].contains(&it.asked.kind)
                && it.against.is_nodata()
        },
    ),
    known(
        "DF14",
        "an IPv6 address in a name is its shortest text, with a 0 beside a hyphen at an end; CoreDNS takes the text of the \
         object",
        is_other_text_of_ipv6,
    ),
    known("DF10", "the weight of an SRV record is always 100; others divide it", |it| {
        let kind = RecordType::SRV;
        it.asked.kind == kind
            && in_domain(it).is_some()
            && only(&it.with.answer, kind)
            && it.with.answer.iter().all(|line| line.data.starts_with("0 100 "))
            && places(&it.with.answer) == places(&it.against.answer)
    }),
    known(
        "DF41",
        "a hostname that several endpoints share has all their addresses; kube-dns has one",
        |it| {
            let kind = it.asked.kind;
            [RecordType::A, RecordType::AAAA].contains(&kind)
                && is_three_below_svc(it)
                && only(&it.with.answer, kind)
                && only(&it.against.answer, kind)
                && it.against.answer.len() == 1
                && it.against.content().is_subset(&it.with.content())
                && it.with.answer.len() > 1
        },
    ),
    known(
        "DF45",
        "SRV records are `0 100` with plain names; those of kube-dns `10 10` with hashed ones",
        |it| {
            let kind = RecordType::SRV;
            let all = |said: &Said, start: &str| {
                only(&said.answer, kind)
                    && said.answer.iter().all(|line| line.data.starts_with(start))
            };
            all(&it.with, "0 100 ")
                && all(&it.against, "10 10 ")
                && ports(&it.with) == ports(&it.against)
                && it
                    .with
                    .answer
                    .iter()
                    .chain(&it.against.answer)
                    .all(|line| is_target_of_asked(it, line))
        },
    ),
    known(
        "DF47",
        "a federation name fails without zone and region; kube-dns has no data for it",
        |it| {
            it.with.is("SERVFAIL")
                && it.ede == [ede::NOT_READY]
                && is_three_below_svc(it)
                && it.against.is_nodata()
        },
    ),
    known(
        "DF13",
        "which PTRs an address has: each endpoint name, none that another namespace claims",
        |it| {
            let (ours, theirs) = (targets(&it.with), targets(&it.against));
            it.asked.kind == RecordType::PTR
                && it.with.is_found()
                && it.against.is_found()
                && ours.iter().chain(&theirs).all(|name| is_of_a_service(it, name))
                && (ours.is_subset(&theirs) || theirs.is_subset(&ours))
        },
    ),
    known(
        "DF44",
        "every published endpoint has a PTR; kube-dns has one for those with a hostname",
        |it| {
            it.asked.kind == RecordType::PTR
                && it.with.is_found()
                && !it.against.is_found()
                && targets(&it.with).iter().all(|name| is_of_a_service(it, name))
        },
    ),
    known(
        "DF29",
        "a PTR of the cluster comes before that of a host or of an upstream; CoreDNS asks `hosts` first",
        |it| {
            let (ours, theirs) = (targets(&it.with), targets(&it.against));
            it.asked.kind == RecordType::PTR
                && !ours.is_empty()
                && !theirs.is_empty()
                && ours.iter().all(|name| is_of_a_service(it, name))
                && !theirs.iter().any(|name| is_of_a_service(it, name))
        },
    ),
    known(
        "DF28",
        "localhost, invalid and onion are answered here and never forwarded (RFC 6761)",
        |it| {
            let last = it.asked.name.iter().next_back();
            last.is_some_and(|label| [&b"localhost"[..], b"invalid", b"onion"].contains(&label))
        },
    ),
    known(
        "RR85",
        "a DNAME shows itself and its alias; `rewrite name suffix` of CoreDNS hides them",
        |it| {
            let kind = RecordType::DNAME;
            it.with.has(kind) && !it.against.has(kind) && is_same_behind_an_alias(it)
        },
    ),
    known(
        "DF36",
        "a name that no server is written for is REFUSED; CoreDNS gives SERVFAIL where a server block has the name",
        |it| {
            it.with.is("REFUSED") && it.ede == [ede::NOT_AUTHORITATIVE] && it.against.is("SERVFAIL")
        },
    ),
    known("RR77", "an alias shows its CNAME; `rewrite name` of CoreDNS may hide it", |it| {
        let kind = RecordType::CNAME;
        it.with.has(kind) && !it.against.has(kind) && is_same_behind_an_alias(it)
    }),
];

impl Known {
    /// The one that this difference is.
    pub(super) fn of(pair: &Pair) -> Option<&'static Known> {
        KNOWN.iter().find(|known| (known.fits)(pair))
    }
}

/// The labels of the question's name in front of the cluster domain; `None` for a name elsewhere.
fn in_domain(pair: &Pair) -> Option<Vec<String>> {
    let name = &pair.asked.name;
    if !pair.domain.zone_of(name) {
        return None;
    }
    let count = name.iter().len() - pair.domain.iter().len();
    let text = |label: &[u8]| String::from_utf8_lossy(label).into_owned();
    Some(name.iter().take(count).map(text).collect())
}

/// Is this label directly below the cluster domain asked about?
fn is_at(pair: &Pair, label: &str) -> bool {
    in_domain(pair).is_some_and(|labels| labels == [label])
}

/// The cluster domain, and the reverse zones.
fn is_in_our_zones(pair: &Pair) -> bool {
    let last = pair.asked.name.iter().next_back();
    in_domain(pair).is_some() || last == Some(&b"arpa"[..])
}

fn targets(said: &Said) -> BTreeSet<&str> {
    let pointers = said.answer.iter().filter(|line| line.kind == RecordType::PTR);
    pointers.map(|line| line.data.as_str()).collect()
}

/// Is this a name of a Service, or of one of its endpoints?
fn is_of_a_service(pair: &Pair, name: &str) -> bool {
    name.ends_with(&format!(".svc.{}", pair.domain))
}

fn only(answer: &BTreeSet<Line>, kind: RecordType) -> bool {
    !answer.is_empty() && answer.iter().all(|line| line.kind == kind)
}

/// Port and target of SRV records, without priority and weight.
fn places(answer: &BTreeSet<Line>) -> Vec<String> {
    let place = |line: &Line| line.data.splitn(3, ' ').nth(2).unwrap_or_default().to_owned();
    let mut places: Vec<String> = answer.iter().map(place).collect();
    places.sort();
    places.dedup();
    places
}

/// The labels in front of `svc` and the cluster domain.
fn below_svc(pair: &Pair) -> Option<Vec<String>> {
    let mut labels = in_domain(pair)?;
    (labels.pop()? == "svc").then_some(labels)
}

/// Is something in front of `<address>.<namespace>.pod`?
fn left_of_pod_name(pair: &Pair) -> bool {
    in_domain(pair)
        .is_some_and(|labels| labels.len() > 3 && labels.last().is_some_and(|it| it == "pod"))
}

/// The same data, or the same denial, though its owner is the alias here and the name that was asked there.
fn is_same_behind_an_alias(pair: &Pair) -> bool {
    pair.with.rcode == pair.against.rcode
        && (pair.with.has_soa || !pair.with.content().is_empty())
        && pair.with.content() == pair.against.content()
        && pair.with.records() != pair.against.records()
}

fn is_same_but_for_ttls(pair: &Pair) -> bool {
    pair.with.rcode == pair.against.rcode
        && pair.with.records() == pair.against.records()
        && pair.with.has_soa == pair.against.has_soa
}

/// `<a>.<b>.<c>.svc.<domain>`, where the first is no name of a port: an endpoint, or a name of a federation.
fn is_three_below_svc(pair: &Pair) -> bool {
    below_svc(pair).is_some_and(|labels| labels.len() == 3 && !labels[0].starts_with('_'))
}

fn ports(said: &Said) -> BTreeSet<&str> {
    said.answer.iter().filter_map(|line| line.data.split(' ').nth(2)).collect()
}

/// Is the target of this SRV record the Service that was asked about, or one label below it?
fn is_target_of_asked(pair: &Pair, line: &Line) -> bool {
    let Some(labels) = below_svc(pair).filter(|labels| labels.len() >= 2) else { return false };
    let service = format!("{}.svc.{}", labels[labels.len() - 2..].join("."), pair.domain);
    let target = line.data.rsplit(' ').next().unwrap_or_default();
    match target.strip_suffix(&service) {
        Some("") => true,
        Some(label) => label.ends_with('.') && label.matches('.').count() == 1,
        None => false,
    }
}
