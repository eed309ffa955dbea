//! One line of text to one message.
//!
//! ```text
//! cart.shop.svc.cluster.local. A                  class IN, RD=1, OPT with 1232 octets
//! version.bind. CH TXT                            another class
//! cart\.shop.svc.cluster.local. A                 a dot inside a label; \DDD is any octet
//! cart.shop.svc.cluster.local. A +noedns +tcp     options, spelt as dig spells them; see `Options::read`
//! hex 1234 0100 0001 0000 0000 0000 04"cart" 00   the message itself: octets in hex, text in quotes
//! ```

use anyhow::{Context, Result, bail};
use hickory_proto::rr::{DNSClass, RecordType};

use super::Transport;

/// The id of every question that does not write its own octets.
const ID: u16 = 0x4731;
/// What we advertise, and the size limit of the replies (§9.2).
const UDP_PAYLOAD: u16 = 1232;
/// Without EDNS (WR11).
const PLAIN_PAYLOAD: u16 = 512;

/// A question, ready to send.
#[derive(Clone, Debug)]
pub struct Question {
    pub text: String,
    pub packet: Vec<u8>,
    /// Asked over this transport only.
    pub only: Option<Transport>,
    /// The longest reply allowed over UDP (WR11).
    pub udp_limit: usize,
}

impl Question {
    /// Reads one line.
    ///
    /// # Errors
    /// Says which word is not understood.
    pub fn parse(text: &str) -> Result<Question> {
        let text = text.trim();
        let read = match text.strip_prefix("hex ") {
            Some(octets) => hex(octets).map(|packet| (packet, Options::none())),
            None => written(text),
        };
        let (packet, options) = read.with_context(|| format!("the question {text:?}"))?;
        Ok(Question {
            text: text.to_owned(),
            packet,
            only: options.only,
            udp_limit: options.limit(),
        })
    }

    /// Whether it is asked over this transport.
    pub fn is_for(&self, transport: Transport) -> bool {
        self.only.is_none_or(|only| only == transport)
    }
}

/// Name, class, type and options to a message.
fn written(text: &str) -> Result<(Vec<u8>, Options)> {
    let (options, words): (Vec<&str>, Vec<&str>) =
        text.split_whitespace().partition(|word| word.starts_with('+'));
    let (name, class, qtype) = match words.as_slice() {
        [name, qtype] => (name, DNSClass::IN, qtype),
        [name, class, qtype] => (name, class.parse()?, qtype),
        _ => bail!("is not a name, perhaps a class, and a type"),
    };
    let mut read = Options { payload: Some(UDP_PAYLOAD), recursion: true, ..Options::none() };
    for option in options {
        read.read(option)?;
    }
    let mut packet = read.header();
    packet.extend(name_octets(name)?);
    packet.extend(record_type(qtype)?.to_be_bytes());
    packet.extend(u16::from(class).to_be_bytes());
    read.write_opt(&mut packet);
    Ok((packet, read))
}

fn record_type(text: &str) -> Result<u16> {
    match (text, text.strip_prefix("TYPE")) {
        ("IXFR", _) => Ok(251),
        ("OPT", _) => Ok(41),
        (_, Some(number)) => Ok(number.parse()?),
        _ => Ok(text.parse::<RecordType>()?.into()),
    }
}

/// The options after the question, as `dig` has them (`+tcp`).
#[derive(Clone, Debug)]
struct Options {
    only: Option<Transport>,
    opcode: u8,
    recursion: bool,
    z: bool,
    authentic: bool,
    checking_disabled: bool,
    /// The payload size advertised; `None` is no OPT.
    payload: Option<u16>,
    version: u8,
    dnssec_ok: bool,
    /// EDNS options: code and value.
    edns: Vec<(u16, Vec<u8>)>,
}

impl Options {
    /// Those of a message that carries none.
    fn none() -> Options {
        Options {
            only: None,
            opcode: 0,
            recursion: false,
            z: false,
            authentic: false,
            checking_disabled: false,
            payload: None,
            version: 0,
            dnssec_ok: false,
            edns: Vec::new(),
        }
    }

    fn read(&mut self, option: &str) -> Result<()> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "+udp" => self.only = Some(Transport::Udp),
            "+tcp" => self.only = Some(Transport::Tcp),
            "+opcode" => self.opcode = opcode(value)?,
            "+norecurse" => self.recursion = false,
            "+zflag" => self.z = true,
            "+adflag" => self.authentic = true,
            "+cdflag" => self.checking_disabled = true,
            "+noedns" => self.payload = None,
            "+bufsize" => self.payload = Some(value.parse()?),
            "+edns" => self.version = value.parse()?,
            "+dnssec" => self.dnssec_ok = true,
            "+nsid" => self.edns.push((3, Vec::new())),
            // 192.0.2.0/24 (RFC 7871).
            "+subnet" => self.edns.push((8, vec![0, 1, 24, 0, 192, 0, 2])),
            "+cookie" => self.edns.push((10, b"8 octets".to_vec())),
            "+ednsopt" => self.edns.push((value.parse()?, b"opaque".to_vec())),
            _ => bail!("unknown option {option}"),
        }
        Ok(())
    }

    /// The header of one question, RFC 1035 §4.1.1.
    fn header(&self) -> Vec<u8> {
        let high = self.opcode << 3 | u8::from(self.recursion);
        let low = u8::from(self.z) << 6
            | u8::from(self.authentic) << 5
            | u8::from(self.checking_disabled) << 4;
        let [id_high, id_low] = ID.to_be_bytes();
        let additional = u8::from(self.payload.is_some());
        vec![id_high, id_low, high, low, 0, 1, 0, 0, 0, 0, 0, additional]
    }

    /// The OPT record, RFC 6891 §6.1.2.
    fn write_opt(&self, packet: &mut Vec<u8>) {
        let Some(payload) = self.payload else { return };
        packet.extend([0, 0, 41]);
        packet.extend(payload.to_be_bytes());
        packet.extend([0, self.version, u8::from(self.dnssec_ok) << 7, 0]);
        let options: Vec<u8> = self
            .edns
            .iter()
            .flat_map(|(code, value)| {
                [&code.to_be_bytes(), &(value.len() as u16).to_be_bytes(), value.as_slice()]
                    .concat()
            })
            .collect();
        packet.extend((options.len() as u16).to_be_bytes());
        packet.extend(options);
    }

    /// WR11 with the default `udpPayloadBytes`.
    fn limit(&self) -> usize {
        let payload = self.payload.unwrap_or(PLAIN_PAYLOAD);
        payload.clamp(PLAIN_PAYLOAD, UDP_PAYLOAD).into()
    }
}

fn opcode(text: &str) -> Result<u8> {
    Ok(match text {
        "IQUERY" => 1,
        "STATUS" => 2,
        "NOTIFY" => 4,
        "UPDATE" => 5,
        number => number.parse().context("an opcode is a name or a number")?,
    })
}

/// A dotted name with RFC 1035 §5.1 escapes to wire form.
fn name_octets(text: &str) -> Result<Vec<u8>> {
    let Some(relative) = text.strip_suffix('.') else {
        bail!("the name must end with a dot");
    };
    let mut wire = Vec::new();
    let mut label = Vec::new();
    let mut rest = relative.bytes();
    while let Some(octet) = rest.next() {
        match octet {
            b'.' => push_label(&mut wire, &mut label)?,
            b'\\' => label.push(escaped(&mut rest)?),
            octet => label.push(octet),
        }
    }
    if !relative.is_empty() {
        push_label(&mut wire, &mut label)?;
    }
    wire.push(0);
    Ok(wire)
}

fn push_label(wire: &mut Vec<u8>, label: &mut Vec<u8>) -> Result<()> {
    if label.is_empty() || label.len() > 63 {
        bail!("a label has 1 to 63 octets; write anything else as `hex`");
    }
    wire.push(label.len() as u8);
    wire.append(label);
    Ok(())
}

fn escaped(rest: &mut std::str::Bytes<'_>) -> Result<u8> {
    let first = rest.next().context("nothing follows the backslash")?;
    if !first.is_ascii_digit() {
        return Ok(first);
    }
    let digits = [first, rest.next().unwrap_or(0), rest.next().unwrap_or(0)];
    Ok(std::str::from_utf8(&digits)?.parse()?)
}

/// Hex digits and quoted text; white space separates.
fn hex(text: &str) -> Result<Vec<u8>> {
    let mut octets = Vec::new();
    for (position, part) in text.split('"').enumerate() {
        if position % 2 == 1 {
            octets.extend(part.bytes());
            continue;
        }
        let digits: String = part.split_whitespace().collect();
        if !digits.is_ascii() || digits.len() % 2 == 1 {
            bail!("an octet has two hex digits: {part:?}");
        }
        for at in (0..digits.len()).step_by(2) {
            octets.push(u8::from_str_radix(&digits[at..at + 2], 16)?);
        }
    }
    Ok(octets)
}
