//! Tasks that run for as long as the process does and answer no query: watches, probes, sweeps. One that panics, by a defect,
//! begins again after a pause. Else what it keeps up to date would stay as it was, and only its age would show that.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::FutureExt;

/// Before a task that panicked begins again ...
const PAUSE: Duration = Duration::from_secs(1);
/// ... and each time twice as long, up to this, until it has run for as long: one that always panics then costs little.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Returns when the task ends by itself. `count` is called for each panic.
pub(crate) async fn restarting<T: Future<Output = ()>>(
    name: &'static str,
    count: impl Fn(),
    begin: impl Fn() -> T,
) {
    let task = || AssertUnwindSafe(async { begin().await }).catch_unwind();
    let mut pauses = Pauses::default();
    loop {
        let begun = tokio::time::Instant::now();
        if task().await.is_ok() {
            return;
        }
        report(name, &count);
        tokio::time::sleep(pauses.next(begun.elapsed())).await;
    }
}

/// The same on a thread of its own.
pub(crate) fn restarting_on_thread(name: &'static str, count: impl Fn(), run: impl Fn()) {
    let mut pauses = Pauses::default();
    loop {
        let begun = std::time::Instant::now();
        if catch_unwind(AssertUnwindSafe(&run)).is_ok() {
            return;
        }
        report(name, &count);
        std::thread::sleep(pauses.next(begun.elapsed()));
    }
}

/// The pauses of one task.
#[derive(Debug, Default)]
struct Pauses {
    last: Duration,
}

impl Pauses {
    /// The next one, after a run of this length.
    fn next(&mut self, ran: Duration) -> Duration {
        let longer = if ran >= MAX_PAUSE { PAUSE } else { (2 * self.last).max(PAUSE) };
        self.last = longer.min(MAX_PAUSE);
        self.last
    }
}

fn report(name: &'static str, count: impl Fn()) {
    count();
    tracing::error!(
        task = name,
        "a task panicked, which is a defect of this program: it begins again"
    );
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_begins_again_after_a_pause() {
        let (begun, panics) = (Cell::new(0), Cell::new(0));
        let start = tokio::time::Instant::now();
        let count = || panics.set(panics.get() + 1);
        restarting("test", count, || {
            begun.set(begun.get() + 1);
            let number = begun.get();
            async move { assert!(number > 2, "a defect") }
        })
        .await;
        assert_eq!((begun.get(), panics.get()), (3, 2));
        assert_eq!(start.elapsed(), 3 * PAUSE, "one second, then two");
    }

    #[test]
    fn a_thread_that_panics_begins_again() {
        let (begun, panics) = (Cell::new(0), Cell::new(0));
        restarting_on_thread(
            "test",
            || panics.set(panics.get() + 1),
            || {
                begun.set(begun.get() + 1);
                assert!(begun.get() > 1, "a defect");
            },
        );
        assert_eq!((begun.get(), panics.get()), (2, 1));
    }
}
