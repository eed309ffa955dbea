//! What both programs need of a process besides their work: the port of HTTP, which probes and people use, and the flags
//! of log lines. The operator and the data plane share no other code but `crds`.

pub mod http;
pub mod log;
