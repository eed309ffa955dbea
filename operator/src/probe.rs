//! Asks our pods: which configuration each one runs ([`pod_reports`]), and whether a canary answers as well as a stable pod
//! ([`compare`]).

pub mod pod_reports;
pub mod compare;
