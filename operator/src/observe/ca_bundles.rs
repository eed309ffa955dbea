//! The CA bundles that a spec names: keys of ConfigMaps beside its Service.

use std::collections::{BTreeMap, BTreeSet};

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::ConfigMap;

/// Larger ones are refused: the configuration holds their text, and a ConfigMap 1 MiB.
const MAX_BYTES: usize = 256 << 10;
/// Octets of all of them, with what is not copied of them, such as comments. Of more than that some are not read: a spec may name
/// one for each of 1,515 servers, and the configuration has 400 KiB.
const MAX_ALL: usize = 4 * MAX_BYTES;

/// What a ConfigMap has under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bundle {
    Text(String),
    /// It may not be used, or is not there: why.
    Missing(String),
    /// It was not read, because those that were read are too much already.
    NotRead,
}

/// Name and key of each.
pub fn of(dns: &ClusterDNS) -> BTreeSet<(String, String)> {
    let defaults = dns.spec.upstreams.iter().filter_map(|upstreams| upstreams.servers.as_deref());
    let stubs = dns.spec.stub_domains.iter().flatten().map(|stub| stub.servers.as_slice());
    let bundles = defaults
        .chain(stubs)
        .flatten()
        .filter_map(|server| server.tls.as_ref()?.ca_bundle.as_ref());
    bundles.map(|bundle| (bundle.name.clone(), bundle.key.clone())).collect()
}

/// What has been read of them.
#[derive(Debug, Default)]
pub struct Bundles {
    found: BTreeMap<(String, String), Bundle>,
    octets: usize,
}

impl Bundles {
    /// Whether no further one is read.
    pub fn are_too_much(&self) -> bool {
        self.octets > MAX_ALL
    }

    /// The text under these keys of this ConfigMap, or why there is none; the rest of it is not kept.
    ///
    /// # Errors
    /// It could not be read: what is there is not known, and a spec whose bundle is missing is refused.
    pub fn add(
        &mut self,
        name: &str,
        keys: BTreeSet<String>,
        map: anyhow::Result<Option<ConfigMap>>,
    ) -> anyhow::Result<()> {
        let mut data = map?.map(|map| map.data.unwrap_or_default());
        for key in keys {
            let found = match &mut data {
                None => Bundle::Missing(format!(
                    "there is no ConfigMap {name} in the namespace of the Service: create it with the key {key}, or correct \
                     the name"
                )),
                Some(data) => taken(name, &key, data),
            };
            if let Bundle::Text(text) = &found {
                self.octets += text.len();
            }
            self.found.insert((name.to_owned(), key), found);
        }
        Ok(())
    }

    /// The same of one that is not read.
    pub fn pass_over(&mut self, name: &str, keys: BTreeSet<String>) {
        let keys = keys.into_iter().map(|key| (name.to_owned(), key));
        self.found.extend(keys.map(|key| (key, Bundle::NotRead)));
    }

    /// By name and key.
    pub fn found(self) -> BTreeMap<(String, String), Bundle> {
        self.found
    }
}

fn taken(name: &str, key: &str, data: &mut BTreeMap<String, String>) -> Bundle {
    let Some(text) = data.remove(key) else {
        let why = format!("the ConfigMap {name} has no key {key}: add it, or name another");
        return Bundle::Missing(why);
    };
    match text.len() {
        ..=MAX_BYTES => Bundle::Text(text),
        long => Bundle::Missing(format!(
            "{key} of the ConfigMap {name} has {long} bytes: at most {MAX_BYTES} are taken, so name only the authorities that \
             are needed"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(data: &[(&str, String)]) -> ConfigMap {
        let data = data.iter().map(|(key, text)| ((*key).to_owned(), text.clone()));
        ConfigMap { data: Some(data.collect()), ..ConfigMap::default() }
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut bundles = Bundles::default();
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        let there = map(&[("ca.crt", "PEM".to_owned()), ("long", "x".repeat(MAX_BYTES + 1))]);
        bundles.add("there", keys(&["ca.crt", "long", "other"]), Ok(Some(there))).unwrap();
        bundles.add("gone", keys(&["ca.crt"]), Ok(None)).unwrap();
        let read: Vec<_> = bundles.found().into_values().collect();
        let [gone, text, long, other] = &read[..] else { panic!("{} keys", read.len()) };
        let says = |bundle: &Bundle, what: &str| match bundle {
            Bundle::Missing(why) => assert!(why.contains(what), "{why}"),
            Bundle::Text(_) | Bundle::NotRead => panic!("not {what}"),
        };
        assert_eq!(text, &Bundle::Text("PEM".to_owned()));
        says(gone, "no ConfigMap gone");
        says(long, "at most 262144");
        says(other, "no key other");
    }

    #[test]
    fn s14_a_bundle_that_could_not_be_read_is_not_missing() {
        let mut bundles = Bundles::default();
        let keys = BTreeSet::from(["ca.crt".to_owned()]);
        let failed = bundles.add("ca", keys, Err(anyhow::anyhow!("etcd has no leader")));
        assert_eq!(failed.unwrap_err().to_string(), "etcd has no leader");
        assert!(bundles.found().is_empty(), "the reconcile fails, and nothing is decided");
    }

    #[test]
    fn s14_however_many_bundles_a_spec_names_little_more_than_the_bound_is_held() {
        let (mut bundles, mut read) = (Bundles::default(), 0);
        for n in 0..1_515 {
            let (name, keys) = (format!("ca-{n}"), BTreeSet::from(["ca.crt".to_owned()]));
            if bundles.are_too_much() {
                bundles.pass_over(&name, keys);
                continue;
            }
            read += 1;
            let large = map(&[("ca.crt", "x".repeat(MAX_BYTES))]);
            bundles.add(&name, keys, Ok(Some(large))).unwrap();
        }
        let found = bundles.found();
        let octets = |bundle: &Bundle| match bundle {
            Bundle::Text(text) => text.len(),
            Bundle::Missing(_) | Bundle::NotRead => 0,
        };
        assert_eq!((found.len(), read), (1_515, 5), "each is known, few were read");
        assert!(found.values().map(octets).sum::<usize>() <= MAX_ALL + MAX_BYTES);
    }
}
