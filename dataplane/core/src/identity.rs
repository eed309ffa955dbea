//! The version and the pod name that some answers show.

use alloc::string::String;

/// The identity that this process shows.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Version of this program, for `version.bind.`.
    pub version: String,
    /// Pod name (else host name), for `hostname.bind.` and NSID; at most 255 octets are used.
    pub pod_name: String,
    /// Random per process, for `/config`.
    pub instance_id: String,
}
