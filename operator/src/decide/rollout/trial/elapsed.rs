//! How much of its time a trial has had. The clock of the operator that began it wrote when that was, and the clocks of two operators may
//! differ: a leader whose clock is ahead must not end a trial early, and one whose clock is behind must not call it lost.

use jiff::{SignedDuration, Timestamp};

use super::super::CLOCKS;
use super::Trial;

/// How long ago a trial began.
pub(super) struct Elapsed {
    /// At least this long: this process has watched it for that time, or clocks that differ as much as they may show it. The latter
    /// ends a trial that no process watches for its whole time.
    pub(super) surely: SignedDuration,
    /// By the clock of the operator that began it and the one of this process.
    pub(super) by_clocks: SignedDuration,
}

impl Trial<'_> {
    /// None: it is not known when it began, or that is further ahead than clocks differ.
    pub(super) fn elapsed(self) -> Option<Elapsed> {
        let started: Timestamp = self.state.started_at.parse().ok()?;
        let by_clocks = self.now.duration_since(started);
        let surely = match self.observed.watched.map(SignedDuration::try_from) {
            Some(Ok(watched)) => watched.max(by_clocks - CLOCKS),
            Some(Err(_)) | None => by_clocks,
        };
        (by_clocks >= -CLOCKS.max(self.time())).then_some(Elapsed { surely, by_clocks })
    }

    /// How much it has to have.
    pub(super) fn time(self) -> SignedDuration {
        SignedDuration::from_secs(self.state.observe_seconds.into())
    }
}
