//! A scenario's objects in a running data plane: from a folder of manifests or from an API server, UDP and TCP on
//! loopback, and a scripted server instead of every upstream.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dataplane::forward::Forwarder;
use dataplane::metrics::{Form, Metrics, Sources};
use dataplane::readiness::Health;
use dataplane::serve::Serving;
use dataplane::source::api::{Api, Options, Wanted};
use dataplane::source::files::Files;
use dataplane::status::Status;
use serde_json::Value;

use super::{Outcome, folder, objects};
use crate::client::{self, Names, Transport};
use crate::live;
use crate::scratch::Scratch;
use crate::upstream::{Script, ScriptedUpstream};

/// Generous: a busy machine runs several control planes at once.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// The scripted twins, by the address that the configuration writes, in its order.
pub(crate) type Upstreams = Vec<(IpAddr, ScriptedUpstream)>;

/// A data plane that ends when dropped. Fields are dropped in order.
#[derive(Debug)]
pub struct Plane {
    serving: Serving,
    /// Where objects come from, if not from the folder.
    _api: Option<Api>,
    status: Arc<Status>,
    metrics: Metrics,
    upstreams: Upstreams,
    names: Names,
    _manifests: Scratch,
    _runtime: live::Background,
}

impl Plane {
    /// Serves the objects from a folder of manifests.
    ///
    /// # Errors
    /// The configuration is refused, an upstream has no script, or loopback has no free port.
    pub fn start(from: &[Value]) -> Result<Plane> {
        Plane::from(from, None)
    }

    /// Serves what this cluster has; of `from` only the ClusterDNS is used.
    ///
    /// # Errors
    /// As [`Plane::start`].
    pub fn watching(kubeconfig: &Path, from: &[Value]) -> Result<Plane> {
        let plane = Plane::from(from, Some(kubeconfig))?;
        let deadline = Instant::now() + READY_WITHIN;
        while !plane.status.read().is_answerable {
            anyhow::ensure!(Instant::now() < deadline, "{:#?}", plane.status.read());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(plane)
    }

    fn from(from: &[Value], kubeconfig: Option<&Path>) -> Result<Plane> {
        let upstreams = upstreams(from)?;
        let manifests = Scratch::new("scenario")?;
        let mut from = from.to_vec();
        if kubeconfig.is_some() {
            from.retain(|object| object["kind"] == "ClusterDNS");
        }
        let file = write(&manifests, from, &upstreams)?;

        let (setup, names) = live::setup(manifests.path());
        let status = setup.status.clone();
        let (state, configs, api) = match kubeconfig {
            None => {
                let files = Files::open(manifests.path(), setup)?;
                (files.state(), files.configs(), None)
            }
            Some(kubeconfig) => {
                let options = Options { wanted: Wanted::File(file), ..live::options(kubeconfig) };
                let api = Api::open(options, setup)?;
                (api.state(), api.configs(), Some(api))
            }
        };
        let forwarder = Forwarder::new();
        let (serving, runtime) = live::serve(state.clone(), forwarder.clone())?;
        let health = Arc::<Health>::default();
        health.serving();
        let metrics = Metrics::new(Sources {
            state,
            serving: serving.counters().clone(),
            forwarder,
            status: status.clone(),
            health,
            configs,
        });
        Ok(Plane {
            serving,
            metrics,
            _api: api,
            status,
            upstreams,
            names,
            _manifests: manifests,
            _runtime: runtime,
        })
    }

    /// Where it answers, UDP and TCP alike.
    pub fn address(&self) -> SocketAddr {
        self.serving.local_addrs()[0]
    }

    /// Where the scripted twin of an upstream listens.
    pub fn twin_of(&self, server: IpAddr) -> Option<SocketAddr> {
        let twin = self.upstreams.iter().find(|(address, _)| *address == server)?;
        Some(twin.1.address())
    }

    /// What a scraper reads in one of the forms of text.
    ///
    /// # Panics
    /// It asks for a form that is no text.
    pub fn metrics(&self, form: Form) -> String {
        String::from_utf8(self.metrics.page(form)).expect("a form of text")
    }

    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Asks one question; `silence` says that no reply is expected.
    ///
    /// # Errors
    /// The sockets fail, or an expected reply does not come.
    pub fn ask(&self, packet: &[u8], over: Transport, silence: bool) -> Result<Outcome> {
        ask(self.address(), &self.upstreams, packet, over, silence)
    }
}

/// Asks one question at an address, and says which twins were asked because of it.
pub(super) fn ask(
    server: SocketAddr,
    upstreams: &Upstreams,
    packet: &[u8],
    over: Transport,
    silence: bool,
) -> Result<Outcome> {
    let asked = |upstream: &ScriptedUpstream| upstream.asked().len();
    let before: Vec<usize> = upstreams.iter().map(|(_, twin)| asked(twin)).collect();
    let reply = match over {
        Transport::Udp => client::ask_udp(server, packet, silence),
        Transport::Tcp => client::ask_tcp(server, packet),
    }?;
    let after = upstreams.iter().zip(before);
    let forwarded_to = after
        .filter(|((_, twin), before)| asked(twin) > *before)
        .map(|((address, _), _)| *address)
        .collect();
    Ok(Outcome { reply, forwarded_to })
}

/// Writes objects as one manifest, their upstreams replaced by the twins.
pub(super) fn write(
    folder: &Scratch,
    mut objects: Vec<Value>,
    upstreams: &Upstreams,
) -> Result<PathBuf> {
    let twins: BTreeMap<IpAddr, SocketAddr> =
        upstreams.iter().map(|(address, twin)| (*address, twin.address())).collect();
    objects::redirect(&mut objects, &twins)?;
    let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
    Ok(folder.write("objects.yaml", documents.join("\n---\n"))?)
}

/// The scripted twin of every upstream server.
pub(crate) fn upstreams(objects: &[Value]) -> Result<Upstreams> {
    let text = std::fs::read_to_string(folder().join("upstreams.txt"))?;
    let mut scripts = Script::parse(&text)?;
    objects::upstream_servers(objects)?
        .into_iter()
        .map(|address| {
            let script =
                scripts.remove(&address).with_context(|| format!("no script for {address}"))?;
            Ok((address, ScriptedUpstream::start(script)?))
        })
        .collect()
}
