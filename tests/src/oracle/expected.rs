//! What a question is, and what the rules expect of its reply.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use dataplane_core::Transport;

use super::names::Name;

/// Types and classes by number, so that nothing of a library's view of them matters.
pub mod rtype {
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const HINFO: u16 = 13;
    pub const MX: u16 = 15;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const DS: u16 = 43;
    pub const DNSKEY: u16 = 48;
    pub const HTTPS: u16 = 65;
    pub const TSIG: u16 = 250;
    pub const IXFR: u16 = 251;
    pub const AXFR: u16 = 252;
    pub const ANY: u16 = 255;
    pub const CLASS_IN: u16 = 1;
    pub const CLASS_CH: u16 = 3;
}

/// One question, as a client asks it.
#[derive(Clone, PartialEq, Eq)]
pub struct Question {
    /// The name as asked, letter case included, in wire form.
    pub name: Vec<u8>,
    pub qtype: u16,
    pub class: u16,
    pub rd: bool,
    pub cd: bool,
    /// The OPT record, if any.
    pub edns: Option<Edns>,
    pub client: SocketAddr,
    pub transport: Transport,
}

/// What an OPT record of a question says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    /// Largest UDP reply the client takes.
    pub payload: u16,
    pub version: u8,
    pub dnssec_ok: bool,
    pub nsid: bool,
}

impl Question {
    pub fn packet(&self, id: u16) -> Vec<u8> {
        let mut packet = id.to_be_bytes().to_vec();
        packet.extend([u8::from(self.rd), u8::from(self.cd) << 4, 0, 1, 0, 0, 0, 0, 0]);
        packet.push(u8::from(self.edns.is_some()));
        packet.extend_from_slice(&self.name);
        packet.extend(self.qtype.to_be_bytes());
        packet.extend(self.class.to_be_bytes());
        if let Some(edns) = self.edns {
            packet.push(0);
            packet.extend(rtype::OPT.to_be_bytes());
            packet.extend(edns.payload.to_be_bytes());
            packet.extend([0, edns.version, u8::from(edns.dnssec_ok) << 7, 0]);
            packet.extend(if edns.nsid { &[0, 4, 0, 3, 0, 0][..] } else { &[0, 0] });
        }
        packet
    }

    /// The octets of the question section.
    pub fn section(&self) -> Vec<u8> {
        let mut section = self.name.clone();
        section.extend(self.qtype.to_be_bytes());
        section.extend(self.class.to_be_bytes());
        section
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", Spelling(&self.name))?;
        if self.class != rtype::CLASS_IN {
            write!(f, "CLASS{} ", self.class)?;
        }
        write!(f, "{} {:?}", TypeName(self.qtype), self.transport)?;
        if !self.rd {
            f.write_str(" RD=0")?;
        }
        if !self.client.ip().to_canonical().is_loopback() {
            write!(f, " from {}", self.client)?;
        }
        match self.edns {
            Some(edns) => write!(f, " {edns:?}"),
            None => f.write_str(" no OPT"),
        }
    }
}

/// A wire-form name in the letter case it has.
struct Spelling<'a>(&'a [u8]);

impl fmt::Display for Spelling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut at = 0;
        while self.0[at] != 0 {
            let length = usize::from(self.0[at]);
            let label = self.0[at + 1..][..length].escape_ascii().to_string();
            write!(f, "{}.", label.replace('.', "\\."))?;
            at += length + 1;
        }
        if at == 0 { f.write_str(".") } else { Ok(()) }
    }
}

/// The mnemonic of a type.
pub struct TypeName(pub u16);

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            rtype::A => "A",
            rtype::NS => "NS",
            rtype::CNAME => "CNAME",
            rtype::SOA => "SOA",
            rtype::PTR => "PTR",
            rtype::HINFO => "HINFO",
            rtype::MX => "MX",
            rtype::TXT => "TXT",
            rtype::AAAA => "AAAA",
            rtype::SRV => "SRV",
            rtype::DNAME => "DNAME",
            rtype::DS => "DS",
            rtype::DNSKEY => "DNSKEY",
            rtype::HTTPS => "HTTPS",
            rtype::ANY => "ANY",
            other => return write!(f, "TYPE{other}"),
        })
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    Address(IpAddr),
    Cname(Name),
    Dname(Name),
    Ptr(Name),
    Ns(Name),
    Txt(Vec<Vec<u8>>),
    /// TXT of one string with a decimal number whose value the rules leave open (A53, A54).
    Number,
    /// SRV: priority, weight, port, target.
    Srv(u16, u16, u16, Name),
    /// HINFO: CPU and OS.
    Hinfo(Vec<u8>, Vec<u8>),
    /// SOA: MNAME, RNAME, serial (`None`: any), refresh, retry, expire, MINIMUM.
    Soa(Name, Name, Option<u32>, [u32; 4]),
    /// Anything else, by type.
    Other(u16),
}

impl Data {
    /// The type of the record.
    pub fn rtype(&self) -> u16 {
        match self {
            Data::Address(IpAddr::V4(_)) => rtype::A,
            Data::Address(IpAddr::V6(_)) => rtype::AAAA,
            Data::Cname(_) => rtype::CNAME,
            Data::Dname(_) => rtype::DNAME,
            Data::Ptr(_) => rtype::PTR,
            Data::Ns(_) => rtype::NS,
            Data::Txt(_) | Data::Number => rtype::TXT,
            Data::Srv(..) => rtype::SRV,
            Data::Hinfo(..) => rtype::HINFO,
            Data::Soa(..) => rtype::SOA,
            Data::Other(other) => *other,
        }
    }

    /// Octets of RDATA when nothing in it is compressed.
    pub fn octets(&self) -> usize {
        match self {
            Data::Address(IpAddr::V4(_)) => 4,
            Data::Address(IpAddr::V6(_)) => 16,
            Data::Cname(name) | Data::Dname(name) | Data::Ptr(name) | Data::Ns(name) => {
                name.wire_len()
            }
            Data::Txt(strings) => strings.iter().map(|string| string.len() + 1).sum(),
            Data::Srv(_, _, _, target) => 6 + target.wire_len(),
            Data::Hinfo(cpu, os) => cpu.len() + os.len() + 2,
            Data::Soa(mname, rname, ..) => mname.wire_len() + rname.wire_len() + 20,
            Data::Number | Data::Other(_) => 0,
        }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", TypeName(self.rtype()))?;
        match self {
            Data::Address(address) => write!(f, "{address}"),
            Data::Cname(name) | Data::Dname(name) | Data::Ptr(name) | Data::Ns(name) => {
                write!(f, "{name}")
            }
            Data::Txt(strings) => {
                strings.iter().try_for_each(|string| write!(f, "\"{}\" ", string.escape_ascii()))
            }
            Data::Number => f.write_str("<a number>"),
            Data::Srv(priority, weight, port, target) => {
                write!(f, "{priority} {weight} {port} {target}")
            }
            Data::Hinfo(cpu, os) => write!(f, "{:?} {:?}", cpu.escape_ascii(), os.escape_ascii()),
            Data::Soa(mname, rname, serial, timers) => {
                write!(f, "{mname} {rname} {serial:?} {timers:?}")
            }
            Data::Other(_) => Ok(()),
        }
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    pub owner: Name,
    pub class: u16,
    pub ttl: u32,
    pub data: Data,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = if self.class == rtype::CLASS_IN { "IN" } else { "CH" };
        write!(f, "{} {} {class} {:?}", self.owner, self.ttl, self.data)
    }
}

/// Records that belong together: one RRset, or one CNAME of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RrSet {
    pub records: Vec<Record>,
    /// Whether the order counts (WR24).
    pub ordered: bool,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Expected {
    /// A reply of our own.
    Reply(Box<Reply>),
    Forward {
        /// 0 for the default upstreams, `i + 1` for stub domain `i`.
        group: usize,
        /// The name it is asked for.
        name: Name,
        /// The CNAMEs of ours that led there.
        cnames: Vec<Record>,
        /// EDE codes that a reply must have, also if the upstream gave others.
        ede: Vec<u16>,
    },
}

/// A reply of our own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Rcode, extended bits included.
    pub rcode: u16,
    pub aa: bool,
    /// Whether the reply has an OPT (if the query had one).
    pub opt: bool,
    /// Answer section: sets in order.
    pub answer: Vec<RrSet>,
    /// Whether the answer section may also be empty, where the rules do not say.
    pub answer_may_be_empty: bool,
    /// Authority section: an SOA or nothing.
    pub soa: Option<Record>,
    /// Whether SERVFAIL with EDE 14 would do as well: a name that never exists, before the first
    /// sync (the rules do not say whether its denial needs data).
    pub may_be_not_ready: bool,
    /// Additional section but OPT, as large as it may be.
    pub additional: Vec<RrSet>,
    /// EDE codes that must be there if there is an OPT.
    pub ede: Vec<u16>,
    /// EDE codes that may be there as well.
    pub ede_allowed: Vec<u16>,
}

impl fmt::Debug for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Forward { group, name, cnames, ede } => {
                write!(f, "forward {name} to group {group} EDE {ede:?}")?;
                cnames.iter().try_for_each(|record| write!(f, "\n    {record:?}"))
            }
            Expected::Reply(reply) => {
                write!(f, "rcode {}{}", reply.rcode, if reply.aa { " aa" } else { "" })?;
                write!(f, " EDE {:?} (may: {:?})", reply.ede, reply.ede_allowed)?;
                for set in &reply.answer {
                    let order = if set.ordered { " (in order)" } else { "" };
                    for record in &set.records {
                        write!(f, "\n    ANSWER {record:?}{order}")?;
                    }
                }
                if let Some(soa) = &reply.soa {
                    write!(f, "\n    AUTHORITY {soa:?}")?;
                }
                for record in reply.additional.iter().flat_map(|set| &set.records) {
                    write!(f, "\n    ADDITIONAL {record:?}")?;
                }
                Ok(())
            }
        }
    }
}
