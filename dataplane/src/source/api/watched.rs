//! What is watched, and how it is asked for.

use dataplane_core::Resource;
use kube::api::{ListParams, Request, WatchParams};
use kube::client::Body;

use crate::source::objects::convert::SERVICE_NAME_LABEL;
use crate::source::writer::KUBE_SYSTEM;

/// Seconds after which the server ends a watch, at least (E24) ...
const WATCH_TIMEOUT_S: u32 = 150;
/// ... and at random up to this many more: watches of many pods that began together, as after a restart of the API server, do
/// not end together. In all below the 240 s after which load balancers drop an idle connection and say nothing.
const WATCH_SPREAD_S: u32 = 60;
/// Objects in the first page, while nothing is known of their size.
pub(super) const FIRST_PAGE: u32 = 50;
/// Objects in a page at most. Of large ones, as full EndpointSlices are, fewer fit: what came before says how many. A list of
/// 100,000 slices must be read within the 5 minutes for which etcd keeps its version.
pub(super) const PAGE: u32 = 500;

/// The Service of the API server, in the namespace `default`, and its EndpointSlice.
const KUBERNETES: &str = "kubernetes";

/// Everything that may be listed again on request: the resources, and the ConfigMap.
pub(super) const KINDS: usize = Resource::ALL.len() + 1;

/// How long the next watch asks to be; `chance` is in [0, 1).
pub(super) fn watch_seconds(chance: f64) -> u32 {
    WATCH_TIMEOUT_S + (f64::from(WATCH_SPREAD_S) * chance).round() as u32
}

/// One thing to list and watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// Objects that the index reads.
    Objects(Resource),
    /// The configuration that an operator writes.
    ConfigMap {
        /// `metadata.namespace`, one label.
        namespace: String,
        /// Its name, a DNS name.
        name: String,
    },
}

impl Watched {
    /// The plural of the resource, as log lines and metrics have it.
    pub(super) fn plural(&self) -> &'static str {
        match self {
            Watched::Objects(resource) => resource.plural(),
            Watched::ConfigMap { .. } => "configmaps",
        }
    }

    /// The resource whose objects the index reads; `None` for the configuration.
    pub(super) fn resource(&self) -> Option<Resource> {
        match self {
            Watched::Objects(resource) => Some(*resource),
            Watched::ConfigMap { .. } => None,
        }
    }

    /// Its place among all kinds, below [`KINDS`].
    pub(super) fn number(&self) -> usize {
        match self {
            Watched::Objects(resource) => *resource as usize,
            Watched::ConfigMap { .. } => Resource::ALL.len(),
        }
    }

    fn path(&self) -> String {
        match self {
            Watched::Objects(Resource::Services) => "/api/v1/services".into(),
            Watched::Objects(Resource::EndpointSlices) => {
                "/apis/discovery.k8s.io/v1/endpointslices".into()
            }
            Watched::Objects(Resource::Namespaces) => "/api/v1/namespaces".into(),
            Watched::Objects(Resource::Pods) => "/api/v1/pods".into(),
            Watched::ConfigMap { namespace, .. } => {
                format!("/api/v1/namespaces/{namespace}/configmaps")
            }
        }
    }

    /// Slices of no Service give no names.
    fn label_selector(&self) -> Option<String> {
        (*self == Watched::Objects(Resource::EndpointSlices)).then(|| SERVICE_NAME_LABEL.to_owned())
    }

    /// RBAC narrows list and watch to one name only where the request says so too (S6).
    fn field_selector(&self) -> Option<String> {
        match self {
            Watched::Objects(_) => None,
            Watched::ConfigMap { name, .. } => Some(format!("metadata.name={name}")),
        }
    }

    /// Of a Namespace nothing but its metadata is asked for.
    fn is_metadata_only(&self) -> bool {
        *self == Watched::Objects(Resource::Namespaces)
    }

    /// The first page, or the one behind `token`. Without a resourceVersion: a consistent read,
    /// because what is not in a list is removed, and a server that lags would not list names
    /// that live.
    pub(super) fn list(&self, limit: u32, token: Option<&str>) -> hyper::Request<Body> {
        let parameters = ListParams {
            label_selector: self.label_selector(),
            field_selector: self.field_selector(),
            limit: Some(limit),
            continue_token: token.map(str::to_owned),
            ..ListParams::default()
        };
        let request = Request::new(self.path());
        let built = match self.is_metadata_only() {
            true => request.list_metadata(&parameters),
            false => request.list(&parameters),
        };
        built.expect("parameters that fit together").map(Body::from)
    }

    /// A consistent list of one object, of which the API server sends the metadata alone: it says which version the
    /// server is at. Of Namespaces it is `kube-system`, whose uid says which cluster this is. The others are named too: for a
    /// list of one name the API server reads that name and no more, and API Priority and Fairness counts it as one object.
    /// With a limit alone it may count as all that are stored. The object need not exist.
    pub(super) fn one(&self) -> hyper::Request<Body> {
        let (path, name) = match self {
            Watched::Objects(Resource::Services) => {
                ("/api/v1/namespaces/default/services".into(), KUBERNETES)
            }
            Watched::Objects(Resource::EndpointSlices) => {
                ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices".into(), KUBERNETES)
            }
            Watched::Objects(Resource::Pods) => {
                ("/api/v1/namespaces/default/pods".into(), KUBERNETES)
            }
            Watched::Objects(Resource::Namespaces) => (self.path(), KUBE_SYSTEM),
            Watched::ConfigMap { name, .. } => (self.path(), &**name),
        };
        let parameters = ListParams {
            field_selector: Some(format!("metadata.name={name}")),
            limit: Some(1),
            ..ListParams::default()
        };
        let built = Request::new(path).list_metadata(&parameters);
        built.expect("parameters that fit together").map(Body::from)
    }

    /// Whether [`Watched::one`] says which cluster this is.
    pub(super) fn names_the_cluster(&self) -> bool {
        *self == Watched::Objects(Resource::Namespaces)
    }

    /// What changes after this version, for this many seconds.
    pub(super) fn watch(&self, version: &str, seconds: u32) -> hyper::Request<Body> {
        let parameters = WatchParams {
            label_selector: self.label_selector(),
            field_selector: self.field_selector(),
            timeout: Some(seconds),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = Request::new(self.path());
        let built = match self.is_metadata_only() {
            true => request.watch_metadata(&parameters, version),
            false => request.watch(&parameters, version),
        };
        built.expect("parameters that fit together").map(Body::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_consistent_reads_in_pages() {
        let request = Watched::Objects(Resource::Services).list(500, None);
        let text = request.uri().to_string();
        assert!(text.contains("limit=500") && !text.contains("resourceVersion"), "{text}");
        let next = Watched::Objects(Resource::Services).list(500, Some("a+b="));
        assert!(next.uri().to_string().contains("continue=a%2Bb%3D"));
    }

    #[test]
    fn k22_a_look_is_a_consistent_read_of_one_object() {
        let map = Watched::ConfigMap { namespace: "dns".into(), name: "main".into() };
        for watched in Resource::ALL.map(Watched::Objects).iter().chain([&map]) {
            let request = watched.one();
            let text = request.uri().to_string();
            assert!(text.contains("limit=1") && !text.contains("resourceVersion"), "{text}");
            let accept = request.headers()["accept"].to_str().unwrap();
            assert!(accept.contains("PartialObjectMetadataList"), "{accept}");
        }
        let asked = |watched: Watched| watched.one().uri().to_string();
        let [services, slices, namespaces, pods] =
            [Resource::Services, Resource::EndpointSlices, Resource::Namespaces, Resource::Pods]
                .map(|resource| asked(Watched::Objects(resource)));
        let default = "/namespaces/default";
        for (text, path, name) in [
            (services, format!("/api/v1{default}/services"), "kubernetes"),
            (slices, format!("/apis/discovery.k8s.io/v1{default}/endpointslices"), "kubernetes"),
            (pods, format!("/api/v1{default}/pods"), "kubernetes"),
            (namespaces, "/api/v1/namespaces".into(), "kube-system"),
            // S6: the role allows no other.
            (asked(map), "/api/v1/namespaces/dns/configmaps".into(), "main"),
        ] {
            let by_name = format!("{path}?&fieldSelector=metadata.name%3D{name}&limit=1");
            assert_eq!(text, by_name, "a list of one name is cheap, of any namespace it is not");
        }
    }

    #[test]
    fn watches_end_at_random_before_load_balancers_drop_them_and_have_bookmarks() {
        for (chance, time) in [(0.0, "150"), (0.5, "180"), (0.999_999, "210")] {
            let watch = Watched::Objects(Resource::Pods).watch("7", watch_seconds(chance));
            let (text, time) = (watch.uri().to_string(), format!("timeoutSeconds={time}"));
            for part in [&*time, "allowWatchBookmarks=true", "resourceVersion=7"] {
                assert!(text.contains(part), "{part} in {text}");
            }
        }
    }

    #[test]
    fn s6_no_more_is_asked_for_than_the_roles_allow() {
        let map = Watched::ConfigMap { namespace: "dns".into(), name: "main".into() };
        let text = map.watch("7", 180).uri().to_string();
        assert!(text.starts_with("/api/v1/namespaces/dns/configmaps?"), "{text}");
        assert!(text.contains("fieldSelector=metadata.name%3Dmain"), "{text}");
        let slices = Watched::Objects(Resource::EndpointSlices).list(100, None).uri().to_string();
        assert!(slices.contains("labelSelector=kubernetes.io%2Fservice-name"), "{slices}");
        let namespaces = Watched::Objects(Resource::Namespaces).list(500, None);
        let accept = namespaces.headers()["accept"].to_str().unwrap();
        assert!(accept.contains("PartialObjectMetadataList"), "{accept}");
    }
}
