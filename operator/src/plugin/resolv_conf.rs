//! What the resolver of a pod reads: its resolv.conf, as kubelet makes it of the pod's spec (pure), or from a file.
//!
//! kubelet (`pkg/kubelet/network/dns`): `ClusterFirst` without `hostNetwork`, and `ClusterFirstWithHostNet`, have the
//! cluster's servers, three search domains and those of the node, and `ndots:5`. `None` has what `dnsConfig` says. All
//! others have the file of the node, which no API shows. `dnsConfig` adds servers and domains, and replaces options.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;

use super::args::Libc;

/// `ndots` where the file says nothing (resolv.conf(5)).
const DEFAULT_NDOTS: u8 = 1;
/// What kubelet gives to pods that use the cluster's DNS.
const KUBELET_NDOTS: &str = "ndots:5";
/// Servers that kubelet writes, and that libraries read.
const MAX_NAMESERVERS: usize = 3;
/// Search domains that kubelet writes (Kubernetes 1.28 and later).
const MAX_DOMAINS: usize = 32;
/// Characters of them in all, with a space between each two.
const MAX_CHARACTERS: usize = 2_048;

/// Octets of a line that musl reads, without its end: its buffer has 256.
const MUSL_LINE: usize = 254;

/// A resolv.conf, as far as a search needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResolvConf {
    pub nameservers: Vec<String>,
    /// Search domains, in their order.
    pub search: Vec<String>,
    /// Dots from which on a name is first asked as it is.
    pub ndots: u8,
    /// All options, as written.
    pub options: Vec<String>,
}

impl Default for ResolvConf {
    fn default() -> ResolvConf {
        let none = Vec::new;
        ResolvConf { nameservers: none(), search: none(), ndots: DEFAULT_NDOTS, options: none() }
    }
}

impl ResolvConf {
    /// Reads a file (resolv.conf(5)): of several `search` or `domain` lines the last one counts.
    pub fn read(text: &str) -> ResolvConf {
        let mut conf = ResolvConf::default();
        for line in text.lines() {
            let mut words = line.split_whitespace().map(str::to_owned);
            match words.next().as_deref() {
                Some("nameserver") => conf.nameservers.extend(words.next()),
                Some("search") => conf.search = words.collect(),
                Some("domain") => conf.search = words.take(1).collect(),
                Some("options") => conf.options.extend(words),
                _ => {}
            }
        }
        conf.nameservers.truncate(MAX_NAMESERVERS);
        conf.with_ndots()
    }

    fn with_ndots(mut self) -> ResolvConf {
        let written = self.options.iter().rev().find_map(|option| option.strip_prefix("ndots:"));
        if let Some(text) = written {
            // More than 15 counts as 15; what is no number as 0, as atoi reads it.
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            self.ndots =
                digits.parse::<u64>().map_or(0, |number| u8::try_from(number).unwrap_or(u8::MAX));
        }
        self
    }

    /// What this library reads of it, and what it does not. musl passes over lines that are too long, whole
    /// (`__get_resolv_conf`).
    pub fn read_by(mut self, libc: Libc) -> (ResolvConf, Vec<String>) {
        let mut notes = Vec::new();
        if libc == Libc::Glibc {
            return (self, notes);
        }
        let mut keep = |key: &str, words: &mut Vec<String>| {
            let octets = key.len() + words.iter().map(|word| 1 + word.len()).sum::<usize>();
            if octets > MUSL_LINE {
                words.clear();
                notes.push(format!(
                    "musl passes over the line {key}: it has {octets} octets, and lines of {MUSL_LINE} are read"
                ));
            }
        };
        keep("search", &mut self.search);
        keep("options", &mut self.options);
        self.ndots = DEFAULT_NDOTS;
        (self.with_ndots(), notes)
    }

    /// The server that is asked first.
    pub fn first_server(&self) -> Option<IpAddr> {
        self.nameservers.first()?.parse().ok()
    }

    /// Whether an option is written.
    pub fn has_option(&self, name: &str) -> bool {
        self.options.iter().any(|option| option == name)
    }

    /// Its options on one line, as the file has them.
    pub fn text(&self) -> String {
        let servers = line("nameserver", &self.nameservers);
        let others = [line("search", &self.search), line("options", &self.options)];
        servers.into_iter().chain(others.into_iter().flatten()).collect::<Vec<_>>().join("; ")
    }

    /// The file, its lines in the order in which container runtimes write them.
    fn file(&self) -> String {
        let servers = self.nameservers.iter().map(|server| format!("nameserver {server}"));
        let others = [line("search", &self.search), line("options", &self.options)];
        servers.chain(others.into_iter().flatten()).collect::<Vec<_>>().join("\n")
    }
}

fn line(key: &str, words: &[String]) -> Option<String> {
    (!words.is_empty()).then(|| format!("{key} {}", words.join(" ")))
}

/// What kubelet writes for this pod, and what a person should know of it. `cluster_ips` are the addresses of the
/// ClusterDNS whose domain this is, `node_search` the search domains of the pod's node.
///
/// # Errors
/// The pod asks the servers of its node, whose resolv.conf the API server does not know.
pub fn of_pod(
    pod: &Pod,
    domain: &str,
    cluster_ips: &[String],
    node_search: &[String],
) -> Result<(ResolvConf, Vec<String>), String> {
    let spec = pod.spec.clone().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let on_host = spec.host_network == Some(true);
    let uses_cluster = match policy {
        "ClusterFirstWithHostNet" => true,
        "ClusterFirst" => !on_host,
        _ => false,
    };
    let mut conf = ResolvConf::default();
    let mut notes = Vec::new();
    if uses_cluster {
        conf.nameservers = cluster_ips.to_vec();
        let of_cluster =
            [format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()];
        conf.search = of_cluster.into_iter().chain(node_search.iter().cloned()).collect();
        conf.options = vec![KUBELET_NDOTS.to_owned()];
        if cluster_ips.len() > 1 {
            notes.push(format!(
                "this ClusterDNS has {}, and kubelet writes those that are its clusterDNS, usually one: use --resolv-conf for what \
                 the pod has",
                cluster_ips.join(" and ")
            ));
        }
        if node_search.is_empty() {
            notes.push(
                "search domains of its node are not known: name them with --node-search, or use --resolv-conf"
                    .to_owned(),
            );
        }
    } else if policy != "None" {
        let why = match on_host && policy == "ClusterFirst" {
            true => "it has hostNetwork: true, and dnsPolicy: ClusterFirst counts as Default there"
                .to_owned(),
            false => format!("its dnsPolicy is {policy}"),
        };
        return Err(format!(
            "{why}, so it asks the servers of its node; if these lead here, give what it has with --resolv-conf"
        ));
    }
    if let Some(more) = spec.dns_config {
        conf.nameservers.extend(more.nameservers.unwrap_or_default());
        conf.search.extend(more.searches.unwrap_or_default());
        for option in more.options.unwrap_or_default() {
            let Some(name) = option.name else { continue };
            conf.options.retain(|it| it.split(':').next() != Some(name.as_str()));
            let value = option.value.filter(|value| !value.is_empty());
            conf.options.push(value.map_or(name.clone(), |value| format!("{name}:{value}")));
        }
    }
    conf.nameservers = distinct(conf.nameservers);
    conf.search = distinct(conf.search);
    bound(&mut conf, &mut notes);
    // The API server takes any text as an option, line breaks too: what is behind one is another line of the file.
    let conf = ResolvConf::read(&conf.file());
    let address = |text: &String| text.parse::<IpAddr>().ok();
    let own: BTreeSet<IpAddr> = cluster_ips.iter().filter_map(address).collect();
    if !conf.nameservers.iter().filter_map(address).any(|server| own.contains(&server)) {
        notes.push(format!(
            "it does not ask this ClusterDNS ({}): its servers are {}",
            cluster_ips.join(", "),
            conf.nameservers.join(", ")
        ));
    }
    Ok((conf, notes))
}

/// Each once, the first one of it.
fn distinct(texts: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts.into_iter().filter(|text| seen.insert(text.clone())).collect()
}

/// Cuts what kubelet cuts, and says so.
fn bound(conf: &mut ResolvConf, notes: &mut Vec<String>) {
    if conf.nameservers.len() > MAX_NAMESERVERS {
        conf.nameservers.truncate(MAX_NAMESERVERS);
        notes.push(format!("kubelet leaves out all but {MAX_NAMESERVERS} servers"));
    }
    let mut characters = 0;
    let fits = |domain: &&String| {
        characters += domain.len() + usize::from(characters > 0);
        characters <= MAX_CHARACTERS
    };
    let kept = conf.search.iter().take(MAX_DOMAINS).take_while(fits).count();
    if kept < conf.search.len() {
        let left_out = conf.search.len() - kept;
        conf.search.truncate(kept);
        notes.push(format!(
            "kubelet leaves out {left_out} search domains: it writes {MAX_DOMAINS}, of {MAX_CHARACTERS} characters in all"
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn made(spec: Value, node_search: &[&str]) -> Result<(ResolvConf, Vec<String>), String> {
        made_with(&["10.96.0.10"], spec, node_search)
    }

    fn made_with(
        cluster_ips: &[&str],
        spec: Value,
        node_search: &[&str],
    ) -> Result<(ResolvConf, Vec<String>), String> {
        let pod = json!({"metadata": {"name": "web-0", "namespace": "shop"}, "spec": spec});
        let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<String>>();
        let pod = serde_json::from_value(pod).unwrap();
        of_pod(&pod, "cluster.local", &texts(cluster_ips), &texts(node_search))
    }

    #[test]
    fn the_file_is_the_one_that_kubelet_writes() {
        let config = json!({"nameservers": ["10.96.0.10", "192.0.2.1"], "searches": ["corp.example", "svc.cluster.local"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]});
        for (what, spec, node, expected) in [
            (
                "no policy",
                json!({"containers": []}),
                &[][..],
                "nameserver 10.96.0.10; search shop.svc.cluster.local svc.cluster.local cluster.local; options ndots:5",
            ),
            (
                "with the node's domains",
                json!({"dnsPolicy": "ClusterFirst"}),
                &["lan.example"][..],
                "nameserver 10.96.0.10; search shop.svc.cluster.local svc.cluster.local cluster.local lan.example; options ndots:5",
            ),
            (
                "on the node's network",
                json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}),
                &[],
                "nameserver 10.96.0.10; search shop.svc.cluster.local svc.cluster.local cluster.local; options ndots:5",
            ),
            (
                "added and replaced",
                json!({"dnsConfig": config}),
                &[],
                "nameserver 10.96.0.10 192.0.2.1; search shop.svc.cluster.local svc.cluster.local cluster.local corp.example; options ndots:2 edns0",
            ),
            (
                "None",
                json!({"dnsPolicy": "None", "dnsConfig": config}),
                &[],
                "nameserver 10.96.0.10 192.0.2.1; search corp.example svc.cluster.local; options ndots:2 edns0",
            ),
        ] {
            let spec = with_containers(spec);
            assert_eq!(made(spec, node).unwrap().0.text(), expected, "{what}");
        }
    }

    fn with_containers(mut spec: Value) -> Value {
        spec["containers"] = json!([]);
        spec
    }

    #[test]
    fn pods_that_ask_their_node_are_said_to() {
        for spec in [json!({"dnsPolicy": "Default"}), json!({"hostNetwork": true})] {
            let why = made(with_containers(spec), &[]).unwrap_err();
            assert!(why.contains("asks the servers of its node"), "{why}");
        }
        let elsewhere = json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"]}});
        let (_, notes) = made(with_containers(elsewhere), &[]).unwrap();
        assert!(notes[0].contains("does not ask this ClusterDNS"), "{notes:?}");
    }

    #[test]
    fn of_two_addresses_it_is_said_that_kubelet_may_write_one() {
        let both = ["fd00:96::a", "10.96.0.10"];
        let (conf, notes) = made_with(&both, with_containers(json!({})), &["n"]).unwrap();
        assert_eq!((conf.nameservers.len(), conf.first_server()), (2, both[0].parse().ok()));
        assert!(notes[0].contains("has fd00:96::a and 10.96.0.10"), "{notes:?}");
        assert_eq!(made(with_containers(json!({})), &["n"]).unwrap().1, [""; 0]);
        let written = json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["fd00:96:0::a"]}});
        assert_eq!(
            made_with(&both, with_containers(written), &[]).unwrap().1,
            [""; 0],
            "it asks here"
        );
    }

    #[test]
    fn an_option_with_line_breaks_is_lines_of_the_file() {
        let options = json!([{"name": "a\nsearch evil.example\noptions ndots", "value": "1\nnameserver 192.0.2.66"}]);
        let (conf, _) =
            made(with_containers(json!({"dnsConfig": {"options": options}})), &["n"]).unwrap();
        assert_eq!(
            conf.text(),
            "nameserver 10.96.0.10 192.0.2.66; search evil.example; options ndots:5 a ndots:1"
        );
        assert_eq!(conf.ndots, 1);
    }

    #[test]
    fn what_kubelet_leaves_out_is_left_out_and_said() {
        let domains: Vec<String> = (0..40).map(|number| format!("d{number}.example")).collect();
        let (conf, notes) =
            made(with_containers(json!({"dnsConfig": {"searches": domains}})), &["n"]).unwrap();
        assert_eq!(conf.search.len(), MAX_DOMAINS);
        assert!(notes[0].contains("leaves out 12 search domains"), "{notes:?}");
        let long: Vec<String> = (0..20).map(|number| format!("{number:0200}")).collect();
        let (conf, _) =
            made(with_containers(json!({"dnsConfig": {"searches": long}})), &["n"]).unwrap();
        assert_eq!(conf.search.len(), 4 + 9, "2048 characters");
    }

    #[test]
    fn musl_passes_over_a_line_that_is_too_long() {
        // `search` and a space are 7 octets.
        let read = |octets: usize, libc| {
            let text = format!("search {}\noptions ndots:5\n", "a".repeat(octets - 7));
            ResolvConf::read(&text).read_by(libc)
        };
        assert_eq!(read(254, Libc::Musl).0.search.len(), 1);
        let (conf, notes) = read(255, Libc::Musl);
        assert_eq!((conf.search.len(), conf.ndots), (0, 5));
        assert!(notes[0].contains("the line search: it has 255 octets"), "{notes:?}");
        assert_eq!(read(2_000, Libc::Glibc).0.search.len(), 1);
        let options = format!("options ndots:5 {}\n", "x".repeat(300));
        assert_eq!(ResolvConf::read(&options).read_by(Libc::Musl).0.ndots, 1);
    }

    #[test]
    fn a_file_is_read_as_libraries_read_it() {
        let conf = ResolvConf::read(
            "# written by kubelet\nnameserver 10.96.0.10\nsearch a b\ndomain c\nsearch d e\noptions ndots:5 ndots:3\n",
        );
        assert_eq!(conf.text(), "nameserver 10.96.0.10; search d e; options ndots:5 ndots:3");
        assert_eq!((conf.ndots, ResolvConf::read("options ndots:x").ndots), (3, 0));
        assert_eq!(ResolvConf::read("").ndots, 1);
    }
}
