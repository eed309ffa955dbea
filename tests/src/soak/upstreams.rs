//! The upstreams of a soak: what they know, what they say while something is wrong with them, and whether a reply that
//! came through a data plane is what they know.

use std::net::{IpAddr, Ipv4Addr};

use super::schedule::Kind;
use crate::mutate::Random;
use crate::oracle::expected::{Data, Record, rtype};
use crate::oracle::names::Name;
use crate::upstream::Script;

/// Names with an address.
const NAMES: usize = 24;
/// The name that does not exist.
const NONE: &str = "none.example.org";
/// Short, so that the cache asks again all the time.
const TTL_S: u32 = 2;
/// Longest TTL of a reply: that of an expired one.
const MAX_TTL_S: u32 = 30;
/// Less than what a lookup waits for, more than what a server usually takes.
const SLOW: &str = "delay 700ms";

/// A name that the upstreams know.
pub fn outside(random: &mut Random) -> String {
    match random.below(NAMES + 2) {
        number if number < NAMES => format!("w{number}.example.org"),
        _ => NONE.to_owned(),
    }
}

fn address(number: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, number as u8 + 1))
}

/// What they say while nothing, or this, is wrong with them.
pub fn script(fault: Option<Kind>) -> Script {
    let wrong = match fault {
        Some(Kind::UpstreamSilent) => "silent",
        Some(Kind::UpstreamSlow) => SLOW,
        Some(Kind::UpstreamFails) => "rcode SERVFAIL",
        Some(Kind::UpstreamTruncates) => "udp truncated",
        Some(Kind::UpstreamLying) => {
            "first wrong-id\n    first guess\n    first wrong-question\n    first other-address"
        }
        _ => "",
    };
    let soa =
        "authority example.org. 2 SOA ns.example.org. hostmaster.example.org. 1 7200 1800 86400 2";
    let mut text = String::new();
    let fails = fault == Some(Kind::UpstreamFails);
    for number in 0..NAMES {
        let data = match fails {
            true => String::new(),
            false => format!("answer @ {TTL_S} A {}", address(number)),
        };
        text += &format!("w{number}.example.org. A\n    {wrong}\n    {data}\n");
        let none = if fails { "" } else { soa };
        text += &format!("w{number}.example.org. *\n    {wrong}\n    {none}\n");
    }
    // Every other name does not exist, reverse names outside of our ranges among them.
    let denied = if fails { "" } else { "rcode NXDOMAIN" };
    let soa = "authority . 2 SOA ns.example.org. hostmaster.example.org. 1 7200 1800 86400 2";
    text += &format!("* *\n    {wrong}\n    {denied}\n    {soa}\n");
    Script::one(&text).expect("the script of a soak")
}

/// Whether this is what the upstreams know of a name: Rcode, and the records after the aliases that led to it.
///
/// # Errors
/// In what it differs.
pub fn is_known(name: &Name, qtype: u16, rcode: u16, records: &[Record]) -> Result<(), String> {
    let text = name.to_string();
    let number = text.strip_prefix('w').and_then(|rest| rest.strip_suffix(".example.org."));
    let number = number.and_then(|digits| digits.parse::<usize>().ok());
    let (wanted_rcode, data) = match (number, qtype) {
        (Some(number), rtype::A) => (0, Some(Data::Address(address(number)))),
        (Some(_), _) => (0, None),
        (None, _) => (3, None),
    };
    if rcode != wanted_rcode {
        return Err(format!("the Rcode is {rcode}, the upstreams say {wanted_rcode}"));
    }
    let wanted: Vec<(&Name, &Data)> = data.iter().map(|data| (name, data)).collect();
    let found: Vec<(&Name, &Data)> =
        records.iter().map(|record| (&record.owner, &record.data)).collect();
    if found != wanted {
        return Err(format!("the records are {records:?}, the upstreams say {wanted:?}"));
    }
    match records.iter().find(|record| record.ttl > MAX_TTL_S) {
        Some(record) => Err(format!("a TTL of {} s", record.ttl)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Question;
    use crate::oracle::decode::decode;

    /// What a script says, read as a reply of a data plane would be.
    fn said(fault: Option<Kind>, name: &str, qtype: u16) -> Option<Result<(), String>> {
        let question = Question::parse(&format!("{name}. TYPE{qtype}")).expect("a question");
        let reply = script(fault).reply(&question.packet)?;
        let reply = decode(&reply).expect("a reply");
        Some(is_known(&Name::text(name), qtype, reply.rcode, &reply.answer))
    }

    #[test]
    fn what_a_soak_expects_of_upstreams_is_what_they_say() {
        for (name, qtype) in
            [("w0.example.org", rtype::A), ("w3.example.org", rtype::TXT), (NONE, rtype::A)]
        {
            assert_eq!(said(None, name, qtype), Some(Ok(())), "{name}");
        }
        assert_eq!(said(Some(Kind::UpstreamSilent), "w0.example.org", rtype::A), None);
        assert!(said(Some(Kind::UpstreamFails), "w0.example.org", rtype::A).unwrap().is_err());
        let forged = Record {
            owner: Name::text("w0.example.org"),
            class: rtype::CLASS_IN,
            ttl: 2,
            data: Data::Address(address(1)),
        };
        assert!(is_known(&forged.owner, rtype::A, 0, std::slice::from_ref(&forged)).is_err());
    }
}
