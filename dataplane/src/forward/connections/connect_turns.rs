//! Who makes a connection to one server, and how many there may be: queries that come together must not make one each, unless
//! each connection has one query only.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// Connections to one server that are made at the same time, where each has one query; else one.
const MAX_TURNS: usize = 8;

/// The turns at one server.
#[derive(Debug)]
pub(super) struct Turns {
    parts: Arc<Semaphore>,
    /// Held by the first that waits.
    first: Mutex<()>,
    /// Connections that are being made.
    beginning: Arc<AtomicUsize>,
}

/// One turn: others wait for it, all of them or all but some. Given back when dropped.
#[derive(Debug)]
pub(super) struct Turn(OwnedSemaphorePermit);

/// A connection that is being made; it counts until this is dropped.
#[derive(Debug)]
pub(super) struct Beginning(Arc<AtomicUsize>);

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            parts: Arc::new(Semaphore::new(MAX_TURNS)),
            first: Mutex::default(),
            beginning: Arc::default(),
        }
    }
}

impl Turns {
    /// Waits for a turn: the only one, or one of several where each connection has one query.
    pub(super) async fn take(&self, gives_one: impl Fn() -> bool) -> Turn {
        // Which of both may become known while others wait: only the first of them asks for it.
        let _first = self.first.lock().await;
        let parts = if gives_one() { 1 } else { MAX_TURNS as u32 };
        let taken = Arc::clone(&self.parts).acquire_many_owned(parts).await;
        Turn(taken.expect("it is never closed"))
    }

    /// Begins a connection beside `open` others, if all together are at most this many. The caller holds the list of those
    /// that are open, so that two do not take one place.
    pub(super) fn begin(&self, open: usize, most: usize) -> Option<Beginning> {
        let fits = open + self.beginning.load(Ordering::Relaxed) < most;
        fits.then(|| {
            self.beginning.fetch_add(1, Ordering::Relaxed);
            Beginning(Arc::clone(&self.beginning))
        })
    }
}

impl Turn {
    /// Lets others have turns beside this one.
    pub(super) fn share(&mut self) {
        drop(self.0.split(self.0.num_permits().saturating_sub(1)));
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
