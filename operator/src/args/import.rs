//! Flags of `import`.

use std::path::PathBuf;

use clap::{Args as Flags, ValueEnum};

use super::Cluster;
use super::values::variable_of_import;

pub(super) const HELP: &str = "\
Examples:
  From a Corefile, or from the ConfigMap that holds it:
    clusterdns-operator import --corefile Corefile > dns.yaml
    kubectl -n kube-system get cm coredns coredns-custom \\
      --ignore-not-found -o yaml > coredns.yaml
    clusterdns-operator import --corefile coredns.yaml > dns.yaml

  From the cluster of a kubeconfig, for a trial beside the server that runs:
    clusterdns-operator import --from-cluster --name trial \\
      --service dns-trial > trial.yaml

Exit status: 0 a ClusterDNS was printed (read its report); 1 the input
cannot be converted; 2 something could not be read or written.";

/// Flags of `import`.
#[derive(Clone, Debug, Default, Flags)]
#[group(id = "sources", required = true, multiple = true, args = ["corefile", "kube_dns_config", "dnsmasq", "from_cluster"])]
pub struct Import {
    /// Corefile of CoreDNS or NodeLocal DNSCache, or manifests with its ConfigMaps and workloads;
    /// `-` for standard input
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub corefile: Vec<PathBuf>,

    /// Manifests with the ConfigMap of kube-dns, and its Deployment for the arguments of its
    /// containers
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub kube_dns_config: Vec<PathBuf>,

    /// Options of dnsmasq: words of a command line, lines as in dnsmasq.conf, or a hosts file
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub dnsmasq: Vec<PathBuf>,

    /// Read the Service of cluster DNS, its workloads and their ConfigMaps from a cluster. Nothing is
    /// written to it
    #[arg(long)]
    pub from_cluster: bool,

    /// Value of an environment variable that the Corefile names as {$NAME}
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable_of_import)]
    pub env: Vec<(String, String)>,

    /// metadata.name of the ClusterDNS
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub name: String,

    /// Service of the ClusterDNS. The one that pods ask today is adopted; another one is created
    /// beside it [default: kube-system/kube-dns, or what the cluster has]
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub service: Option<String>,

    /// The Service that pods ask today, where several look like it. Without --service it is
    /// adopted [default namespace: kube-system]
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub from_service: Option<String>,

    /// The Service exists already: write `adopt: true`, for any name
    #[arg(long)]
    pub adopt: bool,

    /// Cluster domain [default: what the configuration says, else cluster.local]
    #[arg(long, value_name = "DOMAIN")]
    pub domain: Option<String>,

    /// File of the report [default: standard error, also for `-`]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Form of the ClusterDNS and of the report: yaml and text for people, json for programs
    #[arg(short, long, value_enum, default_value_t = ImportFormat::Yaml)]
    pub output: ImportFormat,

    /// Which cluster.
    #[command(flatten)]
    pub which: Cluster,
}

/// Output format of `import`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// YAML, and one line of text for each line that was read
    #[default]
    Yaml,
    /// JSON, and one JSON object with all lines
    Json,
}
