//! What both programs need of a process besides their work: the port of HTTP, which probes and people use, the page of
//! metrics, the flags of log lines, the kubeconfig, whether another process answers, and files, lists and watches of the API server
//! that are read in bounded memory. The operator and the data plane share no other code but `crds`.

// Others build on this package: everything that they see says what it is.
#![warn(missing_docs)]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc, clippy::unused_async)]
#![warn(clippy::semicolon_if_nothing_returned, clippy::redundant_closure_for_method_calls)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod bounded_file;
pub mod histogram;
pub mod http;
pub mod items;
pub mod credentials;
pub mod kubeconfig;
pub mod lines;
pub mod log;
pub mod metrics;
pub mod pages;
pub mod reached;
pub mod version;
