//! The lookups in progress: at most one for each route and key in the process (FW11), however many queries wait for it. A client
//! that leaves ends nothing, so the next one finds the lookup where it is; its budget ends it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use dataplane_core::{LookupKey, Relayed};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::yield_now;

use super::hashed::AsItIs;
use super::now;
use super::registry::RouteId;
use super::unresolved::Unresolved;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 16;
/// Clients that get the end of one lookup at once. Thousands may wait for one name, and the thread that reads its reply
/// also answers clients about names of ours (FW53).
const MAX_AT_ONCE: usize = 32;
/// Results of lookups that the cache does not keep, in each part of the table.
const UNKEPT: usize = 4;
/// Octets of one of them: the longest that the cache would keep.
const MAX_UNKEPT_OCTETS: usize = 16 << 10;

/// How a lookup ended; cheap to clone.
pub(super) type Ended = Result<Relayed, Unresolved>;

/// A task that waits gets this; none while the lookup runs.
pub(super) type Waiter = watch::Receiver<Option<Ended>>;

/// What a lookup is for, with a keyed hash of it: it is computed once for each query.
#[derive(Debug)]
struct Id {
    hash: u64,
    route: RouteId,
    key: LookupKey,
}

impl PartialEq for Id {
    fn eq(&self, other: &Id) -> bool {
        self.hash == other.hash && self.route == other.route && self.key == other.key
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Lookups in progress by route and key: at most one each (FW11).
#[derive(Debug, Default)]
pub(super) struct Table {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    count: Count,
}

/// What every lookup writes. It shares no line of a processor's cache with the hasher, which every query reads.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

const _: () = assert!(align_of::<Count>() >= 128 && size_of::<Count>().is_multiple_of(128));

/// One part of the table.
#[derive(Debug, Default)]
struct Shard {
    running: HashMap<Arc<Id>, Waiting, BuildHasherDefault<AsItIs>>,
    /// The latest lookups whose results the cache does not keep, the first to end first. A query that came before such an end
    /// would have joined that lookup, but it waited for its turn (FW11).
    unkept: VecDeque<Unkept>,
}

/// A result that the cache does not keep.
#[derive(Debug)]
struct Unkept {
    id: Arc<Id>,
    ended: Ended,
    at: Instant,
}

impl Shard {
    /// The end of a lookup that was not over when this query came.
    fn over_since(&self, id: &Id, came: Instant) -> Option<Ended> {
        let unkept = self.unkept.iter().find(|unkept| *unkept.id == *id && unkept.at >= came)?;
        Some(unkept.ended.clone())
    }

    fn remember(&mut self, id: &Arc<Id>, ended: &Ended) {
        let is_shared = match ended {
            Ok(relayed) => relayed.octets() <= MAX_UNKEPT_OCTETS,
            Err(Unresolved::Silence | Unresolved::Errors(_)) => true,
            // No upstream was asked, and for the next query there may be room.
            Err(Unresolved::NoServer | Unresolved::Limited(_)) => false,
        };
        self.unkept.retain(|unkept| unkept.id != *id);
        if !is_shared {
            return;
        }
        if self.unkept.len() == UNKEPT {
            self.unkept.pop_front();
        }
        self.unkept.push_back(Unkept { id: Arc::clone(id), ended: ended.clone(), at: now() });
    }
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

/// The result of asking the table; `W` is the caller's means to wait, and `R` what it is made of.
pub(super) enum Joined<W, R> {
    /// A lookup for this key is in progress.
    Running(W),
    /// One has ended since the query came, and its result is not in the cache.
    Over(R, Ended),
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
    fn id(&self, route: RouteId, key: LookupKey) -> Id {
        Id { hash: self.hasher.hash_one((route, &key)), route, key }
    }

    fn shard(&self, id: &Id) -> MutexGuard<'_, Shard> {
        // Tables take the lowest bits and the highest ones.
        let place = (id.hash >> 32) as usize % SHARDS;
        self.shards[place].lock().expect("nothing panics while it holds this")
    }

    /// Joins the lookup for this key, or begins it unless `most` are in progress; a task waits. The query came then.
    pub(super) fn join(
        self: &Arc<Self>,
        route: RouteId,
        key: &LookupKey,
        most: usize,
        came: Instant,
    ) -> Joined<Waiter, ()> {
        let wait = |waiting: &mut Waiting, ()| {
            let tasks = waiting.tasks.get_or_insert_with(|| watch::channel(None).0);
            tasks.subscribe()
        };
        self.join_with(self.id(route, key.clone()), most, came, (), wait)
    }

    /// The same with a function that is called at the end.
    pub(super) fn join_late(
        self: &Arc<Self>,
        route: RouteId,
        key: LookupKey,
        most: usize,
        came: Instant,
        late: Late,
    ) -> Joined<(), Late> {
        let id = self.id(route, key);
        self.join_with(id, most, came, late, |waiting, late| waiting.calls.push(late))
    }

    fn join_with<W, R>(
        self: &Arc<Self>,
        id: Id,
        most: usize,
        came: Instant,
        waits: R,
        wait: impl FnOnce(&mut Waiting, R) -> W,
    ) -> Joined<W, R> {
        let id = Arc::new(id);
        let mut shard = self.shard(&id);
        if let Some(waiting) = shard.running.get_mut(&id) {
            return Joined::Running(wait(waiting, waits));
        }
        if let Some(ended) = shard.over_since(&id, came) {
            return Joined::Over(waits, ended);
        }
        let free = |now: usize| (now < most).then_some(now + 1);
        if self.count.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_err() {
            return Joined::Full(waits);
        }
        let waiting = wait(shard.running.entry(Arc::clone(&id)).or_default(), waits);
        let running = Running { table: Arc::clone(self), id, has_ended: false };
        Joined::Begun(waiting, Box::new(running))
    }

    pub(super) fn len(&self) -> usize {
        self.count.0.load(Ordering::Relaxed)
    }
}

impl Running {
    pub(super) fn key(&self) -> &LookupKey {
        &self.id.key
    }

    /// Gives the result to all who wait. The cache has it, or no other query may have it.
    pub(super) fn end(mut self, ended: Ended) {
        self.leave(ended, true);
    }

    /// The same where the cache does not keep it: others that came before this may still ask for it.
    pub(super) fn end_unkept(mut self, ended: Ended) {
        self.leave(ended, false);
    }

    fn leave(&mut self, ended: Ended, is_kept: bool) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let mut shard = self.table.shard(&self.id);
        let waiting = shard.running.remove(&self.id);
        match is_kept {
            // The cache has a newer one.
            true => shard.unkept.retain(|unkept| unkept.id != self.id),
            false => shard.remember(&self.id, &ended),
        }
        drop(shard);
        self.table.count.0.fetch_sub(1, Ordering::Relaxed);
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
        self.leave(Err(Unresolved::Silence), true);
    }
}

/// A waiter for a lookup that is over.
pub(super) fn over(ended: Ended) -> Waiter {
    watch::channel(Some(ended)).1
}

/// Waits until the lookup has ended.
pub(super) async fn ended(mut waiter: Waiter) -> Ended {
    match waiter.wait_for(Option::is_some).await {
        Ok(ended) => ended.clone().unwrap_or(Err(Unresolved::Silence)),
        Err(_) => Err(Unresolved::Silence),
    }
}

#[cfg(test)]
mod tests;
