//! What metrics count of the cache: look-ups by their results, and entries by their kind.

use dataplane_core::CacheAction;

/// The outcomes of a look-up: metrics labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheResult {
    /// A fresh reply was served.
    Hit,
    /// A fresh reply, and an upstream is asked again (CA30).
    Prefetch,
    /// An expired reply, at once.
    Stale,
    /// An expired reply, unless an upstream answers in time.
    Refresh,
    /// SERVFAIL from a remembered failure (N19).
    Failed,
    /// No entry: an upstream is asked.
    Miss,
}

impl CacheResult {
    /// Every outcome, in the order of their discriminants.
    pub const ALL: [CacheResult; 6] = [
        CacheResult::Hit,
        CacheResult::Prefetch,
        CacheResult::Stale,
        CacheResult::Refresh,
        CacheResult::Failed,
        CacheResult::Miss,
    ];

    /// Value of the label `outcome` of `clusterdns_cache_lookups_total`.
    pub const fn label(self) -> &'static str {
        match self {
            CacheResult::Hit => "hit",
            CacheResult::Prefetch => "prefetch",
            CacheResult::Stale => "stale",
            CacheResult::Refresh => "refresh",
            CacheResult::Failed => "failed",
            CacheResult::Miss => "miss",
        }
    }

    /// Whether no upstream was asked before the client had its reply.
    pub(super) const fn is_hit(self) -> bool {
        match self {
            CacheResult::Hit | CacheResult::Prefetch | CacheResult::Stale | CacheResult::Failed => {
                true
            }
            CacheResult::Refresh | CacheResult::Miss => false,
        }
    }

    pub(super) const fn of(decision: CacheAction) -> CacheResult {
        match decision {
            CacheAction::Fresh { .. } => CacheResult::Hit,
            CacheAction::FreshAndPrefetch { .. } => CacheResult::Prefetch,
            CacheAction::Stale { may_refresh: false } => CacheResult::Stale,
            CacheAction::Stale { may_refresh: true } => CacheResult::Refresh,
            CacheAction::Failed { .. } => CacheResult::Failed,
            CacheAction::Miss => CacheResult::Miss,
        }
    }
}

/// What is counted of one kind of entries: good replies, or denials and failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfKind {
    /// Entries in use.
    pub entries: u64,
    /// Served without asking an upstream.
    pub hits: u64,
    /// Removed to make room before they had expired.
    pub evictions: u64,
}
