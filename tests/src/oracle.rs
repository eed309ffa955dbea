//! A naive oracle of the rules: what must be answered, by brute force over plain lists of objects.
//!
//! Written from the rules alone and sharing no code with the index, so that the two can only
//! agree when both are right. Clarity over speed: every question walks every object.

pub mod expected;
pub mod store;
mod visible;
pub mod names;
mod zone;
mod endpoints;
mod pods;
mod reverse;
mod extra;
mod federations;
mod special;
mod groups;
pub mod decode;
pub mod compare;

use std::net::IpAddr;

use dataplane_core::{DataSource, Resource, ServiceAddresses, ServiceKind, Settings};

use expected::{Data, Edns, Expected, Question, Record, Reply, RrSet, rtype};
use names::Name;
use store::Store;

pub use special::Identity;

const NOERROR: u16 = 0;
const FORMERR: u16 = 1;
const SERVFAIL: u16 = 2;
const NXDOMAIN: u16 = 3;
const YXDOMAIN: u16 = 6;
const REFUSED: u16 = 5;
const BADVERS: u16 = 16;

/// RR48: more CNAMEs of ours than this are an error.
const MAX_CNAMES: usize = 10;

/// The objects, the configuration and the rules.
#[derive(Clone, Debug)]
pub struct Oracle {
    pub store: Store,
    pub settings: Settings,
    /// The identity in answers to CHAOS names and loop probes.
    pub identity: Identity,
}

/// What a name has: records, or one of the kinds of absence.
enum Node {
    /// Neither the name nor anything below it exists.
    Missing,
    /// The name exists; without records it is an empty non-terminal, or a Service without data.
    Exists(Vec<RrSet>),
    /// The name is an alias, for every type.
    Alias(Record),
    /// The name is below the owner of this DNAME (RR85).
    Below(Record),
    /// The name leads to a place that is not known (RR97).
    Unplaced,
}

/// The verdict on a name of ours.
struct Local {
    node: Node,
    /// What a negative answer carries.
    soa: Record,
    /// The resources whose data the verdict depends on (§4.4).
    needs: Vec<Resource>,
    /// Resources whose data the verdict may be said to depend on: §4.4 leaves the case out.
    may_need: Vec<Resource>,
}

/// Where a name belongs (§2.2).
enum Route {
    Ours(Box<Local>),
    Group(usize),
    NoGroup,
}

impl Oracle {
    pub fn new(settings: Settings, identity: Identity) -> Oracle {
        Oracle { store: Store::default(), settings, identity }
    }

    /// `Z`.
    fn zone(&self) -> Name {
        Name::of(&self.settings.cluster_domain)
    }

    /// `labels.Z`
    fn in_zone(&self, labels: &str) -> Name {
        let mut name = Name::text(labels);
        name.0.extend(self.zone().0);
        name
    }

    /// `N` of RR70 and N31.
    fn negative_ttl(&self) -> u32 {
        self.settings.ttl_s.min(5)
    }

    /// The SOA of a zone of ours (RR70).
    fn soa(&self, owner: Name) -> Record {
        let negative = self.negative_ttl();
        let timers = [7200, 1800, 86400, negative];
        let (mname, rname) = (self.in_zone("ns.dns"), self.in_zone("hostmaster"));
        let data = Data::Soa(mname, rname, None, timers);
        Record { owner, class: rtype::CLASS_IN, ttl: negative, data }
    }

    /// An RRset derived from Kubernetes (RR74); empty data gives no RRset.
    fn kubernetes(&self, owner: &Name, data: Vec<Data>) -> Option<RrSet> {
        rrset(owner, self.settings.ttl_s, data)
    }

    /// A and AAAA RRsets of these addresses, duplicates dropped.
    fn addresses(&self, owner: &Name, addresses: &[IpAddr], ttl: u32) -> Vec<RrSet> {
        let of = |v4: bool| {
            let wanted = addresses.iter().filter(|address| address.is_ipv4() == v4);
            rrset(owner, ttl, wanted.map(|address| Data::Address(*address)).collect())
        };
        [of(true), of(false)].into_iter().flatten().collect()
    }

    /// The addresses of `ns.dns.Z` (RR72), also where exposure hides that Service (N43).
    fn service_addresses(&self) -> Vec<IpAddr> {
        match &self.settings.service_addresses {
            ServiceAddresses::Fixed { addresses, .. } => addresses.clone(),
            ServiceAddresses::OfService { namespace, name } => self
                .services()
                .find(|service| service.key.namespace == *namespace && service.key.name == *name)
                .map(|service| match &service.kind {
                    ServiceKind::ClusterIp(addresses) => addresses.clone(),
                    ServiceKind::Headless | ServiceKind::ExternalName(_) => Vec::new(),
                })
                .unwrap_or_default(),
        }
    }

    /// The decision table of §4.1, first match wins. The packet itself is well-formed.
    pub fn answer(&self, question: &Question) -> Expected {
        let settings = &self.settings;
        let error =
            |rcode, ede: &[u16]| Reply { rcode, opt: true, ede: ede.to_vec(), ..Reply::default() };
        // Types that no question may have (N5).
        if matches!(question.qtype, 0 | rtype::OPT | rtype::TSIG) {
            return Reply { opt: false, ..error(FORMERR, &[]) }.into();
        }
        // An EDNS version that is not 0 (N6).
        if question.edns.is_some_and(|edns: Edns| edns.version != 0) {
            return error(BADVERS, &[]).into();
        }
        // A client outside the client list (N7).
        let client = question.client.ip().to_canonical();
        if !settings.clients.is_empty() && !settings.clients.iter().any(|net| net.contains(&client))
        {
            return error(REFUSED, &[18]).into();
        }
        // Zone transfers and other classes (N8).
        if matches!(question.qtype, rtype::AXFR | rtype::IXFR) {
            return error(REFUSED, &[21]).into();
        }
        let name = Name::wire(&question.name);
        match question.class {
            rtype::CLASS_IN => self.resolve(name, question.qtype, question.rd),
            rtype::CLASS_CH => match self.chaos(&name, question.qtype) {
                Some(answer) => Reply { aa: true, answer, ..error(NOERROR, &[]) }.into(),
                None => error(REFUSED, &[21]).into(),
            },
            _ => error(REFUSED, &[21]).into(),
        }
    }

    /// Routing and answer of one name, and of the names its CNAMEs lead to (§2.2, §3.5).
    fn resolve(&self, asked: Name, qtype: u16, rd: bool) -> Expected {
        let mut cnames: Vec<Record> = Vec::new();
        let mut hops = 0;
        let mut needs: Vec<Resource> = Vec::new();
        let mut may_need: Vec<Resource> = Vec::new();
        let mut name = asked.clone();
        loop {
            let local = match self.route(&name, qtype) {
                Route::Ours(local) => *local,
                // Without RD the names of others are refused; a CNAME of ours stands alone (N14, RR43).
                Route::Group(_) | Route::NoGroup if !rd => {
                    return self.elsewhere(cnames, &needs, REFUSED, NOERROR);
                }
                // No group is configured for the name (N15, RR42).
                Route::NoGroup => return self.elsewhere(cnames, &needs, REFUSED, SERVFAIL),
                // A type that is withheld from the group (FW45, N22).
                Route::Group(group) if self.is_withheld(group, qtype) => {
                    return self.without_data(&cnames, &needs);
                }
                Route::Group(group) => {
                    let ede = self.snapshot_ede(&needs);
                    return Expected::Forward { group, name, cnames, ede };
                }
            };
            if rd && let Some(group) = self.group_above(&name, qtype, &local, &cnames) {
                let ede = self.snapshot_ede(&needs);
                return Expected::Forward { group, name, cnames, ede };
            }
            needs.extend(&local.needs);
            // The data that the question needs is missing (N9), or the place of a federation (RR97).
            let is_missing = |of: &Resource| self.store.source(*of) == DataSource::None;
            if matches!(local.node, Node::Unplaced) || needs.iter().any(is_missing) {
                return Reply {
                    rcode: SERVFAIL,
                    opt: true,
                    answer: chain(&cnames),
                    answer_may_be_empty: true,
                    ede: vec![14],
                    ..Reply::default()
                }
                .into();
            }
            let ede = self.snapshot_ede(&needs);
            let mut reply = Reply { aa: true, opt: true, ede, ..Reply::default() };
            may_need.extend(&local.may_need);
            reply.may_be_not_ready = !self.ready(&may_need);
            reply.ede_allowed = self.snapshot_ede(&may_need);
            let node = match local.node {
                Node::Below(dname) => {
                    let cname = extra::below(&name, &dname);
                    cnames.push(dname);
                    // What it makes of the name is too long (RFC 6672 §2.2).
                    let Some(cname) = cname else {
                        return Reply { rcode: YXDOMAIN, answer: chain(&cnames), ..reply }.into();
                    };
                    Node::Alias(cname)
                }
                other => other,
            };
            match node {
                Node::Below(_) | Node::Unplaced => unreachable!("an alias, or answered by now"),
                Node::Alias(cname) => {
                    let Data::Cname(target) = cname.data.clone() else { unreachable!() };
                    cnames.push(cname);
                    hops += 1;
                    // CNAME and ANY get the CNAME alone (RR46).
                    if matches!(qtype, rtype::CNAME | rtype::ANY) {
                        return Reply { answer: chain(&cnames), ..reply }.into();
                    }
                    // A loop, or more than ten CNAMEs of ours (RR48).
                    let looped = cnames.iter().any(|record| record.owner == target);
                    if looped || hops > MAX_CNAMES {
                        let ede_allowed = reply.ede;
                        let ede = vec![0];
                        return Reply { rcode: SERVFAIL, aa: false, ede, ede_allowed, ..reply }
                            .into();
                    }
                    name = target;
                }
                Node::Missing => {
                    let (answer, soa) = (chain(&cnames), Some(local.soa));
                    return Reply { rcode: NXDOMAIN, answer, soa, ..reply }.into();
                }
                Node::Exists(sets) => {
                    let found = self.select(&name, qtype, sets);
                    let mut answer = chain(&cnames);
                    let Some(found) = found else {
                        return Reply { answer, soa: Some(local.soa), ..reply }.into();
                    };
                    let (additional, needs) = self.additional(&found);
                    reply.ede_allowed.extend(self.snapshot_ede(&needs));
                    answer.push(found);
                    return Reply { answer, additional, ..reply }.into();
                }
            }
        }
    }

    /// A name that is not ours and is not asked elsewhere: N14, N15, or the same behind a CNAME of ours.
    fn elsewhere(
        &self,
        cnames: Vec<Record>,
        needs: &[Resource],
        plain: u16,
        behind_cname: u16,
    ) -> Expected {
        let rcode = if cnames.is_empty() { plain } else { behind_cname };
        let snapshot = self.snapshot_ede(needs);
        let ede = if rcode == NOERROR { snapshot.clone() } else { vec![20] };
        Reply {
            rcode,
            aa: rcode == NOERROR,
            opt: true,
            answer: chain(&cnames),
            ede,
            ede_allowed: snapshot,
            ..Reply::default()
        }
        .into()
    }

    /// EDE 3 while data the answer depends on is from a snapshot (E42).
    fn snapshot_ede(&self, needs: &[Resource]) -> Vec<u16> {
        let snapshot = |resource: &Resource| {
            matches!(self.store.source(*resource), DataSource::Snapshot { .. })
        };
        if needs.iter().any(snapshot) { vec![3] } else { Vec::new() }
    }

    /// The RRset of the type at a name; HINFO for ANY where there is any (WR30).
    fn select(&self, name: &Name, qtype: u16, sets: Vec<RrSet>) -> Option<RrSet> {
        if qtype == rtype::ANY {
            let data = Data::Hinfo(b"RFC8482".to_vec(), Vec::new());
            return if sets.is_empty() { None } else { self.kubernetes(name, vec![data]) };
        }
        sets.into_iter().find(|set| set.records[0].data.rtype() == qtype)
    }

    /// Addresses of the targets of SRV and NS records, as far as they are ours (RR38, RR71, RR78).
    fn additional(&self, found: &RrSet) -> (Vec<RrSet>, Vec<Resource>) {
        let mut targets: Vec<&Name> = Vec::new();
        for record in &found.records {
            if let Data::Srv(_, _, _, target) | Data::Ns(target) = &record.data
                && !targets.contains(&target)
            {
                targets.push(target);
            }
        }
        let mut additional = Vec::new();
        let mut needs = Vec::new();
        for target in targets {
            // The route of A and AAAA is the same: only PTR has one of its own.
            if let Route::Ours(local) = self.route(target, rtype::A)
                && self.ready(&local.needs)
                && let Node::Exists(sets) = local.node
            {
                let is_address = |set: &RrSet| matches!(set.records[0].data, Data::Address(_));
                additional.extend(sets.into_iter().filter(is_address));
                needs.extend(&local.needs);
            }
        }
        (additional, needs)
    }

    fn ready(&self, needs: &[Resource]) -> bool {
        needs.iter().all(|resource| self.store.source(*resource) != DataSource::None)
    }

    /// The order of §2.2: the first step that matches decides.
    fn route(&self, name: &Name, qtype: u16) -> Route {
        // Special-use names come first (A12).
        if let Some(local) = self.special_use(name) {
            return Route::Ours(Box::new(local));
        }
        // An overriding record, else the cluster zone (A13, A14).
        if let Some(labels) = name.left_of(&self.zone()) {
            let overriding = self.overriding_extra(name).or_else(|| self.overriding_dname(name));
            if let Some(local) = overriding {
                return Route::Ours(Box::new(local));
            }
            return Route::Ours(Box::new(self.cluster_zone(name, labels)));
        }
        // Reverse names with data, then those of owned zones (A15, A16).
        if let Some(local) = self.reverse(name, qtype) {
            return Route::Ours(Box::new(local));
        }
        // Extra records (A17).
        if let Some(local) = self.extra(name) {
            return Route::Ours(Box::new(local));
        }
        self.group(name, qtype)
    }
}

impl From<Reply> for Expected {
    fn from(reply: Reply) -> Expected {
        Expected::Reply(Box::new(reply))
    }
}

/// A record of class IN.
fn record(owner: &Name, ttl: u32, data: Data) -> Record {
    Record { owner: owner.clone(), class: rtype::CLASS_IN, ttl, data }
}

/// One RRset: duplicates dropped; PTR and TXT keep their order (WR24).
fn rrset(owner: &Name, ttl: u32, data: Vec<Data>) -> Option<RrSet> {
    let mut records: Vec<Record> = Vec::new();
    for data in data {
        let record = record(owner, ttl, data);
        if !records.contains(&record) {
            records.push(record);
        }
    }
    let ordered = matches!(records.first()?.data.rtype(), rtype::PTR | rtype::TXT);
    Some(RrSet { records, ordered })
}

/// CNAMEs of a chain, in order.
fn chain(cnames: &[Record]) -> Vec<RrSet> {
    cnames.iter().map(|cname| RrSet { records: vec![cname.clone()], ordered: true }).collect()
}
