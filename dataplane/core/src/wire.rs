//! What a DNS message is made of: names, addresses, the parser of a query and the writer of a reply. Nothing here knows
//! Kubernetes or the configuration.

pub(crate) mod name;

pub(crate) mod address;
pub(crate) mod dname;
pub(crate) mod ede;
pub(crate) mod encrypted;
pub(crate) mod labels;
pub(crate) mod message;
pub(crate) mod reply;
pub(crate) mod reverse;
pub(crate) mod text;
