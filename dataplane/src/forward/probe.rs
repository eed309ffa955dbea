//! Asks servers whether they are up (FW27, FW28) and whether they lead back to us (FW50), away from every lookup.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dataplane_core::{LookupKey, Name, RelayError, TtlCaps};
use tokio::time::{sleep_until, timeout};

use super::attempt::{self, AttemptResult, Question};
use super::plan::Transport;
use super::server::{Heard, Server};
use super::upstreams::{Group, Upstreams};
use super::{now, random};
use crate::state::State;

/// A probe without a reply has failed (FW27).
const PATIENCE: Duration = Duration::from_secs(1);
/// Between looks: a new configuration is seen within this.
const LOOK: Duration = Duration::from_secs(1);
const TXT: u16 = 16;
/// The name that only a ClusterDNS answers (A43).
const LOOP_ZONE: &str = "clusterdns-loop";

/// Probes the servers of the published configuration, until it is dropped.
pub(super) async fn run(state: Arc<State>) {
    loop {
        let upstreams = Arc::clone(&state.published.load().upstreams);
        let next = probe_due(&upstreams, now());
        let woken = upstreams.registry.common.woken.notified();
        tokio::select! {
            () = woken => {}
            () = sleep_until(next.into()) => {}
        }
    }
}

/// Begins every probe that is due; returns when to look again.
pub(super) fn probe_due(upstreams: &Upstreams, now: Instant) -> Instant {
    let mut next = now + LOOK;
    for group in upstreams.groups() {
        let is_alone = group.is_down();
        for server in &group.servers {
            match server.probe_at(is_alone, now) {
                Some(at) if at <= now => probe(group, server, now),
                Some(at) => next = next.min(at),
                None => {}
            }
        }
    }
    for server in upstreams.known() {
        match server.loop_probe_at(now) {
            Some(at) if at <= now => loop_probe(server),
            Some(at) => next = next.min(at),
            None => {}
        }
        server.pool.sweep(now);
    }
    upstreams.registry.sweep_former(now);
    next
}

fn probe(group: &Arc<Group>, server: &Arc<Server>, now_at: Instant) {
    let edns = server.probe(now_at);
    let (group, server) = (Arc::clone(group), Arc::clone(server));
    tokio::spawn(async move {
        match ask(&group.probe, &server, edns).await {
            Some((heard, _)) => server.probed(edns, heard, now()),
            None => server.probe_unsent(now()),
        }
    });
}

fn loop_probe(server: &Arc<Server>) {
    server.loop_probe();
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let label = format!("{:016x}{:016x}", random(), random());
        let leads_back = match Name::from_text(&format!("{label}.{LOOP_ZONE}")) {
            Ok(name) => {
                let key = LookupKey::new(name, TXT, false, true);
                match ask(&key, &server, true).await {
                    Some((Heard::Nothing, _)) | None => None,
                    Some((Heard::Good | Heard::Error, has_data)) => Some(has_data),
                }
            }
            Err(_) => None,
        };
        server.loop_probed(leads_back, now());
    });
}

/// The reply, and whether it has data. `None` if there was no port to ask from, so that the server was not asked.
async fn ask(key: &LookupKey, server: &Arc<Server>, edns: bool) -> Option<(Heard, bool)> {
    let question = Question { key, caps: &TtlCaps::default(), randomise_case: false };
    let transport = server.transport();
    let asked = async {
        match attempt::ask(question, server, transport, edns).await {
            AttemptResult::Distrusted if transport == Transport::Udp => {
                attempt::ask(question, server, Transport::Connection, edns).await
            }
            outcome => outcome,
        }
    };
    Some(match timeout(PATIENCE, asked).await {
        Ok(AttemptResult::NoPort) => return None,
        Ok(AttemptResult::Good(relayed)) => (Heard::Good, !relayed.is_negative()),
        Ok(AttemptResult::Error(RelayError::Rcode(_), _)) => (Heard::Error, false),
        // The Rcode is no error, which is what is asked (FW28).
        Ok(AttemptResult::Error(
            RelayError::Truncated
            | RelayError::Referral
            | RelayError::Chain
            | RelayError::Unrelated,
            _,
        )) => (Heard::Good, false),
        Ok(AttemptResult::Distrusted | AttemptResult::Unreachable) | Err(_) => {
            (Heard::Nothing, false)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crds::config::{self, Config, Group as GroupConfig, GroupOptions, Transport};

    use super::*;

    #[tokio::test]
    async fn fw27_without_a_port_to_probe_from_no_server_is_declared_down() {
        let server = config::Server {
            ip: [127, 0, 0, 1].into(),
            port: 53,
            transport: Transport::Udp,
            tls: None,
        };
        let group = GroupConfig { servers: vec![server], options: GroupOptions::default() };
        let mut config =
            Config { upstreams: config::Upstreams::Servers(group), ..Config::default() };
        config.limits.upstream_ports = 0;
        let upstreams = Upstreams::of(&config, Path::new(""));
        let server = &upstreams.known()[0];
        let now = now();
        for _ in 0..3 {
            server.send(true).unwrap().settle(Heard::Nothing);
        }
        probe_due(&upstreams, now);
        while server.probe_at(false, now).is_none() && server.is_up() {
            tokio::task::yield_now().await;
        }
        assert!(server.is_up());
        assert!(server.probe_at(false, now).is_some_and(|at| at > now), "it is tried again");
    }
}
