//! What a reply or an event costs, counted in steps: a row, a port, a node or an octet looked at. Tests
//! hold it against a budget (row L12), because a count says the same on every machine.
//!
//! Counting is compiled for tests and with the feature `steps` only; otherwise it is nothing at all.

#[cfg(any(test, feature = "steps"))]
mod counted {
    // In this module alone: steps are counted for each thread. The crate itself is built without `std`.
    #[allow(unused_extern_crates)]
    extern crate std;

    use core::cell::Cell;

    std::thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts this many steps of this thread.
    pub(crate) fn step(count: usize) {
        STEPS.with(|steps| steps.set(steps.get() + count as u64));
    }

    /// Runs something; also returns the steps that it took.
    #[allow(unreachable_pub)] // with the feature only
    pub fn count_steps<T>(run: impl FnOnce() -> T) -> (T, u64) {
        let before = STEPS.with(Cell::get);
        let result = run();
        (result, STEPS.with(Cell::get) - before)
    }
}

#[cfg(any(test, feature = "steps"))]
pub(crate) use counted::step;

#[cfg(feature = "steps")]
pub use counted::count_steps;
#[cfg(all(test, not(feature = "steps")))]
pub(crate) use counted::count_steps;

#[cfg(not(any(test, feature = "steps")))]
#[inline(always)]
pub(crate) fn step(_: usize) {}
