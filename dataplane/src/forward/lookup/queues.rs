//! The queues of servers in which one lookup waits for a place (FW52).

use futures::future::select_all;

use super::{Lookup, Waiting};

/// The servers that a lookup waits for, by their places in its plan, each with its place in the queue of that server.
#[derive(Debug, Default)]
pub(super) struct Queues(Vec<(usize, Waiting)>);

impl Queues {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Joins the queues of servers that the lookup waits for now, and leaves those of others.
    pub(super) fn follow(&mut self, lookup: &Lookup) {
        let Lookup { plan, group, client, .. } = lookup;
        self.0.retain(|(queued, _)| plan.waiting().any(|place| place == *queued));
        for place in plan.waiting() {
            if self.0.iter().all(|(queued, _)| *queued != place) {
                self.0.push((place, group.servers[plan.member(place)].wait(*client)));
            }
        }
    }

    /// Waits for the first place that one of these servers gives it, and takes that server off. There must be one.
    pub(super) async fn given(&mut self) -> (usize, Waiting) {
        let first = select_all(self.0.iter_mut().map(|(_, waiting)| waiting)).await.1;
        self.0.swap_remove(first)
    }
}
