//! Whether this process may write now. Asked before each write (O9): a process that was stopped for a minute, or whose
//! machine was suspended, finds its lease too old before it has read anything.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::RENEW_DEADLINE;

/// When the lease was last renewed. Shared by the election and everything that writes.
#[derive(Debug)]
pub struct Leadership {
    renewed: Mutex<Option<Instant>>,
    /// [`super::clock::now`], except in tests. Monotonic, and it runs while the process is stopped or the machine suspended.
    clock: fn() -> Instant,
}

/// This process does not lead, or cannot know that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLeading {
    /// How old the lease is; none: not held.
    pub age: Option<Duration>,
}

impl fmt::Display for NotLeading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.age {
            Some(age) => write!(f, "the lease was last renewed {} s ago", age.as_secs()),
            None => f.write_str("the lease is not held"),
        }
    }
}

impl std::error::Error for NotLeading {}

impl Leadership {
    /// Starts without leadership.
    pub fn new(clock: fn() -> Instant) -> Leadership {
        Leadership { renewed: Mutex::new(None), clock }
    }

    /// The time by its clock.
    pub fn now(&self) -> Instant {
        (self.clock)()
    }

    /// The lease was written by a request that started then.
    pub fn renewed(&self, started: Instant) {
        *self.lock() = Some(started);
    }

    /// The lease is not held any more.
    pub fn lost(&self) {
        *self.lock() = None;
    }

    /// Whether a write may start now.
    ///
    /// # Errors
    /// It may not: another operator may lead.
    pub fn ensure(&self) -> Result<(), NotLeading> {
        let age = self.lock().map(|renewed| self.now().saturating_duration_since(renewed));
        match age {
            Some(age) if age < RENEW_DEADLINE => Ok(()),
            Some(_) | None => Err(NotLeading { age }),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    fn clock() -> Instant {
        NOW.get().expect("the test sets it")
    }

    #[test]
    fn o9_a_write_is_allowed_only_while_the_last_renewal_is_young() {
        let begin = Instant::now();
        NOW.set(Some(begin));
        let leadership = Leadership::new(clock);
        assert_eq!(leadership.ensure(), Err(NotLeading { age: None }));

        leadership.renewed(begin);
        NOW.set(Some(begin + Duration::from_millis(9_999)));
        assert_eq!(leadership.ensure(), Ok(()));

        // The process was stopped (SIGSTOP) for a minute.
        NOW.set(Some(begin + Duration::from_secs(60)));
        let old = leadership.ensure().unwrap_err();
        assert_eq!(old.to_string(), "the lease was last renewed 60 s ago");

        leadership.renewed(begin + Duration::from_secs(59));
        assert_eq!(leadership.ensure(), Ok(()));
        leadership.lost();
        assert_eq!(leadership.ensure(), Err(NotLeading { age: None }));
    }
}
