//! What a comparison reads of a cluster, or of manifests in its place: Services, EndpointSlices, and the address of a
//! Service that is named. Nothing is written there.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crds::ClusterDNS;
use crds::manifest::{documents, not_yaml};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::Api;
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::kept::Kept;
use super::names::{MAX_QUESTIONS, Objects};
use crate::args::Cluster;
use crate::offline::{client, is_template, named_files, paged, text_of};

/// Where a Service is looked for whose namespace is not written.
const NAMESPACE: &str = crds::defaults::SERVICE_NAMESPACE;
const PORT: u16 = 53;

/// The manifests of these files, folders and patterns; documents of other kinds are passed over.
pub(super) fn of_manifests(files: &[PathBuf]) -> Result<Objects, String> {
    let mut objects = Objects::default();
    for path in named_files(files) {
        let path = path?;
        let (name, text) = text_of(&path)?;
        if is_template(&path, &text) {
            continue;
        }
        add_text(&name, &text, &mut objects)?;
    }
    Ok(objects)
}

fn add_text(file: &str, text: &str, objects: &mut Objects) -> Result<(), String> {
    let documents = documents(text).map_err(|error| match not_yaml(&error) {
        (Some(place), why) => format!("{file}:{place}: {why}"),
        (None, why) => format!("{file}: {why}"),
    })?;
    documents.into_iter().for_each(|document| add(file, document, "", "", objects));
    Ok(())
}

/// Adds a document, or those of a list, by group and kind. Items of a typed list need not repeat those of the list.
fn add(file: &str, mut document: Value, version: &str, kind: &str, objects: &mut Objects) {
    let text = |field: &str, of_list: &str| document[field].as_str().unwrap_or(of_list).to_owned();
    let (version, kind) = (text("apiVersion", version), text("kind", kind));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let cut = &mut objects.cut;
    match (group, kind.as_str()) {
        ("", "Service") => objects.services.extend(read(file, &kind, document, cut)),
        ("discovery.k8s.io", "EndpointSlice") => {
            objects.slices.extend(read(file, &kind, document, cut));
        }
        (crds::GROUP, "ClusterDNS") => objects.resources.extend(read(file, &kind, document, cut)),
        (_, other) => {
            if let Some(kind) = other.strip_suffix("List")
                && let Some(Value::Array(items)) = document.get_mut("items").map(Value::take)
            {
                items.into_iter().for_each(|item| add(file, item, &version, kind, objects));
            }
        }
    }
}

/// An object; one that cannot be read is left out, as one of a cluster is, and `cut` says which and why.
fn read<T: DeserializeOwned>(
    file: &str,
    kind: &str,
    document: Value,
    cut: &mut Vec<String>,
) -> Option<T> {
    let text = |field: &str| document["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    match serde_path_to_error::deserialize(document) {
        Ok(object) => Some(object),
        Err(error) => {
            let namespace = if namespace.is_empty() { namespace } else { namespace + "/" };
            cut.push(format!(
                "{file}: {kind} {namespace}{name} cannot be read and is left out: {error}"
            ));
            None
        }
    }
}

/// All Services and slices of the cluster, as far as they can be asked for.
pub(super) async fn of_cluster(client: &Client) -> Result<Objects, String> {
    let (mut objects, mut kept) = (Objects::default(), Kept::default());
    let needed = |what: &'static str| move |error: kube::Error| format!("{what}: {error}");
    let api = Api::<Service>::all(client.clone());
    let services = &mut objects.services;
    let take = |service: Service| services.extend(kept.service(service));
    let read = all(client, &api, "Services", MAX_QUESTIONS, &mut objects.cut, take).await;
    read.map_err(needed("Services"))?;
    let api = Api::<EndpointSlice>::all(client.clone());
    let slices = &mut objects.slices;
    let take = |slice: EndpointSlice| slices.extend(kept.slice(slice));
    let read = all(client, &api, "EndpointSlices", MAX_QUESTIONS, &mut objects.cut, take).await;
    read.map_err(needed("EndpointSlices"))?;
    objects.cut.extend(kept.said());
    let api = Api::<ClusterDNS>::all(client.clone());
    let resources = &mut objects.resources;
    let take = |resource: ClusterDNS| resources.push(resource);
    match all(client, &api, "ClusterDNS", MAX_QUESTIONS, &mut objects.cut, take).await {
        Ok(()) => {}
        // The CustomResourceDefinition is not installed: there is nothing to read.
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        // The names of Services are still asked.
        Err(error) => {
            let why = format!("hosts and records of the ClusterDNS were not read: {error}");
            objects.cut.push(why);
        }
    }
    Ok(objects)
}

/// Gives `take` all objects of a kind, up to `most`; where there are more, or some cannot be read, `cut` has a sentence.
async fn all<T>(
    client: &Client,
    api: &Api<T>,
    what: &str,
    most: usize,
    cut: &mut Vec<String>,
    mut take: impl FnMut(T),
) -> kube::Result<()>
where
    T: kube::Resource + DeserializeOwned,
{
    let mut read = 0;
    let counted = |object| {
        read += 1;
        take(object);
    };
    let paged = paged(client, api.resource_url(), most, counted).await?;
    cut.extend(paged.unread(what, read));
    Ok(())
}

/// A client of the cluster of these flags.
pub(super) async fn connect(which: &Cluster) -> Result<Client, String> {
    client(which).await
}

/// Where a server is: an address with or without a port, or a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Server {
    At(SocketAddr),
    Service { namespace: String, name: String },
}

impl Server {
    /// `10.96.0.10`, `10.96.0.10:5353`, `[fd00::a]:53`, `kube-dns`, `kube-system/kube-dns`.
    pub(super) fn read(text: &str) -> Server {
        if let Ok(at) = text.parse() {
            return Server::At(at);
        }
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Server::At(SocketAddr::new(ip, PORT));
        }
        let (namespace, name) = text.split_once('/').unwrap_or((NAMESPACE, text));
        Server::Service { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Its address; a Service is looked for among those of the cluster.
    pub(super) fn address(&self, objects: &Objects) -> Result<SocketAddr, String> {
        let (namespace, name) = match self {
            Server::At(at) => return Ok(*at),
            Server::Service { namespace, name } => (namespace, name),
        };
        let is_it = |service: &&Service| {
            service.name_any() == *name && service.namespace().as_deref() == Some(namespace)
        };
        let service = objects.services.iter().find(is_it);
        let spec = service.and_then(|service| service.spec.as_ref());
        let address = spec.and_then(|spec| spec.cluster_ip.as_deref()?.parse::<IpAddr>().ok());
        address.map(|ip| SocketAddr::new(ip, PORT)).ok_or_else(|| {
            format!("{namespace}/{name} is no address and no Service with a cluster IP here: write ADDRESS[:PORT]")
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::api::{self, Reply};

    /// Lists of `pages` pages, each with as many Services as it is asked for.
    async fn listed(pages: usize, most: usize) -> (usize, Vec<String>) {
        let client = api::of_pages(pages);
        let api: Api<Service> = Api::all(client.clone());
        let (mut cut, mut found) = (Vec::new(), 0);
        let take = |_| found += 1;
        all(&client, &api, "Services", most, &mut cut, take).await.unwrap();
        (found, cut)
    }

    #[tokio::test]
    async fn lists_are_read_page_by_page_and_what_is_beyond_the_bound_is_said() {
        assert_eq!(listed(3, 2_000).await, (1_500, Vec::new()));
        let (found, cut) = listed(9, 1_000).await;
        assert_eq!(
            (found, cut),
            (1_000, vec!["only the first 1000 Services were read".to_owned()])
        );
    }

    #[test]
    fn manifests_are_read_by_group_and_kind_in_lists_and_large_files_too() {
        let service =
            |name: &str| format!("{{metadata: {{name: {name}}}, spec: {{clusterIP: None}}}}");
        let slice = "{metadata: {name: x}, addressType: IPv4, endpoints: []}";
        let text = format!(
            "{{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {{name: n}}, spec: {{template: 1, ports: 2}}}}\n---\n\
             {{apiVersion: v1, kind: ConfigMap, data: [{}]}}\n---\n\
             {{apiVersion: v1, kind: ServiceList, items: [{}, {}]}}\n---\n\
             {{apiVersion: v1, kind: List, items: [{{apiVersion: discovery.k8s.io/v1, kind: EndpointSliceList, items: [{slice}]}}]}}\n",
            "x,".repeat(300_000),
            service("a"),
            service("b")
        );
        let mut found = Objects::default();
        add_text("all.yaml", &text, &mut found).unwrap();
        let names: Vec<String> = found.services.iter().map(ResourceExt::name_any).collect();
        assert_eq!((names, found.slices.len()), (vec!["a".to_owned(), "b".to_owned()], 1));
        assert_eq!(found.cut, Vec::<String>::new());
        let bad = "{apiVersion: v1, kind: Service, metadata: {name: bad, namespace: shop}, spec: {ports: [{port: '80'}]}}";
        let good = "{apiVersion: v1, kind: Service, metadata: {name: good}}";
        add_text("all.yaml", &format!("{bad}\n---\n{good}\n"), &mut found).unwrap();
        assert_eq!(found.services.len(), 3, "only `good` was added");
        let [note] = &found.cut[..] else { panic!("{:?}", found.cut) };
        let expected =
            "all.yaml: Service shop/bad cannot be read and is left out: spec.ports[0].port: ";
        assert!(note.starts_with(expected), "{note}");
        let why = add_text("all.yaml", "a: 1\na: 2\n", &mut found).unwrap_err();
        assert_eq!(why, "all.yaml:2:1: \"a\" is written twice: leave one out");
    }

    /// What is read of an API server with these Services and slices.
    async fn read_of(services: String, slices: String) -> Result<Objects, String> {
        let client = api::client(move |asked| {
            let items = match asked.last() {
                "services" => &services,
                "endpointslices" => &slices,
                _ => "[]",
            };
            Reply::text(format!(r#"{{"metadata":{{}},"items":{items}}}"#))
        });
        of_cluster(&client).await
    }

    #[tokio::test]
    async fn k23_who_may_edit_a_namespace_does_not_keep_compare_from_the_others() {
        let deep = format!("{}{{}}{}", r#"{"f:a":"#.repeat(200), "}".repeat(200));
        let managers =
            [r#"{"time":"10000-01-01T00:59:59Z"}"#.to_owned(), format!(r#"{{"fieldsV1":{deep}}}"#)];
        for manager in managers {
            let services = format!(
                r#"[{{"metadata":{{"name":"a","namespace":"evil","managedFields":[{manager}]}},"spec":{{}}}},
                {{"metadata":{{"name":"b","namespace":"shop"}},"spec":{{}}}}, {{"metadata":{{"name":"c"}},"spec":7}}]"#
            );
            let found = read_of(services, "[]".to_owned()).await.unwrap();
            let names: Vec<String> = found.services.iter().map(ResourceExt::name_any).collect();
            assert_eq!(names, ["a", "b"]);
            assert_eq!(found.cut, ["1 of the Services cannot be read and are left out"]);
        }
    }

    #[tokio::test]
    async fn k23_of_large_objects_compare_keeps_what_names_are_made_of() {
        let filling = "x".repeat(1_400_000);
        let services = format!(
            r#"[{{"metadata":{{"name":"a","namespace":"evil","annotations":{{"a":"{filling}"}}}},
            "spec":{{"clusterIP":"None","ports":[{{"name":"http","port":80,"appProtocol":"{filling}"}}]}}}}]"#
        );
        let target = format!(r#"{{"kind":"Pod","name":"{filling}","namespace":"{filling}"}}"#);
        let slices = format!(
            r#"[{{"metadata":{{"name":"a","namespace":"evil","labels":{{"kubernetes.io/service-name":"a","b":"{filling}"}}}},
            "addressType":"IPv4","endpoints":[{{"addresses":["10.0.0.1"],"targetRef":{target}}}]}}]"#
        );
        let found = read_of(services, slices).await.unwrap();
        let text = serde_json::to_string(&(&found.services, &found.slices)).unwrap();
        assert!(text.len() < 1_000, "{} octets", text.len());
        let mut questions = super::super::names::Questions::default();
        super::super::names::of_cluster(&found, "c.example", &mut questions);
        let all: Vec<String> = questions.list().iter().map(ToString::to_string).collect();
        for name in ["_http._tcp.a.evil.svc.c.example. SRV", "10-0-0-1.a.evil.svc.c.example. A"] {
            assert!(all.iter().any(|it| it == name), "{name}: {all:#?}");
        }
    }

    /// What is read of an API server that has one Service, and answers a list of ClusterDNS with this status.
    async fn beside(code: u16, message: &'static str) -> Objects {
        let client = api::client(move |asked| match asked.last() {
            "clusterdnses" => Reply::status(code, message),
            "services" => Reply::list([json!({"metadata": {"name": "a"}})]),
            _ => api::empty(asked),
        });
        of_cluster(&client).await.unwrap()
    }

    #[tokio::test]
    async fn a_cluster_without_the_resource_is_asked_for_its_services() {
        let found = beside(404, "the server could not find the requested resource").await;
        assert_eq!((found.services.len(), found.resources.len()), (1, 0));
        assert!(found.cut.is_empty(), "{:?}", found.cut);
    }

    #[tokio::test]
    async fn a_resource_that_cannot_be_read_is_said_and_its_services_are_asked() {
        for (code, message) in [
            (403, "user u-404 cannot list resource clusterdnses"),
            (500, "etcdserver: request timed out"),
        ] {
            let found = beside(code, message).await;
            assert_eq!((found.services.len(), found.resources.len()), (1, 0));
            let [note] = &found.cut[..] else { panic!("{code}: {:?}", found.cut) };
            assert!(
                note.starts_with("hosts and records of the ClusterDNS were not read: "),
                "{note}"
            );
            assert!(note.contains(message), "{note}");
        }
    }

    #[test]
    fn a_server_is_an_address_with_or_without_port_or_a_service() {
        let at = |text: &str| Server::At(text.parse().unwrap());
        let service = |namespace: &str, name: &str| Server::Service {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        for (text, expected) in [
            ("10.96.0.10", at("10.96.0.10:53")),
            ("10.96.0.10:5353", at("10.96.0.10:5353")),
            ("fd00::a", at("[fd00::a]:53")),
            ("[fd00::a]", at("[fd00::a]:53")),
            ("[fd00::a]:5353", at("[fd00::a]:5353")),
            ("kube-dns", service("kube-system", "kube-dns")),
            ("dns/trial", service("dns", "trial")),
        ] {
            assert_eq!(Server::read(text), expected, "{text}");
        }
    }
}
