//! Looks after the queries that were sent without a task and get no reply: each gets a task then, which sends again. All that
//! are found by one look begin their tasks together, and clients wait meanwhile where there is one processor (L3). So looks
//! are frequent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::common::Common;
use super::now;
use crate::restarting::restarting;

/// Between two looks: so much later the next send of a query may leave (FW23).
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Whether a task looks after the queries to one server.
#[derive(Debug, Default)]
pub(super) struct Watch {
    is_running: AtomicBool,
}

/// A task that looks after the queries of `owner`, unless there is one. `look` calls those that wait too long, and returns
/// when the next one will. While the server answers, this costs one or two wake-ups a second for any number of queries.
pub(super) fn watch<T: Send + Sync + 'static>(
    owner: &Arc<T>,
    common: fn(&T) -> &Common,
    watch: fn(&T) -> &Watch,
    look: fn(&T, Instant) -> Option<Instant>,
) {
    let is_running = &watch(owner).is_running;
    if !is_running.load(Ordering::Relaxed) && !is_running.swap(true, Ordering::AcqRel) {
        let (counted, owner) = (Arc::clone(owner), Arc::clone(owner));
        let begin = move || run(Arc::clone(&owner), watch, look);
        tokio::spawn(restarting("overdue queries", move || common(&counted).count_panic(), begin));
    }
}

/// Returns when no query is left that has no task.
async fn run<T>(owner: Arc<T>, watch: fn(&T) -> &Watch, look: fn(&T, Instant) -> Option<Instant>) {
    let is_running = &watch(&owner).is_running;
    loop {
        let at = now();
        let next = match look(&owner, at) {
            Some(next) => next.max(at + LOOK_AGAIN),
            None => {
                is_running.store(false, Ordering::Release);
                // A query may have come in between.
                match look(&owner, now()) {
                    Some(next) if !is_running.swap(true, Ordering::AcqRel) => next,
                    Some(_) | None => return,
                }
            }
        };
        tokio::time::sleep_until(next.into()).await;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::mpsc::UnboundedReceiver;

    use super::*;
    use crate::forward::plan::USUAL;

    #[derive(Debug, Default)]
    struct Panics {
        common: Common,
        watch: Watch,
        looks: AtomicUsize,
    }

    #[tokio::test(start_paused = true)]
    async fn fw54_queries_are_looked_after_again_after_a_defect() {
        let owner = Arc::new(Panics::default());
        let look = |owner: &Panics, _| {
            let before = owner.looks.fetch_add(1, Ordering::Relaxed);
            assert!(before > 0, "a defect");
            None
        };
        watch(&owner, |owner| &owner.common, |owner| &owner.watch, look);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(owner.common.panics(), 1);
        assert!(owner.looks.load(Ordering::Relaxed) > 1, "it began again");
        assert!(!owner.watch.is_running.load(Ordering::Relaxed), "none waits");
    }

    /// Takes the looks that found these queries, each with the time at which it left: none came late, and few together.
    pub(in crate::forward) async fn come_few_at_once(
        queries: usize,
        mut looks: UnboundedReceiver<(Instant, Instant)>,
    ) {
        let latest = USUAL.interval + 2 * LOOK_AGAIN;
        let mut found = BTreeMap::<_, usize>::new();
        for _ in 0..queries {
            let (left, at) = looks.recv().await.expect("each is found");
            let waited = at - left;
            assert!(waited >= USUAL.interval && waited <= latest, "{waited:?}");
            *found.entry(at).or_default() += 1;
        }
        assert!(found.values().all(|together| *together <= 4), "{found:?}");
    }
}
