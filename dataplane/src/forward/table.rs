//! The lookups in progress: at most one for each route and key in the process (FW11), however many queries wait for it. A client
//! that leaves ends nothing, so the next one finds the lookup where it is; its budget ends it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dataplane_core::{LookupKey, Relayed};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::yield_now;

use super::lookup::Unresolved;
use super::registry::RouteId;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 16;
/// Clients that get the end of one lookup at once. Thousands may wait for one name, and the thread that reads its reply
/// also answers clients about names of ours (FW53).
const MAX_AT_ONCE: usize = 32;

/// How a lookup ended; cheap to clone.
pub(super) type Ended = Result<Relayed, Unresolved>;

/// A task that waits gets this; none while the lookup runs.
pub(super) type Waiter = watch::Receiver<Option<Ended>>;

type Id = (RouteId, LookupKey);

/// Lookups in progress by route and key: at most one each (FW11).
#[derive(Debug, Default)]
pub(super) struct Table {
    shards: [Mutex<HashMap<Arc<Id>, Waiting>>; SHARDS],
    hasher: RandomState,
    count: AtomicUsize,
}

/// Those who wait for one lookup. Each has a place, so `limits.inFlight` bounds them.
#[derive(Debug, Default)]
struct Waiting {
    /// For tasks; made for the first of them.
    tasks: Option<watch::Sender<Option<Ended>>>,
    calls: Vec<Late>,
}

/// A function that the thread that ends the lookup calls with the result. It must neither wait nor panic. So a client
/// over UDP needs no task of its own.
pub(super) struct Late(Box<dyn FnOnce(Ended) + Send>);

impl Late {
    pub(super) fn new(call: impl FnOnce(Ended) + Send + 'static) -> Late {
        Late(Box::new(call))
    }

    pub(super) fn call(self, ended: Ended) {
        self.0(ended);
    }
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Late").finish_non_exhaustive()
    }
}

/// The result of asking the table; `W` is the caller's means to wait.
pub(super) enum Joined<W, R> {
    /// A lookup for this key is in progress.
    Running(W),
    /// There was none: the caller runs it.
    Begun(W, Box<Running>),
    /// The limit of lookups in progress is reached.
    Full(R),
}

/// The one lookup for its key; it leaves the table when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    table: Arc<Table>,
    id: Arc<Id>,
    has_ended: bool,
}

impl Table {
    fn shard(&self, id: &Id) -> MutexGuard<'_, HashMap<Arc<Id>, Waiting>> {
        let place = self.hasher.hash_one(id) as usize % SHARDS;
        self.shards[place].lock().expect("nothing panics while it holds this")
    }

    /// Joins the lookup for this key, or begins it unless `most` are in progress; a task waits.
    pub(super) fn join(
        self: &Arc<Self>,
        route: RouteId,
        key: &LookupKey,
        most: usize,
    ) -> Joined<Waiter, ()> {
        let wait = |waiting: &mut Waiting, ()| {
            let tasks = waiting.tasks.get_or_insert_with(|| watch::channel(None).0);
            tasks.subscribe()
        };
        self.join_with((route, key.clone()), most, (), wait)
    }

    /// The same with a function that is called at the end.
    pub(super) fn join_late(
        self: &Arc<Self>,
        route: RouteId,
        key: LookupKey,
        most: usize,
        late: Late,
    ) -> Joined<(), Late> {
        self.join_with((route, key), most, late, |waiting, late| waiting.calls.push(late))
    }

    fn join_with<W, R>(
        self: &Arc<Self>,
        id: Id,
        most: usize,
        waits: R,
        wait: impl FnOnce(&mut Waiting, R) -> W,
    ) -> Joined<W, R> {
        let id = Arc::new(id);
        let mut shard = self.shard(&id);
        if let Some(waiting) = shard.get_mut(&id) {
            return Joined::Running(wait(waiting, waits));
        }
        let free = |now: usize| (now < most).then_some(now + 1);
        if self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_err() {
            return Joined::Full(waits);
        }
        let waiting = wait(shard.entry(Arc::clone(&id)).or_default(), waits);
        let running = Running { table: Arc::clone(self), id, has_ended: false };
        Joined::Begun(waiting, Box::new(running))
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Running {
    pub(super) fn key(&self) -> &LookupKey {
        &self.id.1
    }

    /// Gives the result to all who wait.
    pub(super) fn end(mut self, ended: Ended) {
        self.leave(ended);
    }

    fn leave(&mut self, ended: Ended) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let waiting = self.table.shard(&self.id).remove(&self.id);
        self.table.count.fetch_sub(1, Ordering::Relaxed);
        let Some(Waiting { tasks, calls }) = waiting else { return };
        if let Some(tasks) = tasks {
            tasks.send_replace(Some(ended.clone()));
        }
        let mut calls = calls.into_iter();
        calls.by_ref().take(MAX_AT_ONCE).for_each(|call| call.call(ended.clone()));
        if calls.len() == 0 {
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(call_others(calls, ended))),
            // The process ends.
            Err(_) => calls.for_each(|call| call.call(ended.clone())),
        }
    }
}

/// Gives the end of a lookup to those who wait for it, some at a time.
async fn call_others(mut calls: std::vec::IntoIter<Late>, ended: Ended) {
    while calls.len() > 0 {
        yield_now().await;
        calls.by_ref().take(MAX_AT_ONCE).for_each(|call| call.call(ended.clone()));
    }
}

impl Drop for Running {
    /// A lookup that panicked ends as silence does.
    fn drop(&mut self) {
        self.leave(Err(Unresolved::Silence));
    }
}

/// Waits until the lookup has ended.
pub(super) async fn ended(mut waiter: Waiter) -> Ended {
    match waiter.wait_for(Option::is_some).await {
        Ok(ended) => ended.clone().unwrap_or(Err(Unresolved::Silence)),
        Err(_) => Err(Unresolved::Silence),
    }
}

#[cfg(test)]
mod tests {
    use dataplane_core::Name;

    use super::*;

    fn key(name: &str) -> LookupKey {
        LookupKey::new(Name::from_text(name).unwrap(), 1, false, false)
    }

    #[tokio::test]
    async fn fw11_one_lookup_per_route_and_key_and_a_bound_on_all() {
        let table = Arc::new(Table::default());
        let Joined::Begun(first, running) = table.join(1, &key("a.example"), 2) else { panic!() };
        let Joined::Running(second) = table.join(1, &key("a.example"), 2) else { panic!() };
        let Joined::Begun(..) = table.join(2, &key("a.example"), 2) else {
            panic!("another route")
        };
        assert_eq!(table.len(), 1, "the one that was never run left");
        let Joined::Begun(_, _other) = table.join(1, &key("b.example"), 2) else { panic!() };
        assert!(matches!(table.join(1, &key("c.example"), 2), Joined::Full(())));
        let errors = Unresolved::Errors(dataplane_core::ErrorCodes::default());
        running.end(Err(errors));
        for waiter in [first, second] {
            assert!(matches!(ended(waiter).await, Err(Unresolved::Errors(_))));
        }
        assert!(matches!(table.join(1, &key("a.example"), 2), Joined::Begun(..)), "it is over");
    }

    #[tokio::test]
    async fn fw11_a_lookup_that_breaks_off_ends_for_those_who_wait() {
        let table = Arc::new(Table::default());
        let Joined::Begun(waiter, running) = table.join(1, &key("a.example"), 1) else { panic!() };
        drop(running);
        assert!(matches!(ended(waiter).await, Err(Unresolved::Silence)));
        assert_eq!(table.len(), 0);
    }

    #[tokio::test]
    async fn fw53_a_lookup_for_which_many_wait_ends_for_some_at_a_time() {
        const CLIENTS: usize = 4 * MAX_AT_ONCE + 5;
        let table = Arc::new(Table::default());
        let (sender, calls) = std::sync::mpsc::channel();
        let mut running = None;
        for number in 0..CLIENTS {
            let sender = sender.clone();
            let late = Late::new(move |ended| sender.send((number, ended.is_err())).unwrap());
            if let Joined::Begun((), begun) = table.join_late(1, key("a.example"), 1, late) {
                running = Some(begun);
            }
        }
        running.expect("the first begins it").end(Err(Unresolved::NoServer));
        let mut got = calls.try_iter().collect::<Vec<_>>();
        assert_eq!(got.len(), MAX_AT_ONCE, "on the thread that ended it");
        while got.len() < CLIENTS {
            yield_now().await;
            let now = calls.try_iter().collect::<Vec<_>>();
            assert!(now.len() <= MAX_AT_ONCE, "{} at once", now.len());
            got.extend(now);
        }
        assert!(got.into_iter().eq((0..CLIENTS).map(|number| (number, true))), "each once");
    }

    #[test]
    fn fw11_those_who_are_called_get_the_end_once_also_of_a_lookup_that_breaks_off() {
        let table = Arc::new(Table::default());
        let (sender, calls) = std::sync::mpsc::channel();
        let late = |number: u8| {
            let sender = sender.clone();
            Late::new(move |ended| sender.send((number, ended)).unwrap())
        };
        let join = |number| table.join_late(1, key("a.example"), 1, late(number));
        let Joined::Begun((), running) = join(1) else { panic!() };
        assert!(matches!(join(2), Joined::Running(())));
        let other = table.join_late(1, key("b.example"), 1, late(3));
        assert!(matches!(other, Joined::Full(_)), "it may be called by who gets it back");
        drop(other);
        running.end(Err(Unresolved::NoServer));
        let Joined::Begun((), running) = join(4) else { panic!("the first is over") };
        drop(running);
        let got: Vec<_> = calls.try_iter().map(|(number, ended)| (number, ended.err())).collect();
        let (end, broken) = (Some(Unresolved::NoServer), Some(Unresolved::Silence));
        assert_eq!(got, [(1, end), (2, end), (4, broken)]);
        assert_eq!(table.len(), 0);
    }
}
