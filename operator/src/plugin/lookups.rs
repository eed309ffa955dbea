//! What the API server knows: which ClusterDNS there is, which pods serve it, which pod asks. Reads only, and each right
//! that is missing is named.

use std::time::Duration;

use crds::config::UnknownFields;
use crds::{ClusterDNS, manifest};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams};
use kube::config::{AuthInfo, KubeConfigOptions};
use kube::core::{ApiResource, DynamicObject, TypeMeta};
use kube::{Client, ResourceExt};
use process::kubeconfig;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::args::Which;
use super::data_plane::{DataPlane, Target};
use crate::ask_pods::pod_reports::http_port;
use crate::names;
use crate::observe::pods;
use crate::runtime::decode::lenient;

/// One request where `--request-timeout` is 0, which is no limit: a day.
const UNBOUNDED: Duration = Duration::from_secs(86_400);
/// Names that are listed for completion.
const MAX_NAMES: u32 = 500;

/// A cluster, with the rights of its user.
pub(super) struct Cluster {
    client: Client,
    /// Where a pod without a namespace is looked for.
    namespace: String,
    patience: Duration,
}

/// How long a request may take.
pub(super) fn patience(which: &Which) -> Duration {
    which.request_timeout.filter(|time| !time.is_zero()).unwrap_or(UNBOUNDED)
}

impl Cluster {
    /// The cluster that these flags name.
    pub(super) async fn connect(which: &Which) -> Result<Cluster, String> {
        let (patience, which) = (patience(which), which.clone());
        // kube runs a credential plugin as a call that blocks. It may never end.
        let runtime = Handle::current();
        let made = spawn_blocking(move || runtime.block_on(Cluster::made(&which)));
        match timeout(patience, made).await {
            Ok(made) => made.map_err(|error| format!("cannot use the kubeconfig: {error}"))?,
            Err(_) => Err(format!(
                "the credential plugin of the kubeconfig did not end within {patience:?}: write a longer --request-timeout, \
                 or log in first"
            )),
        }
    }

    async fn made(which: &Which) -> Result<Cluster, String> {
        let Which { kubeconfig, context, cluster, user, namespace, .. } = which;
        let options = KubeConfigOptions {
            context: context.clone(),
            cluster: cluster.clone(),
            user: user.clone(),
        };
        let is_named =
            kubeconfig.is_some() || context.is_some() || cluster.is_some() || user.is_some();
        let mut config = match is_named {
            true => kubeconfig::config(kubeconfig.as_deref(), &options).await?,
            false => kubeconfig::inferred().await.map_err(|error| {
                format!("no cluster: name a kubeconfig with --kubeconfig or KUBECONFIG, or a data plane with --address: {error}")
            })?,
        };
        impersonate(which, &mut config.auth_info)?;
        let namespace = namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = kubeconfig::client(config)
            .map_err(|why| format!("cannot use the kubeconfig: {why}"))?;
        Ok(Cluster { client: lenient(client), namespace, patience: patience(which) })
    }

    /// The ClusterDNS of this name, or the only one.
    pub(super) async fn cluster_dns(&self, name: Option<&str>) -> Result<ClusterDNS, String> {
        let (dns, _) = self.cluster_dns_and_unknown(name).await?;
        Ok(dns)
    }

    /// The same, and its fields that this version does not know: what was read lacks them.
    pub(super) async fn cluster_dns_and_unknown(
        &self,
        name: Option<&str>,
    ) -> Result<(ClusterDNS, UnknownFields), String> {
        // Not as the type: one with a value of a newer version would make the whole list unreadable.
        let kind = ApiResource::erase::<ClusterDNS>(&());
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &kind);
        let every = ListParams::default();
        let listed = self.within("clusterdnses.clusterdns.dev", None, api.list(&every)).await?;
        one_of(listed.items, name)
    }

    /// Names of namespaces, for completion.
    pub(super) async fn namespaces(&self) -> Result<Vec<String>, String> {
        self.names_of(&Api::<Namespace>::all(self.client.clone()), "namespaces").await
    }

    /// Names of ClusterDNS, for completion.
    pub(super) async fn cluster_dns_names(&self) -> Result<Vec<String>, String> {
        let api = Api::<ClusterDNS>::all(self.client.clone());
        self.names_of(&api, "clusterdnses.clusterdns.dev").await
    }

    /// `NAMESPACE/NAME` of pods, for completion.
    pub(super) async fn pod_names(&self, namespace: &str) -> Result<Vec<String>, String> {
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let names = self.names_of(&api, "pods").await?;
        Ok(names.into_iter().map(|name| format!("{namespace}/{name}")).collect())
    }

    async fn names_of<K>(&self, api: &Api<K>, what: &str) -> Result<Vec<String>, String>
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let some = ListParams::default().limit(MAX_NAMES);
        let listed = self.within(what, None, api.list_metadata(&some)).await?;
        Ok(listed.items.into_iter().filter_map(|it| it.metadata.name).collect())
    }

    pub(super) async fn pods(&self, dns: &ClusterDNS) -> Result<Vec<Pod>, String> {
        let (namespace, _) = names::service(dns);
        let api = Api::<Pod>::namespaced(self.client.clone(), &namespace);
        let its = ListParams::default().labels(&format!("{}={}", names::INSTANCE, dns.name_any()));
        let mut pods = self.within("pods", Some(&namespace), api.list(&its)).await?.items;
        pods.sort_by_key(ResourceExt::name_any);
        Ok(pods)
    }

    /// The pod `[NAMESPACE/]NAME`.
    pub(super) async fn pod(&self, name: &str) -> Result<Pod, String> {
        let (namespace, name) = name.split_once('/').unwrap_or((&self.namespace, name));
        if namespace.is_empty() || name.is_empty() || name.contains('/') {
            return Err("--from: write NAMESPACE/POD, or POD".to_owned());
        }
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        match self.within("pods", Some(namespace), api.get_opt(name)).await? {
            Some(pod) => Ok(pod),
            None => Err(format!("there is no pod {namespace}/{name}")),
        }
    }

    /// How a pod of ours is asked.
    pub(super) fn data_plane(&self, pod: &Pod) -> DataPlane {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let pods = Api::namespaced(self.client.clone(), &namespace);
        let shown = format!("pod {namespace}/{name}");
        let target = Target::Pod { pods: Box::new(pods), namespace, name, port: http_port(pod) };
        DataPlane { name: shown, target, patience: self.patience }
    }

    /// The data plane of this ClusterDNS that a command asks.
    pub(super) async fn asked(&self, which: &Which, dns: &ClusterDNS) -> Result<DataPlane, String> {
        let pods = self.pods(dns).await?;
        if pods.is_empty() {
            let (namespace, _) = names::service(dns);
            return Err(format!("this ClusterDNS has no pod in the namespace {namespace}"));
        }
        self.chosen(which, &pods)
    }

    /// The one to ask: that of `--pod`, else one that is ready.
    fn chosen(&self, which: &Which, pods: &[Pod]) -> Result<DataPlane, String> {
        let chosen = match &which.pod {
            Some(name) => named(name, pods)?,
            None => pods.iter().find(|pod| pods::is_ready(pod)).ok_or(
                "no pod of this ClusterDNS is ready: kubectl clusterdns status says more; --pod asks one that is not",
            )?,
        };
        Ok(self.data_plane(chosen))
    }

    /// A read, within its time; `what` and `namespace` are for people whose right is missing.
    async fn within<T>(
        &self,
        what: &str,
        namespace: Option<&str>,
        read: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, String> {
        let place = namespace.map_or_else(String::new, |it| format!(" in the namespace {it}"));
        match timeout(self.patience, read).await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => Err(format!(
                "you need the rights to get and list {what}{place} (docs/plugin.md has a Role): {}",
                status.message
            )),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(format!(
                "the API server knows no {what}: is ClusterDNS installed in this cluster?"
            )),
            Ok(Err(kube::Error::Api(status))) => {
                Err(format!("cannot read {what}{place}: {}", status.message))
            }
            Ok(Err(error)) => Err(format!("cannot read {what}{place}: {error}{}", hint())),
            Err(_) => {
                Err(format!("the API server did not answer within {:?}{}", self.patience, hint()))
            }
        }
    }
}

/// The pod `[NAMESPACE/]NAME` of these, which are in one namespace.
pub(super) fn named<'a>(name: &str, pods: &'a [Pod]) -> Result<&'a Pod, String> {
    let (namespace, bare) = name.split_once('/').map_or((None, name), |(of, it)| (Some(of), it));
    let is_it = |pod: &&Pod| {
        pods::name(pod) == bare
            && (namespace.is_none() || pod.metadata.namespace.as_deref() == namespace)
    };
    pods.iter().find(is_it).ok_or_else(|| {
        let names: Vec<&str> = pods.iter().map(pods::name).collect();
        let others = match names.is_empty() {
            true => "it has no pods".to_owned(),
            false => format!("there are {}", names.join(", ")),
        };
        format!("--pod {name} is no pod of this ClusterDNS: {others}")
    })
}

/// As whom the API server is asked, by the flags and else by the kubeconfig, which may name a user too.
fn impersonate(which: &Which, user: &mut AuthInfo) -> Result<(), String> {
    let Which { impersonate, impersonate_groups: groups, .. } = which;
    if impersonate.is_none() && groups.is_empty() {
        return Ok(());
    }
    user.impersonate = impersonate.clone().or(user.impersonate.take());
    user.impersonate_groups = Some(groups.clone());
    // Without the group the answer would show more rights, or fewer, than were asked for.
    match user.impersonate {
        Some(_) => Ok(()),
        None => Err("--as-group needs --as: no group is impersonated without a user".to_owned()),
    }
}

/// For people whose API server can be reached through a proxy only.
fn hint() -> String {
    kubeconfig::unused_proxy().map_or_else(String::new, |variable| {
        format!(" ({variable} is set, and this plugin uses no proxy)")
    })
}

/// The one of this name, or the only one; the others need not be readable.
fn one_of(
    mut all: Vec<DynamicObject>,
    name: Option<&str>,
) -> Result<(ClusterDNS, UnknownFields), String> {
    let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
    let place = match name {
        Some(name) => names.iter().position(|it| it == name),
        None if all.len() > 1 => None,
        None => (!all.is_empty()).then_some(0),
    };
    match (place, name) {
        (Some(place), _) => read(all.swap_remove(place)),
        (None, _) if names.is_empty() => {
            Err("this cluster has no ClusterDNS: install one, or choose another --context"
                .to_owned())
        }
        (None, Some(name)) => {
            Err(format!("there is no ClusterDNS {name}: there are {}", names.join(", ")))
        }
        (None, None) => {
            Err(format!("there are several: add --clusterdns with one of {}", names.join(", ")))
        }
    }
}

/// The object as its type, in the words of files: a value that this version does not know is named with its field.
fn read(mut object: DynamicObject) -> Result<(ClusterDNS, UnknownFields), String> {
    let name = object.name_any();
    object.types = Some(TypeMeta::resource::<ClusterDNS>());
    let why = |error: &dyn std::fmt::Display| {
        format!(
            "this version of the plugin ({}) cannot read the ClusterDNS {name}, update the plugin: {error}",
            env!("CARGO_PKG_VERSION")
        )
    };
    let object = serde_json::to_value(object).map_err(|error| why(&error))?;
    manifest::read_value(object).map_err(|error| why(&error))
}

/// The data plane at an address.
pub(super) fn at(which: &Which, address: std::net::SocketAddr) -> DataPlane {
    DataPlane {
        name: address.to_string(),
        target: Target::Address(address),
        patience: patience(which),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::api::{self, Reply};

    /// A cluster with these ClusterDNS.
    fn cluster(specs: &[(&str, Value)]) -> Cluster {
        let object = |(name, spec): &(&str, Value)| {
            json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "spec": spec,
                "metadata": {"name": name, "uid": "u", "generation": 7, "resourceVersion": "9",
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]},
                "status": {"observedGeneration": 7}})
        };
        let items: Vec<Value> = specs.iter().map(object).collect();
        let client = lenient(api::client(move |_| Reply::list(&items)));
        Cluster { client, namespace: "default".to_owned(), patience: Duration::from_secs(9) }
    }

    #[tokio::test]
    async fn one_clusterdns_of_a_newer_version_hides_no_other_one() {
        let cluster = cluster(&[
            ("newer", json!({"podRecords": "Future"})),
            ("own", json!({"ttlSeconds": 7})),
        ]);
        let own = cluster.cluster_dns(Some("own")).await.unwrap();
        assert_eq!((own.spec.ttl_seconds, own.metadata.generation), (7, Some(7)));
        assert_eq!(own.status.and_then(|status| status.observed_generation), Some(7));
        let why = cluster.cluster_dns(Some("newer")).await.unwrap_err();
        for words in ["cannot read the ClusterDNS newer", "update the plugin", "spec.podRecords"] {
            assert!(why.contains(words), "{why}");
        }
        let why = cluster.cluster_dns(None).await.unwrap_err();
        assert!(why.ends_with("--clusterdns with one of newer, own"), "{why}");
        let why = cluster.cluster_dns(Some("other")).await.unwrap_err();
        assert!(why.ends_with("there are newer, own"), "{why}");
    }

    #[test]
    fn a_group_is_added_to_the_user_of_the_kubeconfig_or_of_the_flags() {
        let as_whom = |flag: Option<&str>, groups: &[&str], of_file: Option<&str>| {
            let impersonate_groups = groups.iter().map(|it| (*it).to_owned()).collect();
            let impersonate = flag.map(str::to_owned);
            let which = Which { impersonate, impersonate_groups, ..Which::default() };
            let mut user =
                AuthInfo { impersonate: of_file.map(str::to_owned), ..AuthInfo::default() };
            super::impersonate(&which, &mut user)
                .map(|()| (user.impersonate, user.impersonate_groups))
        };
        let jane = Some("jane".to_owned());
        let viewers = Some(vec!["viewers".to_owned()]);
        assert_eq!(as_whom(None, &["viewers"], Some("jane")), Ok((jane.clone(), viewers.clone())));
        assert_eq!(as_whom(Some("jane"), &["viewers"], Some("joe")), Ok((jane.clone(), viewers)));
        assert_eq!(as_whom(None, &[], Some("jane")), Ok((jane, None)));
        assert!(as_whom(None, &["viewers"], None).is_err());
    }

    #[test]
    fn a_pod_may_be_named_as_it_is_shown() {
        let pod = |name: &str| {
            crate::fixtures::from::<Pod>(
                json!({"metadata": {"name": name, "namespace": "kube-system"}}),
            )
        };
        let pods = [pod("dns-0"), pod("dns-1")];
        for (name, found) in
            [("dns-1", Some("dns-1")), ("kube-system/dns-1", Some("dns-1")), ("shop/dns-1", None)]
        {
            assert_eq!(named(name, &pods).ok().map(pods::name), found, "{name}");
        }
        assert!(named("dns-2", &pods).unwrap_err().ends_with(": there are dns-0, dns-1"));
        assert!(named("dns-2", &[]).unwrap_err().ends_with(": it has no pods"));
    }

    /// Its runtime is ended as that of the program, which does not wait for the plugin either.
    #[test]
    fn a_credential_plugin_that_does_not_end_does_not_keep_a_command() {
        let kubeconfig = json!({"current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "u", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1",
                "command": "sleep", "args": ["10"], "interactiveMode": "Never"}}}]});
        let file = format!("clusterdns-endless-{}", std::process::id());
        let file = std::env::temp_dir().join(file);
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let request_timeout = Some(Duration::from_millis(50));
        let which = Which { kubeconfig: Some(file.clone()), request_timeout, ..Which::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let why = runtime.block_on(Cluster::connect(&which)).err().unwrap();
        runtime.shutdown_background();
        std::fs::remove_file(&file).unwrap();
        assert!(why.contains("did not end within 50ms"), "{why}");
    }

    #[tokio::test]
    async fn fields_of_a_newer_version_are_named() {
        let cluster = cluster(&[("newer", json!({"ttlSeconds": 7, "cache": {"colour": "red"}}))]);
        let (dns, unknown) = cluster.cluster_dns_and_unknown(None).await.unwrap();
        assert_eq!(
            (dns.spec.ttl_seconds, unknown.paths),
            (7, vec!["spec.cache.colour".to_owned()])
        );
    }
}
