//! The version and the pod name that some answers show.

use alloc::string::String;

/// Who we say we are.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Version of this program, for `version.bind.`.
    pub version: String,
    /// Pod name (else host name), for `hostname.bind.` and NSID; at most 255 octets are used.
    pub pod_name: String,
    /// Random per process: the answer to loop probes (A43).
    pub instance_id: String,
}
