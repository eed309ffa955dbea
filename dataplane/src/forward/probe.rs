//! Asks servers whether they are up (FW27, FW28) and whether they lead back to us (FW50), away from every lookup.

mod failing;
mod forms;
mod ways;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use dataplane_core::{ErrorCodes, LookupKey, Name, RelayError, Relayed, TtlCaps, is_loop_answer};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::attempt::{self, AttemptResult, NO_CLIENT, Question, REFUSES_EDNS};
use super::connections::{Asker, HOLD_OFF};
use super::plan::Transport;
use super::server::{Found, Heard, OptHeard, Server};
use super::upstreams::{Group, Upstreams};
use super::{now, random};
use crate::state::State;

/// A probe without a reply has failed (FW27).
const PATIENCE: Duration = Duration::from_secs(1);
/// Questions of one probe, at most: of a server of many groups.
const MAX_QUESTIONS: usize = 4;
/// Between looks: a new configuration is seen within this.
const LOOK: Duration = Duration::from_secs(1);
const TXT: u16 = 16;
const SERVFAIL: u16 = 2;
const REFUSED: u16 = 5;
/// The Extended DNS Error of a ClusterDNS that has no server to ask, or no room (N16, N20).
const EDE_OTHER: u16 = 0;
/// Names below it are answered only by the replicas whose number they have (A43).
const LOOP_ZONE: &str = "clusterdns-loop";
/// Hexadecimal digits with which a ClusterDNS before this one answered every loop probe.
const OLDER_ANSWER: usize = 32;

/// Probes the servers of the published configuration, until it is dropped. `look` is given each configuration before.
pub(super) async fn run(state: Arc<State>, look: impl Fn(&Upstreams, Instant)) {
    loop {
        let (upstreams, replicas) = {
            let published = state.published.load();
            (Arc::clone(&published.upstreams), published.records.replicas())
        };
        look(&upstreams, now());
        let next = probe_due(&upstreams, replicas, now());
        let woken = upstreams.registry.common.woken.notified();
        tokio::select! {
            () = woken => {}
            () = sleep_until(next.into()) => {}
        }
    }
}

/// Begins every probe that is due; returns when to look again. `replicas` is the number that our replicas share.
pub(super) fn probe_due(upstreams: &Upstreams, replicas: u64, now: Instant) -> Instant {
    let mut next = now + LOOK;
    for group in upstreams.groups() {
        let is_alone = group.is_down();
        for server in &group.servers {
            match server.probe_at(is_alone, now) {
                Some(at) if at <= now => probe(questions(upstreams, server), server, now),
                Some(at) => next = next.min(at),
                None => {}
            }
        }
    }
    for due in [failing::probe_due(upstreams, now), forms::probe_due(upstreams, now)] {
        next = due.map_or(next, |at| next.min(at));
    }
    for server in upstreams.known() {
        match server.loop_probe_at(replicas, now) {
            Some(at) if at <= now => loop_probe(server, replicas),
            Some(at) => next = next.min(at),
            None => {}
        }
        server.pool.sweep(now);
    }
    upstreams.registry.sweep_former(now);
    next
}

/// The questions of the next probe of this server, one of each of its groups: where the names of one group get no reply, those
/// of another may get theirs (FW27). Where it has more groups than one probe asks for, a probe without a reply leaves it to the
/// next one to ask for others.
fn questions(upstreams: &Upstreams, server: &Arc<Server>) -> Vec<LookupKey> {
    let has = |group: &&Arc<Group>| group.servers.iter().any(|other| Arc::ptr_eq(other, server));
    let mut all: Vec<&LookupKey> =
        upstreams.groups().filter(has).map(|group| &group.probe).collect();
    if all.len() > MAX_QUESTIONS {
        let first = server.silent_probes() as usize * MAX_QUESTIONS % all.len();
        all.rotate_left(first);
    }
    all.into_iter().take(MAX_QUESTIONS).cloned().collect()
}

fn probe(questions: Vec<LookupKey>, server: &Arc<Server>, now_at: Instant) {
    let edns = server.probe(now_at);
    let server = Arc::clone(server);
    tokio::spawn(async move {
        // After a panic too the server must be probed again, which waits for what came of this one.
        let asked = server.common.guarded(ask_all(&questions, &server, edns)).await;
        let over = server.transport();
        let unsent = Asked { most: Probed::Unsent, all_refuse: false, over };
        ended(&server, edns, asked.unwrap_or(unsent));
    });
}

/// Takes what came of a probe of this form.
fn ended(server: &Server, edns: bool, asked: Asked) {
    let now = now();
    // One group's names say nothing of the OPT record, where a question of another group was not refused for it (FW25).
    let refuses = if asked.all_refuse { OptHeard::Refused } else { OptHeard::Unclear };
    if asked.over != server.transport() {
        // A refusal is heard over any transport.
        if asked.all_refuse && matches!(asked.most, Probed::Reply { with_edns: false, .. }) {
            server.refused_edns(now);
        }
        match asked.most {
            Probed::Reply { .. } => return server.probed_over_tcp(Heard::Good, now),
            Probed::Error(..) => return server.probed_over_tcp(Heard::Error, now),
            Probed::Unsent | Probed::Silent => {}
        }
    }
    match asked.most {
        Probed::Unsent => server.probe_unsent(now),
        Probed::Silent => server.probed(edns, Heard::Nothing, OptHeard::Unclear, now),
        error @ Probed::Error(..) if edns && error.refuses_edns() => {
            server.probed(edns, Heard::Error, refuses, now);
        }
        Probed::Error(..) => server.probed(edns, Heard::Error, OptHeard::Answered, now),
        Probed::Reply { with_edns: false, .. } if edns => {
            if asked.all_refuse {
                server.refused_edns(now);
            }
            server.probed(edns, Heard::Good, OptHeard::Unclear, now);
        }
        Probed::Reply { with_edns, .. } => {
            server.probed(with_edns, Heard::Good, OptHeard::Answered, now);
        }
    }
}

/// What came of the questions of one probe.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// What says most about the server.
    most: Probed,
    /// Each question was refused for its OPT record, as far as is known (FW25).
    all_refuse: bool,
    /// What the reply came over.
    over: Transport,
}

/// Asks all of it at the same time, so that a server of several groups is taken for down as soon as another one. What says most
/// counts: silence about some of it says nothing while another one could not be asked. After a reply only to a query without an
/// OPT record, the others are waited for: they say whether this was about that record.
async fn ask_all(questions: &[LookupKey], server: &Arc<Server>, edns: bool) -> Asked {
    let mut asked: FuturesUnordered<_> =
        questions.iter().map(|key| ways::ask(key, server, edns)).collect();
    let (mut most, mut all_refuse) = (None::<(Probed, Transport)>, true);
    while let Some((probed, refuses, over)) = asked.next().await {
        all_refuse &= refuses;
        if matches!(probed, Probed::Reply { with_edns, .. } if with_edns == edns) {
            return Asked { most: probed, all_refuse: false, over };
        }
        most = most.filter(|(most, _)| most.says() >= probed.says()).or(Some((probed, over)));
    }
    let (most, over) = most.unwrap_or((Probed::Unsent, server.transport()));
    Asked { most, all_refuse, over }
}

fn loop_probe(server: &Arc<Server>, replicas: u64) {
    let edns = server.loop_probe(replicas, now());
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let label = format!("{:016x}{:016x}", random(), random());
        let found = match Name::from_text(&format!("{label}.{replicas:016x}.{LOOP_ZONE}")) {
            Ok(name) => {
                let key = LookupKey::new(name, TXT, false, true);
                let asked = server.common.guarded(leads_back(&key, &server, edns)).await;
                asked.unwrap_or(Found::Nothing)
            }
            Err(_) => Found::Nothing,
        };
        server.loop_probed(found, now());
    });
}

/// What the reply to a loop probe shows. Nothing where the server was not asked, or is a ClusterDNS that could not ask its own
/// servers. Those may be left out because they lead back to it: if each of two thought
/// then that the loop is gone, both would begin it again at once. A server that refuses the OPT record is asked without it
/// (FW25): its refusal says nothing about loops.
async fn leads_back(key: &LookupKey, server: &Arc<Server>, edns: bool) -> Found {
    let over = server.asked_over();
    let mut probed = ask(key, server, over, edns).await;
    if edns && probed.refuses_edns() {
        probed = ask(key, server, over, false).await;
    }
    match probed {
        Probed::Unsent => Found::Nothing,
        Probed::Silent => Found::Silence,
        Probed::Error(SERVFAIL, codes) if codes.as_slice().contains(&EDE_OTHER) => Found::Unclear,
        Probed::Error(..) => Found::NoLoop,
        Probed::Reply { shows, .. } => shows,
    }
}

/// What this reply to a loop probe shows: only our replicas know their answer. In a rolling upgrade a pod of the program before
/// this one may have given its own, which is one more sign of a loop that is known, and none of another: a server may have such a
/// text for every name.
fn shows(probe: &LookupKey, reply: &Relayed) -> Found {
    match reply.only_text() {
        Some(text) if is_loop_answer(probe.name(), text) => Found::Loop,
        Some(text) if text.len() == OLDER_ANSWER && text.iter().all(u8::is_ascii_hexdigit) => {
            Found::Unclear
        }
        Some(_) | None => Found::NoLoop,
    }
}

/// What came of a probe.
#[derive(Clone, Copy, Debug)]
enum Probed {
    /// There was no port to ask from, or no place on a connection.
    Unsent,
    Silent,
    /// A response code that is an error, and the Extended DNS Errors beside it.
    Error(u16, ErrorCodes),
    Reply {
        /// What it shows if this was a loop probe.
        shows: Found,
        /// Whether the query had an OPT record.
        with_edns: bool,
    },
}

impl Probed {
    /// Whether this may be about the OPT record of the query (FW25).
    fn refuses_edns(self) -> bool {
        matches!(self, Probed::Error(rcode, _) if REFUSES_EDNS.contains(&rcode))
    }

    /// How much it says about the server, compared with what came of another question.
    fn says(self) -> u8 {
        match self {
            Probed::Silent => 0,
            Probed::Unsent => 1,
            Probed::Error(..) => 2,
            Probed::Reply { .. } => 3,
        }
    }

    /// The one of both that says more.
    fn or_more(self, other: Probed) -> Probed {
        if other.says() > self.says() { other } else { self }
    }
}

/// Asks as a client's query does: once more without the OPT record where the server refuses it (FW25), which is said too. Else a
/// server that is failing and refuses EDNS would stay failing until a client's query reaches it.
async fn ask_as_a_client(
    key: &LookupKey,
    server: &Arc<Server>,
    over: Transport,
    edns: bool,
) -> (Probed, bool) {
    let probed = ask(key, server, over, edns).await;
    if !edns || !probed.refuses_edns() {
        return (probed, false);
    }
    let without = ask(key, server, over, false).await;
    let probed = match (probed, without) {
        // What it refuses in both forms is not the OPT record.
        (Probed::Error(_, codes), Probed::Error(rcode, _)) if REFUSES_EDNS.contains(&rcode) => {
            Probed::Error(REFUSED, codes)
        }
        // It has replied, also where the second query gets no reply.
        _ => probed.or_more(without),
    };
    (probed, true)
}

/// Asks the server. In the pause after a connection that failed (FW54) nothing is sent, which would say no more than that
/// failure did: the probe waits for the end of the pause.
async fn ask(key: &LookupKey, server: &Arc<Server>, over: Transport, edns: bool) -> Probed {
    if let Some(probed) = ask_now(key, server, over, edns).await {
        return probed;
    }
    sleep(HOLD_OFF).await;
    // Another pause: another connection has failed meanwhile.
    ask_now(key, server, over, edns).await.unwrap_or(Probed::Silent)
}

/// `None` in that pause.
async fn ask_now(
    key: &LookupKey,
    server: &Arc<Server>,
    transport: Transport,
    edns: bool,
) -> Option<Probed> {
    let (caps, next, waits) = (TtlCaps::default(), CancellationToken::new(), AtomicBool::new(true));
    let asker = Asker { client: NO_CLIENT, next: &next, waits: &waits, is_repeat: false };
    let question = Question { key, caps: &caps, randomise_case: false, is_small: false };
    let asked = async {
        match attempt::ask(question, server, transport, edns, asker).await {
            AttemptResult::Distrusted if transport == Transport::Udp => {
                attempt::ask(question, server, Transport::Connection, edns, asker).await
            }
            outcome => outcome,
        }
    };
    Some(match timeout(PATIENCE, asked).await {
        Ok(AttemptResult::HeldOff) => return None,
        Ok(AttemptResult::NoPort | AttemptResult::NoPlace) => Probed::Unsent,
        Ok(AttemptResult::Good(relayed) | AttemptResult::Cut(relayed, _)) => {
            Probed::Reply { shows: shows(key, &relayed), with_edns: edns }
        }
        Ok(AttemptResult::Error(RelayError::Rcode(rcode), codes)) => Probed::Error(rcode, codes),
        // The Rcode is no error, which is what is asked (FW28).
        Ok(AttemptResult::Error(..)) => Probed::Reply { shows: Found::NoLoop, with_edns: edns },
        Ok(AttemptResult::Distrusted | AttemptResult::Unreachable) | Err(_) => Probed::Silent,
    })
}

#[cfg(test)]
mod tests;
