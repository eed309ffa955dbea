//! One question to a canary and to a stable pod, and what a right reply to it is.

use std::net::IpAddr;

use crds::Config;
use hickory_proto::rr::{Name, RecordType};

/// One thing that is asked, by one or more questions, and what a right reply is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What is asked, for people.
    pub what: String,
    /// Names and types; more than one only for servers.
    pub asked: Vec<(Name, RecordType)>,
    /// What makes a reply right.
    pub expects: Expects,
    /// The sampled Service whose name it is, with its namespace: its owner may change it at any moment.
    pub of: Option<(String, String)>,
}

/// What makes a reply right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expects {
    /// NOERROR with records of that type, if the stable pod has them.
    Records,
    /// NOERROR with this address among them, if the stable pod has it.
    Address(IpAddr),
    /// NOERROR with this address among them, because the spec says so.
    Written(IpAddr),
    /// A reply of a server of a group.
    Server {
        /// The group, for people.
        group: String,
        /// Stable pods have no such group.
        is_new: bool,
        /// Stable pods have another one.
        is_changed: bool,
    },
}

/// Is nothing written over this name (A13)?
pub(super) fn is_untouched(config: &Config, name: &str) -> bool {
    !config.hosts.iter().any(|host| host.name == name)
        && !config.records.iter().any(|record| record.name == name)
}
