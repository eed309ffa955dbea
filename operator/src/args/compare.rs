//! Flags of `compare`.

use std::path::PathBuf;

use clap::{Args as Flags, ValueEnum};

use super::Cluster;

pub(super) const HELP: &str = "\
Examples:
  A trial beside the server that pods ask today, with all names of the cluster:
    clusterdns-operator compare --with dns-trial --against kube-dns

  What clients really asked, from a log of CoreDNS and a capture:
    kubectl -n kube-system logs -l k8s-app=kube-dns --tail=-1 > coredns.log
    clusterdns-operator compare --with dns-trial --against kube-dns \\
      --questions coredns.log dns.pcap

  Without a cluster:
    clusterdns-operator compare --with 127.0.0.1:5300 --against 127.0.0.1:1053 \\
      --manifests shop.yaml

Exit status: 0 no difference, or only differences on purpose; 1 others; 2
something could not be read, not all names or questions were asked, nothing was
asked, or a question was answered by
neither server.";

/// Flags of `compare`.
#[derive(Clone, Debug, Flags)]
pub struct Compare {
    /// The ClusterDNS: an address, or a Service with a cluster IP [namespace of a Service:
    /// kube-system]
    #[arg(long, value_name = "ADDRESS[:PORT]|[NAMESPACE/]SERVICE")]
    pub with: String,

    /// The server that it is compared with
    #[arg(long, value_name = "ADDRESS[:PORT]|[NAMESPACE/]SERVICE")]
    pub against: String,

    /// Take Services and EndpointSlices from manifests, or folders of them, in place of the cluster
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub manifests: Vec<PathBuf>,

    /// Also ask what is in these files: our query log, a log of CoreDNS, pcap, pcapng or dnstap
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub questions: Vec<PathBuf>,

    /// Ask only what is in the files, not the names of the cluster
    #[arg(long, requires = "questions")]
    pub no_names: bool,

    /// Domain of the cluster
    #[arg(long, value_name = "DOMAIN", default_value = crds::defaults::DOMAIN)]
    pub domain: String,

    /// Questions a second to each server, at most
    #[arg(long, value_name = "NUMBER", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,

    /// Form of the report
    #[arg(short, long, value_enum, default_value_t = CompareFormat::Text)]
    pub output: CompareFormat,

    /// Which cluster.
    #[command(flatten)]
    pub which: Cluster,
}

/// The form of what `compare` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object
    Json,
}
