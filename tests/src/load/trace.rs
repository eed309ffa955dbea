//! Questions in the order in which they are asked, each with what must be answered (pure): the same for the same seed.

use std::net::IpAddr;

use super::check::Expected;
use super::external;
use crate::mutate::Random;
use crate::scale::{Cluster, Kind};

const A: u16 = 1;
const PTR: u16 = 12;
const AAAA: u16 = 28;
const SRV: u16 = 33;
/// Types that recorded questions may name.
const TYPES: [(&str, u16); 9] = [
    ("A", A),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("PTR", PTR),
    ("MX", 15),
    ("TXT", 16),
    ("AAAA", AAAA),
    ("SRV", SRV),
];
const ZONE: &str = "svc.cluster.local.";
/// What a pod's resolv.conf lists after its own namespace.
const SEARCH: [&str; 2] = [ZONE, "cluster.local."];
/// In tenths of a percent, how often a pod looks up what, with `ndots:5`: `service.namespace`, the whole name with its
/// dot, without it, a name outside the cluster, an address; the rest are SRV.
const LOOKUPS: [usize; 5] = [350, 300, 150, 150, 30];

#[derive(Clone, Copy, Debug)]
struct Asked {
    start: u32,
    octets: u16,
    expected: Expected,
}

/// Questions and what must be answered.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub name: String,
    octets: Vec<u8>,
    asked: Vec<Asked>,
}

impl Trace {
    /// A random Service with a cluster IP, and its A record.
    pub fn hit(cluster: &Cluster, count: usize, seed: u64) -> Trace {
        let mut random = Random::new(seed);
        let services = of_kind(cluster, |kind| matches!(kind, Kind::ClusterIp | Kind::TwoPorts));
        Trace::of("hit", count, |trace| {
            let service = *random.choose(&services);
            trace.push(&full(cluster, service), A, address(cluster, service));
        })
    }

    /// A random headless Service, and the A records of its endpoints.
    pub fn headless(cluster: &Cluster, count: usize, seed: u64) -> Trace {
        let mut random = Random::new(seed);
        let services: Vec<usize> = cluster.headless().collect();
        Trace::of("headless", count, |trace| {
            let service = *random.choose(&services);
            let addresses = cluster.addresses(service).map(IpAddr::from);
            trace.push(&full(cluster, service), A, Expected::addresses(addresses));
        })
    }

    /// What pods ask with `ndots:5`: search lists, A and AAAA together. Three of five are NXDOMAIN.
    pub fn mix(cluster: &Cluster, count: usize, seed: u64) -> Trace {
        let mut random = Random::new(seed);
        let services = of_kind(cluster, |kind| matches!(kind, Kind::ClusterIp | Kind::TwoPorts));
        Trace::of("mix", count, |trace| {
            let service = *random.choose(&services);
            let own = cluster.namespace(random.below(cluster.services));
            let own = format!("{own}.{ZONE}");
            let search = [own.as_str(), SEARCH[0], SEARCH[1]];
            let (below_svc, name) = (cluster.below_svc(service), full(cluster, service));
            let right = address(cluster, service);
            match of_thousand(random.below(1_000)) {
                0 => {
                    trace.denied(&below_svc, &search[..1]);
                    trace.pair(&name, right);
                }
                1 => trace.pair(&name, right),
                2 => {
                    trace.denied(name.trim_end_matches('.'), &search);
                    trace.pair(&name, right);
                }
                3 => {
                    trace.denied(external::name(random.below(1_000)).trim_end_matches('.'), &search)
                }
                4 => {
                    let [a, b, c, d] = cluster.address(service).octets();
                    let name = format!("{d}.{c}.{b}.{a}.in-addr.arpa.");
                    trace.push(&name, PTR, Expected::records(PTR, 1));
                }
                _ => trace.push(&format!("_http._tcp.{name}"), SRV, Expected::records(SRV, 1)),
            }
        })
    }

    /// Names that do not exist, each another one.
    pub fn flood(cluster: &Cluster, count: usize, seed: u64) -> Trace {
        let mut random = Random::new(seed);
        Trace::of("flood", count, |trace| {
            let namespace = cluster.namespace(random.below(cluster.services));
            let name = format!("x{:016x}.{namespace}.{ZONE}", random.number());
            trace.push(&name, A, Expected::NX_DOMAIN);
        })
    }

    /// Names outside the cluster: this many, asked as often as Zipf's law says.
    pub fn external(names: usize, count: usize, seed: u64) -> Trace {
        let (mut random, zipf) = (Random::new(seed), external::Zipf::new(names));
        Trace::of("external hit", count, |trace| {
            let share = random.number() as f64 / u64::MAX as f64;
            trace.outside(&external::name(zipf.rank(share)));
        })
    }

    /// Names outside the cluster, each another one: no cache has them. `seed` must differ where a server is asked twice.
    pub fn misses(count: usize, seed: u64) -> Trace {
        let mut number = 0;
        Trace::of("external miss", count, |trace| {
            number += 1;
            trace.outside(&format!("n{number}.m{seed:x}.example.net."));
        })
    }

    /// Recorded questions, `NAME TYPE` in each line as `dnsperf` takes them; anything may be answered.
    ///
    /// # Errors
    /// A line cannot be read; it is named.
    pub fn recorded(text: &str) -> Result<Trace, String> {
        let mut trace = Trace { name: "recorded".into(), ..Trace::default() };
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace();
            let Some(name) = words.next().filter(|word| !word.starts_with(['#', ';'])) else {
                continue;
            };
            let known = |word: &str| TYPES.iter().find(|(text, _)| text.eq_ignore_ascii_case(word));
            let Some((_, rtype)) = words.next().and_then(known) else {
                return Err(format!("line {}: `{line}` is not `NAME TYPE`", number + 1));
            };
            let labels = name.trim_end_matches('.').split('.');
            if name.len() > 253
                || name != "." && labels.clone().any(|l| l.is_empty() || l.len() > 63)
            {
                return Err(format!("line {}: `{name}` is no name", number + 1));
            }
            trace.push(name, *rtype, Expected::ANY);
        }
        if trace.asked.is_empty() { Err("no questions".into()) } else { Ok(trace) }
    }

    pub fn len(&self) -> usize {
        self.asked.len()
    }

    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// A question with the id 0, and what must be answered.
    pub fn get(&self, number: usize) -> (&[u8], Expected) {
        let asked = self.asked[number];
        let start = asked.start as usize;
        (&self.octets[start..start + usize::from(asked.octets)], asked.expected)
    }

    fn of(name: &str, count: usize, mut more: impl FnMut(&mut Trace)) -> Trace {
        let mut trace = Trace { name: name.into(), ..Trace::default() };
        while trace.len() < count {
            more(&mut trace);
        }
        trace.asked.truncate(count);
        trace
    }

    fn push(&mut self, name: &str, rtype: u16, expected: Expected) {
        let packet = packet(name, rtype);
        let start = self.octets.len() as u32;
        self.octets.extend(&packet);
        self.asked.push(Asked { start, octets: packet.len() as u16, expected });
    }

    /// A and AAAA, as libc asks them; only IPv4 has an address.
    fn pair(&mut self, name: &str, expected: Expected) {
        self.push(name, A, expected);
        self.push(name, AAAA, Expected::NO_DATA);
    }

    /// A name below each domain of a search list, where it does not exist.
    fn denied(&mut self, name: &str, search: &[&str]) {
        for domain in search {
            let name = format!("{name}.{domain}");
            self.push(&name, A, Expected::NX_DOMAIN);
            self.push(&name, AAAA, Expected::NX_DOMAIN);
        }
    }

    fn outside(&mut self, name: &str) {
        let question = packet(name, A);
        let address = external::address(&question[12..]);
        self.push(name, A, Expected::addresses([address.into()]));
    }
}

/// A query with the id 0 that asks for recursion, without EDNS, as libc makes it.
pub fn packet(name: &str, rtype: u16) -> Vec<u8> {
    let mut packet = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        packet.push(label.len() as u8);
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(rtype.to_be_bytes());
    packet.extend([0, 1]);
    packet
}

fn of_kind(cluster: &Cluster, is_wanted: impl Fn(Kind) -> bool) -> Vec<usize> {
    (0..cluster.services).filter(|service| is_wanted(cluster.kind(*service))).collect()
}

fn full(cluster: &Cluster, service: usize) -> String {
    format!("{}.{ZONE}", cluster.below_svc(service))
}

fn address(cluster: &Cluster, service: usize) -> Expected {
    Expected::addresses([cluster.address(service).into()])
}

/// The row of [`LOOKUPS`] for a number below 1,000.
fn of_thousand(number: usize) -> usize {
    let mut end = 0;
    LOOKUPS
        .iter()
        .position(|share| {
            end += share;
            number < end
        })
        .unwrap_or(LOOKUPS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster {
        Cluster::new(1_000, "ns")
    }

    fn denials(trace: &Trace) -> usize {
        (0..trace.len()).filter(|at| trace.get(*at).1 == Expected::NX_DOMAIN).count()
    }

    #[test]
    fn the_same_seed_asks_the_same() {
        let make = |seed| Trace::mix(&cluster(), 500, seed);
        assert_eq!(make(1).octets, make(1).octets);
        assert_ne!(make(1).octets, make(2).octets);
        assert_eq!(make(1).len(), 500);
    }

    #[test]
    fn three_of_five_questions_of_a_pod_are_denied() {
        let trace = Trace::mix(&cluster(), 100_000, 1);
        let share = denials(&trace) as f64 / trace.len() as f64;
        assert!((0.57..0.63).contains(&share), "{share}");
    }

    #[test]
    fn each_trace_asks_what_its_name_says() {
        let cluster = cluster();
        let hit = Trace::hit(&cluster, 300, 1);
        let headless = Trace::headless(&cluster, 300, 1);
        let flood = Trace::flood(&cluster, 300, 1);
        assert_eq!((denials(&hit), denials(&headless), denials(&flood)), (0, 0, 300));
        let twelve = (80..95)
            .map(|service| Expected::addresses(cluster.addresses(service).map(IpAddr::from)));
        let twelve: Vec<_> = twelve.collect();
        let of_first_hundred = Trace::headless(&Cluster::new(100, "ns"), 300, 1);
        assert!((0..300).all(|at| twelve.contains(&of_first_hundred.get(at).1)));
    }

    #[test]
    fn no_two_misses_are_the_same_and_hits_are() {
        let questions = |trace: &Trace| {
            let all = (0..trace.len()).map(|at| trace.get(at).0.to_vec());
            all.collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(questions(&Trace::misses(1_000, 1)), 1_000);
        assert!(questions(&Trace::external(100, 1_000, 1)) <= 100);
    }

    #[test]
    fn recorded_questions_are_read_and_mistakes_named() {
        let trace = Trace::recorded("# a file\nwww.example.com A\n\na.b. aaaa\n").expect("two");
        assert_eq!(trace.len(), 2);
        assert_eq!(trace.get(0), (packet("www.example.com.", 1).as_slice(), Expected::ANY));
        let line_2 = "line 2: `www.example.com` is not `NAME TYPE`";
        assert_eq!(Trace::recorded("a A\nwww.example.com").unwrap_err(), line_2);
        assert_eq!(Trace::recorded("a..b A").unwrap_err(), "line 1: `a..b` is no name");
        assert_eq!(Trace::recorded("").unwrap_err(), "no questions");
    }
}
