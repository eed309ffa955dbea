//! The probes of kube-dns' sidecar: each asks this server one question again and again, and keeps how that went.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crds::Config;
use crds::config::{Probe as Written, ProbeType};
use dataplane_core::{LookupKey, Name};
use dataplane_udp::{reachable, wildcard};
use serde::Serialize;
use tokio::net::UdpSocket;
use tokio::time::MissedTickBehavior;

use process::histogram::{Distribution, Durations, QUERY_BUCKETS, Writers};

/// How long a probe waits for its reply: as the sidecar did.
const PATIENCE: Duration = Duration::from_secs(2);
/// The labels that the manifests of kube-dns had.
const USUAL_LABELS: [&str; 2] = ["kubedns", "dnsmasq"];
/// The lowest bound of the sidecar's histogram in seconds, and how many there are; each is twice the one before.
const LOWEST_BOUND_S: f64 = 0.000_25;
const BOUNDS: usize = 16;
/// Octets of the header of a message (RFC 1035 §4.1.1).
const HEADER: usize = 12;

/// One probe, and its results.
#[derive(Debug)]
pub struct Probe {
    /// What `/healthcheck/` and the names of its metrics end in.
    pub label: String,
    server: SocketAddr,
    name: Name,
    qtype: u16,
    interval: Duration,
    latency: Durations<QUERY_BUCKETS>,
    errors: AtomicU64,
    last: Mutex<Last>,
}

/// How the last question went, as the sidecar wrote it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Last {
    is_ok: bool,
    latency_seconds: f64,
    err: Option<String>,
}

impl Probe {
    /// Those of the configuration, else those that the manifests of kube-dns had. `own` is where this process answers.
    pub fn all(config: &Config, own: SocketAddr) -> Vec<Arc<Probe>> {
        // SRV, as later manifests: that Service may have an IPv6 address only, and then it has no A record.
        let usual = |label: &str| Written {
            label: label.to_owned(),
            name: format!("kubernetes.default.svc.{}", config.domain),
            qtype: ProbeType::SRV,
            ..Written::default()
        };
        let written = match config.metrics.probes.is_empty() {
            true => USUAL_LABELS.map(usual).to_vec(),
            false => config.metrics.probes.clone(),
        };
        // `check` has refused names that cannot be one.
        written.into_iter().filter_map(|it| Probe::new(it, own).map(Arc::new)).collect()
    }

    fn new(written: Written, own: SocketAddr) -> Option<Probe> {
        let Written { label, name, qtype, interval_seconds } = written;
        Some(Probe {
            label,
            server: reachable(own),
            name: Name::from_text(&name).ok()?,
            qtype: number(qtype),
            interval: Duration::from_secs(interval_seconds.max(1).into()),
            latency: Durations::default(),
            errors: AtomicU64::default(),
            last: Mutex::new(Last {
                is_ok: false,
                latency_seconds: 0.0,
                err: Some("not asked yet".to_owned()),
            }),
        })
    }

    /// Whether the last question was answered, and that in the words of the sidecar.
    pub fn report(&self) -> (bool, String) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (last.is_ok, serde_json::to_string(&last).unwrap_or_default())
    }

    /// Times of the replies in milliseconds.
    pub fn latency_ms(&self) -> Distribution {
        self.latency.read().coarser(LOWEST_BOUND_S, BOUNDS).in_ms()
    }

    /// Questions without an answer.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    fn note(&self, latency: Duration, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.latency.add(latency, Writers::Several),
            Err(_) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
            }
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Last {
            is_ok: outcome.is_ok(),
            latency_seconds: latency.as_secs_f64(),
            err: outcome.err(),
        };
    }
}

/// Asks until it is ended: at once, then in each interval.
pub async fn repeat(probe: Arc<Probe>) {
    let mut ticks = tokio::time::interval(probe.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut id: u16 = 0;
    loop {
        ticks.tick().await;
        id = id.wrapping_add(1);
        let began = Instant::now();
        let outcome = match tokio::time::timeout(PATIENCE, ask(&probe, id)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("no reply within {} s", PATIENCE.as_secs())),
        };
        probe.note(began.elapsed(), outcome);
    }
}

async fn ask(probe: &Probe, id: u16) -> Result<(), String> {
    let query = LookupKey::new(probe.name.clone(), probe.qtype, false, false).upstream_query(id);
    let exchange = async {
        let socket = UdpSocket::bind((wildcard(probe.server.ip()), 0)).await?;
        socket.connect(probe.server).await?;
        socket.send(&query.wire).await?;
        let mut buffer = [0; HEADER];
        let octets = socket.recv(&mut buffer).await?;
        std::io::Result::Ok((octets, buffer))
    };
    let (octets, header) = exchange.await.map_err(|error| error.to_string())?;
    judge(id, header.get(..octets).unwrap_or_default())
}

/// As in the sidecar, a reply with an answer record is good.
fn judge(id: u16, header: &[u8]) -> Result<(), String> {
    let [high, low, flags, codes, _, _, answers_high, answers_low, ..] = *header else {
        return Err("the reply is shorter than a header".to_owned());
    };
    if u16::from_be_bytes([high, low]) != id || flags & 0x80 == 0 {
        return Err("the reply is to another question".to_owned());
    }
    match (codes & 0x0f, u16::from_be_bytes([answers_high, answers_low])) {
        (0, 0) => Err("the reply has no answer record".to_owned()),
        (0, _) => Ok(()),
        (code, _) => Err(format!("the response code is {code}")),
    }
}

const fn number(qtype: ProbeType) -> u16 {
    match qtype {
        ProbeType::A => 1,
        ProbeType::AAAA => 28,
        ProbeType::SRV => 33,
        ProbeType::ANY => 255,
    }
}

#[cfg(test)]
mod tests {
    use dataplane_core::{
        Action, CacheCounters, Change, Counters, DataSource, Identity, Index, Key, Object,
        Protocol, Query, Resource, Service, ServiceKind, ServicePort, Transport, WorkerCounters,
        respond,
    };

    use super::*;

    fn probe() -> Probe {
        let config = Config::default();
        let mut all = Probe::all(&config, SocketAddr::from(([0, 0, 0, 0], 53)));
        Arc::into_inner(all.remove(0)).expect("ours alone")
    }

    #[test]
    fn without_probes_of_the_resource_there_are_those_of_the_manifests_of_kube_dns() {
        let all = Probe::all(&Config::default(), SocketAddr::from(([0, 0, 0, 0], 5300)));
        let labels: Vec<&str> = all.iter().map(|probe| probe.label.as_str()).collect();
        assert_eq!(labels, ["kubedns", "dnsmasq"]);
        assert_eq!(all[0].server, SocketAddr::from(([127, 0, 0, 1], 5300)));
        assert_eq!(all[0].name.to_string(), "kubernetes.default.svc.cluster.local.");
        assert_eq!((all[0].qtype, all[0].interval), (33, Duration::from_secs(5)));
    }

    #[test]
    fn rr32_the_usual_probes_succeed_in_a_cluster_of_one_family_whichever_it_is() {
        for cluster_ip in ["10.96.0.1", "fd00:96::1"] {
            for probe in Probe::all(&Config::default(), SocketAddr::from(([127, 0, 0, 1], 53))) {
                let key = LookupKey::new(probe.name.clone(), probe.qtype, false, false);
                let reply = reply_to(&key.upstream_query(7).wire, cluster_ip);
                assert_eq!(judge(7, &reply), Ok(()), "{} {cluster_ip}", probe.label);
            }
        }
    }

    /// What is answered in a cluster whose Service `kubernetes` has this address.
    fn reply_to(query: &[u8], cluster_ip: &str) -> Vec<u8> {
        let mut index = Index::new(crate::settings::of(&Config::default()).unwrap());
        index.apply(Change::Apply(Object::Service(Service {
            key: Key::new("default", "kubernetes"),
            uid: 1,
            version: 1,
            labels: Vec::new(),
            kind: ServiceKind::ClusterIp(vec![cluster_ip.parse().unwrap()]),
            ports: vec![ServicePort { name: "https".into(), port: 443, protocol: Protocol::Tcp }],
        })));
        for resource in Resource::ALL {
            index.end_list(resource, 0, DataSource::Live);
        }
        index.publish(1);
        let counters = Counters {
            own: &WorkerCounters::default(),
            all: &[],
            servers: &[],
            cache: &CacheCounters::default(),
            identity: &Identity::default(),
        };
        let query = Query {
            packet: query,
            client: SocketAddr::from(([127, 0, 0, 1], 1024)),
            transport: Transport::Udp,
            now_s: 0,
            seed: 0,
        };
        let mut buffer = vec![0; 4096];
        match respond(&index.records(), &query, &counters, &mut buffer) {
            (Action::Reply(length), _) => buffer[..length.min(HEADER)].to_vec(),
            (Action::Drop | Action::Forward(_), reason) => panic!("{reason:?}"),
        }
    }

    #[test]
    fn a_reply_is_good_if_it_has_an_answer_record() {
        let header = |flags: u8, code: u8, answers: u8| {
            judge(7, &[0, 7, flags, code, 0, 1, 0, answers, 0, 0, 0, 0])
        };
        assert_eq!(header(0x84, 0x80, 1), Ok(()));
        assert_eq!(header(0x84, 0x80, 0), Err("the reply has no answer record".into()));
        assert_eq!(header(0x84, 0x83, 1), Err("the response code is 3".into()));
        assert_eq!(header(0x04, 0x80, 1), Err("the reply is to another question".into()));
        assert!(judge(8, &[0, 7, 0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0]).is_err());
        assert!(judge(7, &[0, 7]).is_err());
    }

    #[test]
    fn the_report_is_that_of_the_sidecar_and_the_bounds_are_in_milliseconds() {
        let probe = probe();
        assert_eq!(
            probe.report(),
            (false, r#"{"IsOk":false,"LatencySeconds":0.0,"Err":"not asked yet"}"#.to_owned())
        );
        probe.note(Duration::from_micros(500), Ok(()));
        assert_eq!(
            probe.report(),
            (true, r#"{"IsOk":true,"LatencySeconds":0.0005,"Err":null}"#.to_owned())
        );
        probe.note(Duration::from_secs(2), Err("no reply within 2 s".to_owned()));
        assert!(!probe.report().0);
        let latency = probe.latency_ms();
        assert_eq!((latency.count(), probe.errors()), (1, 1));
        assert_eq!((latency.buckets.len(), latency.buckets[0].0), (16, 0.25));
        assert_eq!((latency.buckets[1], latency.buckets[15].0), ((0.5, 1), 8192.0));
    }
}
