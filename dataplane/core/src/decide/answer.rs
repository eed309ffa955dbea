//! Writes the records at a name: the RRset of the type asked for, and additional data.

mod addresses;
mod services;

use crate::decide::loop_probe;
use crate::decide::reverse::{write_cluster_ip_pointer, write_pointers};
use crate::decide::route::{Soa, SoaKind};
use crate::decide::schema::Node;
use crate::records::endpoints::PortFilter;
use crate::records::extra::{ExtraOwner, ExtraPointers};
use crate::records::{Kind, Records};
use crate::wire::message::{CLASS_IN, rtype};
use crate::wire::name::MAX_LABEL;
use crate::wire::reply::{Apex, Owner, Rdata, Reply, Section};

/// TTL of special-use names in seconds (§2.3).
const LOCALHOST_TTL_S: u32 = 604_800;
/// TTL and MINIMUM of the SOA of special-use zones in seconds (§2.3).
const SPECIAL_SOA_TTL_S: u32 = 300;
/// TTL of `dns-version.Z` in seconds, and the version of the specification (RR73).
const VERSION_TTL_S: u32 = 28_800;
const SPECIFICATION_VERSION: &[u8] = b"1.1.0";
/// `HINFO "RFC8482" ""`.
const ANY_RDATA: &[u8] = b"\x07RFC8482\x00";
/// `localhost.` in wire form.
const LOCALHOST: &[u8] = b"\x09localhost\x00";

/// What an answer is written from.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'a> {
    pub(crate) records: &'a Records,
    /// Decides where RRsets start (WR24).
    pub(crate) seed: u64,
    /// Owner of the records: the question, or the target of a CNAME.
    pub(crate) owner: Owner<'a>,
    pub(crate) soa: Soa<'a>,
}

impl Answer<'_> {
    /// Writes the RRset of a type at a node; false when there is none (NODATA).
    pub(crate) fn write(&self, node: Node<'_, '_>, qtype: u16, reply: &mut Reply<'_, '_>) -> bool {
        if qtype == rtype::ANY {
            return self.write_any(node, reply);
        }
        match (node, qtype) {
            (_, rtype::A | rtype::AAAA) => self.write_addresses(node, qtype, reply),
            (Node::Apex, rtype::SOA) => {
                let _ = self.soa_record(Section::Answer, self.owner, reply);
                true
            }
            (Node::Apex, rtype::NS) => self.write_name_server(reply),
            (Node::Version, rtype::TXT) => {
                let text = Rdata::Strings(&[SPECIFICATION_VERSION]);
                let _ = reply.answer(self.owner, rtype::TXT, VERSION_TTL_S, text);
                true
            }
            (Node::LoopProbe(label), rtype::TXT) => {
                let mut buffer = [0; MAX_LABEL];
                let text = Rdata::Strings(&[loop_probe::answer(label, &mut buffer)]);
                let _ = reply.answer(self.owner, rtype::TXT, 0, text);
                true
            }
            (Node::ClusterIp(entry, object), rtype::SRV) => {
                self.write_service_ports(entry, object, reply)
            }
            (Node::ClusterIpPort(entry, object, places), rtype::SRV) => {
                self.write_named_port(entry, object, places, reply);
                true
            }
            (Node::Headless(entry), rtype::SRV) => self.write_pairs(entry, PortFilter::Any, reply),
            (Node::HeadlessPort(entry, port), rtype::SRV) => {
                self.write_pairs(entry, PortFilter::Named(port), reply)
            }
            (Node::Endpoint(entry, name), rtype::SRV) => {
                self.write_endpoint_ports(entry, name, reply)
            }
            (Node::ClusterIpPointer(entry), rtype::PTR) => {
                write_cluster_ip_pointer(self.records, entry, self.owner, reply);
                true
            }
            (Node::Pointers(claims), rtype::PTR) => {
                write_pointers(self.records, &claims, self.owner, reply);
                true
            }
            (Node::ExtraPointers(ExtraPointers { names, ttl_s }), rtype::PTR) => {
                names.iter().all(|name| {
                    reply.answer(self.owner, rtype::PTR, *ttl_s, Rdata::Name(name.wire())).is_ok()
                });
                true
            }
            (Node::LocalhostPointer, rtype::PTR) => {
                let target = Rdata::Name(LOCALHOST);
                let _ = reply.answer(self.owner, rtype::PTR, LOCALHOST_TTL_S, target);
                true
            }
            (Node::Extra(owner), rtype::TXT) => self.write_texts(owner, reply),
            (Node::Extra(owner), rtype::SRV) => self.write_extra_services(owner, reply),
            (Node::Extra(owner), rtype::DNAME) => self.write_dname(owner, reply),
            _ => false,
        }
    }

    fn write_any(&self, node: Node<'_, '_>, reply: &mut Reply<'_, '_>) -> bool {
        let has_records = match node {
            Node::EmptyNonTerminal => false,
            Node::NameServer => self.has_address(node, false) || self.has_address(node, true),
            Node::ClusterIp(_, object) => {
                !object.ports.all.is_empty()
                    || matches!(&object.kind, Kind::ClusterIp(addresses) if !addresses.is_empty())
            }
            Node::Apex
            | Node::Version
            | Node::ClusterIpPort(..)
            | Node::Headless(_)
            | Node::HeadlessPort(..)
            | Node::Endpoint(..)
            | Node::Alias(..)
            | Node::Dname(_)
            | Node::Federated(_)
            | Node::PodAddress(_)
            | Node::Extra(_)
            | Node::ClusterIpPointer(_)
            | Node::Pointers(_)
            | Node::ExtraPointers(_)
            | Node::Localhost
            | Node::LocalhostPointer
            | Node::LoopProbe(_) => true,
        };
        if has_records {
            let ttl_s = self.records.zone.settings.ttl_s;
            let _ = reply.answer(self.owner, rtype::HINFO, ttl_s, Rdata::Octets(ANY_RDATA));
        }
        has_records
    }

    /// Writes the SOA of the zone; false when it does not fit.
    pub(crate) fn soa_record(
        &self,
        section: Section,
        owner: Owner<'_>,
        reply: &mut Reply<'_, '_>,
    ) -> bool {
        let zone = &self.records.zone;
        let apex = Apex {
            wire: zone.apex(),
            labels: zone.apex_labels,
            negative_ttl_s: zone.negative_ttl_s,
        };
        if section == Section::Authority
            && self.soa.kind == SoaKind::Cluster
            && self.soa.owner == apex.wire
            && let Some(written) = reply.cluster_soa(apex, self.records.serial)
        {
            return written.is_ok();
        }
        let (serial, ttl_s) = match self.soa.kind {
            SoaKind::Cluster => (self.records.serial, zone.negative_ttl_s),
            SoaKind::Extra => (self.records.configuration_serial, zone.negative_ttl_s),
            SoaKind::SpecialUse => (1, SPECIAL_SOA_TTL_S),
        };
        let soa = Rdata::Soa {
            mname: zone.name_server.wire(),
            rname: zone.mailbox.wire(),
            serial,
            minimum: ttl_s,
        };
        match section {
            // One that does not fit behind aliases sets TC (WR21).
            Section::Answer => reply.answer(owner, rtype::SOA, ttl_s, soa),
            Section::Authority | Section::Additional => {
                reply.record(section, owner, rtype::SOA, CLASS_IN, ttl_s, soa)
            }
        }
        .is_ok()
    }

    /// The NS record of a zone of ours, with the addresses of its target (RR71).
    fn write_name_server(&self, reply: &mut Reply<'_, '_>) -> bool {
        let zone = &self.records.zone;
        let name = zone.name_server.wire();
        let _ = reply.answer(self.owner, rtype::NS, zone.settings.ttl_s, Rdata::Name(name));
        self.add_addresses(Node::NameServer, name, reply);
        true
    }

    fn write_texts(&self, owner: &ExtraOwner, reply: &mut Reply<'_, '_>) -> bool {
        let Some((strings, ttl_s)) = &owner.txt else {
            return false;
        };
        let _ = reply.answer(self.owner, rtype::TXT, *ttl_s, Rdata::Texts(strings));
        true
    }

    /// The DNAME of its owner; names below are led away before this (RR85).
    fn write_dname(&self, owner: &ExtraOwner, reply: &mut Reply<'_, '_>) -> bool {
        let Some(dname) = &owner.dname else {
            return false;
        };
        let target = Rdata::WholeName(dname.target.wire());
        let _ = reply.answer(self.owner, rtype::DNAME, dname.ttl_s, target);
        true
    }
}
