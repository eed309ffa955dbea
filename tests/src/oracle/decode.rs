//! Replies from octets to plain records, by a DNS library that is not ours.

use std::fmt;
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::RData;
use hickory_proto::rr::rdata::opt::EdnsOption;

use super::expected::{Data, Record};
use super::names::Name;

#[derive(Clone)]
pub struct Decoded {
    /// Size of the message in octets.
    pub len: usize,
    pub id: u16,
    /// QR=1 and opcode QUERY.
    pub is_query_response: bool,
    /// Rcode with the extended bits of the OPT.
    pub rcode: u16,
    pub aa: bool,
    pub tc: bool,
    pub rd: bool,
    pub ra: bool,
    pub ad: bool,
    pub cd: bool,
    /// The octets of the question section.
    pub question: Vec<u8>,
    pub answer: Vec<Record>,
    pub authority: Vec<Record>,
    /// The additional section without OPT.
    pub additional: Vec<Record>,
    /// Owner of the first answer record in the letter case it has, as labels. A DNAME stands above the name (RR85): it is
    /// left out.
    pub first_owner: Option<Vec<Vec<u8>>>,
    /// Every name outside the question as spelt, as labels.
    pub spellings: Vec<Vec<Vec<u8>>>,
    pub opt: Option<Opt>,
}

/// The OPT of a reply.
#[derive(Clone, Debug)]
pub struct Opt {
    /// Advertised UDP payload size.
    pub payload: u16,
    pub version: u8,
    pub dnssec_ok: bool,
    /// EDE codes in order.
    pub ede: Vec<u16>,
    pub nsid: Option<Vec<u8>>,
    /// Codes of options of any other kind.
    pub other_options: Vec<u16>,
}

impl fmt::Debug for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [(self.aa, "aa"), (self.tc, "tc"), (self.rd, "rd"), (self.ra, "ra")];
        write!(f, "rcode {}", self.rcode)?;
        flags.iter().filter(|(set, _)| *set).try_for_each(|(_, flag)| write!(f, " {flag}"))?;
        write!(f, " {} octets", self.len)?;
        if let Some(opt) = &self.opt {
            write!(f, " {opt:?}")?;
        }
        let sections = [
            ("ANSWER", &self.answer),
            ("AUTHORITY", &self.authority),
            ("ADDITIONAL", &self.additional),
        ];
        for (section, records) in sections {
            records.iter().try_for_each(|record| write!(f, "\n    {section} {record:?}"))?;
        }
        Ok(())
    }
}

/// Takes a reply apart.
///
/// # Errors
/// When it is no DNS message, or its counts and octets disagree.
pub fn decode(wire: &[u8]) -> Result<Decoded> {
    let message = Message::from_vec(wire).context("the reply does not decode")?;
    let flags = &message.metadata;
    let mut spellings = Vec::new();
    let mut section = |records: &[hickory_proto::rr::Record]| -> Vec<Record> {
        records.iter().map(|record| plain(record, &mut spellings)).collect()
    };
    let answer = section(&message.answers);
    let authority = section(&message.authorities);
    let additional = section(&message.additionals);
    ensure!(wire.len() >= 12, "shorter than a header");
    Ok(Decoded {
        len: wire.len(),
        id: flags.id,
        is_query_response: flags.message_type == MessageType::Response && wire[2] >> 3 & 15 == 0,
        rcode: flags.response_code.into(),
        aa: flags.authoritative,
        tc: flags.truncation,
        rd: flags.recursion_desired,
        ra: flags.recursion_available,
        ad: flags.authentic_data,
        cd: flags.checking_disabled,
        question: question_octets(wire)?,
        first_owner: (message.answers.iter())
            .find(|record| record.record_type() != hickory_proto::rr::RecordType::DNAME)
            .map(|record| labels(&record.name)),
        answer,
        authority,
        additional,
        spellings,
        opt: message.edns.as_ref().map(opt),
    })
}

/// The question section, which is never compressed.
fn question_octets(wire: &[u8]) -> Result<Vec<u8>> {
    if wire[4..6] == [0, 0] {
        return Ok(Vec::new());
    }
    let mut at = 12;
    while *wire.get(at).context("the question is cut short")? != 0 {
        at += usize::from(wire[at]) + 1;
    }
    Ok(wire.get(12..at + 5).context("the question is cut short")?.to_vec())
}

fn labels(name: &hickory_proto::rr::Name) -> Vec<Vec<u8>> {
    name.iter().map(<[u8]>::to_vec).collect()
}

fn plain(record: &hickory_proto::rr::Record, spellings: &mut Vec<Vec<Vec<u8>>>) -> Record {
    let mut name = |name: &hickory_proto::rr::Name| {
        let labels = labels(name);
        spellings.push(labels.clone());
        Name(labels.iter().map(|label| label.to_ascii_lowercase()).collect())
    };
    let owner = name(&record.name);
    let data = match &record.data {
        RData::A(address) => Data::Address(IpAddr::V4(address.0)),
        RData::AAAA(address) => Data::Address(IpAddr::V6(address.0)),
        RData::CNAME(target) => Data::Cname(name(&target.0)),
        RData::Unknown { code: hickory_proto::rr::RecordType::DNAME, rdata } => {
            Data::Dname(Name::wire(&rdata.anything))
        }
        RData::PTR(target) => Data::Ptr(name(&target.0)),
        RData::NS(target) => Data::Ns(name(&target.0)),
        RData::TXT(txt) => Data::Txt(txt.txt_data.iter().map(|string| string.to_vec()).collect()),
        RData::SRV(srv) => Data::Srv(srv.priority, srv.weight, srv.port, name(&srv.target)),
        RData::HINFO(hinfo) => Data::Hinfo(hinfo.cpu.to_vec(), hinfo.os.to_vec()),
        RData::SOA(soa) => {
            let timers = [soa.refresh as u32, soa.retry as u32, soa.expire as u32, soa.minimum];
            Data::Soa(name(&soa.mname), name(&soa.rname), Some(soa.serial), timers)
        }
        _ => Data::Other(record.record_type().into()),
    };
    Record { owner, class: record.dns_class.into(), ttl: record.ttl, data }
}

fn opt(edns: &hickory_proto::op::Edns) -> Opt {
    let mut opt = Opt {
        payload: edns.max_payload(),
        version: edns.version(),
        dnssec_ok: edns.flags().dnssec_ok,
        ede: Vec::new(),
        nsid: None,
        other_options: Vec::new(),
    };
    for (code, option) in edns.options().as_ref() {
        match option {
            EdnsOption::NSID(nsid) => opt.nsid = Some(nsid.as_ref().to_vec()),
            EdnsOption::Unknown(15, data) if data.len() >= 2 => {
                opt.ede.push(u16::from_be_bytes([data[0], data[1]]));
            }
            _ => opt.other_options.push((*code).into()),
        }
    }
    opt
}
