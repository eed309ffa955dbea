//! Lists of ports, each kept once: a cluster has thousands of Services and few lists.

use std::collections::HashSet;
use std::sync::Arc;

use crate::records::{Port, Ports};

/// Lists that nobody has any more are looked for when there are twice as many as after the last time,
/// and at least so many.
const FEWEST_SWEPT: usize = 1_024;

/// Every list that is in use, and some that no longer are.
#[derive(Debug, Default)]
pub(super) struct PortLists {
    lists: HashSet<Arc<Ports>, foldhash::fast::RandomState>,
    sweep_at: usize,
}

impl PortLists {
    /// The one copy of these ports.
    pub(super) fn shared(&mut self, ports: Vec<Port>) -> Arc<Ports> {
        let mut seen = HashSet::<u16, foldhash::fast::RandomState>::default();
        let numbers = ports.iter().map(|port| port.number).filter(|&number| seen.insert(number));
        let ports = Ports { numbers: numbers.collect(), all: ports.into() };
        if let Some(known) = self.lists.get(&ports) {
            return Arc::clone(known);
        }
        if self.lists.len() >= self.sweep_at.max(FEWEST_SWEPT) {
            self.lists.retain(|list| Arc::strong_count(list) > 1);
            self.sweep_at = 2 * self.lists.len();
        }
        let ports = Arc::new(ports);
        self.lists.insert(Arc::clone(&ports));
        ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Protocol;

    fn port(number: u16) -> Port {
        Port { name: b"http".as_slice().into(), number, protocol: Protocol::Tcp }
    }

    #[test]
    fn equal_lists_are_one_and_those_nobody_has_go() {
        let mut lists = PortLists::default();
        let kept = lists.shared(vec![port(80), port(80), port(81)]);
        assert_eq!(*kept.numbers, [80, 81]);
        for number in 0..u16::MAX {
            lists.shared(vec![port(number)]);
        }
        assert!(Arc::ptr_eq(&kept, &lists.shared(vec![port(80), port(80), port(81)])));
        assert!(lists.lists.len() <= FEWEST_SWEPT + 1);
    }
}
