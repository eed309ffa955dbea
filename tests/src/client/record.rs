//! One record as text: `owner ttl [class] type data`.

use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinDecodable;

use super::Names;

/// Serials from here on are Unix times of a change, which no text can know before (RR70).
const UNIX_SERIALS: u32 = 1_000_000_000;

/// Only values that no text can know are replaced: serials, and the server's names for itself.
pub(super) fn record_text(record: &Record, names: &Names) -> String {
    let class = match record.dns_class {
        DNSClass::IN => String::new(),
        other => format!("{other} "),
    };
    let owner = name(&record.name);
    let data = data(&record.data, names);
    format!("{owner} {} {class}{} {data}", record.ttl, record.record_type())
}

fn data(data: &RData, names: &Names) -> String {
    match data {
        RData::CNAME(target) => name(target),
        RData::NS(target) => name(target),
        RData::PTR(target) => name(target),
        RData::SRV(srv) => {
            format!("{} {} {} {}", srv.priority, srv.weight, srv.port, name(&srv.target))
        }
        RData::SOA(soa) => {
            let serial = match soa.serial {
                UNIX_SERIALS.. => "<serial>".into(),
                small => small.to_string(),
            };
            let (mname, rname) = (name(&soa.mname), name(&soa.rname));
            let timers = format!("{} {} {} {}", soa.refresh, soa.retry, soa.expire, soa.minimum);
            format!("{mname} {rname} {serial} {timers}")
        }
        RData::TXT(txt) => {
            let strings: Vec<String> = txt.txt_data.iter().map(|text| quoted(text)).collect();
            strings
                .join(" ")
                .replace(&format!("\"clusterdns-{}\"", names.version), "\"clusterdns-<version>\"")
        }
        RData::HINFO(hinfo) => format!("{} {}", quoted(&hinfo.cpu), quoted(&hinfo.os)),
        // Its RDATA is one name, without compression (RFC 6672 §2.5).
        RData::Unknown { code: RecordType::DNAME, rdata } => {
            Name::from_bytes(&rdata.anything).map_or_else(|error| error.to_string(), |it| name(&it))
        }
        other => other.to_string(),
    }
}

fn quoted(octets: &[u8]) -> String {
    format!("\"{}\"", octets.escape_ascii())
}

/// Letter case as received; dots inside labels escaped.
fn name(name: &Name) -> String {
    if name.is_root() {
        return ".".into();
    }
    name.iter().map(|label| label.escape_ascii().to_string().replace('.', "\\.") + ".").collect()
}
