//! One start of a Pod's first container: what the spec says becomes a process in the Pod's network, in a root file
//! system of its own.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, Pod};
use kube::Client;
use kube::api::Api;

use super::sandbox::Sandbox;
use super::{Shared, volumes};
use crate::netns::{API_SERVER_ADDRESS, has_all_users};
use crate::process::Process;

/// The user of our image, where a Pod does not choose another.
const IMAGE_USER: i64 = 65532;
/// What a Pod's resolv.conf says with `dnsPolicy: ClusterFirst`: the Service, which has no proxy here.
const CLUSTER_DNS: &str =
    "nameserver 10.96.0.10\nsearch svc.cluster.local cluster.local\noptions ndots:5\n";

/// The folder of a Pod's volumes, below its own.
const VOLUMES: &str = "volumes";

/// ROOT PROGRAM USER HOSTNAME [FROM PATH ro|rw]... -- ARGUMENTS. It replaces itself by the program, so that signals for
/// it reach the program. Making something read-only is refused to users without root for some mounts.
const ENTER: &str = r#"set -eu
root=$1 program=$2 user=$3
{ echo "$4" >/proc/sys/kernel/hostname; } 2>/dev/null || true
shift 4
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir "$root/etc" "$root/tmp"
for folder in usr proc dev bin sbin lib lib64; do
    if [ -L "/$folder" ]; then
        ln -s "$(readlink "/$folder")" "$root/$folder"
    elif [ -d "/$folder" ]; then
        mkdir "$root/$folder"
        mount --rbind "/$folder" "$root/$folder"
    fi
done
: >"$root/${program##*/}"
mount --bind "$program" "$root/${program##*/}"
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then
        mkdir -p "$root$2"
    else
        mkdir -p "$(dirname "$root$2")"
        : >"$root$2"
    fi
    mount --bind "$1" "$root$2"
    [ "$3" = rw ] || mount -o remount,bind,ro "$root$2" 2>/dev/null || true
    shift 3
done
shift
# The mount, not the file system: that also works without root.
mount -o remount,bind,ro "$root"
if [ -n "$user" ]; then
    exec setpriv --no-new-privs chroot --userspec="$user" "$root" env -i "$@"
fi
exec chroot "$root" env -i "$@"
"#;

/// Starts it. What it prints is appended to the log of the Pod.
pub(super) async fn start(
    shared: &Shared,
    pod: &Pod,
    sandbox: &Sandbox,
    program: &Path,
    folder: &Path,
) -> Result<Process> {
    let spec = pod.spec.as_ref().context("a Pod has a spec")?;
    let container = spec.containers.first().context("a Pod has a container")?;
    let (root, mounted) = (folder.join("root"), folder.join(VOLUMES));
    std::fs::create_dir_all(&root)?;
    volumes::write(&shared.client, pod, &mounted).await?;
    let resolv_conf = folder.join("resolv.conf");
    let is_clusters = spec.dns_policy.as_deref() != Some("Default");
    let text = if is_clusters { CLUSTER_DNS } else { shared.settings.resolv_conf.as_str() };
    std::fs::write(&resolv_conf, text)?;

    let environment = environment(shared, pod, container, sandbox.addresses()).await?;
    let file = program.file_name().context("a program has a name")?.to_string_lossy();
    let mut words: Vec<String> = vec![format!("--net={}", sandbox.namespace().display())];
    words.extend(["unshare", "--mount", "--uts", "sh", "-c", ENTER, "sh"].map(str::to_owned));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let hostname = pod.metadata.name.clone().unwrap_or_default();
    words.extend([text(&root), text(program), user(pod, container), hostname]);
    words.extend([text(&resolv_conf), "/etc/resolv.conf".to_owned(), "ro".to_owned()]);
    for mount in container.volume_mounts.iter().flatten() {
        let mode = if mount.read_only == Some(true) { "ro" } else { "rw" };
        words.extend([text(&mounted.join(&mount.name)), mount.mount_path.clone(), mode.to_owned()]);
    }
    words.push("--".to_owned());
    words.extend(environment.iter().map(|(name, value)| format!("{name}={value}")));
    words.push(format!("/{file}"));
    // The program replaces the first word of the command.
    let command = container.command.iter().flatten().skip(1);
    let arguments = command.chain(container.args.iter().flatten());
    words.extend(arguments.map(|argument| expand(argument, &environment)));
    Process::start(Path::new("nsenter"), &words, folder)
}

/// Writes the volumes of a Pod that has been started again, by where its log is.
pub(super) async fn write_volumes(shared: &Shared, pod: &Pod, log: &Path) -> Result<()> {
    let folder = log.parent().context("a log is in a folder")?;
    volumes::write(&shared.client, pod, &folder.join(VOLUMES)).await
}

/// Where [`start`] leaves what the program prints.
pub(super) fn log_of(folder: &Path) -> PathBuf {
    folder.join("nsenter.log")
}

/// Empty where no user but root exists.
fn user(pod: &Pod, container: &Container) -> String {
    if !has_all_users() {
        return String::new();
    }
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let of_container = container.security_context.as_ref();
    let user = of_container
        .and_then(|context| context.run_as_user)
        .or_else(|| of_pod.and_then(|context| context.run_as_user))
        .unwrap_or(IMAGE_USER);
    let group = of_container
        .and_then(|context| context.run_as_group)
        .or_else(|| of_pod.and_then(|context| context.run_as_group))
        .unwrap_or(user);
    format!("{user}:{group}")
}

async fn environment(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    addresses: &[IpAddr],
) -> Result<BTreeMap<String, String>> {
    let port = shared.api_server_port.to_string();
    let mut environment = BTreeMap::from(
        [
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            ("KUBERNETES_SERVICE_HOST", API_SERVER_ADDRESS),
            ("KUBERNETES_SERVICE_PORT", &port),
            ("KUBERNETES_SERVICE_PORT_HTTPS", &port),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    for variable in container.env.iter().flatten() {
        let value = match &variable.value {
            Some(value) => Some(expand(value, &environment)),
            None => value_from(&shared.client, pod, container, variable, addresses).await?,
        };
        if let Some(value) = value {
            environment.insert(variable.name.clone(), value);
        }
    }
    Ok(environment)
}

async fn value_from(
    client: &Client,
    pod: &Pod,
    container: &Container,
    variable: &EnvVar,
    addresses: &[IpAddr],
) -> Result<Option<String>> {
    let Some(from) = &variable.value_from else { return Ok(Some(String::new())) };
    if let Some(wanted) = &from.field_ref {
        return field(pod, addresses, &wanted.field_path).map(Some);
    }
    if let Some(wanted) = &from.resource_field_ref {
        let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        let key = wanted.resource.trim_start_matches("limits.");
        let limit = limits.and_then(|limits| limits.get(key)).map_or("0", |limit| &limit.0);
        return quantity(limit).map(|value| Some(value.to_string()));
    }
    if let Some(wanted) = &from.config_map_key_ref {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let map = maps.get_opt(&wanted.name).await?;
        let value = map.and_then(|map| map.data?.remove(&wanted.key));
        let is_missing = value.is_none() && wanted.optional != Some(true);
        anyhow::ensure!(!is_missing, "no key {} in ConfigMap {}", wanted.key, wanted.name);
        return Ok(value);
    }
    bail!("the environment variable {} comes from something not played here", variable.name)
}

/// A field of the downward API.
pub(super) fn field(pod: &Pod, addresses: &[IpAddr], path: &str) -> Result<String> {
    let (metadata, spec) = (&pod.metadata, pod.spec.as_ref());
    let keyed = |map: &Option<BTreeMap<String, String>>, key: &str| {
        map.as_ref().and_then(|map| map.get(key).cloned()).unwrap_or_default()
    };
    let joined = || addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",");
    if let Some((map, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        return match map {
            "metadata.labels" => Ok(keyed(&metadata.labels, key)),
            "metadata.annotations" => Ok(keyed(&metadata.annotations, key)),
            _ => bail!("the downward API has no field {path}"),
        };
    }
    let value = match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        "status.podIP" => addresses.first().map(IpAddr::to_string),
        "status.podIPs" => Some(joined()),
        "status.hostIP" => Some(crate::netns::NODE_ADDRESS.to_owned()),
        _ => bail!("the downward API has no field {path}"),
    };
    Ok(value.unwrap_or_default())
}

/// `$(NAME)` becomes the variable's value, `$$(NAME)` stays as `$(NAME)`, and so does a name that is not set.
fn expand(text: &str, environment: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at..];
        let name = rest.strip_prefix("$(").and_then(|rest| rest.split_once(')'));
        if let Some(escaped) = rest.strip_prefix("$$") {
            expanded.push('$');
            rest = escaped;
        } else if let Some((value, after)) =
            name.and_then(|(name, after)| Some((environment.get(name)?, after)))
        {
            expanded.push_str(value);
            rest = after;
        } else {
            expanded.push('$');
            rest = &rest[1..];
        }
    }
    expanded + rest
}

/// Rounded up, as the downward API does with a divisor of 1.
fn quantity(text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().with_context(|| format!("the quantity {text}"))?;
    match &text[digits.len()..] {
        "" => Ok(number),
        "m" => Ok(number.div_ceil(1000)),
        "Ki" => Ok(number << 10),
        "Mi" => Ok(number << 20),
        "Gi" => Ok(number << 30),
        other => bail!("the unit {other} of a quantity"),
    }
}
