//! The hosts file that kubelet writes for a pod: what is in it is answered without a question to DNS (pure).

use k8s_openapi::api::core::v1::Pod;

/// What every such file has (kubelet, `managedHostsFileContent`).
const LOCAL: [(&str, &str); 7] = [
    ("localhost", "127.0.0.1"),
    ("ip6-localhost", "::1"),
    ("ip6-loopback", "::1"),
    ("ip6-localnet", "fe00::"),
    ("ip6-mcastprefix", "fe00::"),
    ("ip6-allnodes", "fe00::1"),
    ("ip6-allrouters", "fe00::2"),
];
/// Octets of the name of a host (Linux); kubelet cuts names of pods there.
const MAX_HOSTNAME: usize = 63;

fn shortened(name: &str) -> &str {
    name.get(..MAX_HOSTNAME).unwrap_or(name).trim_end_matches(['-', '.'])
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<(String, String)>);

impl Hosts {
    /// As kubelet writes it: localhost and the names of IPv6, the pod's own names, and `hostAliases`. A pod with
    /// `subdomain` has its full name there too, in this cluster domain. A pod with `hostNetwork` has the file of its node
    /// in place of these names, and no API shows it.
    pub fn of_pod(pod: &Pod, domain: &str) -> Hosts {
        let local = LOCAL.iter().map(|(name, address)| ((*name).to_owned(), (*address).to_owned()));
        let mut names: Vec<(String, String)> = local.collect();
        let Some(spec) = &pod.spec else { return Hosts(names) };
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        let own = spec.hostname.clone().or_else(|| pod.metadata.name.clone());
        if let (Some(address), Some(own)) = (address, own)
            && spec.host_network != Some(true)
        {
            let own = shortened(&own);
            if let Some(subdomain) = spec.subdomain.as_deref().filter(|it| !it.is_empty()) {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
                let full = format!("{own}.{subdomain}.{namespace}.svc.{domain}");
                names.push((full, address.clone()));
            }
            names.push((own.to_owned(), address));
        }
        for alias in spec.host_aliases.iter().flatten() {
            let of_alias = alias.hostnames.iter().flatten();
            names.extend(of_alias.map(|name| (name.clone(), alias.ip.clone())));
        }
        Hosts(names)
    }

    /// The address of a name, if it is there. C libraries compare the text: a name with a final dot is not there.
    pub fn address(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
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
        let hosts = Hosts::of_pod(&serde_json::from_value(pod).unwrap(), "cluster.local");
        for (name, address) in [
            ("web-0", Some("10.244.1.7")),
            ("old.example", Some("192.0.2.9")),
            ("old.example.", None),
            ("localhost", Some("127.0.0.1")),
            ("ip6-localhost", Some("::1")),
            ("cart", None),
        ] {
            assert_eq!(hosts.address(name), address, "{name}");
        }
    }

    #[test]
    fn the_full_name_of_a_pod_with_a_subdomain_is_not_asked_of_dns() {
        let long = "a".repeat(62);
        let of = |name: &str, hostname: Option<&str>| {
            let pod = json!({"metadata": {"name": name, "namespace": "shop"}, "status": {"podIP": "10.244.1.7"},
                "spec": {"containers": [], "hostname": hostname, "subdomain": "db"}});
            Hosts::of_pod(&serde_json::from_value(pod).unwrap(), "cluster.local")
        };
        let set = of("db-0", Some("db-0"));
        assert_eq!(set.address("db-0.db.shop.svc.cluster.local"), Some("10.244.1.7"));
        assert_eq!(set.address("db-0.db.shop.svc.other.local"), None);
        let cut = of(&format!("{long}-b"), None);
        assert_eq!(cut.address(&format!("{long}.db.shop.svc.cluster.local")), Some("10.244.1.7"));
        assert_eq!(cut.address(&format!("{long}-b")), None, "no host has a name of this length");
    }
}
