//! What people write after `kubectl clusterdns`. kubectl gives a plugin all words after its name, so the flags that
//! say which cluster are those of kubectl, read here.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as Flags, Parser, Subcommand, ValueEnum};

use crate::import::literals;

const EXAMPLES: &str = "\
Examples:
  Why does a pod get this answer for the name cart?
    kubectl clusterdns explain cart --from shop/web-0

  How is DNS, in one screen?
    kubectl clusterdns status

  Which names are asked most in the next 10 seconds?
    kubectl clusterdns top names

  What would an edit change?
    kubectl clusterdns diff -f dns.yaml

Rights: list clusterdnses, list pods in the namespace of the data plane, and get
and create pods/portforward there. docs/plugin.md has a Role.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  The questions of a pod for the name cart, in their order, each with its answer
  and why:
    kubectl clusterdns explain cart --from shop/web-0
  The same for an image with musl, such as Alpine:
    kubectl clusterdns explain cart --from shop/web-0 --libc musl
  One absolute name, without a pod:
    kubectl clusterdns explain _http._tcp.cart.shop.svc.cluster.local SRV
  With the resolv.conf that the pod really has:
    kubectl -n shop exec web-0 -- cat /etc/resolv.conf |
      kubectl clusterdns explain cart --resolv-conf -";

const STATUS_EXAMPLES: &str = "\
Example:
    kubectl clusterdns status --clusterdns default -o json";

const TOP_EXAMPLES: &str = "\
Examples:
  The names that are asked most within 30 seconds:
    kubectl clusterdns top names --for 30s
  The clients that ask most, and the names that do not exist:
    kubectl clusterdns top clients
    kubectl clusterdns top denials

Clients are shown by address. A data plane counts every query up to about 2,000
a second, and a random share above that. It stops by itself, half a minute after
--for.";

const DIFF_EXAMPLES: &str = "\
Examples:
  What an edit would change in the cluster of the kubeconfig:
    kubectl clusterdns diff -f dns.yaml
  What differs between two files, without a cluster:
    git show main:dns.yaml > before.yaml &&
      kubectl clusterdns diff -f dns.yaml --against before.yaml

The file is taken as the whole resource. Where it has only some of the hosts or
stub domains, because others apply the rest, compare it with its version before
(--against).

Exit status: 0 nothing would change, 1 something would, 2 that is not known.";

const COMPLETION_EXAMPLES: &str = "\
Examples:
  For `kubectl clusterdns`, with kubectl 1.26 or later, into a folder of PATH:
    kubectl clusterdns completion kubectl > \\
      ~/.local/bin/kubectl_complete-clusterdns
    chmod +x ~/.local/bin/kubectl_complete-clusterdns
  For `kubectl-clusterdns` itself:
    source <(kubectl-clusterdns completion bash)";

/// Asks the data planes of ClusterDNS why they answer as they do, and how they are. It writes
/// nothing, and uses your own rights.
#[derive(Clone, Debug, Parser)]
#[command(name = "kubectl-clusterdns", bin_name = "kubectl clusterdns", version,
    after_help = EXAMPLES, max_term_width = 100)]
pub struct Args {
    /// Which cluster, and which data plane of it.
    #[command(flatten)]
    pub which: Which,
    /// What to ask.
    #[command(subcommand)]
    pub command: Command,
}

/// What to ask.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Say which questions a name leads to, how each is answered, and why
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(Explain),
    /// Show pods, revisions, upstreams, cache and what is skipped, in one screen
    #[command(after_help = STATUS_EXAMPLES)]
    Status(Status),
    /// Show the names, clients or denied names that are asked most
    #[command(after_help = TOP_EXAMPLES)]
    Top(Top),
    /// Show what an edit of a ClusterDNS would change: settings, names and answers
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(Diff),
    /// Print a script for completion in a shell
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion(Completion),
}

/// Which cluster, and which data plane of it; the flags have the names that kubectl's have.
#[derive(Clone, Debug, Default, Flags)]
#[command(next_help_heading = "Cluster")]
pub struct Which {
    /// Kubeconfig [default: what KUBECONFIG names, else ~/.kube/config]
    #[arg(long, value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", global = true)]
    pub context: Option<String>,

    /// Cluster of the kubeconfig [default: that of the context]
    #[arg(long, value_name = "NAME", global = true)]
    pub cluster: Option<String>,

    /// User of the kubeconfig [default: that of the context]
    #[arg(long, value_name = "NAME", global = true)]
    pub user: Option<String>,

    /// Namespace of a pod that is named without one [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE", global = true)]
    pub namespace: Option<String>,

    /// User to impersonate
    #[arg(long = "as", value_name = "USER", global = true)]
    pub impersonate: Option<String>,

    /// Group to impersonate, with --as; may be repeated
    #[arg(long = "as-group", value_name = "GROUP", global = true)]
    pub impersonate_groups: Vec<String>,

    /// How long one request may take, such as 5s or 1m30s
    #[arg(long, value_name = "TIME", global = true, default_value = "20s",
        value_parser = duration)]
    pub request_timeout: Option<Duration>,

    /// The ClusterDNS, where there are several
    #[arg(long, value_name = "NAME", global = true)]
    pub clusterdns: Option<String>,

    /// The data plane's pod that is asked [default: one that is ready]
    #[arg(long, value_name = "[NAMESPACE/]POD", global = true)]
    pub pod: Option<String>,

    /// Ask the data plane whose HTTP port is here, such as 127.0.0.1:9153; no cluster is asked
    #[arg(long, value_name = "ADDR:PORT", global = true)]
    pub address: Option<SocketAddr>,
}

/// `explain`.
#[derive(Clone, Debug, Default, Flags)]
pub struct Explain {
    /// The name. With --from or --resolv-conf it is looked up as a program in a pod does; without, it
    /// is absolute
    #[arg(value_name = "NAME")]
    pub name: String,

    /// The type, such as SRV [default: A and AAAA for a pod, as getaddrinfo asks; else A]
    #[arg(value_name = "TYPE")]
    pub qtype: Option<String>,

    /// The pod that asks: its namespace, dnsPolicy and dnsConfig decide on the search list
    #[arg(long, value_name = "[NAMESPACE/]POD")]
    pub from: Option<String>,

    /// A resolv.conf in place of a pod's spec, `-` for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub resolv_conf: Option<PathBuf>,

    /// The address that asks, for access.clients [default: one that they let ask]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "from")]
    pub client: Option<IpAddr>,

    /// Search domains of the pod's node, separated by commas: kubelet adds them, and the API server
    /// does not know them
    #[arg(long, value_name = "DOMAIN", value_delimiter = ',', requires = "from")]
    pub node_search: Vec<String>,

    /// Whose rules the search follows
    #[arg(long, value_enum, default_value_t = Libc::Glibc)]
    pub libc: Libc,

    /// Form of the result
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// `status`.
#[derive(Clone, Copy, Debug, Default, Flags)]
pub struct Status {
    /// Form of the result
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// `top`.
#[derive(Clone, Copy, Debug, Flags)]
pub struct Top {
    /// What is counted
    #[arg(value_enum, default_value_t = TopKind::Names)]
    pub kind: TopKind,

    /// For how long, such as 10s or 5m; 570s at most
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub during: Duration,

    /// Rows that are shown
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub limit: usize,

    /// Form of the result
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// What `top` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TopKind {
    /// Names and types
    #[default]
    Names,
    /// Addresses of clients
    Clients,
    /// Names and types that are answered with NXDOMAIN
    Denials,
}

/// `diff`.
#[derive(Clone, Debug, Default, Flags)]
pub struct Diff {
    /// Manifest with the edited ClusterDNS, `-` for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,

    /// Manifest with the ClusterDNS as it is [default: the one of the cluster]
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,

    /// The address that asks for what is answered today [default: one that access.clients let ask]
    #[arg(long, value_name = "ADDRESS")]
    pub client: Option<IpAddr>,

    /// Form of the result
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// `completion`.
#[derive(Clone, Copy, Debug, Flags)]
pub struct Completion {
    /// The shell; kubectl: the program that kubectl asks
    #[arg(value_enum)]
    pub shell: Shell,
}

/// What completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// The program kubectl_complete-clusterdns
    Kubectl,
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Lines for a terminal
    #[default]
    Text,
    /// One JSON object
    Json,
}

/// The C library whose rules a search follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Libc {
    /// GNU libc 2.26 or later: Debian, Ubuntu, Red Hat, distroless
    #[default]
    Glibc,
    /// musl: Alpine
    Musl,
}

/// A time as kubectl reads it: seconds, or a duration of Go; 0 is none.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().map(Duration::from_secs);
    let nanoseconds = || literals::duration(text).filter(|it| *it >= 0.0);
    seconds
        .or_else(|| nanoseconds().map(|it| Duration::from_nanos(it as u64)))
        .ok_or_else(|| "write seconds such as 5, or a time such as 5s, 1m30s or 500ms".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_of_kubectl_may_stand_before_and_behind_the_subcommand() {
        for words in [
            ["x", "--context", "prod", "explain", "cart", "--as", "jane", "-n", "shop"],
            ["x", "explain", "cart", "--context", "prod", "-n", "shop", "--as", "jane"],
        ] {
            let Args { which, .. } = Args::try_parse_from(words).unwrap();
            assert_eq!(which.context.as_deref(), Some("prod"));
            assert_eq!(which.namespace.as_deref(), Some("shop"));
            assert_eq!(which.impersonate.as_deref(), Some("jane"));
        }
    }

    #[test]
    fn every_command_has_an_example() {
        let mut command = Args::command();
        command.build();
        for command in command.get_subcommands().filter(|it| it.get_name() != "help") {
            let help = command.clone().render_help().to_string();
            assert!(help.contains("Example"), "{help}");
        }
    }

    #[test]
    fn times_are_read_as_kubectl_reads_them() {
        for (text, milliseconds) in [
            ("0", 0),
            ("0s", 0),
            ("5", 5_000),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5s", 1_500),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "5d", "-1s", "-1", "1.5", "1m 30s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
