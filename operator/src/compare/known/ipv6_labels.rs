//! Names of endpoints with an IPv6 address: two servers may write the same address as two labels (DF14).

use std::net::Ipv6Addr;

use hickory_proto::rr::RecordType;

use super::super::names::label_of;
use super::super::pair::{Line, Pair, Said};
use super::only;

/// The address that the first label of an endpoint name means, and the name with our label of it (RR23).
fn of_ipv6(pair: &Pair, name: &str) -> Option<(Ipv6Addr, String)> {
    let (label, rest) = name.split_once('.')?;
    // A hyphen at the beginning is written with a backslash.
    let ip: Ipv6Addr = label.trim_start_matches('\\').replace('-', ":").parse().ok()?;
    let is_endpoint = rest.strip_suffix(&format!(".svc.{}", pair.domain))?.split('.').count() == 2;
    is_endpoint.then(|| (ip, format!("{}.{rest}", label_of(ip.into()))))
}

/// Does only the label of an IPv6 endpoint differ: one name is there and the other is not, or the targets are the same but
/// for it?
pub(super) fn is_other_text_of_ipv6(pair: &Pair) -> bool {
    let kind = pair.asked.kind;
    if [RecordType::PTR, RecordType::SRV].contains(&kind) {
        let ours = |name: &str| of_ipv6(pair, name).map_or(name.to_owned(), |(_, ours)| ours);
        return only(&pair.with.answer, kind)
            && only(&pair.against.answer, kind)
            && targets(&pair.with, str::to_owned) != targets(&pair.against, str::to_owned)
            && targets(&pair.with, ours) == targets(&pair.against, ours);
    }
    let asked = pair.asked.name.to_ascii();
    let Some((ip, of_ours)) = of_ipv6(pair, &asked) else { return false };
    let (there, elsewhere) = match asked == of_ours {
        true => (&pair.with, &pair.against),
        false => (&pair.against, &pair.with),
    };
    let is_ip = |line: &Line| line.data.parse() == Ok(ip);
    kind == RecordType::AAAA
        && only(&there.answer, kind)
        && there.answer.iter().all(is_ip)
        && elsewhere.is("NXDOMAIN")
}

/// The ports and targets of these records, in order, with targets as `written` writes them. Weights differ too (DF10).
fn targets(said: &Said, written: impl Fn(&str) -> String) -> Vec<String> {
    let of = |line: &Line| {
        let (before, target) = line.data.rsplit_once(' ').unwrap_or(("", &line.data));
        format!("{} {}", before.rsplit(' ').next().unwrap_or_default(), written(target))
    };
    let mut all: Vec<String> = said.answer.iter().map(of).collect();
    all.sort();
    all
}
