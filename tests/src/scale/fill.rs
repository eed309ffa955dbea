//! The cluster's objects into a real API server: many at a time, as it takes a few milliseconds over each.

use futures::stream::{self, StreamExt};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::Cluster;
use crate::objects::create_any;

/// Requests at a time: enough to keep etcd's batches full.
const AT_A_TIME: usize = 32;

/// Creates every object of the cluster, namespaces first.
///
/// # Panics
/// The API server refuses one.
pub async fn fill(client: &Client, cluster: &Cluster) {
    create_all(client, cluster.namespace_objects()).await;
    let services = (0..cluster.services).map(|service| cluster.service_object(service));
    create_all(client, services).await;
    let slices = (0..cluster.services).filter_map(|service| cluster.slice_object(service));
    create_all(client, slices).await;
}

/// Creates these, many at a time and in no order.
///
/// # Panics
/// The API server refuses one.
pub async fn create_all(client: &Client, objects: impl IntoIterator<Item = Value>) {
    stream::iter(objects)
        .for_each_concurrent(AT_A_TIME, |object| async move {
            create_any(client, &object).await.expect("the API server takes it");
        })
        .await;
}

/// Writes the endpoints of this Service as they are now in `cluster`.
///
/// # Panics
/// The API server refuses them.
pub async fn patch_slice(client: &Client, cluster: &Cluster, service: usize) {
    let (namespace, slice) = (cluster.namespace(service), cluster.slice_name(service));
    patch_endpoints(client, &namespace, &slice, &cluster.endpoint_objects(service)).await;
}

/// Replaces the endpoints of a slice.
///
/// # Panics
/// The API server refuses them.
pub async fn patch_endpoints(client: &Client, namespace: &str, slice: &str, endpoints: &[Value]) {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({"endpoints": endpoints}));
    let patched = slices.patch(slice, &PatchParams::default(), &patch).await;
    patched.expect("the API server takes it");
}
