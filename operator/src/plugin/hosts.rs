//! The hosts file that kubelet writes for a pod: what is in it is answered without a question to DNS (pure).

use k8s_openapi::api::core::v1::Pod;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<(String, String)>);

impl Hosts {
    /// As kubelet writes it: localhost, the pod's own names, and `hostAliases`. A pod with `hostNetwork` has the file of
    /// its node too, which no API shows.
    pub fn of_pod(pod: &Pod) -> Hosts {
        let mut names = vec![("localhost".to_owned(), "127.0.0.1".to_owned())];
        let Some(spec) = &pod.spec else { return Hosts(names) };
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        if let Some(address) = address.filter(|_| spec.host_network != Some(true)) {
            let own = spec.hostname.clone().or_else(|| pod.metadata.name.clone());
            names.extend(own.map(|name| (name, address)));
        }
        for alias in spec.host_aliases.iter().flatten() {
            let of_alias = alias.hostnames.iter().flatten();
            names.extend(of_alias.map(|name| (name.clone(), alias.ip.clone())));
        }
        Hosts(names)
    }

    /// The address of a name, if it is there.
    pub fn address(&self, name: &str) -> Option<&str> {
        let bare = name.strip_suffix('.').unwrap_or(name);
        let found = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(bare));
        found.map(|(_, address)| address.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn own_names_and_aliases_of_a_pod_are_not_asked_of_dns() {
        let pod = json!({"metadata": {"name": "web-0", "namespace": "shop"}, "status": {"podIP": "10.244.1.7"},
            "spec": {"containers": [], "hostAliases": [{"ip": "192.0.2.9", "hostnames": ["Old.example"]}]}});
        let hosts = Hosts::of_pod(&serde_json::from_value(pod).unwrap());
        for (name, address) in [
            ("web-0", Some("10.244.1.7")),
            ("old.example.", Some("192.0.2.9")),
            ("localhost", Some("127.0.0.1")),
            ("cart", None),
        ] {
            assert_eq!(hosts.address(name), address, "{name}");
        }
    }
}
