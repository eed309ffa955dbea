//! Asks a server whether it is up (FW27). One that is asked over UDP is asked over TCP too where its UDP is silent: it may be that
//! only its UDP is lost on the way, or that it is silent about an OPT record.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dataplane_core::LookupKey;
use futures::future::{Either, select};
use tokio::time::{sleep, timeout};

use super::{PATIENCE, Probed, ask_as_a_client};
use crate::forward::plan::{Transport, USUAL};
use crate::forward::server::Server;

/// What came of the question, whether it was refused for its OPT record, and over what it came. A reply over TCP counts where none
/// came over UDP until then.
pub(super) async fn ask(
    key: &LookupKey,
    server: &Arc<Server>,
    edns: bool,
) -> (Probed, bool, Transport) {
    let own = server.transport();
    let first = pin!(ask_as_a_client(key, server, own, edns));
    if own == Transport::Connection {
        let (probed, refuses) = first.await;
        return (probed, refuses, own);
    }
    let over_tcp = pin!(ask_over_tcp(key, server, edns));
    match select(first, over_tcp).await {
        Either::Left(((Probed::Silent, refuses), over_tcp)) => match over_tcp.await {
            Some(probed) => (probed, false, Transport::Connection),
            None => (Probed::Silent, refuses, own),
        },
        Either::Left(((probed, refuses), _)) => (probed, refuses, own),
        Either::Right((Some(probed), _)) => (probed, false, Transport::Connection),
        Either::Right((None, first)) => {
            let (probed, refuses) = first.await;
            (probed, refuses, own)
        }
    }
}

/// The reply over TCP, if there is one within the time of the probe. The query leaves when that over UDP is overdue, or at once
/// where the UDP of the server is known to be silent.
async fn ask_over_tcp(key: &LookupKey, server: &Arc<Server>, edns: bool) -> Option<Probed> {
    let wait = match server.asked_over() {
        Transport::Udp => USUAL.interval,
        Transport::Connection => Duration::ZERO,
    };
    sleep(wait).await;
    let asked = ask_as_a_client(key, server, Transport::Connection, edns);
    let (probed, _) = timeout(PATIENCE - wait, asked).await.ok()?;
    matches!(probed, Probed::Reply { .. } | Probed::Error(..)).then_some(probed)
}
