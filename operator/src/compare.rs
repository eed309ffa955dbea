//! `compare`: asks two DNS servers the same questions and says where they differ, by class: differences that the contract
//! means (docs/dns.md §8), with its sentence, and others. `ask` and `servers` read from the network, `command` reads files;
//! the rest is pure. Nothing is written anywhere.

mod ask;
mod captured;
mod servers;
mod kept;
mod command;
mod known;
mod names;
mod pair;
mod report;

pub use command::{compared, run};
pub use known::{KNOWN, Known, NOT_SEEN};
