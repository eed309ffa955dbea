//! Flags, each also an environment variable.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

use crate::settings::Location;
use crate::source::api::{Credentials, Options, Pace, Wanted};
use crate::telemetry::{Fixed, LogFormat, LogLevel};

/// The default ports of DNS and of `/metrics` (that of CoreDNS, which scrapers know).
const DNS_PORT: u16 = 53;
const HTTP_PORT: u16 = 9153;

/// Largest --workers. More threads do not help: a few cores serve one cluster.
const MAX_WORKERS: u16 = 64;
/// Default workers: one per core up to this.
const DEFAULT_WORKERS: usize = 4;
/// Longest `--drain-seconds`: no pod is given longer to end.
const MAX_DRAIN_SECONDS: u64 = 3600;

const EXAMPLES: &str = "\
Examples:
  Serve a folder of Kubernetes manifests on a port that needs no permission:
    clusterdns-dataplane --manifests ./manifests \\
      --listen 127.0.0.1:5300 --http 127.0.0.1:9153

  The same on IPv6 too, showing the names that are served:
    clusterdns-dataplane --manifests ./manifests \\
      --listen 127.0.0.1:5300 --listen '[::1]:5300' \\
      --http 127.0.0.1:9153 --print-names

  Answer for a real cluster from a laptop; nothing is written to it:
    clusterdns-dataplane --kubeconfig ~/.kube/config \\
      --listen 127.0.0.1:5300 --http 127.0.0.1:9153

  Then ask:
    dig @127.0.0.1 -p 5300 kubernetes.default.svc.cluster.local

Over HTTP (--http): / (most of it on one page), /livez, /readyz (says why not),
/metrics, /config (what runs, what was refused or skipped), /upstreams; for
loopback only: /explain, /top.
SIGTERM drains (see --drain-seconds); Ctrl-C ends within a second.";

/// Answers DNS for a Kubernetes cluster: the names of its Services and Pods from memory, everything
/// else from upstream servers.
#[derive(Clone, Debug, Parser)]
#[command(name = "clusterdns-dataplane", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Args {
    /// Folder of Kubernetes manifests (YAML or JSON, searched recursively) to serve. Changes in it
    /// are live within a second. A ClusterDNS in it is the configuration
    #[arg(
        long,
        value_name = "DIR",
        env = "CLUSTERDNS_MANIFESTS",
        conflicts_with_all = ["kubeconfig", "context", "config_map", "config", "config_dir"]
    )]
    pub manifests: Option<PathBuf>,

    /// Watch the cluster that this kubeconfig names; nothing is written to it [default: what
    /// KUBECONFIG names, else the service account of the pod]
    #[arg(long, value_name = "FILE", env = "CLUSTERDNS_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", env = "CLUSTERDNS_CONTEXT")]
    pub context: Option<String>,

    /// ConfigMap with the configuration, as the operator writes it. Until it is known nothing is
    /// forwarded
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        env = "CLUSTERDNS_CONFIG_MAP",
        value_parser = object_name,
        conflicts_with = "config"
    )]
    pub config_map: Option<(String, String)>,

    /// File with a ClusterDNS, the configuration where there is no operator [default: an
    /// empty spec]
    #[arg(long, value_name = "FILE", env = "CLUSTERDNS_CONFIG")]
    pub config: Option<PathBuf>,

    /// Mounted copy of the ConfigMap: a start that finds a configuration there does not wait for the API server
    #[arg(long, value_name = "DIR", env = "CLUSTERDNS_CONFIG_DIR", requires = "config_map")]
    pub config_dir: Option<PathBuf>,

    /// Folder of the certificates of encrypted listeners: each in a folder of its Secret's name, as tls.crt and
    /// tls.key. They are read again when they change
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/etc/clusterdns/certificates",
        env = "CLUSTERDNS_CERTIFICATES_DIR"
    )]
    pub certificates_dir: PathBuf,

    /// Unix socket for dnstap messages; overrides spec.logging.dnstap [default: none]
    #[arg(long, value_name = "PATH", env = "CLUSTERDNS_DNSTAP_SOCKET")]
    pub dnstap_socket: Option<PathBuf>,

    /// Name of this pod, for NSID and hostname.bind [default: POD_NAME, else the host's name]
    #[arg(long, value_name = "NAME", env = "CLUSTERDNS_POD_NAME")]
    pub pod_name: Option<String>,

    /// uid of this pod: decides whether it tries a new configuration first
    #[arg(long, value_name = "UID", env = "CLUSTERDNS_POD_UID")]
    pub pod_uid: Option<String>,

    /// Zone of this pod's node, for federations whose zone the configuration does not say
    #[arg(long, value_name = "ZONE", env = "CLUSTERDNS_ZONE")]
    pub zone: Option<String>,

    /// Region of this pod's node, as --zone
    #[arg(long, value_name = "REGION", env = "CLUSTERDNS_REGION")]
    pub region: Option<String>,

    /// Random delay, at most this long, before a new configuration lists objects again, so that pods do not
    /// list at once
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        env = "CLUSTERDNS_LIST_SPREAD_SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=MAX_DRAIN_SECONDS),
        hide = true
    )]
    pub list_spread_seconds: u64,

    /// Address and port to answer on, UDP and TCP; repeat the flag, or separate by commas
    /// [default: 0.0.0.0:53 and [::]:53; a missing address family is skipped]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        env = "CLUSTERDNS_LISTEN",
        value_delimiter = ',',
        value_parser = socket_address
    )]
    pub listen: Vec<SocketAddr>,

    /// Address and port of /, /livez, /readyz, /metrics, /config, /upstreams, /explain and /top (the
    /// last two for loopback only) [default: port 9153 on every address]
    #[arg(long, value_name = "ADDR:PORT", env = "CLUSTERDNS_HTTP", value_parser = socket_address)]
    pub http: Option<SocketAddr>,

    /// Threads that answer UDP, for each address of --listen [default: the cores available, at most 4]
    #[arg(
        long,
        value_name = "N",
        env = "CLUSTERDNS_WORKERS",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_WORKERS))
    )]
    pub workers: Option<u16>,

    /// Form of the log lines. With --config-map it applies until the configuration is read, and
    /// spec.logging.format after that [default: spec.logging.format, for which the first lines wait;
    /// with --config-map json until it is read; always text on a terminal]
    #[arg(long, value_enum, env = "CLUSTERDNS_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Log lines that are written. With --config-map it applies until the configuration is read, and
    /// spec.logging.level after that [default: info, then spec.logging.level]
    #[arg(long, value_enum, env = "CLUSTERDNS_LOG_LEVEL")]
    pub log_level: Option<LogLevel>,

    /// How long queries are still answered after SIGTERM, so that no client loses a query before
    /// the cluster has noticed
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 20,
        env = "CLUSTERDNS_DRAIN_SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=MAX_DRAIN_SECONDS)
    )]
    pub drain_seconds: u64,

    /// Let another process of this user listen at the same addresses, so that it can take over: start it with this
    /// flag too and with another --http, and stop this one when that one is ready. No query over UDP
    /// is lost. Not for spec.listeners.quic
    #[arg(long, env = "CLUSTERDNS_SHARE_PORTS")]
    pub share_ports: bool,

    /// Folder of the snapshot (records and configuration) that a restart uses while the API server is
    /// away. It is written to all the time and must outlive the container, as an emptyDir
    /// does. Not with --manifests, which are read at every start anyway
    #[arg(long, value_name = "DIR", env = "CLUSTERDNS_STATE_DIR", conflicts_with = "manifests")]
    pub state_dir: Option<PathBuf>,

    /// Serve /cache on the HTTP port: cached upstream replies. It reveals which names clients asked for
    #[arg(long, env = "CLUSTERDNS_EXPOSE_CACHE")]
    pub expose_cache: bool,

    /// After start, print a table of the served names and example commands
    #[arg(long, requires = "manifests")]
    pub print_names: bool,
}

#[derive(Clone, Debug)]
pub enum Source {
    /// The folder of `--manifests`.
    Manifests(PathBuf),
    /// The API server of `--kubeconfig`, or of the cluster that we run in.
    Api(Box<Options>),
}

impl Args {
    /// Where the pod is, and of which ClusterDNS. Empty is unknown: so is the value of a label that the pod does not have.
    pub fn location(&self) -> Location {
        let known = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let named = |(namespace, name): &(String, String)| format!("{namespace}/{name}");
        Location {
            zone: known(&self.zone),
            region: known(&self.region),
            config_map: self.config_map.as_ref().map(named),
        }
    }

    /// Where objects come from: exactly one of a folder and an API server.
    ///
    /// # Errors
    /// No source was given, and there is no kubeconfig and no service account.
    pub fn source(&self) -> anyhow::Result<Source> {
        if let Some(folder) = &self.manifests {
            return Ok(Source::Manifests(folder.clone()));
        }
        let credentials = self.credentials().context(
            "no source of objects: --manifests DIR serves a folder, --kubeconfig FILE (or \
             KUBECONFIG) watches a cluster; a pod with a service account needs neither",
        )?;
        let wanted = match (&self.config_map, &self.config) {
            (Some((namespace, name)), _) => Wanted::ConfigMap {
                namespace: namespace.clone(),
                name: name.clone(),
                mounted: self.config_dir.clone(),
            },
            (None, Some(file)) => Wanted::File(file.clone()),
            (None, None) => Wanted::Defaults,
        };
        Ok(Source::Api(Box::new(Options {
            credentials,
            wanted,
            pod_uid: self.pod_uid.clone().filter(|uid| !uid.is_empty()),
            state_dir: self.state_dir.clone(),
            pace: Pace::with_spread(Duration::from_secs(self.list_spread_seconds)),
        })))
    }

    fn credentials(&self) -> Option<Credentials> {
        // As kubectl has it: the flag, then the variable. A flag for the variable itself would be
        // in the way of --manifests on every machine where it is set.
        let is_named = std::env::var_os("KUBECONFIG").is_some_and(|files| !files.is_empty());
        if self.kubeconfig.is_some() || self.context.is_some() || is_named {
            let (file, context) = (self.kubeconfig.clone(), self.context.clone());
            return Some(Credentials::Kubeconfig { file, context });
        }
        Credentials::are_in_cluster().then_some(Credentials::InCluster)
    }

    /// Where to answer: as asked, or every address of both families (the machine may lack one).
    pub fn listeners(&self) -> Vec<SocketAddr> {
        if !self.listen.is_empty() {
            return self.listen.clone();
        }
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        any.map(|address| SocketAddr::new(address, DNS_PORT)).to_vec()
    }

    /// Where HTTP may be, in order of preference: `[::]` serves both families where there are both.
    pub fn http_candidates(&self) -> Vec<SocketAddr> {
        match self.http {
            Some(address) => vec![address],
            None => {
                process::http::candidates(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), HTTP_PORT))
            }
        }
    }

    /// Threads that answer UDP on each address: `--workers`, else one per core, 4 at most.
    pub fn worker_count(&self) -> usize {
        match self.workers {
            Some(workers) => usize::from(workers),
            None => std::thread::available_parallelism()
                .map_or(1, |cores| cores.get().min(DEFAULT_WORKERS)),
        }
    }

    /// The flags about log lines that hold for as long as the process runs. If an operator writes the configuration,
    /// they hold only until it is known.
    pub fn fixed_logging(&self) -> Fixed {
        match self.config_map {
            Some(_) => Fixed::default(),
            None => Fixed { format: self.log_format, level: self.log_level },
        }
    }

    /// How long queries are answered after SIGTERM.
    pub fn drain_period(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }
}

/// Finds addresses of our own that exclude each other. The system would only say that the port is in use, not that we
/// use it.
impl Args {
    /// # Errors
    /// Which two, and what to write instead.
    pub fn check_addresses(&self) -> anyhow::Result<()> {
        for (place, later) in self.listen.iter().enumerate() {
            if let Some(earlier) = self.listen[..place].iter().find(|e| overlap(**e, *later)) {
                anyhow::bail!(
                    "--listen {earlier} and --listen {later} overlap: give one of them, or another port"
                );
            }
            if let Some(http) = self.http_candidates().iter().find(|http| covers(**http, *later)) {
                let http = match self.http {
                    Some(_) => format!("--http {http}"),
                    None => format!("the port of HTTP, {HTTP_PORT} unless --http says otherwise,"),
                };
                anyhow::bail!(
                    "{http} and --listen {later} overlap (DNS takes TCP too): give --http another port"
                );
            }
        }
        Ok(())
    }
}

/// True if both addresses cannot be bound together. Port 0: any free port.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_either_wild = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0
        && one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (is_either_wild || one.ip() == other.ip())
}

/// The same for HTTP, whose `[::]` is every IPv4 address too.
fn covers(http: SocketAddr, listen: SocketAddr) -> bool {
    let is_any = http.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    overlap(http, listen) || (is_any && http.port() != 0 && http.port() == listen.port())
}

/// Both end up in a path and a selector: only names that objects can have.
fn object_name(text: &str) -> Result<(String, String), String> {
    let is_name = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|o| o.is_ascii_lowercase() || o.is_ascii_digit() || b"-.".contains(&o))
    };
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        Some(_) | None => Err("write NAMESPACE/NAME, such as kube-system/clusterdns".to_owned()),
    }
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => format!("add a port: {text}:5300"),
        Ok(IpAddr::V6(_)) => format!("add brackets and a port: [{text}]:5300"),
        Err(_) => "write an IP address and a port, such as 127.0.0.1:5300 or [::1]:5300; names \
                   such as localhost are not looked up"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests;
