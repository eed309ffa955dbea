//! The document that every pod runs, as the ConfigMap had it last: another client may write over it, and pods take what is
//! there at once. Lost with the process: pods that refuse what they were given still know what they run.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crds::config;

/// Octets of all documents that are remembered: most have some kilobytes, the largest 1 MiB.
const MAX_OCTETS: usize = 8 << 20;

/// By the name of the ClusterDNS.
#[derive(Debug, Default)]
pub struct LastDocuments {
    kept: Mutex<HashMap<String, String>>,
}

impl LastDocuments {
    /// The ConfigMap of this ClusterDNS has this document, and no other client wrote it.
    pub fn seen(&self, instance: &str, text: &str) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.get(instance).is_some_and(|known| known == text) {
            return;
        }
        kept.remove(instance);
        let octets: usize = kept.values().map(String::len).sum();
        if octets + text.len() > MAX_OCTETS {
            kept.clear();
        }
        kept.insert(instance.to_owned(), text.to_owned());
    }

    /// The document of this revision, if it is remembered.
    pub fn of(&self, instance: &str, revision: &str) -> Option<String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(instance).filter(|text| config::revision_of(text) == revision).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o4_the_last_document_is_known_by_its_revision_and_memory_is_bounded() {
        let documents = LastDocuments::default();
        documents.seen("a", "one");
        documents.seen("a", "two");
        documents.seen("b", "three");
        let of = |instance: &str, text: &str| documents.of(instance, &config::revision_of(text));
        assert_eq!(of("a", "one"), None, "it was replaced");
        assert_eq!(of("a", "two").as_deref(), Some("two"));
        assert_eq!(of("a", "three"), None, "that is the one of another ClusterDNS");
        assert_eq!(documents.of("a", ""), None);
        let large = "x".repeat(MAX_OCTETS / 2);
        for name in ["c", "d", "e"] {
            documents.seen(name, &large);
        }
        let octets: usize = documents.kept.lock().unwrap().values().map(String::len).sum();
        assert!(octets <= MAX_OCTETS, "{octets}");
        assert_eq!(of("e", &large), Some(large.clone()));
    }
}
