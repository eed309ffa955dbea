//! Kubeconfig files: the address and the identity of every client of a control plane under test.

use std::path::Path;

use anyhow::Context;
use kube::config::Kubeconfig;
use serde_json::{Value, json};

/// The `cluster` part: an address, and what vouches for it.
pub(crate) fn cluster(server: &str, authority_file: &Path) -> Value {
    json!({"server": server, "certificate-authority": authority_file})
}

/// The `cluster` part that the current context of an existing file names.
pub(crate) fn cluster_of(kubeconfig: &Path) -> anyhow::Result<Value> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let current = config.current_context.as_deref().context("no current-context")?;
    let context = config.contexts.iter().find(|context| context.name == current);
    let context = context
        .and_then(|named| named.context.as_ref())
        .context("current-context names no context")?;
    let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let cluster =
        cluster.and_then(|named| named.cluster.as_ref()).context("the context names no cluster")?;
    Ok(serde_json::to_value(cluster)?)
}

/// A whole file, as JSON, which is YAML too. Without a token it carries no identity at all.
pub(crate) fn document(cluster: &Value, token: Option<&str>) -> String {
    of_user(
        cluster,
        &match token {
            Some(token) => json!({"token": token}),
            None => json!({}),
        },
    )
}

/// The same with the token in a file.
pub(crate) fn document_with_token_file(cluster: &Value, file: &Path) -> String {
    of_user(cluster, &json!({"tokenFile": file}))
}

fn of_user(cluster: &Value, user: &Value) -> String {
    let document = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    });
    format!("{document:#}")
}
