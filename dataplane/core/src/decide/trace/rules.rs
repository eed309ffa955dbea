//! The rules of docs/dns.md that an explanation cites: id, and what it says in a few words. A test compares the ids with
//! that page.

use super::{Hop, Place};
use crate::counters::Reason;
use crate::decide::schema::Node;

/// A rule of docs/dns.md that led to the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its id, such as `A14`.
    pub id: &'static str,
    /// What it says, in a few words.
    pub words: &'static str,
}

const fn rule(id: &'static str, words: &'static str) -> Rule {
    Rule { id, words }
}

pub(super) const DEFAULT_UPSTREAMS: Rule =
    rule("A19", "everything that nothing before decides goes to the default upstreams");
pub(super) const STUB_DOMAIN: Rule = rule(
    "A18",
    "a name at or below a stub domain goes to its group only; the longest suffix decides",
);
pub(super) const DS_OF_STUB_DOMAIN: Rule = rule(
    "A18",
    "the DS record of a stub domain is asked where the names above that domain are asked",
);
pub(super) const DS_OF_ZONE: Rule =
    rule("RR75", "the DS record of a zone of ours is asked where the name above it is asked");
pub(super) const DNSSEC_OF_OWNER: Rule = rule(
    "RR81",
    "the DS and DNSKEY records at the owner of a record of the resource are asked elsewhere",
);
pub(super) const NO_GROUP: Rule = rule("A20", "no stub domain matches and there are no upstreams");
pub(super) const WITHHELD_TYPE: Rule =
    rule("FW45", "a type in withheldTypes is answered without data, and no server is asked");
pub(super) const NOT_READY: Rule =
    rule("N9", "a name of ours whose data is neither live nor from a snapshot is SERVFAIL");
pub(super) const NOT_CONFIGURED: Rule =
    rule("E44", "without a configuration it is not known which names are ours");
pub(super) const HIDDEN: Rule = rule("N41", "what is hidden is answered as if it did not exist");
pub(super) const EMPTY_HEADLESS: Rule =
    rule("RR18", "a headless Service without a published endpoint does not exist");
pub(super) const EMPTY_HIDDEN: Rule =
    rule("RR15", "with hideEmptyServices a Service without a published endpoint does not exist");
pub(super) const BAD_EXTERNAL_NAME: Rule =
    rule("RR47", "an externalName that is no domain name: the Service does not exist in DNS");
pub(super) const BELOW_EXTERNAL_NAME: Rule =
    rule("RR49", "nothing exists below an ExternalName Service");
pub(super) const NO_OTHER_NAME: Rule =
    rule("RR12", "no other shape of name exists below the cluster domain");
pub(super) const NO_LOCATION: Rule =
    rule("RR97", "the domain of a federation needs the zone and the region of the cluster");
pub(super) const NO_PODS: Rule = rule("RR52", "pod names are disabled");
pub(super) const CLUSTER_IP: Rule =
    rule("RR60", "a cluster IP has the name of its Service and no other");
pub(super) const WITHHELD: Rule = rule("RR63", "no namespace can claim the address of another");

/// The rule that gives a name its records.
const fn of_node(node: &Node<'_, '_>) -> Option<Rule> {
    Some(match node {
        Node::Apex => rule("RR1", "the apex of a zone always exists"),
        // Which one it is follows from the name.
        Node::EmptyNonTerminal => return None,
        Node::NameServer => rule("RR3", "the name of the DNS server itself"),
        Node::Version => rule("RR4", "the version of the Kubernetes DNS specification"),
        Node::ClusterIp(..) => rule("RR13", "a ClusterIP Service has its cluster IPs"),
        Node::ClusterIpPort(..) => rule("RR30", "a named port of a Service has one SRV record"),
        Node::Headless(_) => {
            rule("RR17", "a headless Service has the addresses of its published endpoints")
        }
        Node::HeadlessPort(..) => {
            rule("RR31", "a named port has one SRV record for each endpoint that has it")
        }
        Node::Endpoint(..) => {
            rule("RR8", "an endpoint name exists while an endpoint with it is published")
        }
        Node::Alias(..) => rule("N13", "the name is an alias: a CNAME, then what its target has"),
        Node::Dname(_) => {
            rule("RR85", "a DNAME leads the names below its owner to those below its target")
        }
        Node::Federated(_) => rule(
            "RR95",
            "a name of a federation leads to the local Service, or to the domain of the federation",
        ),
        Node::PodAddress(_) => rule("RR11", "a pod name is made of an address"),
        Node::Extra(_) => {
            rule("RR81", "the owner of a record of the resource is ours for every type")
        }
        Node::ClusterIpPointer(_) => CLUSTER_IP,
        Node::Pointers(_) => {
            rule("RR61", "an address has a PTR for each endpoint name that holds it")
        }
        Node::ExtraPointers(_) => rule(
            "RR64",
            "without a record of Kubernetes: the automatic PTR of a record of the resource",
        ),
        Node::Localhost => rule("A40", "localhost. and all names below"),
        Node::LocalhostPointer => rule("A41", "the reverse names of the loopback addresses"),
        Node::LoopProbe(_) => rule("A43", "the names that find loops of forwarding"),
    })
}

/// Adds the rules of a name of ours: who decides for it, then what it is.
pub(super) fn of_own(hop: &mut Hop, node: Option<Node<'_, '_>>, is_override: bool) {
    let of_node = node.as_ref().and_then(of_node);
    let has_pointers = matches!(
        node,
        Some(Node::ClusterIpPointer(_) | Node::Pointers(_) | Node::ExtraPointers(_))
    );
    let first = match hop.place {
        Place::SpecialUse => rule("A12", "special-use names are answered here and never leave"),
        Place::ClusterZone if is_override => rule(
            "A13",
            "a record with overrideClusterZone replaces what Kubernetes has at this name",
        ),
        Place::ClusterZone => {
            rule("A14", "every name at or below the cluster domain is ours, for every outcome")
        }
        Place::Reverse if has_pointers => rule(
            "A15",
            "a reverse name for which we hold a PTR is ours; Kubernetes before records of the resource",
        ),
        Place::Reverse => rule("A16", "every name of an owned reverse zone is ours"),
        Place::ExtraRecord => rule(
            "A17",
            "a record of the resource, exact owner before wildcard, is more specific than stub domains",
        ),
        Place::Group(_) | Place::NoGroup | Place::NotConfigured => NO_GROUP,
    };
    hop.rules.push(first);
    hop.rules.extend(of_node);
}

impl Reason {
    /// The rule behind the reply. `None` where the query is forwarded: what the cache and the upstreams say decides.
    pub const fn rule(self) -> Option<Rule> {
        Some(match self {
            Reason::Short | Reason::IsResponse => rule("N1", "no query"),
            Reason::SourcePortZero => rule("N1", "datagrams from this port are dropped"),
            Reason::Opcode => rule("N2", "an opcode other than QUERY"),
            Reason::Counts => rule("N3", "a query has one question and no answer"),
            Reason::Question => rule("N4", "the question cannot be read"),
            Reason::QueryType => rule("N5", "the types 0, OPT and TSIG cannot be asked for"),
            Reason::Additional => rule("N5", "the additional section cannot be read"),
            Reason::EdnsVersion => rule("N6", "an EDNS version other than 0"),
            Reason::Client => rule("N7", "the client is not in access.clients"),
            Reason::Transfer => rule("N8", "zone transfers are refused for every name"),
            Reason::Class => rule("N8", "a class other than IN"),
            Reason::Chaos => rule("A11", "a name of class CH"),
            Reason::SpecialUse => rule("A12", "a special-use name"),
            Reason::NotReady => NOT_READY,
            Reason::Found => rule("N10", "the name is ours and has records of the type"),
            Reason::NoData => rule("N11", "the name is ours and exists, the type does not"),
            Reason::NxDomain => rule("N12", "the name is ours and does not exist"),
            Reason::Cname => rule("N13", "the name is ours and an alias"),
            Reason::CnameLoop => rule("RR48", "a loop, or more than 10 CNAMEs of ours"),
            Reason::RecursionNotDesired => {
                rule("N14", "the name is not ours and the query has RD=0")
            }
            Reason::NoGroup => rule("N15", "the name is not ours and no group answers for it"),
            Reason::Withheld => {
                rule("N22", "the name is not ours and its upstreams are never asked for this type")
            }
            Reason::Forward => return None,
        })
    }
}
