//! The data plane's container: its command line, ports, probes and confinement.

use crds::defaults::DNS_PORT;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
    ObjectFieldSelector, Probe, ResourceRequirements, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::instance::Instance;
use super::{ports, volumes};

/// Also what `kubectl logs -c` names.
pub const CONTAINER: &str = "clusterdns";
/// Flags that the container has, or that the ports of pod and Service depend on.
pub const FLAGS: [&str; 13] = [
    "--config",
    "--config-map",
    "--config-dir",
    "--state-dir",
    "--pod-name",
    "--pod-uid",
    "--zone",
    "--region",
    "--drain-seconds",
    "--log-format",
    "--listen",
    "--http",
    "--manifests",
];
/// Environment variables that it has.
pub const VARIABLES: [&str; 4] = ["POD_NAME", "POD_UID", "POD_ZONE", "POD_REGION"];

/// Asks the C library of the image for large pages of memory where the node gives them on request
/// (`transparent_hugepage/enabled` is `madvise`): look-ups wait less for the addresses of pages. A data plane
/// refuses those of more than 2 MiB. An administrator's own value comes before it.
pub const LARGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
/// Where the image has the program; both planes are in one image.
const PROGRAM: &str = "/clusterdns-dataplane";

/// A pod is restarted, or taken out of the Service, only when it cannot serve, never because the API server is away. Two
/// seconds are enough for a connection whose first segment is lost, as in a flood: TCP sends it again after 1 s. A pod that
/// no longer answers is taken out after 6 to 7 s, one that answers 503, as in a drain, after 2 to 3 s. Each second, because
/// a pod that has just started is ready that much sooner.
const READINESS: Rhythm = Rhythm { delay: None, period: 1, failures: 3, timeout: 2 };
/// A minute without an answer, from a thread that does nothing else; two minutes after a start, for a bad disk. There is no
/// startup probe: `/livez` answers before anything is read, and kubelet would begin with readiness up to 1 s later.
const LIVENESS: Rhythm = Rhythm { delay: Some(60), period: 10, failures: 6, timeout: 5 };

/// When a probe begins, how often it asks, in seconds, and how often it may fail.
struct Rhythm {
    delay: Option<i32>,
    period: i32,
    failures: i32,
    timeout: i32,
}

pub(super) fn container(of: &Instance<'_>, resources: ResourceRequirements) -> Container {
    let image = of.dns.spec.image.as_ref().unwrap_or(&of.settings.dataplane.image);
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image.clone()),
        image_pull_policy: of.settings.dataplane.pull_policy.clone(),
        command: Some(vec![PROGRAM.to_owned()]),
        args: Some(arguments(of)),
        env: Some(environment(of)),
        ports: Some(of.ports().iter().map(container_port).collect()),
        liveness_probe: Some(probe("/livez", &LIVENESS)),
        readiness_probe: Some(probe("/readyz", &READINESS)),
        resources: Some(resources),
        security_context: Some(confinement()),
        volume_mounts: Some(volumes::mounts(of)),
        ..Container::default()
    }
}

/// Flags whose value is the default are written out only where a default of the data plane could change what the pod
/// promises. Log level and form follow the configuration, so they are not here.
fn arguments(of: &Instance<'_>) -> Vec<String> {
    let mut flags = vec![
        format!("--config-map={}/{}", of.namespace(), of.child),
        format!("--config-dir={}", volumes::CONFIGURATION),
        format!("--state-dir={}", volumes::STATE),
        "--pod-name=$(POD_NAME)".to_owned(),
        "--pod-uid=$(POD_UID)".to_owned(),
        format!("--drain-seconds={}", of.dns.spec.drain_seconds),
        "--log-format=json".to_owned(),
    ];
    if of.in_pods.needs_location {
        flags.extend(["--zone=$(POD_ZONE)".to_owned(), "--region=$(POD_REGION)".to_owned()]);
    }
    // Both families; the node may have only one of them; the data plane's default is the same on port 53.
    let port = of.service.pod_port;
    if u32::from(port) != DNS_PORT {
        flags.push(format!("--listen=0.0.0.0:{port},[::]:{port}"));
    }
    flags.extend(of.settings.dataplane.args.iter().cloned());
    flags
}

fn environment(of: &Instance<'_>) -> Vec<EnvVar> {
    let mut ours = vec![downward("POD_NAME", "metadata.name"), downward("POD_UID", "metadata.uid")];
    if of.in_pods.needs_location {
        let label = |name: &str| format!("metadata.labels['topology.kubernetes.io/{name}']");
        ours.push(downward("POD_ZONE", &label("zone")));
        ours.push(downward("POD_REGION", &label("region")));
    }
    let (name, value) = LARGE_PAGES;
    let added = &of.settings.dataplane.env;
    if added.iter().all(|(other, _)| other != name) {
        ours.push(plain(name, value));
    }
    ours.extend(added.iter().map(|(name, value)| plain(name, value)));
    ours
}

fn plain(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

fn downward(name: &str, path: &str) -> EnvVar {
    let field = ObjectFieldSelector { field_path: path.to_owned(), api_version: None };
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        value: None,
    }
}

fn container_port(port: &ports::Port) -> ContainerPort {
    ContainerPort {
        name: Some(port.name.to_owned()),
        container_port: port.pod.into(),
        protocol: Some(port.protocol.to_owned()),
        ..ContainerPort::default()
    }
}

fn probe(path: &str, rhythm: &Rhythm) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(ports::METRICS.to_owned()),
            ..HTTPGetAction::default()
        }),
        initial_delay_seconds: rhythm.delay,
        period_seconds: Some(rhythm.period),
        failure_threshold: Some(rhythm.failures),
        timeout_seconds: Some(rhythm.timeout),
        ..Probe::default()
    }
}

fn confinement() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    }
}
