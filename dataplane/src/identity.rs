//! The version of this process, its pod, and a random id by which it knows its own probes.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use dataplane_core::Identity;
use process::bounded_file::{self, SYSTEM_FILE_OCTETS};

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
}
