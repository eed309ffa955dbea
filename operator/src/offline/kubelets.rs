//! What `check --cluster` asks a cluster: which DNS servers and which domain its kubelets give to pods, which addresses its nodes
//! have and give to pods, and which addresses the adopted Services have. Nothing is written there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use process::kubeconfig;
use serde_json::Value;

use crate::args::Cluster;
use crate::decide::adoption::cluster_ips;
use crate::runtime::client::config;
use crate::runtime::decode::lenient;

/// Nodes that are asked: kubelets of one cluster are alike.
const NODES: u32 = 3;
/// Nodes whose addresses and ranges of pods are read.
const MAX_NODES: u32 = 500;
/// Time for all reads: a person waits for them.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the nodes and kubelets of a cluster report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The DNS servers that its kubelets give to pods.
    pub(super) cluster_dns: BTreeSet<String>,
    /// The domains that its kubelets write into the search lists of pods; a kubelet may have none.
    pub(super) cluster_domains: BTreeSet<String>,
    /// Ranges from which its nodes give addresses to pods, as far as nodes say.
    pub(super) pod_ranges: BTreeSet<IpNet>,
    /// The internal addresses of its nodes.
    pub(super) nodes: BTreeSet<IpAddr>,
    /// The addresses of those Services that it was asked for and has.
    pub(super) services: BTreeMap<ServiceName, Vec<String>>,
}

/// The namespace and the name of a Service.
type ServiceName = (String, String);

/// The DNS servers and the domains that kubelets give to pods.
type Given = (BTreeSet<String>, BTreeSet<String>);

/// The report of the cluster, or why there is none.
pub(super) fn ask_cluster(
    which: &Cluster,
    services: &BTreeSet<ServiceName>,
) -> Result<Said, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let answer =
        runtime.block_on(async { tokio::time::timeout(PATIENCE, ask(which, services)).await });
    match answer {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

async fn ask(which: &Cluster, services: &BTreeSet<ServiceName>) -> Result<Said, String> {
    let client = client(which).await?;
    let (cluster_dns, cluster_domains) = match from_kubelets(&client).await {
        Ok(said) if !said.0.is_empty() => said,
        // Few people have the right to read a kubelet's configuration.
        Ok(_) | Err(_) => from_kubeadm(&client).await?,
    };
    if cluster_dns.is_empty() {
        return Err(
            "neither its kubelets nor kubeadm's ConfigMap kubelet-config name a clusterDNS"
                .to_owned(),
        );
    }
    // Few people may list nodes: the rest can be checked without their addresses.
    let (pod_ranges, nodes) = of_nodes(&client).await.unwrap_or_default();
    let services = addresses_of(&client, services).await?;
    Ok(Said { cluster_dns, cluster_domains, pod_ranges, nodes, services })
}

async fn addresses_of(
    client: &Client,
    services: &BTreeSet<ServiceName>,
) -> Result<BTreeMap<ServiceName, Vec<String>>, String> {
    let mut found = BTreeMap::new();
    for (namespace, name) in services {
        let all: Api<Service> = Api::namespaced(client.clone(), namespace);
        let service = all.get_opt(name).await;
        let service = service
            .map_err(|error| format!("Service {namespace}/{name} cannot be read: {error}"))?;
        if let Some(service) = service {
            let ips = cluster_ips(&service).map(|ip| ip.to_string()).collect();
            found.insert((namespace.clone(), name.clone()), ips);
        }
    }
    Ok(found)
}

/// Ranges of pods, and addresses of nodes.
async fn of_nodes(client: &Client) -> Result<(BTreeSet<IpNet>, BTreeSet<IpAddr>), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let listed = nodes.list(&ListParams::default().limit(MAX_NODES)).await?.items;
    Ok((pod_ranges(&listed), addresses_in(&listed)))
}

fn addresses_in(nodes: &[Node]) -> BTreeSet<IpAddr> {
    let addresses = nodes.iter().filter_map(|node| node.status.as_ref()?.addresses.as_ref());
    let internal = addresses.flatten().filter(|it| it.type_ == "InternalIP");
    internal.filter_map(|it| it.address.parse().ok()).collect()
}

fn pod_ranges(nodes: &[Node]) -> BTreeSet<IpNet> {
    let specs = nodes.iter().filter_map(|node| node.spec.as_ref());
    let texts = specs.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// A client of the cluster that these flags name.
pub(crate) async fn client(which: &Cluster) -> Result<Client, String> {
    let config = config(which).await.map_err(|error| error.to_string())?;
    kubeconfig::client(config).map(lenient)
}

async fn from_kubelets(client: &Client) -> Result<Given, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut said = Given::default();
    for node in nodes.list_metadata(&ListParams::default().limit(NODES)).await? {
        let path = format!("/api/v1/nodes/{}/proxy/configz", node.name_any());
        let request = hyper::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let answer: Value = client.request(request).await?;
        add(&mut said, &answer["kubeletconfig"]);
    }
    Ok(said)
}

async fn from_kubeadm(client: &Client) -> Result<Given, String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let map = maps
        .get_opt("kubelet-config")
        .await
        .map_err(|error| format!("the configuration of its kubelets cannot be read: {error}"))?;
    let text = map.and_then(|map| map.data?.remove("kubelet")).unwrap_or_default();
    Ok(in_kubelet_configuration(&text))
}

fn in_kubelet_configuration(text: &str) -> Given {
    let mut said = Given::default();
    add(&mut said, &serde_saphyr::from_str(text).unwrap_or_default());
    said
}

/// Adds what one configuration of a kubelet gives to pods.
fn add((servers, domains): &mut Given, configuration: &Value) {
    servers.extend(addresses(&configuration["clusterDNS"]));
    let domain = configuration["clusterDomain"].as_str().filter(|domain| !domain.is_empty());
    domains.extend(domain.map(str::to_owned));
}

fn addresses(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().filter_map(|address| Some(address.as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{addresses_in, addresses_of, from_kubelets, in_kubelet_configuration, pod_ranges};
    use crate::fixtures::api::{self, Reply};

    #[tokio::test]
    async fn the_addresses_of_adopted_services_are_read_where_they_exist() {
        let client = api::client(|asked| match asked.path.as_str() {
            "/api/v1/namespaces/kube-system/services/kube-dns" => Reply::ok(
                json!({"metadata": {"name": "kube-dns"}, "spec": {"clusterIPs": ["10.96.0.10", "fd00::a"]}}),
            ),
            _ => Reply::not_found(),
        });
        let name = |name: &str| ("kube-system".to_owned(), name.to_owned());
        let asked = [name("kube-dns"), name("gone")].into();
        let found = addresses_of(&client, &asked).await.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[&name("kube-dns")], ["10.96.0.10", "fd00::a"]);
    }

    #[test]
    fn nodes_say_which_addresses_they_have_and_from_which_ranges_pods_get_theirs() {
        let node = |spec: serde_json::Value, addresses: &[(&str, &str)]| {
            let addresses = addresses.iter().map(|(kind, ip)| json!({"type": kind, "address": ip}));
            let status = json!({"addresses": addresses.collect::<Vec<_>>()});
            serde_json::from_value(json!({"spec": spec, "status": status})).expect("a Node")
        };
        let both =
            json!({"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:1::/64"]});
        let nodes = [
            node(both, &[("InternalIP", "10.0.0.2"), ("InternalIP", "fd00::2")]),
            node(
                json!({"podCIDR": "10.244.0.0/24"}),
                &[("Hostname", "a"), ("ExternalIP", "192.0.2.1"), ("InternalIP", "10.0.0.1")],
            ),
            node(json!({}), &[]),
        ];
        let addresses: Vec<String> = addresses_in(&nodes).iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1", "10.0.0.2", "fd00::2"]);
        let ranges: Vec<String> = pod_ranges(&nodes).iter().map(ToString::to_string).collect();
        assert_eq!(ranges, ["10.244.0.0/24", "10.244.1.0/24", "fd00:1::/64"]);
    }

    #[test]
    fn the_configuration_of_a_kubelet_names_its_dns_servers_and_its_domain() {
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nclusterDNS:\n- 10.96.0.10\nclusterDomain: cluster.local\n";
        let (servers, domains) = in_kubelet_configuration(text);
        assert!(servers.iter().eq(["10.96.0.10"]) && domains.iter().eq(["cluster.local"]));
        assert_eq!(in_kubelet_configuration(""), Default::default());
    }

    #[tokio::test]
    async fn kubelets_are_asked_for_both() {
        let client = api::client(|asked| match asked.path.as_str() {
            "/api/v1/nodes" => Reply::ok(json!({"metadata": {}, "items": [
                {"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]})),
            "/api/v1/nodes/a/proxy/configz" => Reply::ok(json!({"kubeletconfig":
                {"clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local"}})),
            "/api/v1/nodes/b/proxy/configz" => Reply::ok(json!({"kubeletconfig":
                {"clusterDNS": ["10.96.0.10"], "clusterDomain": ""}})),
            _ => Reply::not_found(),
        });
        let (servers, domains) = from_kubelets(&client).await.unwrap();
        assert!(servers.iter().eq(["10.96.0.10"]) && domains.iter().eq(["cluster.local"]));
    }
}
