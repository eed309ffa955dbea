//! What a scripted upstream answers, as text that reads like the tables of docs/dns.md.
//!
//! ```text
//! server 10.0.0.2 10.0.0.3          rules up to the next `server` line are those of these servers
//! www.example.org. A                a rule: name and type; `*` is any type, `* *` any question.
//!     answer @ 600 A 192.0.2.80     The exact type wins over `*`, a name over `* *`; no rule: REFUSED
//!     answer @ 60 TXT *3000         TXT data of this many octets in all
//!     answer @ 60 DNAME b.example.  hickory-proto cannot write this one; we do
//!     answer @ 60 TYPE1000 c000     data of any type, in hexadecimal
//! ```
//! `@` is the name as asked. What a rule may say besides `answer`, `authority`, `additional`:
//! `rcode NXDOMAIN` · `ede 6 22` · `silent` · `delay 300ms` · `flags aa ad tc` · `no-question` ·
//! `opt FORMERR|NOTIMP|BADVERS|silent` (what a query with an OPT record gets) ·
//! `opt lost-over-udp` (the same over UDP only, as behind a middlebox) · `opt announced` (it gets a reply that counts an OPT record and has none) ·
//! `udp truncated` (TC and no records) · `udp at-most 512` (a larger reply is lost on its way) ·
//! `tcp close|hang|half` (streams of HTTPS and QUIC too: close resets them, and half those of HTTPS) ·
//! `tcp once` (over TCP: the connection is closed behind the reply, also if it has more queries) ·
//! `http status 500` · `http type text/html` · `http age 50` · `http octets 70000` ·
//! `first wrong-id|wrong-question|wrong-case|query|garbage|half` (sent over UDP before the reply, repeatable) ·
//! `first guess|other-port|other-address` (the same, with the address 192.0.2.66, as an attacker would: with another id
//! each time; with the right id, from another port or another address).
//! Text from `#` at the start of a line is a comment.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::{NULL, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinEncodable;

/// The rules of one server, keyed by lower-case name (or `*`) and type (`None` is any).
#[derive(Clone, Debug, Default)]
pub struct Script {
    rules: Rules,
}

type Rules = BTreeMap<(String, Option<RecordType>), Rule>;

#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) rcode: ResponseCode,
    pub(super) answer: Vec<ScriptedRecord>,
    pub(super) authority: Vec<ScriptedRecord>,
    pub(super) additional: Vec<ScriptedRecord>,
    pub(super) silent: bool,
    pub(super) delay: Duration,
    pub(super) authoritative: bool,
    pub(super) authentic: bool,
    /// TC over any transport; the records stay.
    pub(super) cut: bool,
    pub(super) no_question: bool,
    pub(super) udp_truncated: bool,
    /// The octets of the largest reply that arrives over UDP.
    pub(super) udp_at_most: usize,
    pub(super) tcp: Stream,
    pub(super) http: Http,
    pub(super) first: Vec<Decoy>,
    /// What a query with an OPT record gets instead.
    pub(super) opt: Option<OnOpt>,
    /// Extended DNS Errors in the reply.
    pub(super) ede: Vec<u16>,
}

/// A record; no owner means the name as asked.
#[derive(Clone, Debug)]
pub(super) struct ScriptedRecord {
    owner: Option<Name>,
    ttl_s: u32,
    data: RData,
}

/// How a server treats what it does not understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnOpt {
    Refuse(ResponseCode),
    Silence,
    /// It answers over TCP.
    SilenceOverUdp,
    /// The reply counts an OPT record and has none.
    Announce,
}

/// How a stream is treated once the query has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Answer,
    Close,
    Hang,
    /// Half of the reply, then close.
    Half,
    /// The reply, then close.
    Once,
}

/// What is unusual about a response of HTTP.
#[derive(Clone, Debug, Default)]
pub(super) struct Http {
    pub(super) status: Option<u16>,
    pub(super) media_type: Option<String>,
    pub(super) age: Option<String>,
    /// The body has at least this many.
    pub(super) octets: usize,
}

/// A datagram sent before the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoy {
    WrongId,
    WrongQuestion,
    /// The name in another case.
    WrongCase,
    /// QR=0.
    Query,
    /// Not a message, but with our id.
    Garbage,
    /// The first half of the right reply.
    Half,
    /// Another answer, with a guessed id.
    Guess,
    /// Another answer, right in all else, from another port.
    OtherPort,
    /// The same from another address.
    OtherAddress,
}

impl ScriptedRecord {
    pub(super) fn at(&self, asked: &Name) -> Record {
        let owner = self.owner.clone().unwrap_or_else(|| asked.clone());
        Record::from_rdata(owner, self.ttl_s, self.data.clone())
    }
}

impl Script {
    /// Reads a file of several servers.
    ///
    /// # Errors
    /// Names the line that cannot be read and why.
    pub fn parse(text: &str) -> Result<BTreeMap<IpAddr, Script>> {
        let mut reader = Reader::default();
        for (number, line) in text.lines().enumerate() {
            reader.line(line).with_context(|| format!("line {}: {line}", number + 1))?;
        }
        Ok(reader.scripts)
    }

    /// Reads rules without a `server` line: those of one server.
    ///
    /// # Errors
    /// Names the line that cannot be read and why.
    pub fn one(rules: &str) -> Result<Script> {
        let anyone = IpAddr::from([0, 0, 0, 0]);
        let mut scripts = Script::parse(&format!("server {anyone}\n{rules}"))?;
        scripts.remove(&anyone).context("no rules")
    }

    pub(super) fn rule(&self, name: &Name, qtype: RecordType) -> Option<&Rule> {
        let name = name.to_lowercase().to_ascii();
        [(name.as_str(), Some(qtype)), (&name, None), ("*", None)]
            .into_iter()
            .find_map(|(name, qtype)| self.rules.get(&(name.to_owned(), qtype)))
    }
}

/// What has been read so far, and to whom the next line belongs.
#[derive(Default)]
struct Reader {
    scripts: BTreeMap<IpAddr, Script>,
    servers: Vec<IpAddr>,
    key: Option<(String, Option<RecordType>)>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (line.starts_with(char::is_whitespace), words.as_slice()) {
            (_, []) => {}
            (_, [comment, ..]) if comment.starts_with('#') => {}
            (false, ["server", addresses @ ..]) => {
                self.servers = addresses.iter().map(|a| a.parse()).collect::<Result<_, _>>()?;
                self.key = None;
                for server in &self.servers {
                    self.scripts.entry(*server).or_default();
                }
            }
            (false, [name, qtype]) => {
                let key = rule_key(name, qtype)?;
                self.each_rules(|rules| {
                    rules.insert(key.clone(), Rule::default());
                    Ok(())
                })?;
                self.key = Some(key);
            }
            (true, words) => {
                let key = self.key.clone().context("not below a rule")?;
                self.each_rules(|rules| {
                    rules.get_mut(&key).context("not below a rule")?.read(words)
                })?;
            }
            (false, _) => bail!("neither `server`, nor a name and a type"),
        }
        Ok(())
    }

    fn each_rules(&mut self, change: impl Fn(&mut Rules) -> Result<()>) -> Result<()> {
        for server in &self.servers {
            change(&mut self.scripts.entry(*server).or_default().rules)?;
        }
        Ok(())
    }
}

fn rule_key(name: &str, qtype: &str) -> Result<(String, Option<RecordType>)> {
    let name = match name {
        "*" => name.to_owned(),
        name if name.ends_with('.') => Name::from_ascii(name)?.to_lowercase().to_ascii(),
        _ => bail!("the name must end with a dot"),
    };
    let qtype = if qtype == "*" { None } else { Some(record_type(qtype)?) };
    Ok((name, qtype))
}

fn record_type(text: &str) -> Result<RecordType> {
    match text.strip_prefix("TYPE") {
        Some(number) => Ok(RecordType::from(number.parse::<u16>()?)),
        None => Ok(text.parse()?),
    }
}

impl Default for Rule {
    fn default() -> Rule {
        Rule {
            rcode: ResponseCode::NoError,
            answer: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
            silent: false,
            delay: Duration::ZERO,
            authoritative: false,
            authentic: false,
            cut: false,
            no_question: false,
            udp_truncated: false,
            udp_at_most: usize::MAX,
            tcp: Stream::Answer,
            http: Http::default(),
            first: Vec::new(),
            opt: None,
            ede: Vec::new(),
        }
    }
}

impl Rule {
    fn read(&mut self, words: &[&str]) -> Result<()> {
        match words {
            ["answer", record @ ..] => self.answer.push(scripted_record(record)?),
            ["authority", record @ ..] => self.authority.push(scripted_record(record)?),
            ["additional", record @ ..] => self.additional.push(scripted_record(record)?),
            ["rcode", name] => self.rcode = rcode(name)?,
            ["silent"] => self.silent = true,
            ["delay", time] => {
                let ms = time.strip_suffix("ms").context("a delay is written like 300ms")?;
                self.delay = Duration::from_millis(ms.parse()?);
            }
            ["flags", flags @ ..] => {
                for flag in flags {
                    match *flag {
                        "aa" => self.authoritative = true,
                        "ad" => self.authentic = true,
                        "tc" => self.cut = true,
                        other => bail!("unknown flag {other}"),
                    }
                }
            }
            ["no-question"] => self.no_question = true,
            ["ede", codes @ ..] => {
                self.ede = codes.iter().map(|code| code.parse()).collect::<Result<_, _>>()?;
            }
            ["opt", "silent"] => self.opt = Some(OnOpt::Silence),
            ["opt", "lost-over-udp"] => self.opt = Some(OnOpt::SilenceOverUdp),
            ["opt", "announced"] => self.opt = Some(OnOpt::Announce),
            ["opt", name] => self.opt = Some(OnOpt::Refuse(rcode(name)?)),
            ["udp", "truncated"] => self.udp_truncated = true,
            ["udp", "at-most", octets] => self.udp_at_most = octets.parse()?,
            ["tcp", "close"] => self.tcp = Stream::Close,
            ["tcp", "hang"] => self.tcp = Stream::Hang,
            ["tcp", "half"] => self.tcp = Stream::Half,
            ["tcp", "once"] => self.tcp = Stream::Once,
            ["http", "status", status] => self.http.status = Some(status.parse()?),
            ["http", "type", kind] => self.http.media_type = Some((*kind).to_owned()),
            ["http", "age", seconds] => self.http.age = Some((*seconds).to_owned()),
            ["http", "octets", octets] => self.http.octets = octets.parse()?,
            ["first", decoy] => self.first.push(match *decoy {
                "wrong-id" => Decoy::WrongId,
                "wrong-question" => Decoy::WrongQuestion,
                "wrong-case" => Decoy::WrongCase,
                "query" => Decoy::Query,
                "garbage" => Decoy::Garbage,
                "half" => Decoy::Half,
                "guess" => Decoy::Guess,
                "other-port" => Decoy::OtherPort,
                "other-address" => Decoy::OtherAddress,
                other => bail!("unknown decoy {other}"),
            }),
            _ => bail!("unknown directive"),
        }
        Ok(())
    }
}

fn rcode(name: &str) -> Result<ResponseCode> {
    Ok(match name {
        "NOERROR" => ResponseCode::NoError,
        "FORMERR" => ResponseCode::FormErr,
        "SERVFAIL" => ResponseCode::ServFail,
        "NXDOMAIN" => ResponseCode::NXDomain,
        "NOTIMP" => ResponseCode::NotImp,
        "BADVERS" => ResponseCode::BADVERS,
        "REFUSED" => ResponseCode::Refused,
        "YXDOMAIN" => ResponseCode::YXDomain,
        other => bail!("unknown rcode {other}"),
    })
}

fn scripted_record(words: &[&str]) -> Result<ScriptedRecord> {
    let [owner, ttl, kind, data @ ..] = words else {
        bail!("a record is written as owner, TTL, type, data");
    };
    let owner = if *owner == "@" { None } else { Some(Name::from_ascii(owner)?) };
    let kind_number = record_type(kind)?;
    let data = match (*kind, data) {
        ("TXT", [size]) if size.starts_with('*') => RData::TXT(long_text(size[1..].parse()?)),
        ("DNAME", [target]) => opaque(kind_number, Name::from_ascii(target)?.to_bytes()?),
        (kind, hex) if kind.starts_with("TYPE") => opaque(kind_number, from_hex(&hex.concat())?),
        _ => RData::try_from_str(kind_number, &data.join(" "))?,
    };
    Ok(ScriptedRecord { owner, ttl_s: ttl.parse()?, data })
}

fn opaque(code: RecordType, octets: Vec<u8>) -> RData {
    RData::Unknown { code, rdata: NULL::with(octets) }
}

fn from_hex(text: &str) -> Result<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        bail!("hexadecimal data has two digits per octet");
    }
    (0..text.len()).step_by(2).map(|at| Ok(u8::from_str_radix(&text[at..at + 2], 16)?)).collect()
}

/// TXT data of exactly `size` octets, lengths of the character-strings included.
fn long_text(size: usize) -> TXT {
    let mut strings = Vec::new();
    let mut left = size;
    while left > 0 {
        let octets = (left - 1).min(255);
        strings.push(vec![b'x'; octets]);
        left -= octets + 1;
    }
    TXT::from_bytes(strings.iter().map(Vec::as_slice).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_is_named() {
        let error = Script::one("a.example. A\n    anwser @ 1 A 192.0.2.1").unwrap_err();
        assert!(format!("{error:#}").contains("anwser"), "{error:#}");
        assert!(Script::one("    silent").is_err());
        assert!(Script::one("no-dot A").is_err());
    }
}
