//! Subcommands and flags; each flag of `run` is also an environment variable.

mod choices;
mod compare;
mod examples;
mod import;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as Flags, Parser, Subcommand};

use crate::settings::{Allowed, DataPlane, Settings};
pub use choices::Format;
pub use compare::{Compare, CompareFormat};
pub use import::{Import, ImportFormat};
pub use process::log::{LogFormat, LogLevel};
use values::{base_url, dataplane_flag, image_entry, pull_policy, socket_address, variable};

/// The image of the data plane that is used where none is named: this version's. Both programs are in one image.
pub const DATAPLANE_IMAGE: &str = concat!("clusterdns:", env!("CARGO_PKG_VERSION"));

/// Runs, scales and monitors DNS for each ClusterDNS resource. It answers no
/// DNS question itself.
#[derive(Clone, Debug, Parser)]
#[command(name = "clusterdns-operator", version, after_help = examples::ALL, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Reconcile every ClusterDNS of a cluster until SIGTERM
    #[command(after_help = examples::RUN)]
    Run(Box<Run>),
    /// Print every object that a ClusterDNS would create, as YAML, without a cluster
    #[command(after_help = examples::RENDER)]
    Render(Render),
    /// Check ClusterDNS manifests: print errors and warnings
    #[command(after_help = examples::CHECK)]
    Check(CheckFlags),
    /// Make a ClusterDNS of the configuration of another DNS server, with a report of every line
    #[command(after_help = import::HELP)]
    Import(Import),
    /// Ask two DNS servers the same questions and say where they differ, and which differences are
    /// on purpose
    #[command(after_help = compare::HELP)]
    Compare(Compare),
}

/// Flags of `run`.
#[derive(Clone, Debug, Flags)]
pub struct Run {
    /// Image of the data plane where spec.image names none
    #[arg(
        long,
        value_name = "IMAGE",
        env = "CLUSTERDNS_DATAPLANE_IMAGE",
        default_value = DATAPLANE_IMAGE
    )]
    pub dataplane_image: String,

    /// When the image of the data plane is pulled: Always, IfNotPresent or Never [default: that of
    /// the API server]
    #[arg(long, value_name = "POLICY", env = "CLUSTERDNS_DATAPLANE_PULL_POLICY",
        value_parser = pull_policy)]
    pub dataplane_pull_policy: Option<String>,

    /// More flags of the data plane, one a line; not those that the operator sets itself
    #[arg(long, value_name = "FLAG", env = "CLUSTERDNS_DATAPLANE_ARGS", value_delimiter = '\n',
        allow_hyphen_values = true, value_parser = dataplane_flag)]
    pub dataplane_args: Vec<String>,

    /// Environment variables of the data plane, one a line
    #[arg(long, value_name = "NAME=VALUE", env = "CLUSTERDNS_DATAPLANE_ENV",
        value_delimiter = '\n', value_parser = variable)]
    pub dataplane_env: Vec<(String, String)>,

    /// Images that spec.image may name, separated by commas: repositories with any tag and digest,
    /// and what is below those that end in / [default: the repository of --dataplane-image]
    #[arg(long, value_name = "REPOSITORY", env = "CLUSTERDNS_ALLOWED_IMAGES",
        value_delimiter = ',', value_parser = image_entry)]
    pub allowed_images: Vec<String>,

    /// Keys with a prefix that spec.placement.podLabels may have, and prefixes that end in /,
    /// separated by commas. Keys without a prefix are always allowed [default: none]
    #[arg(long, value_name = "KEY", env = "CLUSTERDNS_ALLOWED_POD_LABELS", value_delimiter = ',')]
    pub allowed_pod_labels: Vec<String>,

    /// Keys with a prefix that spec.placement.podAnnotations may have; like --allowed-pod-labels [default: none]
    #[arg(
        long,
        value_name = "KEY",
        env = "CLUSTERDNS_ALLOWED_POD_ANNOTATIONS",
        value_delimiter = ','
    )]
    pub allowed_pod_annotations: Vec<String>,

    /// Secrets that listeners may have as certificates without the label
    /// clusterdns.dev/certificate: "true", separated by commas [default: none]
    #[arg(long, value_name = "SECRET", env = "CLUSTERDNS_CERTIFICATES", value_delimiter = ',')]
    pub certificates: Vec<String>,

    /// Namespaces in which it may create a data plane; another spec.service.namespace is refused.
    /// Separate by commas
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "CLUSTERDNS_WORKLOAD_NAMESPACES",
        value_delimiter = ',',
        default_value = crds::defaults::SERVICE_NAMESPACE
    )]
    pub workload_namespaces: Vec<String>,

    /// Names of the ClusterDNS that it may act on, separated by commas [default: any]
    #[arg(long, value_name = "NAME", env = "CLUSTERDNS_INSTANCES", value_delimiter = ',')]
    pub instances: Vec<String>,

    /// Namespace of the operator and of its lease: of several operators, the holder of the lease acts
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "CLUSTERDNS_NAMESPACE",
        default_value = "clusterdns-system"
    )]
    pub namespace: String,

    /// Take pods that do not answer out of their Service within seconds. It needs the right to patch pods/status, and the
    /// ValidatingAdmissionPolicy that narrows it
    #[arg(long, env = "CLUSTERDNS_LOST_PODS")]
    pub lost_pods: bool,

    /// The folder of the runbook pages as a URL: an alert links to URL/NAME.md [default: none, and alerts
    /// have no link]
    #[arg(long, value_name = "URL", env = "CLUSTERDNS_RUNBOOK_BASE_URL", value_parser = base_url)]
    pub runbook_base_url: Option<String>,

    /// Name of this process in the lease and in Events [default: POD_NAME, else the host's name]
    #[arg(long, value_name = "NAME", env = "CLUSTERDNS_POD_NAME")]
    pub pod_name: Option<String>,

    /// Node that it runs on: with --lost-pods, pods of other nodes stay in their Service where this node may be the one that
    /// is cut off [default: not known]
    #[arg(long, value_name = "NODE", env = "CLUSTERDNS_NODE_NAME")]
    pub node_name: Option<String>,

    /// Address and port of /livez, /readyz and /metrics. [::] is every address of both families,
    /// and 0.0.0.0 where the machine has no IPv6
    #[arg(long, value_name = "ADDR:PORT", env = "CLUSTERDNS_HTTP", default_value = "[::]:8080",
        value_parser = socket_address)]
    pub http: SocketAddr,

    /// Which cluster.
    #[command(flatten)]
    pub cluster: Cluster,

    /// Form of the log lines
    #[arg(long, value_enum, default_value_t = LogFormat::Text, env = "CLUSTERDNS_LOG_FORMAT")]
    pub log_format: LogFormat,

    /// Log lines that are written
    #[arg(long, value_enum, default_value_t = LogLevel::Info, env = "CLUSTERDNS_LOG_LEVEL")]
    pub log_level: LogLevel,
}

/// Which cluster.
#[derive(Clone, Debug, Default, Flags)]
pub struct Cluster {
    /// The cluster that this kubeconfig names [default: what KUBECONFIG names, else the service
    /// account of the pod]
    #[arg(long, value_name = "FILE", env = "CLUSTERDNS_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", env = "CLUSTERDNS_CONTEXT")]
    pub context: Option<String>,
}

/// Flags of `render`.
#[derive(Clone, Debug, Flags)]
pub struct Render {
    /// Manifests with ClusterDNS, folders of manifests, or patterns such as 'clusters/**/*.yaml'; `-`
    /// for standard input. Other kinds are skipped, and so are templates of Helm charts
    #[arg(short, long, value_name = "FILE", required = true, num_args = 1..)]
    pub file: Vec<PathBuf>,

    /// Image of the data plane where spec.image names none
    #[arg(
        long,
        value_name = "IMAGE",
        env = "CLUSTERDNS_DATAPLANE_IMAGE",
        default_value = DATAPLANE_IMAGE
    )]
    pub dataplane_image: String,

    /// Namespace of the operator, which a NetworkPolicy admits
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "CLUSTERDNS_NAMESPACE",
        default_value = "clusterdns-system"
    )]
    pub namespace: String,
}

/// Flags of `check`.
#[derive(Clone, Debug, Flags)]
pub struct CheckFlags {
    /// Manifests, folders of manifests, or patterns such as 'clusters/**/*.yaml'; `-` for standard
    /// input. Documents of other kinds are skipped, so the whole repository can be given. Templates of
    /// Helm charts are not read: check what `helm template` prints
    #[arg(short, long, value_name = "FILE", required = true, num_args = 1..)]
    pub file: Vec<PathBuf>,

    /// Form of the result: text for people, json for programs, sarif for pull requests
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub output: Format,

    /// Also read from a cluster whether its kubelets use these clusterIPs. Nothing is written to it.
    /// Without this flag no cluster is asked
    #[arg(long)]
    pub cluster: bool,

    /// Which cluster.
    #[command(flatten)]
    pub which: Cluster,
}

impl Run {
    /// As far as decisions need it. An empty name, as an empty variable gives, counts as not given.
    pub fn settings(&self) -> Settings {
        let named = |names: &[String]| -> Vec<String> {
            let names = names.iter().map(|name| name.trim().to_owned());
            names.filter(|name| !name.is_empty()).collect()
        };
        // Each has one set of watches.
        let mut workload_namespaces: Vec<String> = Vec::new();
        for namespace in named(&self.workload_namespaces) {
            if !workload_namespaces.contains(&namespace) {
                workload_namespaces.push(namespace);
            }
        }
        Settings {
            dataplane: DataPlane {
                image: self.dataplane_image.clone(),
                pull_policy: self.dataplane_pull_policy.clone().filter(|policy| !policy.is_empty()),
                args: named(&self.dataplane_args),
                env: self
                    .dataplane_env
                    .iter()
                    .filter(|(name, _)| !name.is_empty())
                    .cloned()
                    .collect(),
            },
            allowed: Allowed {
                images: named(&self.allowed_images),
                pod_labels: named(&self.allowed_pod_labels),
                pod_annotations: named(&self.allowed_pod_annotations),
                certificates: named(&self.certificates),
            },
            workload_namespaces,
            instances: named(&self.instances),
            own_namespace: Some(self.namespace.clone()),
            runbooks: self.runbook_base_url.clone().filter(|url| !url.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests;
