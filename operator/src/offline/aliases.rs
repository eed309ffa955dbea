//! Records that answer for names below others: aliases that lead nowhere, and stub domains that are never asked for it.

use std::collections::{BTreeMap, BTreeSet};

use crds::ClusterDNS;
use crds::config::RecordType;
use crds::v1alpha1::Record;

use super::warning::{Warning, warning};

/// Aliases of one answer (RR48).
const MAX_ALIASES: usize = 10;
/// Names of a loop that a message shows.
const MAX_SHOWN: usize = 8;

/// The names of a resource that are aliases or have other data.
struct Names<'a> {
    /// Targets of CNAME records by owner.
    cnames: BTreeMap<&'a str, &'a str>,
    /// Targets of DNAME records by owner.
    dnames: BTreeMap<&'a str, &'a str>,
    /// All owners.
    owners: BTreeSet<&'a str>,
}

/// An alias that answers a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Alias {
    /// The owner of a CNAME record, or the name that a DNAME record leads elsewhere.
    name: String,
    target: String,
}

impl<'a> Names<'a> {
    fn of(dns: &'a ClusterDNS) -> Names<'a> {
        let records = || dns.spec.records.iter().flatten();
        let of_type = |record_type: RecordType| {
            let records = records().filter(move |it| it.record_type == record_type);
            records.filter_map(|it| Some((it.name.as_str(), it.target.as_deref()?))).collect()
        };
        let hosts = dns.spec.hosts.iter().flatten().map(|host| host.name.as_str());
        Names {
            cnames: of_type(RecordType::Cname),
            dnames: of_type(RecordType::Dname),
            owners: records().map(|record| record.name.as_str()).chain(hosts).collect(),
        }
    }

    /// The alias that answers a name: its own, else that of the nearest DNAME or wildcard above it (A17, RR85).
    fn alias(&self, name: &str) -> Option<Alias> {
        let of =
            |name: &str, target: &str| Alias { name: name.to_owned(), target: target.to_owned() };
        if self.owners.contains(name) {
            return self.cnames.get(name).map(|target| of(name, target));
        }
        for above in above(name) {
            if let Some(target) = self.dnames.get(above) {
                let left = name.strip_suffix(above).unwrap_or(name);
                return Some(of(name, &format!("{left}{target}")));
            }
            let wildcard = format!("*.{above}");
            if self.owners.contains(wildcard.as_str()) {
                return self.cnames.get(wildcard.as_str()).map(|target| of(&wildcard, target));
            }
        }
        None
    }

    /// The aliases that the answer for a name follows, and whether the last one leads back to the first. `None` if
    /// the chain ends, or leads into a loop that does not contain the name.
    fn endless(&self, name: &str) -> Option<(Vec<Alias>, bool)> {
        let mut all: Vec<Alias> = Vec::new();
        let mut next = self.alias(name);
        while let Some(alias) = next {
            match all.iter().position(|known| *known == alias) {
                Some(0) => return Some((all, true)),
                Some(_) => return None,
                None => next = self.alias(&alias.target),
            }
            all.push(alias);
            if all.len() > MAX_ALIASES {
                return Some((all, false));
            }
        }
        None
    }
}

/// The names above one, the nearest first.
fn above(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(parent(name), |name| parent(name))
}

fn parent(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, parent)| parent)
}

/// Aliases without an end: clients get SERVFAIL (RR48).
pub(super) fn alias_loops(dns: &ClusterDNS) -> Vec<Warning> {
    let names = Names::of(dns);
    let records = dns.spec.records.iter().flatten().enumerate();
    records.filter_map(|(index, record)| alias_loop(&names, index, record)).collect()
}

fn alias_loop(names: &Names<'_>, index: usize, record: &Record) -> Option<Warning> {
    let start = match record.record_type {
        RecordType::Cname => record.name.clone(),
        // It leads the names below it.
        RecordType::Dname => format!("*.{}", record.name),
        _ => return None,
    };
    let (aliases, is_loop) = names.endless(&start)?;
    let mut path: Vec<&str> =
        aliases.iter().map(|alias| alias.name.as_str()).take(MAX_SHOWN).collect();
    if is_loop && aliases.len() < MAX_SHOWN {
        path.extend(aliases.first().map(|alias| alias.name.as_str()));
    }
    let what = match is_loop {
        true => "alias loop".to_owned(),
        false => format!("more than {MAX_ALIASES} aliases"),
    };
    let message = format!(
        "{what}: {}. Clients get SERVFAIL. Point one of them to a name with addresses",
        path.join(" -> ")
    );
    Some(warning(format!("spec.records[{index}].target"), "AliasLoop", message))
}

/// Stub domains all of whose names are answered by a record above them (A17, RR85).
pub(super) fn never_asked(dns: &ClusterDNS) -> Vec<Warning> {
    let names = Names::of(dns);
    let of_stub = |domain: &str| {
        let is_led = |above: &&str| names.dnames.contains_key(above);
        let dname = std::iter::once(domain).chain(above(domain)).find(is_led);
        let wildcards = above(domain).map(|above| format!("*.{above}"));
        let wildcard = || wildcards.into_iter().find(|it| names.owners.contains(it.as_str()));
        match dname {
            Some(dname) => {
                Some(format!("the DNAME record of {dname} leads its names elsewhere (RR85)"))
            }
            None => wildcard().map(|it| format!("the wildcard {it} answers its names (A17)")),
        }
    };
    let stubs = dns.spec.stub_domains.iter().flatten().enumerate();
    let warn = |(index, domain): (usize, &str)| {
        let message = format!(
            "these servers are never asked: {}; write records for the single names in place of it, or leave the stub domain out",
            of_stub(domain)?
        );
        Some(warning(format!("spec.stubDomains[{index}].domain"), "StubDomainNeverAsked", message))
    };
    stubs.map(|(index, stub)| (index, stub.domain.as_str())).filter_map(warn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(spec: &str) -> Vec<String> {
        let head =
            "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {name: a}\nspec: ";
        let (dns, _) = crds::manifest::read(&format!("{head}{spec}\n"), "dns.yaml").unwrap();
        crds::check_resource(&dns).unwrap();
        let all = alias_loops(&dns).into_iter().chain(never_asked(&dns));
        all.map(|it| format!("{} {}: {}", it.field, it.reason, it.message)).collect()
    }

    #[test]
    fn a_dname_does_not_lead_its_owner() {
        let spec = "{records: [{name: a.example, type: DNAME, target: c.example}, {name: c.example, type: CNAME, target: \
                    a.example}]}";
        assert_eq!(warnings(spec), Vec::<String>::new());
    }

    #[test]
    fn rr48_a_loop_through_a_dname_is_named() {
        let spec = "{records: [{name: f.example, type: DNAME, target: g.example}, {name: x.g.example, type: CNAME, target: \
                    x.f.example}]}";
        assert_eq!(
            warnings(spec),
            [
                "spec.records[1].target AliasLoop: alias loop: x.g.example -> x.f.example -> x.g.example. Clients get SERVFAIL. \
              Point one of them to a name with addresses"
            ]
        );
        let both = "{records: [{name: f.example, type: DNAME, target: g.example}, {name: g.example, type: DNAME, target: \
                    f.example}]}";
        assert_eq!(warnings(both).len(), 2, "all names below them");
    }

    #[test]
    fn rr48_a_wildcard_some_labels_above_and_too_long_chains_are_found() {
        let far = "{records: [{name: '*.apps.example', type: CNAME, target: a.b.c.apps.example}]}";
        assert_eq!(warnings(far).len(), 1);
        let has_address = "{hosts: [{name: b.apps.example, addresses: [192.0.2.1]}], records: [{name: '*.apps.example', type: \
                           CNAME, target: b.apps.example}]}";
        assert_eq!(warnings(has_address), Vec::<String>::new());
        let record = |at: usize| {
            format!("{{name: n{at}.example, type: CNAME, target: n{}.example}}", at + 1)
        };
        let chain = |length: usize| {
            let records: Vec<String> = (0..length).map(record).collect();
            warnings(&format!("{{records: [{}]}}", records.join(", ")))
        };
        assert_eq!(chain(MAX_ALIASES), Vec::<String>::new());
        let all = chain(MAX_ALIASES + 1);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].contains("more than 10 aliases: n0.example -> n1.example"), "{all:?}");
    }

    #[test]
    fn rr85_a_stub_domain_below_a_record_for_all_names_is_never_asked() {
        let stubs = "stubDomains: [{domain: x.corp.example, servers: [{address: 10.20.0.53}]}, {domain: corp.example, servers: \
                     [{address: 10.20.0.54}]}]";
        let dname = format!(
            "{{records: [{{name: corp.example, type: DNAME, target: new.example}}], {stubs}}}"
        );
        let found = warnings(&dname);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("spec.stubDomains[0].domain StubDomainNeverAsked"),
            "{found:?}"
        );
        let wildcard = format!(
            "{{records: [{{name: '*.corp.example', type: CNAME, target: new.example}}], {stubs}}}"
        );
        let found = warnings(&wildcard);
        assert_eq!(found.len(), 1, "the other one is asked for corp.example itself: {found:?}");
        assert!(
            found[0].contains("the wildcard *.corp.example answers its names (A17)"),
            "{found:?}"
        );
    }
}
