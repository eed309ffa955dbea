//! A load generator for DNS servers, and what measures them. The loop is open: a question is sent when it is due, also
//! if those before it got no reply, and its latency counts from then. Every answer is checked. `tests/load` is the program.

pub mod trace;
pub mod external;
pub mod schedule;
pub mod generator;
pub mod flights;
pub mod udp;
pub mod stream;
pub mod upstream;
pub mod check;
pub mod outcome;
pub mod processor;
pub mod servers;
pub mod watching;
pub mod fixture;
pub mod echo;
pub mod runs;
pub mod statistics;
pub mod report;
pub mod plot;
pub mod curves;
