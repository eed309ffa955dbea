//! Why each query was decided as it was: the one source of metric labels, counted per worker.

#![allow(clippy::indexing_slicing, reason = "arrays with one place for each variant of an enum")]

mod questions;

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::identity::Identity;

pub use questions::QuestionType;

/// The reason behind an [`Action`](crate::Action), also the metrics label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// N1: fewer than 12 octets.
    Short,
    /// N1: QR=1.
    IsResponse,
    /// A UDP datagram from source port 0, or from that of a service that answers everything (§4.1).
    SourcePortZero,
    /// N2: opcode other than QUERY.
    Opcode,
    /// N3: section counts that no query has.
    Counts,
    /// N4: the question cannot be read.
    Question,
    /// N5: qtype 0, OPT or TSIG.
    QueryType,
    /// N5: the additional section or its OPT cannot be read, or there are two.
    Additional,
    /// N6: EDNS version other than 0.
    EdnsVersion,
    /// N7: the client is not in the configured list.
    Client,
    /// N8: AXFR or IXFR.
    Transfer,
    /// N8, A11: class other than IN, or a CHAOS name that is not answered.
    Class,
    /// A11: a CHAOS name, answered.
    Chaos,
    /// A12: a special-use name, answered with any Rcode.
    SpecialUse,
    /// N9: ours, but the data it needs is not there yet.
    NotReady,
    /// N10: records of the type exist.
    Found,
    /// N11: the name exists, the type does not.
    NoData,
    /// N12: the name does not exist.
    NxDomain,
    /// N13: a CNAME of ours, answered without an upstream.
    Cname,
    /// RR48: a CNAME loop or too many of them.
    CnameLoop,
    /// N14: not ours and recursion not desired.
    RecursionNotDesired,
    /// N15: not ours and no upstream group for it.
    NoGroup,
    /// N22: not ours, and the type is withheld from its upstream group.
    Withheld,
    /// The name is not ours; an upstream group is asked, or the cache.
    Forward,
}

impl Reason {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [Reason; 24] = [
        Reason::Short,
        Reason::IsResponse,
        Reason::SourcePortZero,
        Reason::Opcode,
        Reason::Counts,
        Reason::Question,
        Reason::QueryType,
        Reason::Additional,
        Reason::EdnsVersion,
        Reason::Client,
        Reason::Transfer,
        Reason::Class,
        Reason::Chaos,
        Reason::SpecialUse,
        Reason::NotReady,
        Reason::Found,
        Reason::NoData,
        Reason::NxDomain,
        Reason::Cname,
        Reason::CnameLoop,
        Reason::RecursionNotDesired,
        Reason::NoGroup,
        Reason::Withheld,
        Reason::Forward,
    ];

    /// The metrics label: lower case with underscores.
    pub const fn label(self) -> &'static str {
        match self {
            Reason::Short => "short",
            Reason::IsResponse => "is_response",
            Reason::SourcePortZero => "source_port_zero",
            Reason::Opcode => "opcode",
            Reason::Counts => "counts",
            Reason::Question => "question",
            Reason::QueryType => "query_type",
            Reason::Additional => "additional",
            Reason::EdnsVersion => "edns_version",
            Reason::Client => "client",
            Reason::Transfer => "transfer",
            Reason::Class => "class",
            Reason::Chaos => "chaos",
            Reason::SpecialUse => "special_use",
            Reason::NotReady => "not_ready",
            Reason::Found => "found",
            Reason::NoData => "no_data",
            Reason::NxDomain => "nx_domain",
            Reason::Cname => "cname",
            Reason::CnameLoop => "cname_loop",
            Reason::RecursionNotDesired => "recursion_not_desired",
            Reason::NoGroup => "no_group",
            Reason::Withheld => "withheld",
            Reason::Forward => "forward",
        }
    }

    /// Whether the query was answered without the cache and without an upstream (`hits.bind.`, A53).
    pub const fn is_own_answer(self) -> bool {
        matches!(
            self,
            Reason::SpecialUse
                | Reason::Found
                | Reason::NoData
                | Reason::NxDomain
                | Reason::Cname
                | Reason::CnameLoop
                | Reason::Withheld
        )
    }
}

/// The counters of one worker. Only that worker writes, any thread may read; all values only grow.
#[derive(Debug, Default)]
pub struct WorkerCounters {
    reasons: [AtomicU64; Reason::ALL.len()],
    /// Those over IPv4, then those over IPv6.
    types: [[AtomicU64; QuestionType::ALL.len()]; 2],
    dnssec_ok: AtomicU64,
    capped_rrsets: AtomicU64,
    withheld_ptrs: AtomicU64,
    cached: AtomicU64,
}

/// Adds one where this thread is the only writer: no locked instruction.
fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl WorkerCounters {
    /// Queries decided for this reason.
    pub fn count(&self, reason: Reason) -> u64 {
        self.reasons[reason as usize].load(Ordering::Relaxed)
    }

    /// Queries whose question could be read, by its type and by the address family of the client.
    pub fn questions(&self, over_ipv6: bool, qtype: QuestionType) -> u64 {
        self.types[usize::from(over_ipv6)][qtype as usize].load(Ordering::Relaxed)
    }

    /// Those of them with the DO bit (RFC 3225).
    pub fn dnssec_ok(&self) -> u64 {
        self.dnssec_ok.load(Ordering::Relaxed)
    }

    /// Replies over streams whose RRset was shortened (WR23), except for those that waited for an upstream.
    pub fn capped_rrsets(&self) -> u64 {
        self.capped_rrsets.load(Ordering::Relaxed)
    }

    /// Reverse questions for which a name was withheld: the address is a Pod's of another namespace, or its owner is not
    /// known (RR63). Also where no PTR is left and the question is forwarded.
    pub fn withheld_ptrs(&self) -> u64 {
        self.withheld_ptrs.load(Ordering::Relaxed)
    }

    /// Forwarded queries that the cache answered, so that no upstream was needed (A53).
    pub fn cached(&self) -> u64 {
        self.cached.load(Ordering::Relaxed)
    }

    /// Counts a forwarded query that the cache answered; only its own worker may.
    pub fn add_cached(&self) {
        bump(&self.cached);
    }

    /// Counts a reply over a stream whose RRset was shortened; only its own worker may.
    pub fn add_capped_rrset(&self) {
        bump(&self.capped_rrsets);
    }

    pub(crate) fn add(&self, reason: Reason) {
        bump(&self.reasons[reason as usize]);
    }

    pub(crate) fn add_question(&self, over_ipv6: bool, qtype: u16, dnssec_ok: bool) {
        bump(&self.types[usize::from(over_ipv6)][QuestionType::of(qtype) as usize]);
        if dnssec_ok {
            bump(&self.dnssec_ok);
        }
    }

    pub(crate) fn add_withheld_ptr(&self) {
        bump(&self.withheld_ptrs);
    }
}

/// What `insertions.bind.` and `evictions.bind.` say (A54).
#[derive(Debug, Default)]
pub struct CacheCounters {
    /// Replies put in the cache.
    pub insertions: AtomicU64,
    /// Unexpired replies removed to make room.
    pub evictions: AtomicU64,
}

/// What `servers.bind.` says of one upstream (A55).
#[derive(Debug)]
pub struct ServerCounters {
    /// Address and port of the upstream.
    pub address: SocketAddr,
    /// Queries sent, retransmissions included.
    pub sent: AtomicU64,
    /// Queries it failed to answer.
    pub failed: AtomicU64,
}

/// What `respond` counts into, and what CHAOS questions read.
#[derive(Clone, Copy, Debug)]
pub struct Counters<'a> {
    /// The counters of the worker that calls.
    pub own: &'a WorkerCounters,
    /// Those of all workers, for CHAOS sums.
    pub all: &'a [Arc<WorkerCounters>],
    /// Upstream servers, default group first, each once (A55).
    pub servers: &'a [Arc<ServerCounters>],
    /// Of the forward cache (A54).
    pub cache: &'a CacheCounters,
    /// Version, pod name and id, as CHAOS names and NSID show them.
    pub identity: &'a Identity,
}
