//! The servers of a group that may be asked: those that are not this process itself (A34). Each look costs a few system calls for
//! each server, so most lookups take the result of an earlier one.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use super::Group;
use crate::forward::server::Server;

/// Between two looks while a server is this process, or was: its address may move to another machine and back.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What the latest look found; nothing before the first.
#[derive(Debug, Default)]
pub(super) struct Askable {
    latest: ArcSwapOption<Look>,
    /// Held by the thread that looks.
    looking: Mutex<()>,
}

#[derive(Debug)]
struct Look {
    /// The places of the servers that may be asked.
    places: Vec<usize>,
    /// The places of the others, and since when looks have found them to be this process.
    own: Vec<(usize, Instant)>,
    /// When to look again; never where no look has left out a server. An address that moves to this machine for the first
    /// time is left to the probe for loops (FW50).
    until: Option<Instant>,
}

impl Look {
    fn holds(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl Group {
    /// Calls `ask` with the places of servers that `is_own` does not find to be this process. `left_out` is called with each
    /// other one when it is found, and not again while it stays so.
    pub(in crate::forward) fn with_askable<T>(
        &self,
        now: Instant,
        is_own: impl Fn(&Server) -> bool,
        left_out: impl Fn(&Server),
        ask: impl FnOnce(&[usize]) -> T,
    ) -> T {
        let latest = self.askable.latest.load();
        match &*latest {
            Some(look) if look.holds(now) => ask(&look.places),
            Some(_) | None => ask(&self.look(now, is_own, left_out).places),
        }
    }

    /// Since when a server is this process, as the latest look found it.
    pub(in crate::forward) fn own_since(&self, member: usize) -> Option<Instant> {
        let latest = self.askable.latest.load();
        let own = latest.as_ref()?.own.iter().find(|(place, _)| *place == member);
        own.map(|(_, since)| *since)
    }

    /// Looks at each server, unless another thread has done so meanwhile.
    fn look(
        &self,
        now: Instant,
        is_own: impl Fn(&Server) -> bool,
        left_out: impl Fn(&Server),
    ) -> Arc<Look> {
        let _looking = self.askable.looking.lock().expect("nothing panics while it holds this");
        let latest = self.askable.latest.load_full();
        if let Some(look) = latest.as_ref().filter(|look| look.holds(now)) {
            return Arc::clone(look);
        }
        let (own, places): (Vec<usize>, Vec<usize>) =
            (0..self.servers.len()).partition(|place| is_own(&self.servers[*place]));
        let since = |place: usize| {
            let since = self.own_since(place).unwrap_or_else(|| {
                left_out(&self.servers[place]);
                now
            });
            (place, since)
        };
        let own: Vec<(usize, Instant)> = own.into_iter().map(since).collect();
        // One that has left may return.
        let floats = !own.is_empty() || latest.as_ref().is_some_and(|look| look.until.is_some());
        let look = Arc::new(Look { places, own, until: floats.then(|| now + LOOK_AGAIN) });
        self.askable.latest.store(Some(Arc::clone(&look)));
        look
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::path::Path;

    use crds::config::{self, Config, GroupOptions};

    use super::*;
    use crate::forward::now;
    use crate::forward::upstreams::{Upstreams, plain};

    #[test]
    fn a34_a_server_whose_address_leaves_this_machine_is_asked_again() {
        let servers = ["192.0.2.1", "192.0.2.2"].map(|ip| plain(ip.parse().unwrap())).to_vec();
        let group = config::Group { servers, options: GroupOptions::default() };
        let upstreams = config::Upstreams::Servers(group);
        let upstreams = Upstreams::of(&Config { upstreams, ..Config::default() }, Path::new(""));
        let group = upstreams.group(0).unwrap();
        let (is_here, looks, left_out) = (Cell::new(true), Cell::new(0), RefCell::new(Vec::new()));
        let askable = |at| {
            let is_own = |server: &Server| {
                looks.set(looks.get() + 1);
                is_here.get() && server.address().to_string() == "192.0.2.1:53"
            };
            let note = |server: &Server| left_out.borrow_mut().push(server.address().to_string());
            group.with_askable(at, is_own, note, <[usize]>::to_vec)
        };
        let start = now();
        assert_eq!(askable(start), [1]);
        is_here.set(false);
        assert_eq!(askable(start + LOOK_AGAIN - Duration::from_millis(1)), [1]);
        assert_eq!(looks.get(), 2, "each server was looked at once");
        is_here.set(true);
        assert_eq!(askable(start + LOOK_AGAIN), [1]);
        assert_eq!(*left_out.borrow(), ["192.0.2.1:53"], "it is said once");
        assert_eq!((group.own_since(0), group.own_since(1)), (Some(start), None));
        is_here.set(false);
        assert_eq!(askable(start + LOOK_AGAIN * 2), [0, 1]);
        is_here.set(true);
        assert_eq!(askable(start + LOOK_AGAIN * 3), [1], "it is back");
        assert_eq!(left_out.borrow().len(), 2);
        assert_eq!(group.own_since(0), Some(start + LOOK_AGAIN * 3));
    }
}
