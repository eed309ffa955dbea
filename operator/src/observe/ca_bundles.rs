//! The CA bundles that a spec names: keys of ConfigMaps beside its Service.

use std::collections::{BTreeMap, BTreeSet};

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::ConfigMap;

/// Larger ones are refused: the configuration holds their text, and a ConfigMap 1 MiB.
const MAX_BYTES: usize = 256 << 10;

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

/// Their text, or why there is none.
pub fn read(
    wanted: BTreeSet<(String, String)>,
    find: impl Fn(&str) -> Option<ConfigMap>,
) -> BTreeMap<(String, String), Result<String, String>> {
    let text = |name: &str, key: &str| {
        let map = find(name).ok_or_else(|| {
            format!(
                "there is no ConfigMap {name} in the namespace of the Service: create it with the key {key}, or correct the name"
            )
        })?;
        let text = map.data.and_then(|mut data| data.remove(key));
        let text = text.ok_or_else(|| {
            format!("the ConfigMap {name} has no key {key}: add it, or name another")
        })?;
        match text.len() {
            ..=MAX_BYTES => Ok(text),
            long => Err(format!(
                "{key} of the ConfigMap {name} has {long} bytes: at most {MAX_BYTES} are taken, so name only the \
                 authorities that are needed"
            )),
        }
    };
    wanted.into_iter().map(|(name, key)| ((name.clone(), key.clone()), text(&name, &key))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let map = |name: &str| {
            (name == "there").then(|| ConfigMap {
                data: Some([("ca.crt".to_owned(), "PEM".to_owned())].into()),
                ..ConfigMap::default()
            })
        };
        let wanted = [("there", "ca.crt"), ("there", "other"), ("gone", "ca.crt")];
        let wanted = wanted.map(|(name, key)| (name.to_owned(), key.to_owned())).into();
        let read: Vec<_> = read(wanted, map).into_values().collect();
        assert_eq!(read[1], Ok("PEM".to_owned()));
        assert!(read[2].as_ref().unwrap_err().contains("no key other"));
        assert!(read[0].as_ref().unwrap_err().contains("no ConfigMap gone"));
    }
}
