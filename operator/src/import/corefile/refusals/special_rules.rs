//! Directives whose words depend on each other.

use super::Takes::{All, Nothing, One};
use super::words::{any, any_duration, line, named, one_of};
use super::{Directive, Line, Refused, options, refused, words};
use crate::import::literals::{integer, range};

/// The types that `acl` knows, in capitals (the table of the DNS library of CoreDNS).
const TYPES: &str = "A AAAA AFSDB AMTRELAY ANY APL ATMA AVC AXFR CAA CDNSKEY CDS CERT CNAME CSYNC DHCID DLV DNAME DNSKEY DS EID \
                     EUI48 EUI64 GID GPOS HINFO HIP HTTPS IPSECKEY ISDN IXFR KEY KX L32 L64 LOC LP MAILA MAILB MB MD MF MG \
                     MINFO MR MX NAPTR NID NIMLOC NINFO None NS NSAP-PTR NSEC NSEC3 NSEC3PARAM NULL NXNAME NXT OPENPGPKEY OPT \
                     PTR PX Reserved RESINFO RKEY RP RRSIG RT SIG SMIMEA SOA SPF SRV SSHFP SVCB TA TALINK TKEY TLSA TSIG TXT \
                     UID UINFO UNSPEC URI X25 ZONEMD";

/// The prefixes of RFC 6052 section 2.2, in bits.
const PREFIX_BITS: [u8; 6] = [32, 40, 48, 56, 64, 96];
/// The size of the buffer of `dnstap` in MiB, and its queue in 10,000 messages, at most.
const DNSTAP_MOST: [i64; 2] = [1024, 4096];

const DNS64: &[Line] = &[
    line("prefix", One, prefix),
    line("translate_all", Nothing, any),
    line("allow_ipv4", Nothing, any),
];
const DNSTAP: &[Line] =
    &[line("skipverify", Nothing, any), named("identity"), named("version"), named("extra")];
const DNSTAP_LISTENER: &[Line] = &[
    line("skipverify", Nothing, any),
    line("tls", All(2..=usize::MAX), any),
    named("identity"),
    named("version"),
    named("extra"),
];
const PREFER: &[Line] = &[line("prefer", All(0..=usize::MAX), ranges)];
const WEIGHTED: &[Line] = &[line("reload", All(1..=1), any_duration)];
const TLS: &[Line] =
    &[line("client_auth", All(1..=1), client_auth), line("keylog", All(1..=1), any)];
const ACME: &[Line] = &[
    line("acme", All(1..=usize::MAX), any),
    line("email", All(1..=1), any),
    line("ca", All(1..=1), any),
    line("storage", All(1..=1), any),
    line("ca_root", All(1..=1), any),
    line("resolver", All(1..=1), any),
];

/// `allow|block|filter|drop [type TYPE...] [net RANGE...]`.
pub(super) fn acl(directive: &Directive) -> Result<(), Refused> {
    for rule in &directive.body {
        let action = rule.name.to_ascii_lowercase();
        if !["allow", "block", "filter", "drop"].contains(&action.as_str()) {
            return Err(rule.refused("write allow, block, filter or drop"));
        }
        let all = words(rule);
        let is_section =
            |word: &&str| ["type", "net"].contains(&word.to_ascii_lowercase().as_str());
        let mut rest = &all[..];
        while let Some((section, more)) = rest.split_first() {
            if !is_section(section) {
                return Err(rule.refused(format!("{section}: type or net must follow")));
            }
            let (own, next) = more.split_at(more.iter().position(is_section).unwrap_or(more.len()));
            let of = section.to_ascii_lowercase();
            if own.is_empty() {
                return Err(rule.refused(format!("{of}: a word must follow")));
            }
            let is_right = |word: &str| match of.as_str() {
                "type" => TYPES.split_whitespace().any(|known| known == word),
                _ => range_of(word),
            };
            let mut read = own.iter().take_while(|word| **word != "*");
            if let Some(word) = read.find(|word| !is_right(word)) {
                let wanted = if of == "type" { "type in capitals" } else { "range of addresses" };
                return Err(refused(rule, &format!("{word}: it is no {wanted}")));
            }
            rest = next;
        }
    }
    Ok(())
}

/// A range, or one address.
fn range_of(word: &str) -> bool {
    range(word).is_some() || word.parse::<std::net::IpAddr>().is_ok()
}

fn ranges(words: &[&str]) -> Result<(), String> {
    match words.iter().find(|word| range(word).is_none()) {
        Some(word) => Err(format!("{word}: a range such as 10.0.0.0/8 must follow")),
        None => Ok(()),
    }
}

/// The prefix of DNS64 (RFC 6052).
pub(super) fn prefix(words: &[&str]) -> Result<(), String> {
    let is_prefix = |text: &str| match range(text) {
        Some(ipnet::IpNet::V6(net)) => PREFIX_BITS.contains(&net.prefix_len()),
        Some(ipnet::IpNet::V4(_)) | None => false,
    };
    match words.iter().find(|word| !is_prefix(word)) {
        Some(word) => {
            Err(format!("{word}: an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits must follow"))
        }
        None => Ok(()),
    }
}

/// With a prefix on its line, CoreDNS reads what is between braces in another way, which is not checked.
pub(super) fn dns64(directive: &Directive) -> Result<(), Refused> {
    if directive.args.is_empty() { options(directive, DNS64) } else { Ok(()) }
}

/// `[listen] ENDPOINT [full [MIB [QUEUE]]]`.
pub(super) fn reader(words: &[&str]) -> Result<(), String> {
    let words = match words {
        ["listen"] => return Err("listen: an endpoint must follow".to_owned()),
        ["listen", rest @ ..] => rest,
        all => all,
    };
    for (word, most) in words.iter().skip(2).zip(DNSTAP_MOST) {
        if integer(word).is_none_or(|number| !(1..=most).contains(&number)) {
            return Err(format!("{word}: a number, 1-{most}, must follow"));
        }
    }
    Ok(())
}

pub(super) fn dnstap(directive: &Directive) -> Result<(), Refused> {
    let is_listener = directive.args.first().is_some_and(|word| word == "listen");
    options(directive, if is_listener { DNSTAP_LISTENER } else { DNSTAP })
}

/// `DURATION EXPRESSION [LEVEL] [show_first]`. Expressions are not compiled here.
pub(super) fn consolidate(words: &[&str]) -> Result<(), String> {
    let (times, rest) = words.split_at(1.min(words.len()));
    any_duration(times)?;
    let mut more = rest.iter().skip(1).peekable();
    more.next_if(|word| ["warning", "error", "info", "debug"].contains(word));
    match more.find(|word| **word != "show_first") {
        Some(word) => Err(format!("{word}: a level of log lines, then show_first, may follow")),
        None => Ok(()),
    }
}

pub(super) fn policy(words: &[&str]) -> Result<(), String> {
    match words {
        [] | ["round_robin"] | ["weighted", _] => Ok(()),
        ["weighted"] => Err("weighted: a file must follow".to_owned()),
        ["round_robin", ..] => Err("round_robin: nothing may follow".to_owned()),
        [other, ..] => Err(format!("{other}: write round_robin, or weighted and a file")),
    }
}

pub(super) fn loadbalance(directive: &Directive) -> Result<(), Refused> {
    let is_weighted = directive.args.first().is_some_and(|word| word == "weighted");
    options(directive, if is_weighted { WEIGHTED } else { PREFER })
}

fn client_auth(words: &[&str]) -> Result<(), String> {
    one_of(words, &["nocert", "request", "require", "verify_if_given", "require_and_verify"])
}

pub(super) fn tls(directive: &Directive) -> Result<(), Refused> {
    if !directive.args.is_empty() {
        return options(directive, TLS);
    }
    options(directive, ACME)?;
    match directive.body.iter().any(|line| line.name == "acme") {
        true => Ok(()),
        false => {
            Err(directive.refused("a certificate and its key must follow, or acme with names"))
        }
    }
}

/// `[zipkin|datadog] [ENDPOINT]`.
pub(super) fn tracer(words: &[&str]) -> Result<(), String> {
    match words {
        [kind, _] => one_of(&[kind.to_ascii_lowercase().as_str()], &["zipkin", "datadog"]),
        _ => Ok(()),
    }
}
