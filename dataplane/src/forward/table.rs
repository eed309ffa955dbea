//! The lookups in progress: at most one for each route and key in the process (FW11), however many queries wait for it. A client
//! that leaves ends nothing, so the next one finds the lookup where it is; its budget ends it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dataplane_core::{LookupKey, Relayed};
use tokio::sync::watch;

use super::lookup::Unresolved;
use super::registry::RouteId;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 16;

/// How a lookup ended; cheap to clone.
pub(super) type Ended = Result<Relayed, Unresolved>;

/// Who waits gets this; none while the lookup runs.
pub(super) type Waiter = watch::Receiver<Option<Ended>>;

type Id = (RouteId, LookupKey);

/// Lookups in progress by route and key: at most one each (FW11).
#[derive(Debug, Default)]
pub(super) struct Table {
    shards: [Mutex<HashMap<Id, Waiter>>; SHARDS],
    hasher: RandomState,
    count: AtomicUsize,
}

/// What asking the table gives.
pub(super) enum Joined {
    /// A lookup for this key is in progress.
    Running(Waiter),
    /// There was none: the caller runs it.
    Begun(Waiter, Box<Running>),
    /// As many as there may be are in progress.
    Full,
}

/// The one lookup for its key; it leaves the table when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    table: Arc<Table>,
    id: Id,
    ended: watch::Sender<Option<Ended>>,
}

impl Table {
    fn shard(&self, id: &Id) -> MutexGuard<'_, HashMap<Id, Waiter>> {
        let place = self.hasher.hash_one(id) as usize % SHARDS;
        self.shards[place].lock().expect("nothing panics while it holds this")
    }

    /// Joins the lookup for this key, or begins it unless `most` are in progress.
    pub(super) fn join(self: &Arc<Self>, route: RouteId, key: &LookupKey, most: usize) -> Joined {
        let id = (route, key.clone());
        let mut shard = self.shard(&id);
        if let Some(waiter) = shard.get(&id) {
            return Joined::Running(waiter.clone());
        }
        let free = |now: usize| (now < most).then_some(now + 1);
        if self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).is_err() {
            return Joined::Full;
        }
        let (ended, waiter) = watch::channel(None);
        shard.insert(id.clone(), waiter.clone());
        Joined::Begun(waiter, Box::new(Running { table: Arc::clone(self), id, ended }))
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
    pub(super) fn end(self, ended: Ended) {
        self.ended.send_replace(Some(ended));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.table.shard(&self.id).remove(&self.id);
        self.table.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for the end. A lookup that a defect of ours broke off ends as silence does.
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
        assert!(matches!(table.join(1, &key("c.example"), 2), Joined::Full));
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
}
