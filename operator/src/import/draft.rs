//! The ClusterDNS while it is made: what is added is checked by the rules of `check`, first by itself and at the end as a
//! whole, so that one name that a ClusterDNS cannot have costs that name and nothing else.

mod first_address;
mod groups;
mod replaced;
mod templates;

use std::collections::HashMap;
use std::net::IpAddr;

use crds::bounds;
use crds::config::RecordType;
use crds::v1alpha1::{Host, Record, Service, ServiceTarget};
use crds::{ClusterDNS, ClusterDNSSpec, defaults};

use first_address::of_first_address;

use super::front::Front;
use super::report::{self, Place, Report};
use super::values::is_at_or_below;
use super::{Imported, Refused, Target};

/// Octets that a host or record takes in a configuration besides its name and content, at most.
const ENTRY_OCTETS: usize = 160;
/// Octets of a configuration that hosts and records may take: the rest is for everything else.
const MAX_ENTRIES_OCTETS: usize = bounds::CONFIG_BYTES * 3 / 4;

/// Names that are tried: some hundred times as many as fit. One option, or one template, may name each of its names with each
/// of its addresses.
const MAX_TRIES: usize = 1_000_000;
/// Why nothing is added any more; the import is refused in the end.
const SPENT: &str = "more was read than can be imported";

/// The spec so far.
pub(super) struct Draft {
    pub(super) spec: ClusterDNSSpec,
    /// What became of each line.
    pub(super) report: Report,
    /// The DNS server that is replaced: what is asked there is answered here.
    pub(super) replaced: replaced::Replaced,
    /// What is asked in front of the server that is read, and what of that is left to it.
    pub(super) front: Option<Front>,
    /// The server that is read is such a cache, and the one behind it is read after it.
    pub(super) is_front: bool,
    /// The names that templates answer.
    pub(super) templates: templates::Templates,
    name: String,
    hosts: HashMap<String, usize>,
    records: HashMap<String, Vec<RecordType>>,
    octets: usize,
    /// Names that were tried.
    tries: usize,
}

impl Draft {
    /// An empty one for this domain, where one is known.
    pub(super) fn new(domain: Option<String>, target: &Target) -> Draft {
        let domain = domain.unwrap_or_else(|| defaults::DOMAIN.to_owned());
        let (namespace, name) = target.service.clone();
        let service = Service { name, namespace, adopt: target.adopt, ..Service::default() };
        let mut replaced = replaced::Replaced::default();
        target.replaced.iter().for_each(|address| replaced.add(address));
        Draft {
            spec: ClusterDNSSpec { domain, service: Some(service), ..ClusterDNSSpec::default() },
            report: Report::default(),
            replaced,
            front: None,
            is_front: false,
            templates: Default::default(),
            name: target.name.clone(),
            hosts: HashMap::new(),
            records: HashMap::new(),
            octets: 0,
            tries: 0,
        }
    }

    /// One in which nothing is yet, for what is read and not added.
    pub(super) fn empty(&self) -> Draft {
        let service = self.spec.service.clone().unwrap_or_default();
        let target = Target {
            name: self.name.clone(),
            service: (service.namespace, service.name),
            adopt: service.adopt,
            domain: None,
            replaced: Vec::new(),
        };
        Draft::new(Some(self.spec.domain.clone()), &target)
    }

    /// Counts names that are tried.
    pub(super) fn spend(&mut self, tries: usize) {
        self.tries = self.tries.saturating_add(tries);
    }

    /// Is more read than can be imported? What comes then changes nothing: the import is refused.
    pub(super) fn is_spent(&self) -> bool {
        self.tries > MAX_TRIES || self.report.is_full()
    }

    pub(super) fn has_record(&self, name: &str, record_type: RecordType) -> bool {
        self.records.get(name).is_some_and(|types| types.contains(&record_type))
    }

    /// Has a name hosts or records, and none of this type? An alias has all types, those of its target.
    pub(super) fn has_other_types(&self, name: &str, asked: &str) -> bool {
        let host = self.hosts.get(name).and_then(|at| self.spec.hosts.as_ref()?.get(*at));
        let records = self.records.get(name).map(Vec::as_slice).unwrap_or_default();
        let has_address = |is_ipv4: bool| {
            let all = host.iter().flat_map(|host| &host.addresses);
            all.filter_map(|it| it.parse::<IpAddr>().ok()).any(|ip| ip.is_ipv4() == is_ipv4)
        };
        let has_asked = match asked.to_ascii_uppercase().as_str() {
            "ANY" => true,
            "A" => has_address(true),
            "AAAA" => has_address(false),
            "TXT" => records.contains(&RecordType::Txt),
            "SRV" => records.contains(&RecordType::Srv),
            "DNAME" => records.contains(&RecordType::Dname),
            _ => false,
        };
        (host.is_some() || !records.is_empty())
            && !has_asked
            && !records.contains(&RecordType::Cname)
    }

    /// Is this name the cluster domain or below it?
    pub(super) fn is_ours(&self, name: &str) -> bool {
        is_at_or_below(name, &self.spec.domain)
    }

    /// Gives a name one more address. Its TTL and reverse names are those of the first one: what differs is in the text.
    ///
    /// # Errors
    /// Why a ClusterDNS cannot have it.
    pub(super) fn host(
        &mut self,
        name: &str,
        address: IpAddr,
        ttl_seconds: Option<u32>,
        reverse: bool,
    ) -> Result<Option<String>, String> {
        self.try_one()?;
        if self.has_record(name, RecordType::Cname) {
            return Err(format!("{name} is an alias already, and an alias has no addresses"));
        }
        self.not_below_a_dname(name)?;
        let text = address.to_canonical().to_string();
        let known = self.hosts.get(name).copied();
        if let Some(host) = known.and_then(|at| self.spec.hosts.as_mut()?.get_mut(at)) {
            let ttl_seconds = ttl_seconds.unwrap_or(defaults::RECORD_TTL_SECONDS);
            let differs = of_first_address(host, ttl_seconds, reverse);
            if host.addresses.contains(&text) {
                return Ok(differs);
            }
            if host.addresses.len() >= bounds::RECORD_ADDRESSES {
                let most = bounds::RECORD_ADDRESSES;
                return Err(format!("{name} has {most} addresses already, which is the most"));
            }
            let octets = text.len() + 8;
            if self.octets + octets > MAX_ENTRIES_OCTETS {
                return Err(format!("there is no room for one more address of {name}"));
            }
            self.octets += octets;
            host.addresses.push(text);
            return Ok(differs);
        }
        let host = Host {
            name: name.to_owned(),
            addresses: vec![text],
            ttl_seconds: ttl_seconds.unwrap_or(defaults::RECORD_TTL_SECONDS),
            reverse,
            override_cluster_zone: self.is_ours(name),
        };
        let room = self.room(name.len() + ENTRY_OCTETS)?;
        self.alone(|spec| spec.hosts = Some(vec![host.clone()]))?;
        self.octets += room;
        let hosts = self.spec.hosts.get_or_insert_default();
        self.hosts.insert(name.to_owned(), hosts.len());
        hosts.push(host);
        Ok(None)
    }

    /// Gives a name a record of another type than an address. What is not as it was written is in the text.
    ///
    /// # Errors
    /// Why a ClusterDNS cannot have it.
    pub(super) fn record(&mut self, mut record: Record) -> Result<Option<String>, String> {
        self.try_one()?;
        record.override_cluster_zone = self.is_ours(&record.name);
        let name = record.name.clone();
        let same = self.spec.records.iter().flatten().any(|it| *it == record);
        if same {
            return Ok(None);
        }
        let types = self.records.get(&name).map(Vec::as_slice).unwrap_or_default();
        self.not_below_a_dname(&name)?;
        if record.record_type == RecordType::Dname {
            self.nothing_below(&name)?;
        }
        let is_alias = record.record_type == RecordType::Cname;
        if types.contains(&record.record_type) {
            return self.more_services(record);
        }
        if types.contains(&RecordType::Cname)
            || is_alias && (!types.is_empty() || self.hosts.contains_key(&name))
        {
            return Err(format!("{name} has other data, and an alias has nothing beside it"));
        }
        let content = (&record.target, &record.strings, &record.services);
        let content = serde_json::to_string(&content).unwrap_or_default();
        let room = self.room(name.len() + ENTRY_OCTETS + content.len())?;
        self.alone(|spec| spec.records = Some(vec![record.clone()]))?;
        self.octets += room;
        self.records.entry(name).or_default().push(record.record_type);
        self.spec.records.get_or_insert_default().push(record);
        Ok(None)
    }

    /// Adds the services of a record to those that its owner has. Of other types there is one record a name.
    fn more_services(&mut self, more: Record) -> Result<Option<String>, String> {
        let name = &more.name;
        let all = self.spec.records.iter().flatten().enumerate();
        let mut same = all.filter(|(_, it)| it.name == *name && it.record_type == more.record_type);
        let (Some((at, known)), Some(services)) = (same.next(), more.services) else {
            return Err(format!(
                "{name} has another record of this type already, and a ClusterDNS has one of each name and type"
            ));
        };
        let (ttl, other) = (known.ttl_seconds, more.ttl_seconds);
        let differs = (ttl != other)
            .then(|| format!("the TTL is {ttl} s, that of its first record, not {other} s"));
        let mut whole = known.clone();
        let there = whole.services.get_or_insert_default();
        let new: Vec<ServiceTarget> =
            services.into_iter().filter(|it| !there.contains(it)).collect();
        let octets = serde_json::to_string(&new).unwrap_or_default().len();
        there.extend(new);
        if self.octets + octets > MAX_ENTRIES_OCTETS {
            return Err(format!("there is no room for one more service of {name}"));
        }
        self.alone(|spec| spec.records = Some(vec![whole.clone()]))?;
        self.octets += octets;
        if let Some(known) = self.spec.records.as_mut().and_then(|all| all.get_mut(at)) {
            *known = whole;
        }
        Ok(differs)
    }

    /// Changes another part of the spec.
    ///
    /// # Errors
    /// Why a ClusterDNS cannot have it; nothing has changed then.
    pub(super) fn change(&mut self, change: impl Fn(&mut ClusterDNSSpec)) -> Result<(), String> {
        self.alone(&change)?;
        let before = self.spec.clone();
        change(&mut self.spec);
        // Conflicts with stub domains and Services of the draft; these lists are short.
        let mut whole = self.spec.clone();
        (whole.hosts, whole.records) = (None, None);
        match checked(&self.name, whole) {
            Ok(_) => Ok(()),
            Err(why) => {
                self.spec = before;
                Err(why)
            }
        }
    }

    /// The ClusterDNS and the report.
    ///
    /// # Errors
    /// What `check` says of it.
    pub(super) fn finished(self) -> Result<Imported, Refused> {
        if self.is_spent() {
            let place = Place { file: "the report".to_owned(), line: 1 };
            let why = format!(
                "it would have more than {} MiB, or say what became of more than {MAX_TRIES} names: name fewer files, and \
                 leave long hosts files to a DNS server of their own behind a stub domain",
                report::MAX_OCTETS >> 20
            );
            return Err(Refused::at(&place, why));
        }
        match checked(&self.name, self.spec) {
            Ok(dns) => Ok(Imported { dns, report: self.report }),
            Err(why) => {
                let place = Place { file: "the ClusterDNS".to_owned(), line: 1 };
                Err(Refused::at(&place, why))
            }
        }
    }

    fn try_one(&mut self) -> Result<(), String> {
        self.spend(1);
        if self.is_spent() { Err(SPENT.to_owned()) } else { Ok(()) }
    }

    /// Names below a DNAME are led elsewhere (RR85): an error for one of them.
    fn not_below_a_dname(&self, name: &str) -> Result<(), String> {
        let mut above = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        match above.find(|it| self.has_record(it, RecordType::Dname)) {
            Some(above) => Err(format!(
                "{name} is below {above}, all of whose names are led elsewhere by a DNAME record"
            )),
            None => Ok(()),
        }
    }

    /// An error where a host or record is below this name.
    fn nothing_below(&self, name: &str) -> Result<(), String> {
        let is_below = |other: &&String| other.as_str() != name && is_at_or_below(other, name);
        match self.hosts.keys().chain(self.records.keys()).filter(is_below).min() {
            Some(other) => Err(format!(
                "a DNAME record would lead all names below {name} elsewhere, and {other} is one of them: write CNAME \
                 records for the others"
            )),
            None => Ok(()),
        }
    }

    /// These octets of a host or record, if there is room for them.
    fn room(&self, octets: usize) -> Result<usize, String> {
        let count =
            self.spec.hosts.iter().flatten().count() + self.spec.records.iter().flatten().count();
        if count >= bounds::EXTRA_RECORDS || self.octets + octets > MAX_ENTRIES_OCTETS {
            return Err(format!(
                "{count} hosts and records are as many as fit: move them to a DNS server of their own behind a stub domain"
            ));
        }
        Ok(octets)
    }

    /// Whether `check` takes this change in an otherwise empty ClusterDNS of this domain.
    fn alone(&self, change: impl FnOnce(&mut ClusterDNSSpec)) -> Result<(), String> {
        let mut spec =
            ClusterDNSSpec { domain: self.spec.domain.clone(), ..ClusterDNSSpec::default() };
        change(&mut spec);
        checked(&self.name, spec).map(|_| ())
    }
}

fn checked(name: &str, spec: ClusterDNSSpec) -> Result<ClusterDNS, String> {
    let dns = ClusterDNS::new(name, spec);
    match crds::check_resource(&dns) {
        Ok(_) => Ok(dns),
        Err(violations) => {
            let first = violations.listed().first();
            Err(first.map_or_else(|| violations.to_string(), |violation| violation.message.clone()))
        }
    }
}

#[cfg(test)]
mod tests;
