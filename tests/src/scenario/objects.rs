//! The objects of a scenario: every YAML document of its `objects.yaml`.
//!
//! Two documents are not Kubernetes': the first may be `use: ../shop`, which takes every object of the manifests in that
//! folder, with a `spec` that is merged into that of their ClusterDNS (RFC 7396); and an `EndpointSliceSeries` stands
//! for many slices of consecutive addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

/// `use: ../shop`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Use {
    r#use: PathBuf,
    #[serde(default)]
    spec: Value,
}

/// Slices that are generated from a rule.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Series {
    metadata: Value,
    slices: u32,
    endpoints_per_slice: u32,
    first_address: Ipv4Addr,
    ports: Value,
}

/// The objects of a scenario's folder.
///
/// # Errors
/// Names the file that cannot be read and why.
pub fn read(folder: &Path) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in documents(&folder.join("objects.yaml"))? {
        if document.get("use").is_none() {
            objects.push(document);
            continue;
        }
        let used: Use = serde_json::from_value(document).context("a `use` document")?;
        let mut manifests = manifests(&folder.join(used.r#use))?;
        if !used.spec.is_null() {
            merge(configuration(&mut manifests)?, &used.spec);
        }
        objects.append(&mut manifests);
    }
    let mut expanded = Vec::new();
    for object in objects {
        match object["kind"].as_str() {
            Some("EndpointSliceSeries") => expanded.extend(series(object)?),
            Some(_) => expanded.push(object),
            None => bail!("{}: an object without a kind", folder.display()),
        }
    }
    Ok(expanded)
}

/// Every document of every YAML file of a folder, by file name.
fn manifests(folder: &Path) -> Result<Vec<Value>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .with_context(|| folder.display().to_string())?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let documents: Vec<Vec<Value>> = files.iter().map(|f| documents(f)).collect::<Result<_>>()?;
    Ok(documents.concat())
}

fn documents(file: &Path) -> Result<Vec<Value>> {
    let about = || file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(about)?;
    serde_saphyr::from_multiple(&text).with_context(about)
}

/// The spec of the ClusterDNS among the objects.
fn configuration(objects: &mut [Value]) -> Result<&mut Value> {
    let found = objects.iter_mut().find(|object| object["kind"] == "ClusterDNS");
    Ok(&mut found.context("there is no ClusterDNS to merge a `spec` into")?["spec"])
}

/// JSON merge patch, RFC 7396.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (field, value) in patch {
        if value.is_null() {
            target.as_object_mut().map(|object| object.remove(field));
        } else {
            merge(&mut target[field], value);
        }
    }
}

fn series(object: Value) -> Result<Vec<Value>> {
    let series: Series = serde_json::from_value(object).context("an EndpointSliceSeries")?;
    let first = u32::from(series.first_address);
    let conditions = json!({"ready": true, "serving": true, "terminating": false});
    let slice = |number: u32| {
        let mut metadata = series.metadata.clone();
        let name = metadata["name"].as_str().unwrap_or_default();
        metadata["name"] = format!("{name}-{}", number + 1).into();
        let from = first + number * series.endpoints_per_slice;
        let endpoints: Vec<Value> = (from..from + series.endpoints_per_slice)
            .map(
                |address| json!({"addresses": [Ipv4Addr::from(address)], "conditions": conditions}),
            )
            .collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
            "addressType": "IPv4", "ports": series.ports, "endpoints": endpoints,
        })
    };
    Ok((0..series.slices).map(slice).collect())
}

/// Every upstream server named in the ClusterDNS, each once.
pub fn upstream_servers(objects: &[Value]) -> Result<Vec<IpAddr>> {
    let mut servers = Vec::new();
    let mut objects = objects.to_vec();
    each_server(configuration(&mut objects)?, |server| {
        let address: IpAddr = server["address"].as_str().unwrap_or_default().parse()?;
        if !servers.contains(&address) {
            servers.push(address);
        }
        Ok(())
    })?;
    Ok(servers)
}

/// Replaces every upstream server by the address where its scripted twin listens.
///
/// # Errors
/// A server has no twin.
pub fn redirect(objects: &mut [Value], twins: &BTreeMap<IpAddr, SocketAddr>) -> Result<()> {
    each_server(configuration(objects)?, |server| {
        let address: IpAddr = server["address"].as_str().unwrap_or_default().parse()?;
        let twin = twins.get(&address).with_context(|| format!("no script for {address}"))?;
        *server = json!({"address": twin.ip(), "port": twin.port()});
        Ok(())
    })
}

fn each_server(spec: &mut Value, mut visit: impl FnMut(&mut Value) -> Result<()>) -> Result<()> {
    let stub_domains = spec["stubDomains"].as_array().map_or(0, Vec::len);
    let pointers = (0..stub_domains).map(|position| format!("/stubDomains/{position}/servers"));
    for pointer in std::iter::once("/upstreams/servers".to_owned()).chain(pointers) {
        let servers = spec.pointer_mut(&pointer).and_then(Value::as_array_mut);
        servers.into_iter().flatten().try_for_each(&mut visit)?;
    }
    Ok(())
}
