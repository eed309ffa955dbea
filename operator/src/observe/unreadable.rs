//! Every ClusterDNS that this version cannot read: a newer one wrote it, its status has a value that no type holds, or there is no
//! room for it. Nothing is decided about them; that they are there must still show.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::runtime::decode::Undecodable;

/// ClusterDNS that are remembered. A cluster has one or a few; of more, the first of their names are.
const MAX_REMEMBERED: usize = 1_000;

/// Why one is not read for which there is no room.
const NO_ROOM: &str = "there are more and larger ClusterDNS than the operator has room for: delete those that are not needed, and \
                       then restart the operator";

/// How one of them was seen last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub version: String,
    /// Why it cannot be read.
    pub why: String,
    /// It is being deleted, and does not come back.
    pub is_leaving: bool,
    /// All were listed again since: it may be gone.
    lists: u64,
}

/// By name.
#[derive(Debug, Default)]
pub struct Unreadable {
    seen: Mutex<BTreeMap<String, Seen>>,
}

impl Unreadable {
    /// A list or a watch has it.
    pub(super) fn found(&self, undecodable: &Undecodable) {
        let name = undecodable.metadata.name.clone();
        let version = undecodable.metadata.resource_version.clone().unwrap_or_default();
        let is_leaving = undecodable.metadata.deletion_timestamp.is_some();
        self.insert(name, Seen { version, why: undecodable.why(), is_leaving, lists: 0 });
    }

    /// There are too many for even a stub of this one.
    pub(super) fn has_no_room(&self, metadata: &ObjectMeta) {
        let name = metadata.name.clone().unwrap_or_default();
        let version = metadata.resource_version.clone().unwrap_or_default();
        let is_leaving = metadata.deletion_timestamp.is_some();
        self.insert(name, Seen { version, why: NO_ROOM.to_owned(), is_leaving, lists: 0 });
    }

    fn insert(&self, name: String, seen: Seen) {
        let mut all = self.lock();
        if !name.is_empty() {
            all.insert(name, seen);
        }
        if all.len() > MAX_REMEMBERED {
            all.pop_last();
        }
    }

    /// All were listed: each may have been deleted unseen.
    pub(super) fn look_again(&self) {
        self.lock().values_mut().for_each(|seen| seen.lists = seen.lists.wrapping_add(1));
    }

    /// It can be read, or is gone.
    pub fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Is it there, and not being deleted?
    pub fn stays(&self, name: &str) -> bool {
        self.lock().get(name).is_some_and(|seen| !seen.is_leaving)
    }

    /// All of them.
    pub fn all(&self) -> BTreeMap<String, Seen> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::decode;

    fn undecodable(name: &str, version: usize) -> Undecodable {
        let text = format!(
            r#"{{"metadata": {{"name": "{name}", "resourceVersion": "{version}"}}, "spec": 7}}"#
        );
        decode::object::<crds::ClusterDNS>(text.as_bytes()).expect_err("a number is no spec")
    }

    #[test]
    fn k23_an_unreadable_clusterdns_is_known_until_it_can_be_read() {
        let unreadable = Unreadable::default();
        unreadable.found(&undecodable("a", 7));
        let first = unreadable.all();
        assert!(first["a"].version == "7" && first["a"].why.contains("invalid type"), "{first:?}");
        unreadable.found(&undecodable("a", 7));
        assert_eq!(unreadable.all(), first, "nothing is new");
        unreadable.look_again();
        assert_ne!(unreadable.all(), first, "it may be gone");
        unreadable.found(&undecodable("", 8));
        assert!(unreadable.stays("a") && unreadable.all().len() == 1);
        unreadable.forget("a");
        assert!(!unreadable.stays("a"));
    }

    #[test]
    fn k23_a_clusterdns_for_which_there_is_no_room_is_there_and_says_why() {
        let unreadable = Unreadable::default();
        let metadata = ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() };
        unreadable.has_no_room(&metadata);
        assert!(unreadable.stays("a") && unreadable.all()["a"].why.contains("delete those"));
    }

    #[test]
    fn what_is_remembered_of_unreadable_ones_is_bounded() {
        let unreadable = Unreadable::default();
        for n in 0..MAX_REMEMBERED + 10 {
            unreadable.found(&undecodable(&format!("n{n:05}"), n));
        }
        assert_eq!(unreadable.all().len(), MAX_REMEMBERED);
    }
}
