//! A load generator for DNS servers, and what measures them. The loop is open: a question is sent when it is due, whatever
//! became of those before it, and its latency counts from then. Every answer is checked. `tests/load` is the program.

pub mod check;
pub mod echo;
pub mod external;
pub mod fixture;
pub mod flights;
pub mod generator;
pub mod outcome;
pub mod plot;
pub mod processor;
pub mod report;
pub mod runs;
pub mod schedule;
pub mod servers;
pub mod statistics;
pub mod stream;
pub mod trace;
pub mod udp;
pub mod upstream;
