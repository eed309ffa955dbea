//! Nodes that take new pods of a ClusterDNS, and since when there is more than one, as far as this process knows. An autoscaler adds
//! nodes and takes them away, and that a second one has just come is no news.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

/// What a reconcile sees of these nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpareNodes {
    /// Nodes that take a new pod of a Deployment now: those that fit, without cordoned ones and those without a ready kubelet.
    pub count: u32,
    /// Since when there are two of them or more; none: there are not.
    pub several_since: Option<Timestamp>,
}

/// Since when there are several, by name of the ClusterDNS.
#[derive(Debug, Default)]
pub struct SeveralSince(Mutex<BTreeMap<String, Timestamp>>);

impl SeveralSince {
    /// There are this many now.
    pub fn note(&self, name: &str, count: u32, now: Timestamp) -> SpareNodes {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if count < 2 {
            all.remove(name);
            return SpareNodes { count, several_since: None };
        }
        let since = all.entry(name.to_owned()).or_insert(now);
        // The clock was set back.
        *since = (*since).min(now);
        SpareNodes { count, several_since: Some(*since) }
    }

    /// Only these ClusterDNS are there.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|name, _| is_there(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::at;

    #[test]
    fn o19_a_node_that_comes_and_goes_begins_the_time_again() {
        let several = SeveralSince::default();
        let since = |name, count, seconds| several.note(name, count, at(seconds)).several_since;
        assert_eq!(since("a", 1, 0), None);
        assert_eq!(since("a", 2, 10), Some(at(10)));
        assert_eq!(since("a", 3, 20), Some(at(10)));
        assert_eq!(since("b", 2, 30), Some(at(30)), "each by itself");
        assert_eq!((since("a", 1, 40), since("a", 2, 50)), (None, Some(at(50))));
        assert_eq!(since("a", 2, 45), Some(at(45)), "the clock was set back");
        several.retain(|name| name == "b");
        assert_eq!(several.note("a", 2, at(60)).several_since, Some(at(60)));
        assert_eq!(several.note("b", 2, at(60)).several_since, Some(at(30)));
    }
}
