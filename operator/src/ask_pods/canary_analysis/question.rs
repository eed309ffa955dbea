//! One question to a canary and to a stable pod, and which reply is right.

use crds::Config;
use crds::config::{Record, RecordData};
use crds::names::is_at_or_below;
use hickory_proto::rr::{Name, RData, RecordType};

/// One check, of one or more questions, and which reply is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What is asked, for people.
    pub what: String,
    /// Names and types; more than one only for servers.
    pub asked: Vec<(Name, RecordType)>,
    /// What makes a reply right.
    pub expects: Expects,
    /// The sampled Service whose name it is: its owner may change it at any moment.
    pub of: Option<OfService>,
}

/// A Service of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfService {
    pub namespace: String,
    pub name: String,
    /// The exposure of the configuration on trial hides it, and the one before shows it: that is not the owner's doing.
    pub is_hidden: bool,
}

/// What makes a reply right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expects {
    /// NOERROR with records of that type, if the stable pod has them.
    Records,
    /// As `Records`, for a name that the spec hides on purpose: that it is not there is a warning.
    Hidden,
    /// NOERROR with these records among them, if the stable pod has them.
    Has(Vec<RData>),
    /// NOERROR with these records among them, because the spec says so.
    Written(Vec<RData>),
    /// A reply of a server of a group.
    Server {
        /// Name of the group, for messages.
        group: String,
        /// Stable pods have no such group.
        is_new: bool,
        /// Stable pods ask other servers.
        has_other_servers: bool,
    },
}

/// One name and type. None: no message can carry the name.
pub(super) fn question(name: &str, kind: RecordType, expects: Expects) -> Option<Question> {
    let name = Name::from_ascii(format!("{name}.")).ok()?;
    Some(Question { what: format!("{name} {kind}"), asked: vec![(name, kind)], expects, of: None })
}

/// Is nothing written over this name of the cluster (A13): neither a record of that name, nor a DNAME above it, which replaces
/// all names below its own (RR85)?
pub(super) fn is_untouched(config: &Config, name: &str) -> bool {
    let is_led = |record: &Record| {
        record.override_cluster_zone
            && matches!(record.data, RecordData::Dname(_))
            && is_at_or_below(name, &record.name)
    };
    !config.hosts.iter().any(|host| host.name == name)
        && !config.records.iter().any(|record| record.name == name || is_led(record))
}

/// Is this name, outside of the cluster domain, answered here: by a host or record of that name (RR81), or by one that answers
/// all names below a name above it?
pub(super) fn is_answered_here(config: &Config, name: &str) -> bool {
    config.hosts.iter().any(|host| host.name == name)
        || config.records.iter().any(|record| record.name == name)
        || name.split_once('.').is_some_and(|(_, parent)| are_answered_below(config, parent))
}

/// Are names below this one, outside of the cluster domain, answered here: by a wildcard (RR82) or a DNAME (RR85), at this
/// name or above it?
pub(super) fn are_answered_below(config: &Config, name: &str) -> bool {
    let is_wildcard =
        |owner: &str| owner.strip_prefix("*.").is_some_and(|parent| is_at_or_below(name, parent));
    config.hosts.iter().any(|host| is_wildcard(&host.name))
        || config.records.iter().any(|record| {
            let is_dname = matches!(record.data, RecordData::Dname(_));
            is_wildcard(&record.name) || is_dname && is_at_or_below(name, &record.name)
        })
}
