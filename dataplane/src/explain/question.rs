//! The question that `/explain` is asked, read from the query of its URL. Nonsense is refused with what is wrong.

use std::net::IpAddr;

use dataplane_core::Name;

use crate::rrtype;

/// Octets of the query of a URL: the longest name with every octet escaped twice over leaves room.
const MAX_QUERY: usize = 4_096;
/// The type when none is given: A (RFC 1035 §3.2.2).
const A: u16 = 1;
/// Size of the UDP reply that the question allows, as `dig` does (DNS Flag Day 2020).
const PAYLOAD: u16 = 1_232;

/// The parameters of `/explain`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name, absolute whether or not it ends in a dot.
    pub name: Name,
    pub qtype: u16,
    /// Who asks, for `access.clients`.
    pub client: IpAddr,
}

/// How the explanation is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Lines for a terminal.
    Text,
    Json,
}

impl Form {
    /// `format=` decides, else the Accept header: JSON for those that name it, text for all others.
    pub fn accepted(accept: Option<&str>) -> Form {
        match accept.is_some_and(|accept| accept.contains("application/json")) {
            true => Form::Json,
            false => Form::Text,
        }
    }
}

/// The name and the type as a person typed them, right or wrong, so that a form can show them again; the type is A where
/// none was typed.
pub fn typed(query: &str) -> (String, String) {
    let of = |wanted: &str| {
        let mut pairs = query.get(..query.len().min(MAX_QUERY)).unwrap_or_default().split('&');
        let value = pairs.find_map(|pair| pair.strip_prefix(wanted)?.strip_prefix('='));
        value.and_then(|value| decoded(value).ok()).unwrap_or_default()
    };
    let qtype = Some(of("type")).filter(|qtype| !qtype.is_empty());
    (of("name"), qtype.unwrap_or_else(|| "A".to_owned()))
}

impl Question {
    /// Reads `name=…&type=…&client=…&format=…`; only the name is needed. `asker` is the client where none is given.
    ///
    /// # Errors
    /// What is wrong and what to write, for a person.
    pub fn read(query: &str, asker: IpAddr, form: Form) -> Result<(Question, Form), String> {
        if query.len() > MAX_QUERY {
            return Err(format!("the query of the URL has more than {MAX_QUERY} octets"));
        }
        let [mut name, mut qtype, mut client, mut format] = [const { None::<String> }; 4];
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value)?;
            let place = match key {
                "name" => &mut name,
                "type" => &mut qtype,
                "client" => &mut client,
                "format" => &mut format,
                other => {
                    let other: String = other.chars().take(40).collect();
                    return Err(format!(
                        "{other:?} is no parameter: there are name, type, client and format"
                    ));
                }
            };
            if place.replace(value).is_some() {
                return Err(format!("{key} is given twice"));
            }
        }
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or(
            "name is missing: write one such as kubernetes.default.svc.cluster.local \
             (/explain?name=kubernetes.default.svc.cluster.local&type=A)",
        )?;
        let name = Name::from_text(&name).map_err(|error| format!("name {name:?}: {error}"))?;
        let qtype = match qtype.filter(|qtype| !qtype.is_empty()) {
            None => A,
            Some(text) => rrtype::parse(&text).ok_or_else(|| {
                format!("type {text:?} is no record type: write A, AAAA, SRV, PTR, or TYPE65")
            })?,
        };
        let client = match client.filter(|client| !client.is_empty()) {
            None => asker,
            Some(text) => text
                .parse::<IpAddr>()
                .map_err(|_| {
                    format!("client {text:?} is no IP address: write that of the pod that asks")
                })?
                .to_canonical(),
        };
        let form = match format.as_deref() {
            None => form,
            Some("text") => Form::Text,
            Some("json") => Form::Json,
            Some(other) => return Err(format!("format {other:?}: write text or json")),
        };
        Ok((Question { name, qtype, client }, form))
    }

    /// The message that a stub resolver would send: RD, an OPT record of version 0, id 0.
    pub fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        packet.extend_from_slice(self.name.wire());
        packet.extend_from_slice(&self.qtype.to_be_bytes());
        packet.extend_from_slice(&[0, 1, 0, 0, 41]);
        packet.extend_from_slice(&PAYLOAD.to_be_bytes());
        packet.extend_from_slice(&[0; 6]);
        packet
    }
}

/// A value of a URL: `+` is a space, `%41` an octet.
fn decoded(text: &str) -> Result<String, String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'+' => octets.push(b' '),
            b'%' => {
                let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let octet = digits
                    .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok());
                octets.push(octet.ok_or("a % is not followed by two hexadecimal digits")?);
                rest = &after[2..];
            }
            other => octets.push(*other),
        }
    }
    String::from_utf8(octets).map_err(|_| "a value is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn read(query: &str) -> Result<(Question, Form), String> {
        Question::read(query, Ipv4Addr::LOCALHOST.into(), Form::Text)
    }

    #[test]
    fn a_question_needs_a_name_and_has_defaults_for_the_rest() {
        let (question, form) = read("name=Cart.shop.svc.cluster.local").unwrap();
        assert_eq!(question.name.to_string(), "cart.shop.svc.cluster.local.");
        assert_eq!((question.qtype, form), (A, Form::Text));
        assert_eq!(question.client, IpAddr::from(Ipv4Addr::LOCALHOST));
        let (question, form) =
            read("type=srv&client=fd00%3A%3a1&name=_http._tcp.a.b.&format=json").unwrap();
        assert_eq!((question.qtype, form), (33, Form::Json));
        assert_eq!(question.client.to_string(), "fd00::1");
        assert_eq!(read("name=a&client=::ffff:10.0.0.1").unwrap().0.client.to_string(), "10.0.0.1");
    }

    #[test]
    fn nonsense_is_refused_with_what_is_wrong() {
        let long = format!("name={}", "a.".repeat(4_000));
        for (query, expected) in [
            ("", "name is missing"),
            ("name=", "name is missing"),
            ("name=a..b", "name \"a..b\""),
            ("name=a&type=B", "type \"B\" is no record type"),
            ("name=a&client=pod", "client \"pod\" is no IP address"),
            ("name=a&format=xml", "write text or json"),
            ("name=a&nmae=b", "\"nmae\" is no parameter"),
            ("name=a&name=b", "name is given twice"),
            ("name=%4", "two hexadecimal digits"),
            ("name=%+1", "two hexadecimal digits"),
            ("name=%ff", "not UTF-8"),
            (&long, "more than 4096 octets"),
        ] {
            let error = read(query).unwrap_err();
            assert!(error.contains(expected), "{query}: {error}");
        }
    }

    #[test]
    fn json_is_for_those_that_ask_for_it() {
        assert_eq!(Form::accepted(None), Form::Text);
        assert_eq!(Form::accepted(Some("*/*")), Form::Text);
        assert_eq!(Form::accepted(Some("application/json, */*;q=0.5")), Form::Json);
    }
}
