//! The volumes of a Pod, as folders: what its container finds at the paths it mounts them at.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapProjection, DownwardAPIVolumeFile, KeyToPath, Pod, ServiceAccount,
    ServiceAccountTokenProjection, Volume,
};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::container::field;

/// Writes every volume of the Pod into a folder of its name; emptyDirs keep what they have. Done again before every
/// start of the container, which is when ConfigMaps and tokens are read.
///
/// # Errors
/// A ConfigMap that must be there is not (yet), or a kind of volume that no test has needed.
pub(super) async fn write(client: &Client, pod: &Pod, folder: &Path) -> Result<()> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    for volume in volumes.into_iter().flatten() {
        let place = folder.join(&volume.name);
        fs::create_dir_all(&place)?;
        // As a kubelet does, which cannot know the user of the program.
        fs::set_permissions(&place, Permissions::from_mode(0o777))?;
        let wrote = write_one(client, pod, volume, &place).await;
        wrote.with_context(|| format!("volume {}", volume.name))?;
    }
    Ok(())
}

async fn write_one(client: &Client, pod: &Pod, volume: &Volume, place: &Path) -> Result<()> {
    if volume.empty_dir.is_some() {
        return Ok(());
    }
    if let Some(map) = &volume.config_map {
        let projection = ConfigMapProjection {
            name: map.name.clone(),
            items: map.items.clone(),
            optional: map.optional,
        };
        return config_map(client, pod, &projection, place).await;
    }
    if let Some(downward) = &volume.downward_api {
        return fields(pod, downward.items.as_deref().unwrap_or_default(), place);
    }
    let Some(projected) = &volume.projected else {
        bail!("only emptyDir, configMap, downwardAPI and projected")
    };
    for source in projected.sources.iter().flatten() {
        if let Some(wanted) = &source.service_account_token {
            let token = token(client, pod, wanted).await?;
            put(place, &wanted.path, token)?;
        }
        if let Some(map) = &source.config_map {
            config_map(client, pod, map, place).await?;
        }
        if let Some(downward) = &source.downward_api {
            fields(pod, downward.items.as_deref().unwrap_or_default(), place)?;
        }
        anyhow::ensure!(source.secret.is_none(), "projected Secrets are not played");
    }
    Ok(())
}

async fn config_map(
    client: &Client,
    pod: &Pod,
    wanted: &ConfigMapProjection,
    place: &Path,
) -> Result<()> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let Some(map) = maps.get_opt(&wanted.name).await? else {
        anyhow::ensure!(wanted.optional == Some(true), "there is no ConfigMap {}", wanted.name);
        return Ok(());
    };
    let data = map.data.unwrap_or_default();
    let all = || {
        data.keys()
            .map(|key| KeyToPath { key: key.clone(), path: key.clone(), mode: None })
            .collect()
    };
    for item in wanted.items.clone().unwrap_or_else(all) {
        match data.get(&item.key) {
            Some(value) => put(place, &item.path, value)?,
            None if wanted.optional == Some(true) => {}
            None => bail!("ConfigMap {} has no key {}", wanted.name, item.key),
        }
    }
    Ok(())
}

fn fields(pod: &Pod, items: &[DownwardAPIVolumeFile], place: &Path) -> Result<()> {
    for item in items {
        let path = item.field_ref.as_ref().map(|field| field.field_path.as_str());
        put(place, &item.path, field(pod, &[], path.unwrap_or_default())?)?;
    }
    Ok(())
}

/// A token of the Pod's ServiceAccount that is good for as long as the Pod is there.
async fn token(
    client: &Client,
    pod: &Pod,
    wanted: &ServiceAccountTokenProjection,
) -> Result<String> {
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {
            "expirationSeconds": wanted.expiration_seconds,
            "audiences": wanted.audience.iter().collect::<Vec<_>>(),
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": pod.metadata.name, "uid": pod.metadata.uid},
        },
    });
    let account = account.unwrap_or("default");
    let made: Value =
        accounts.create_subresource("token", account, &PostParams::default(), &request).await?;
    made["status"]["token"].as_str().map(str::to_owned).context("no token in the reply")
}

/// Written under another name and renamed, so that a program that reads it meanwhile sees the old or the new content.
fn put(place: &Path, path: &str, content: impl AsRef<[u8]>) -> Result<()> {
    let file: PathBuf = place.join(path);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let partial = file.with_extension("partial");
    fs::write(&partial, content)?;
    Ok(fs::rename(partial, file)?)
}
