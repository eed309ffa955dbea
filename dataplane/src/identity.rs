//! The version of this process, its pod, its random id, and the number by which replicas know the loop probes of each other.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use dataplane_core::Identity;
use process::bounded_file::{self, SYSTEM_FILE_OCTETS};
use sha2::{Digest, Sha256};

/// Longest pod name that is shown (NSID and CHAOS answers hold one character-string).
const MAX_POD_NAME: usize = 255;

/// The identity of this process; `pod_name` is that of `--pod-name`.
pub fn of_this_process(pod_name: Option<&str>) -> Identity {
    let named = |variable| std::env::var(variable).ok().filter(|name: &String| !name.is_empty());
    let host_file = || bounded_file::read_text(Path::new("/etc/hostname"), SYSTEM_FILE_OCTETS).ok();
    let given = pod_name.map(str::to_owned);
    let name = given.or_else(|| named("POD_NAME")).or_else(|| named("HOSTNAME")).or_else(host_file);
    let mut pod_name = name.unwrap_or_default().trim().to_owned();
    if pod_name.len() > MAX_POD_NAME || !pod_name.is_ascii() {
        pod_name.clear();
    }
    Identity {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pod_name,
        instance_id: format!("{:016x}{:016x}", random(), random()),
    }
}

/// A number that all replicas of one ClusterDNS find, and no others (FW50): from the uid of the Namespace `kube-system` of
/// their cluster, and the `NAMESPACE/NAME` of the ConfigMap that they read. Hashed, because servers see it.
pub(crate) fn of_replicas(kube_system: u128, config_map: Option<&str>) -> u64 {
    let hash = Sha256::new_with_prefix(kube_system.to_be_bytes());
    let digest = hash.chain_update(config_map.unwrap_or_default()).finalize();
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// The same for a process that knows no cluster: it has no replicas.
pub(crate) fn of_one(instance_id: &str) -> u64 {
    instance_id.get(..16).and_then(|half| u64::from_str_radix(half, 16).ok()).unwrap_or_default()
}

/// The standard library seeds every such state from the system's random source.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a43_every_process_has_an_id_of_its_own() {
        let (one, other) = (of_this_process(None), of_this_process(Some("dns-1")));
        assert_eq!(one.instance_id.len(), 32);
        assert_ne!(one.instance_id, other.instance_id);
        assert!(!one.version.is_empty());
        assert_eq!(other.pod_name, "dns-1");
    }

    #[test]
    fn a43_replicas_share_a_number_that_no_other_cluster_or_clusterdns_has() {
        let ours = of_replicas(1, Some("dns/main"));
        assert_eq!(of_replicas(1, Some("dns/main")), ours);
        for other in [of_replicas(2, Some("dns/main")), of_replicas(1, Some("dns/trial"))] {
            assert_ne!(other, ours);
        }
        assert_eq!(of_one("0123456789abcdef0123456789abcdee"), 0x0123_4567_89ab_cdef);
    }
}
