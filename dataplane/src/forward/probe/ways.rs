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
        Either::Left(((Probed::Silent, refuses), over_tcp)) => {
            of_both((Probed::Silent, refuses), over_tcp.await, own)
        }
        Either::Left(((probed, refuses), _)) => (probed, refuses, own),
        Either::Right((over_tcp, first)) => match over_tcp {
            Some((Probed::Reply { .. } | Probed::Error(..), _)) => {
                of_both((Probed::Silent, false), over_tcp, own)
            }
            Some((Probed::Silent | Probed::Unsent, _)) | None => {
                of_both(first.await, over_tcp, own)
            }
        },
    }
}

/// Where nothing came over UDP, what came over TCP counts.
fn of_both(
    (probed, refuses): (Probed, bool),
    over_tcp: Option<(Probed, bool)>,
    own: Transport,
) -> (Probed, bool, Transport) {
    match (probed, over_tcp) {
        (Probed::Silent, Some((probed, refuses))) => (probed, refuses, Transport::Connection),
        _ => (probed, refuses, own),
    }
}

/// The reply over TCP, if there is one within the time of the probe, and whether the question was refused for its OPT record. What
/// is asked over TCP first may also find no place there, which says nothing of the server. The query leaves when that over UDP is overdue, or at once
/// where the UDP of the server is known to be silent.
async fn ask_over_tcp(key: &LookupKey, server: &Arc<Server>, edns: bool) -> Option<(Probed, bool)> {
    let first = server.asked_over();
    let wait = match first {
        Transport::Udp => USUAL.interval,
        Transport::Connection => Duration::ZERO,
    };
    sleep(wait).await;
    let asked = ask_as_a_client(key, server, Transport::Connection, edns);
    let (probed, refuses) = timeout(PATIENCE - wait, asked).await.ok()?;
    let counts = match probed {
        Probed::Reply { .. } | Probed::Error(..) => true,
        Probed::Unsent => first == Transport::Connection,
        Probed::Silent => false,
    };
    counts.then_some((probed, refuses))
}
