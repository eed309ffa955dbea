//! What the API server answered to our last write of a status: a reconcile begins from it while the watch is behind. And when a
//! status was written whose names others choose.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crds::ClusterDNS;
use crds::v1alpha1::ClusterDNSStatus;
use kube::ResourceExt;

use crate::observe::octets::octets;

/// Statuses that are remembered.
const MAX_REMEMBERED: usize = 1_000;
/// Octets of all of them, as they are counted in [`octets`]. The specs are kept elsewhere, with a bound of their own.
const MAX_OCTETS: usize = 8 << 20;
/// Between two writes of a status that differs only in the names of skipped objects.
const NAMES_EVERY: Duration = Duration::from_secs(60);
/// For how long fields that an older CRD lacks are not sent: then the API server is asked again, which refuses them once.
const LACKING_FOR: Duration = Duration::from_secs(60);

/// The status that was written last. It is used while the watch is behind, because each status follows from the one
/// before.
#[derive(Debug, Default)]
pub struct LastWritten {
    last: Mutex<Remembered>,
    /// When the names of skipped objects were written.
    names: Mutex<HashMap<String, Instant>>,
    /// Fields of the status that the CRD lacks, and since when that is known.
    lacking: Mutex<Option<(Instant, BTreeSet<String>)>>,
}

#[derive(Debug, Default)]
struct Remembered {
    by_name: HashMap<String, Written>,
    octets: usize,
}

/// The answer to a write, without its spec: that is the one which the write was about.
#[derive(Debug)]
struct Written {
    uid: Option<String>,
    generation: Option<i64>,
    version: Option<String>,
    status: Option<ClusterDNSStatus>,
    octets: usize,
}

impl Remembered {
    fn remove(&mut self, name: &str) {
        let gone = self.by_name.remove(name);
        self.octets -= gone.map_or(0, |gone| gone.octets);
    }
}

impl LastWritten {
    /// The newest known state of this ClusterDNS. What the watch shows as well is not needed any more.
    pub fn newest(&self, kept: &Arc<ClusterDNS>) -> Arc<ClusterDNS> {
        let mut last = self.last();
        let name = kept.name_any();
        let Some(written) = last.by_name.get(&name) else { return kept.clone() };
        if version(written.version.as_deref()) <= version(kept.metadata.resource_version.as_deref())
        {
            last.remove(&name);
            return kept.clone();
        }
        // Of another spec the watch has shown nothing yet.
        if written.uid != kept.metadata.uid || written.generation != kept.metadata.generation {
            return kept.clone();
        }
        let mut newest = ClusterDNS::clone(kept);
        newest.metadata.resource_version = written.version.clone();
        newest.status = written.status.clone();
        Arc::new(newest)
    }

    /// This ClusterDNS was deleted: nothing is remembered of it.
    pub fn forget(&self, name: &str) {
        self.last().remove(name);
        self.names().remove(name);
    }

    /// Versions mean nothing any more: the API server shows an older state.
    pub fn forget_all(&self) {
        *self.last() = Remembered::default();
    }

    /// May a status be written that differs only in the names of skipped objects? Those who write these objects could change their
    /// names all the time.
    pub(super) fn may_change_names(&self, name: &str, now: Instant) -> bool {
        let age = |at: &Instant| now.saturating_duration_since(*at);
        self.names().get(name).is_none_or(|at| age(at) >= NAMES_EVERY)
    }

    /// They were written.
    pub(super) fn changed_names(&self, name: &str, now: Instant) {
        let mut names = self.names();
        if names.len() >= MAX_REMEMBERED {
            names.clear();
        }
        names.insert(name.to_owned(), now);
    }

    /// The fields of the status that the CRD lacks, as far as the API server has said it lately.
    pub(super) fn lacking(&self, now: Instant) -> BTreeSet<String> {
        let lacking = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lacking
            .as_ref()
            .filter(|(since, _)| now.saturating_duration_since(*since) < LACKING_FOR);
        known.map(|(_, fields)| fields.clone()).unwrap_or_default()
    }

    /// The API server has refused these, besides what it has before.
    pub(super) fn lacks(&self, fields: BTreeSet<String>, now: Instant) {
        let mut all = self.lacking(now);
        all.extend(fields);
        *self.lacking.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, all));
    }

    /// Remembers what the API server answered to the last write.
    pub(super) fn remember(&self, dns: ClusterDNS) {
        let (name, octets) = (dns.name_any(), octets(&dns.status));
        let mut last = self.last();
        last.remove(&name);
        if last.by_name.len() >= MAX_REMEMBERED || last.octets + octets > MAX_OCTETS {
            *last = Remembered::default();
        }
        if octets > MAX_OCTETS {
            return;
        }
        last.octets += octets;
        let ClusterDNS { metadata, status, .. } = dns;
        let (uid, generation, version) =
            (metadata.uid, metadata.generation, metadata.resource_version);
        last.by_name.insert(name, Written { uid, generation, version, status, octets });
    }

    fn last(&self) -> MutexGuard<'_, Remembered> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version(text: Option<&str>) -> Option<u128> {
    text?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_an_older_crd_lacks_are_sent_again_after_a_while() {
        let (last, now) = (LastWritten::default(), Instant::now());
        let fields = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(last.lacking(now), fields(&[]));
        last.lacks(fields(&["domain"]), now);
        last.lacks(fields(&["revision"]), now + Duration::from_secs(1));
        assert_eq!(last.lacking(now + LACKING_FOR), fields(&["domain", "revision"]));
        assert_eq!(last.lacking(now + LACKING_FOR + Duration::from_secs(1)), fields(&[]));
    }

    fn dns(version: &str, uid: &str, domain: &str) -> ClusterDNS {
        let mut dns = ClusterDNS::default();
        dns.metadata.name = Some("a".into());
        dns.metadata.uid = Some(uid.into());
        dns.metadata.resource_version = Some(version.into());
        dns.status =
            Some(ClusterDNSStatus { domain: Some(domain.into()), ..ClusterDNSStatus::default() });
        dns
    }

    /// How many are remembered, and their octets.
    fn held(last: &LastWritten) -> (usize, usize) {
        let last = last.last();
        (last.by_name.len(), last.octets)
    }

    #[test]
    fn status_follows_from_the_one_written_last_while_the_watch_is_behind() {
        let last = LastWritten::default();
        let newest =
            |kept: ClusterDNS| last.newest(&Arc::new(kept)).status.clone().unwrap().domain.unwrap();
        assert_eq!(newest(dns("5", "u", "kept")), "kept");
        last.remember(dns("10", "u", "written"));
        assert_eq!(newest(dns("9", "u", "kept")), "written");
        assert_eq!(newest(dns("9", "v", "kept")), "kept", "another of the same name");
        let mut before = dns("9", "u", "kept");
        before.metadata.generation = Some(1);
        assert_eq!(newest(before), "kept", "its spec is another one");
        assert_eq!(newest(dns("9", "u", "kept")), "written");
        assert_eq!(newest(dns("11", "u", "kept")), "kept");
        assert_eq!(held(&last), (0, 0), "the watch has it");
    }

    #[test]
    fn k23_of_a_clusterdns_that_was_written_its_status_is_remembered_and_no_spec() {
        let last = LastWritten::default();
        for n in 0..200 {
            let mut large = dns("10", "u", "written");
            large.metadata.name = Some(format!("n{n}"));
            large.metadata.annotations = Some([("a".to_owned(), "x".repeat(100_000))].into());
            large.spec.image = Some("x".repeat(100_000));
            last.remember(large);
        }
        let (count, octets) = held(&last);
        assert!(count == 200 && octets < 1 << 20, "{count}, {octets} octets");
        for n in 0..200 {
            let mut large = dns("10", "u", &"x".repeat(100_000));
            large.metadata.name = Some(format!("n{n}"));
            last.remember(large);
            let last = last.last();
            let counted: usize = last.by_name.values().map(|it| it.octets).sum();
            let held = last.octets;
            assert!(held == counted && held <= MAX_OCTETS, "{held} octets, {counted} counted");
        }
        last.forget("n199");
        last.forget_all();
        last.remember(dns("10", "u", &"x".repeat(MAX_OCTETS)));
        assert_eq!(held(&last), (0, 0), "one alone is too large");
    }

    #[test]
    fn e15_names_that_others_choose_are_no_write_at_each_look() {
        let (last, begin) = (LastWritten::default(), Instant::now());
        assert!(last.may_change_names("a", begin));
        last.changed_names("a", begin);
        assert!(!last.may_change_names("a", begin + NAMES_EVERY / 2));
        assert!(last.may_change_names("b", begin), "another ClusterDNS");
        assert!(last.may_change_names("a", begin + NAMES_EVERY));
    }
}
