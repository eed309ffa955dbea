//! Published states that another one has replaced. The writer frees them, or the last reader would: a serving thread, in
//! the middle of a batch of queries, for as long as the edits of another user are large (L17).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::state::Published;

/// States kept here because they are still read. A thread reads one at a time and for a batch of queries, so there
/// are hardly more than threads; past this number the reader frees the oldest itself.
const MAX_RETIRED: usize = 64;

/// States that are no longer published, oldest first.
#[derive(Debug, Default)]
pub(super) struct Retired(VecDeque<Arc<Published>>);

impl Retired {
    /// Takes a state that is no longer published.
    pub(super) fn add(&mut self, state: Arc<Published>) {
        self.0.push_back(state);
        self.free();
        if self.0.len() > MAX_RETIRED {
            self.0.pop_front();
        }
    }

    /// Frees states without readers. A state that is not published gets no new reader, so a count of one stays one.
    pub(super) fn free(&mut self) {
        self.0.retain(|state| Arc::strong_count(state) > 1);
    }
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;
    use dataplane_core::Index;

    use super::*;
    use crate::forward::Upstreams;
    use crate::settings;

    fn state() -> Arc<Published> {
        let settings = settings::of(&crds::Config::default()).unwrap();
        let records = Index::new(settings).records();
        Arc::new(Published { records, upstreams: Arc::new(Upstreams::default()) })
    }

    #[test]
    fn l17_a_reader_frees_no_state_and_the_writer_does() {
        let (mut retired, first) = (Retired::default(), state());
        let seen = Arc::downgrade(&first);
        let published = ArcSwap::from(first);
        let reader = published.load();
        retired.add(published.swap(state()));
        retired.free();
        drop(reader);
        assert_eq!(seen.strong_count(), 1, "its reader did not free it");
        retired.free();
        assert_eq!(seen.strong_count(), 0, "the writer did");
    }

    #[test]
    fn l17_states_with_a_reader_that_never_ends_are_kept_up_to_the_limit() {
        let (mut retired, published) = (Retired::default(), ArcSwap::from(state()));
        let mut readers = Vec::new();
        for _ in 0..MAX_RETIRED + 10 {
            readers.push(published.load_full());
            retired.add(published.swap(state()));
        }
        assert_eq!(retired.0.len(), MAX_RETIRED);
        drop(readers);
        retired.free();
        assert!(retired.0.is_empty());
    }
}
