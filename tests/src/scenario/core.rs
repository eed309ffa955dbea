//! A scenario's objects in the core, in process: what `respond` decides; and for forwarded questions, a forwarder that
//! has neither time nor sockets and asks the scripts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use dataplane_core::{
    Action, Change, DataSource, Forward, Freshness, Index, Reason, Records, Resource, Transport,
    TtlCaps, Verdict,
};
use serde_json::Value;

use super::{Outcome, folder};
use crate::client;
use crate::in_process::{InProcess, NOW_S, identity};
use crate::upstream::Script;

/// No server answered, or only with errors (N18).
const NO_REACHABLE_AUTHORITY: u16 = 22;
const NETWORK_ERROR: u16 = 23;

/// The core with a scenario's objects, all of them live.
#[derive(Debug)]
pub struct Core {
    records: InProcess,
    /// Servers by group: the default upstreams, then the stub domains.
    groups: Vec<Vec<IpAddr>>,
    scripts: BTreeMap<IpAddr, Script>,
}

impl Core {
    /// Indexes the objects.
    ///
    /// # Errors
    /// The configuration is refused, or an object or script cannot be read.
    pub fn new(objects: &[Value]) -> Result<Core> {
        let config = config(objects)?;
        let settings = dataplane::settings::of(&config).map_err(|reason| anyhow!(reason))?;
        let mut index = Index::new(settings);
        for resource in Resource::ALL {
            index.begin_list(resource);
        }
        let text: Vec<String> = objects.iter().map(Value::to_string).collect();
        let (objects, skipped) = dataplane::source::objects_from_yaml(&text.join("\n---\n"))?;
        // Slices of names are skipped on purpose (DF35).
        if let Some(skipped) = skipped.iter().find(|it| !it.reason.contains("addressType FQDN")) {
            bail!("the source skips {skipped:?}");
        }
        for object in objects {
            index.apply(Change::Apply(object));
        }
        for resource in Resource::ALL {
            index.end_list(resource, 0, DataSource::Live);
        }
        index.publish(NOW_S);
        let scripts = std::fs::read_to_string(folder().join("upstreams.txt"))?;
        Ok(Core {
            records: InProcess::new(index.records()),
            groups: groups(&config),
            scripts: Script::parse(&scripts)?,
        })
    }

    /// The same, answering from other records.
    pub fn with_records(self, records: Arc<Records>) -> Core {
        Core { records: InProcess::new(records), ..self }
    }

    /// The same, forwarding to these servers instead of those of the scenarios.
    ///
    /// # Errors
    /// The scripts cannot be read.
    pub fn with_servers(self, scripts: &str) -> Result<Core> {
        Ok(Core { scripts: Script::parse(scripts)?, ..self })
    }

    pub fn names(&self) -> client::Names {
        client::Names::of(&identity())
    }

    /// Asks one question. The seed decides the rotation of RRsets (WR24).
    ///
    /// # Errors
    /// The question is forwarded to a server without a script.
    pub fn ask(&self, packet: &[u8], over: client::Transport, seed: u64) -> Result<Outcome> {
        let mut buffer = vec![0; 65_535];
        match self.decide(packet, over, seed, &mut buffer) {
            (Action::Reply(length), _) => {
                buffer.truncate(length);
                Ok(Outcome { reply: Some(buffer), forwarded_to: Vec::new() })
            }
            (Action::Drop, _) => Ok(Outcome::default()),
            (Action::Forward(forward), _) => self.forward(&forward, seed, buffer),
        }
    }

    pub fn decide<'a>(
        &'a self,
        packet: &'a [u8],
        over: client::Transport,
        seed: u64,
        buffer: &mut [u8],
    ) -> (Action<'a>, Reason) {
        let transport = match over {
            client::Transport::Udp => Transport::Udp,
            client::Transport::Tcp => Transport::Tcp,
        };
        self.records.decide(packet, transport, seed, buffer)
    }

    /// Asks the group's servers in order until one gives something that can be relayed.
    fn forward(&self, forward: &Forward<'_>, seed: u64, mut buffer: Vec<u8>) -> Result<Outcome> {
        let servers = self.groups.get(forward.group).context("there is no such group")?;
        let mut forwarded_to = Vec::new();
        let mut failure = NO_REACHABLE_AUTHORITY;
        for server in servers {
            forwarded_to.push(*server);
            let id = 0x1000 + forwarded_to.len() as u16;
            let query = forward.key.upstream_query(id);
            let script =
                self.scripts.get(server).with_context(|| format!("no script for {server}"))?;
            let Some(reply) = script.reply(&query.wire) else { continue };
            match forward.key.judge(id, &reply, &TtlCaps::default()) {
                Verdict::Good(relayed) => {
                    let fresh = Freshness::Fresh { age_s: 0 };
                    let length = relayed.write(&forward.head, fresh, seed, &mut buffer).octets;
                    buffer.truncate(length);
                    return Ok(Outcome { reply: Some(buffer), forwarded_to });
                }
                Verdict::Failed(_) => failure = NETWORK_ERROR,
                Verdict::Discard(discard) => bail!("the scripted reply is discarded: {discard:?}"),
            }
        }
        let length = forward.head.fail(failure, "", &mut buffer);
        buffer.truncate(length);
        Ok(Outcome { reply: Some(buffer), forwarded_to })
    }
}

/// The configuration as both planes read it.
///
/// # Errors
/// There is none, or it is refused.
pub fn config(objects: &[Value]) -> Result<crds::Config> {
    let resource = objects.iter().find(|object| object["kind"] == "ClusterDNS");
    let resource = resource.context("there is no ClusterDNS")?;
    let resource: crds::ClusterDNS = serde_json::from_value(resource.clone())?;
    crds::check_local(&resource).map_err(|violations| anyhow!("refused: {violations:?}"))
}

fn groups(config: &crds::Config) -> Vec<Vec<IpAddr>> {
    let servers = |group: &crds::config::Group| group.servers.iter().map(|s| s.ip).collect();
    let default = match &config.upstreams {
        crds::config::Upstreams::Servers(group) => servers(group),
        crds::config::Upstreams::FromResolvConf(_) | crds::config::Upstreams::None => Vec::new(),
    };
    let stub_domains = config.stub_domains.iter().map(|stub| servers(&stub.group));
    std::iter::once(default).chain(stub_domains).collect()
}
