//! Asks our pods: which configuration each one runs ([`pod_reports`]), and whether a canary answers as well as a stable pod
//! ([`canary_analysis`]).

pub mod exchange;
pub mod pod_reports;
pub mod canary_analysis;
