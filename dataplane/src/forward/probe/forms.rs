//! Asks a server with an OPT record and without at the same time, over the transport of its configuration alone: whether its UDP
//! is silent, or silent about that record (FW25, FW27).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use dataplane_core::{LookupKey, TtlCaps};
use futures::future::{join, join_all};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, questions};
use crate::forward::attempt::{self, AttemptResult, NO_CLIENT, Question};
use crate::forward::connections::Asker;
use crate::forward::now;
use crate::forward::server::Server;
use crate::forward::upstreams::Upstreams;

/// Begins every probe that is due; returns when the next one is due.
pub(super) fn probe_due(upstreams: &Upstreams, now: Instant) -> Option<Instant> {
    let mut next = None::<Instant>;
    for server in upstreams.known() {
        match server.form_probe_at() {
            Some(at) if at <= now => probe(questions(upstreams, server), server),
            Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
            None => {}
        }
    }
    next
}

fn probe(questions: Vec<LookupKey>, server: &Arc<Server>) {
    server.form_probe();
    let server = Arc::clone(server);
    tokio::spawn(async move {
        let asked = join(is_heard(&questions, &server, true), is_heard(&questions, &server, false));
        // After a panic too the server must be probed again, which waits for what came of this one.
        let (with, without) = server.common.guarded(asked).await.unwrap_or_default();
        server.forms_probed(with, without, now());
    });
}

/// Whether any of the questions gets a reply in this form. `None`: it is not known.
async fn is_heard(questions: &[LookupKey], server: &Arc<Server>, edns: bool) -> Option<bool> {
    let heard = join_all(questions.iter().map(|key| ask(key, server, edns))).await;
    if heard.contains(&Some(true)) {
        return Some(true);
    }
    let all_are_silent = !heard.is_empty() && heard.iter().all(|heard| *heard == Some(false));
    all_are_silent.then_some(false)
}

async fn ask(key: &LookupKey, server: &Arc<Server>, edns: bool) -> Option<bool> {
    let (caps, next, waits) = (TtlCaps::default(), CancellationToken::new(), AtomicBool::new(true));
    let asker = Asker { client: NO_CLIENT, next: &next, waits: &waits, is_repeat: false };
    // Long replies over UDP may be lost on the way, which says nothing of OPT records (F20).
    let question = Question { key, caps: &caps, randomise_case: false, is_small: true };
    let asked = attempt::ask(question, server, server.transport(), edns, asker);
    match timeout(PATIENCE, asked).await {
        Ok(AttemptResult::Good(_) | AttemptResult::Cut(..) | AttemptResult::Error(..)) => {
            Some(true)
        }
        Ok(AttemptResult::Unreachable) | Err(_) => Some(false),
        // Others may have sent the wrong datagrams, and in the pause after a connection that failed nothing is sent (FW54).
        Ok(
            AttemptResult::Distrusted
            | AttemptResult::HeldOff
            | AttemptResult::NoPort
            | AttemptResult::NoPlace,
        ) => None,
    }
}
