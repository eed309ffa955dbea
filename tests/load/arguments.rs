//! Flags of the program.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use tests::load::servers::Peer;

use crate::encrypted::Over;

/// Measures DNS servers side by side.
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    #[command(subcommand)]
    pub(crate) role: Option<Role>,
}

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Wanted {
    /// Which measurements
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) set: Set,

    /// Only these parts of the set; repeat the flag for several
    #[arg(long, value_enum, conflicts_with = "publish")]
    pub(crate) part: Vec<Part>,

    /// Only these servers, as the page names them; repeat the flag for several
    #[arg(long, value_name = "NAME", conflicts_with = "publish")]
    pub(crate) server: Vec<String>,

    /// Of the parts `crowd` (L1) and `pressure` only this row of docs/guarantees.md; repeat the flag for several
    #[arg(long, value_name = "ROW", conflicts_with = "publish")]
    pub(crate) row: Vec<String>,

    /// Services in the cluster, ten endpoints each; repeat the flag for several sizes
    #[arg(long, default_values_t = [10_000])]
    pub(crate) services: Vec<usize>,

    /// How long each run lasts, besides its warm-up
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,

    /// How often each server is measured there and back (A B B A is one)
    #[arg(long, default_value_t = 1)]
    pub(crate) rounds: usize,

    /// Changes that are timed at each server that watches an API server, at rest and under load each
    #[arg(long, default_value_t = 1_000)]
    pub(crate) changes: usize,

    /// How many minutes of changes each server gets that watches an API server, as fast as that takes them
    #[arg(long, default_value_t = 1.0)]
    pub(crate) minutes: f64,

    /// Source sockets of the generator
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) sockets: u16,

    /// Recorded questions to ask too, `NAME TYPE` in each line; any answer counts as right
    #[arg(long, value_name = "FILE")]
    pub(crate) recorded: Option<PathBuf>,

    /// Folder for the page, the raw figures and the pictures
    #[arg(long, value_name = "DIR", default_value = "target/load")]
    pub(crate) out: PathBuf,

    /// Write them into docs/benchmarks.md and docs/benchmarks/ too
    #[arg(long)]
    pub(crate) publish: bool,

    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Set {
    /// Seconds: whether everything works; its figures say nothing
    Smoke,
    /// Some nine minutes
    Default,
    /// Everything: more rates, TCP at more rates, caches, encrypted upstreams, a real API server
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Many questions at once
    Most,
    /// Fixed rates
    Rates,
    /// Names outside the cluster
    Forward,
    /// Of these only the ones that no cache has
    Miss,
    /// Over connections
    Tcp,
    /// How many questions a cache answers, with scans, beside Unbound with the same memory
    Hits,
    /// What full caches take of a process
    Memory,
    /// Upstreams over TLS beside UDP
    Encrypted,
    /// Two threads that answer beside one
    Workers,
    /// Questions over TLS
    Tls,
    /// Three and ten times as many questions as a server answers, and a client beside one that floods
    Crowd,
    /// How long many clients wait beside a flood, a slow upstream, and datagrams that the kernel drops
    Pressure,
    /// Beside a real API server: ready, memory, from a write to its answer, many changes
    Watch,
}

impl Wanted {
    /// Whether a part is measured.
    pub(crate) fn has(&self, part: Part) -> bool {
        self.part.is_empty() || self.part.contains(&part)
    }

    /// Whether a part is measured that compares no servers, or has no trace: only the largest set has these.
    pub(crate) fn has_apart(&self, part: Part) -> bool {
        self.part.contains(&part) || (self.set == Set::All && self.part.is_empty())
    }

    /// Whether names of the cluster are asked for.
    pub(crate) fn asks_for_services(&self) -> bool {
        [Part::Most, Part::Rates, Part::Tcp].into_iter().any(|part| self.has(part))
            || self.recorded.is_some()
    }

    /// Whether names outside the cluster are.
    pub(crate) fn asks_outside(&self) -> bool {
        self.has(Part::Forward) || self.has(Part::Miss)
    }

    /// Whether a row of the parts `crowd` and `pressure` is measured.
    pub(crate) fn wants_row(&self, row: &str) -> bool {
        self.row.is_empty() || self.row.iter().any(|wanted| wanted.eq_ignore_ascii_case(row))
    }

    /// Whether a server is measured.
    pub(crate) fn wants(&self, peer: Peer) -> bool {
        let is_named = |name: &String| name.eq_ignore_ascii_case(peer.name());
        self.server.is_empty() || self.server.iter().any(is_named)
    }
}

/// A server that this program can be.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Flips a bit
    #[command(hide = true)]
    Echo { dns: SocketAddr, workers: usize },
    /// Flips a bit, with ancillary data
    #[command(hide = true)]
    EchoPktinfo { port: u16 },
    /// Fills a cache of this many MiB with answers of this many octets
    #[command(hide = true)]
    FillCache { mib: usize, octets: usize, names: u64 },
    /// Forwards everything to one upstream, whose certificate this authority has signed
    #[command(hide = true)]
    ForwardTo { dns: SocketAddr, upstream: SocketAddr, over: Over, authority: PathBuf },
    /// A catalog of hickory-server
    #[command(hide = true)]
    Hickory { dns: SocketAddr, zone: PathBuf, reverse: PathBuf },
}
