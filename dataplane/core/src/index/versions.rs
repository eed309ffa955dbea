//! What resourceVersions say, by resource: which of two states of an object is newer (E14), and
//! whether the source itself went back (K22).
//!
//! Versions only grow in the life of one etcd. We list without a resourceVersion, which is a
//! consistent read: an API server reads it from etcd with quorum, or from its watch cache once
//! that has everything etcd had when the list began. Every version that we have seen, of an
//! object, a list or a bookmark, was etcd's revision at that time or before, so no such list is
//! below it, from whichever API server and however much its watch cache lags. Only lists that name
//! a version ("0", or one with `resourceVersionMatch`) and watches may show an older state, and we
//! send no such list. A later page has the version of the first. So a list below a version already
//! seen means that etcd was restored from a backup or is another one: the list is the truth, and
//! the versions held mean nothing.

use super::held::Held;

/// The versions of one resource that were seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Versions {
    /// The newest that was seen.
    newest: u64,
    /// The next list that is completed replaces everything, also what has a higher version.
    is_reset: bool,
    /// The list in progress is such a reset, and was one from its first object on: a list that was half read before is not.
    is_list_reset: bool,
}

impl Versions {
    /// The source was seen at this version (0: it has none).
    pub(super) fn saw(&mut self, version: u64) {
        self.newest = self.newest.max(version);
    }

    /// The list in progress is of this version. Returns whether it is a reset.
    pub(super) fn list_is_at(&mut self, version: u64) -> bool {
        // Until a list is complete, those that break off and begin again are resets too.
        self.is_reset |= version != 0 && version < self.newest;
        self.is_list_reset = self.is_reset;
        self.is_reset
    }

    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// The next complete list is a reset, also with a lower version.
    pub(super) fn expect_reset(&mut self) {
        self.is_reset = true;
    }

    pub(super) fn is_reset(&self) -> bool {
        self.is_reset
    }

    /// Whether an object of this version that is applied in this list is older than what is held
    /// (E14), also where an object of another uid has taken its name since: versions of one
    /// resource are of one order.
    pub(super) fn is_older(&self, held: &Held, generation: u32, version: u64) -> bool {
        // In a reset, objects that this list has not shown yet belong to another history.
        let is_comparable = !self.is_reset || held.generation == generation;
        is_comparable && version != 0 && version < held.version
    }

    /// Whether an object that the list did not show, and that is of an earlier one, may be newer
    /// than the list (0: no versions).
    pub(super) fn may_be_newer(&self, held: &Held, list_version: u64) -> bool {
        !self.is_reset && list_version != 0 && held.version > list_version
    }

    pub(super) fn listed(&mut self, list_version: u64) {
        if core::mem::take(&mut self.is_list_reset) {
            self.is_reset = false;
            self.newest = list_version;
        }
        self.saw(list_version);
    }
}

#[cfg(test)]
mod tests {
    use crate::index::Index;
    use crate::object::{Change, Key, Namespace, Object, Resource};
    use crate::records::DataSource;
    use crate::testing::settings;

    const KIND: Resource = Resource::Namespaces;

    fn apply(index: &mut Index, name: &str, version: u64) {
        let namespace = Namespace { name: name.into(), uid: 7, version, labels: Vec::new() };
        index.apply(Change::Apply(Object::Namespace(namespace)));
    }

    /// A list at this version that breaks off before its end.
    fn begin(index: &mut Index, version: u64, objects: &[(&str, u64)]) -> bool {
        index.begin_list(KIND);
        let is_reset = index.list_is_at(KIND, version);
        objects.iter().for_each(|(name, version)| apply(index, name, *version));
        is_reset
    }

    fn list(index: &mut Index, version: u64, objects: &[(&str, u64)]) -> bool {
        let is_reset = begin(index, version, objects);
        index.end_list(KIND, version, DataSource::Live);
        is_reset
    }

    fn held(index: &Index) -> Vec<(&'static str, u64)> {
        let names = ["a", "b", "c"].into_iter();
        names.filter_map(|name| Some((name, index.held(KIND, &Key::new("", name))?.1))).collect()
    }

    #[test]
    fn k22_a_list_below_what_was_seen_replaces_newer_objects_and_removes_others() {
        let mut index = Index::new(settings());
        assert!(!list(&mut index, 100, &[("a", 90), ("b", 95)]));
        apply(&mut index, "c", 110);
        assert!(list(&mut index, 97, &[("a", 80)]));
        assert_eq!(held(&index), [("a", 80)]);
        // From the list on, versions are compared again.
        apply(&mut index, "a", 79);
        assert_eq!(held(&index), [("a", 80)]);
        assert!(!list(&mut index, 98, &[("a", 80)]));
    }

    #[test]
    fn k22_a_bookmark_counts_as_a_version_seen() {
        let mut index = Index::new(settings());
        list(&mut index, 100, &[("a", 90)]);
        index.saw_version(KIND, 120);
        assert!(list(&mut index, 119, &[]));
        assert!(held(&index).is_empty());
    }

    #[test]
    fn k22_a_reset_that_breaks_off_is_still_one_when_it_is_listed_again() {
        let mut index = Index::new(settings());
        list(&mut index, 100, &[("a", 90), ("b", 95)]);
        assert!(begin(&mut index, 60, &[("a", 50)]));
        assert_eq!(held(&index), [("a", 50), ("b", 95)], "nothing is removed before the end");
        // Meanwhile the restored cluster has reached our versions.
        assert!(list(&mut index, 101, &[("b", 55)]));
        assert_eq!(held(&index), [("b", 55)]);
    }

    #[test]
    fn k22_the_list_of_another_cluster_replaces_everything_at_any_version() {
        let mut index = Index::new(settings());
        list(&mut index, 100, &[("a", 90), ("b", 95)]);
        index.expect_reset(KIND);
        list(&mut index, 500, &[("b", 20)]);
        assert_eq!(held(&index), [("b", 20)]);
    }

    #[test]
    fn k22_a_list_that_began_before_the_reset_was_noticed_does_not_end_it() {
        let mut index = Index::new(settings());
        list(&mut index, 100, &[("a", 90), ("b", 95)]);
        index.begin_list(KIND);
        index.list_is_at(KIND, 130);
        apply(&mut index, "a", 50);
        index.expect_reset(KIND);
        apply(&mut index, "b", 55);
        index.end_list(KIND, 130, DataSource::Live);
        list(&mut index, 131, &[("a", 50), ("b", 55)]);
        assert_eq!(held(&index), [("a", 50), ("b", 55)]);
    }

    #[test]
    fn e21_what_is_newer_than_a_list_that_is_no_reset_stays() {
        let mut index = Index::new(settings());
        list(&mut index, 100, &[("a", 90)]);
        index.begin_list(KIND);
        index.end_list(KIND, 80, DataSource::Live);
        assert_eq!(held(&index), [("a", 90)]);
    }
}
