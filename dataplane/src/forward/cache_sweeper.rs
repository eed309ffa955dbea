//! Keeps the cache tidy while time passes: see [`Sweep`]. Away from every query, in short steps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::yield_now;
use tokio::time::sleep;

use super::cache::{CacheLimits, Sweep};
use super::plan::USUAL;
use super::{Forwarder, RouteId, Upstreams, now};
use crate::state::State;

/// Between two looks at the configuration.
const LOOK: Duration = Duration::from_secs(1);
/// Time after a change in which lookups on old routes end and put their replies into the cache: their budget (FW24),
/// and a little more.
const SETTLED: Duration = USUAL.budget.saturating_add(LOOK);

/// When to sweep.
#[derive(Debug, Default)]
struct Sweeping {
    routes: Vec<RouteId>,
    /// Octets and entries.
    bounds: (usize, usize),
    due: Option<Instant>,
}

/// Sweeps the cache after each change of the groups or of its bounds, and gives back memory that it does not use, as long as the
/// runtime runs.
pub(super) async fn run(state: Arc<State>, forwarder: Arc<Forwarder>) {
    let mut sweeping = Sweeping::default();
    for turn in 0_usize.. {
        sleep(LOOK).await;
        forwarder.cache.tidy(turn);
        let (routes, limits) = seen(&state.published.load().upstreams);
        let bounds = (limits.octets, limits.entries);
        if sweeping.is_due(routes, bounds, now()) || forwarder.cache.is_over(&limits) {
            let mut sweep = Sweep::default();
            let is_route = |route| sweeping.routes.contains(&route);
            while sweep.step(&forwarder.cache, forwarder.clock.now_ms(), &limits, is_route) {
                yield_now().await;
            }
        }
    }
}

fn seen(upstreams: &Upstreams) -> (Vec<RouteId>, CacheLimits) {
    (upstreams.groups().map(|group| group.route()).collect(), *upstreams.cache())
}

impl Sweeping {
    /// Whether to sweep now: once, when lookups on routes before these have ended, and at once after other bounds. Where clients
    /// ask much, insertions have removed what is above a smaller bound before this looks; the tables are as large as before.
    fn is_due(&mut self, routes: Vec<RouteId>, bounds: (usize, usize), now: Instant) -> bool {
        if routes != self.routes {
            (self.routes, self.due) = (routes, Some(now + SETTLED));
        }
        let is_bound_again = std::mem::replace(&mut self.bounds, bounds) != bounds;
        self.due.take_if(|due| *due <= now).is_some() || is_bound_again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: (usize, usize) = (1 << 20, 1_000);

    #[test]
    fn ca1_a_sweep_comes_once_when_lookups_on_the_old_routes_have_ended() {
        let (mut sweeping, start) = (Sweeping { bounds: BOUNDS, ..Sweeping::default() }, now());
        assert!(!sweeping.is_due(vec![1, 2], BOUNDS, start));
        assert!(!sweeping.is_due(vec![1, 2], BOUNDS, start + SETTLED - Duration::from_millis(1)));
        assert!(sweeping.is_due(vec![1, 2], BOUNDS, start + SETTLED));
        assert!(!sweeping.is_due(vec![1, 2], BOUNDS, start + SETTLED * 2));
        let edited = start + SETTLED * 3;
        assert!(!sweeping.is_due(vec![1, 3], BOUNDS, edited));
        // Another edit comes meanwhile: its lookups get their time too.
        assert!(!sweeping.is_due(vec![1, 4], BOUNDS, edited + SETTLED / 2));
        assert!(!sweeping.is_due(vec![1, 4], BOUNDS, edited + SETTLED));
        assert!(sweeping.is_due(vec![1, 4], BOUNDS, edited + SETTLED * 2));
        assert!(SETTLED > USUAL.budget + super::super::GRACE);
    }

    #[test]
    fn ca5_a_sweep_comes_once_after_other_bounds() {
        let (mut sweeping, at) = (Sweeping::default(), now());
        let mut is_due = |bounds| sweeping.is_due(Vec::new(), bounds, at);
        assert!(is_due(BOUNDS), "there was none");
        assert!(!is_due(BOUNDS));
        assert!(is_due((BOUNDS.0 / 2, BOUNDS.1)) && !is_due((BOUNDS.0 / 2, BOUNDS.1)));
    }
}
