//! Whether the API server answers at all. A watch may rightly be silent for a minute, so its silence proves nothing;
//! small requests without an answer prove it (E24). TCP keepalive finds a dead peer as fast; only these requests
//! find one that hangs.
//!
//! A busy API server is not a hanging one: new watches would wait in the same queue as all requests do. So the requests are for
//! `/livez`, which API Priority and Fairness does not queue (its FlowSchema `probes`), and one lost request is not enough.

use std::rc::Rc;
use std::time::Duration;

use hyper::Request;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::timeout;

use super::client::ApiClient;

/// Time between two heartbeats.
const INTERVAL: Duration = Duration::from_secs(6);
/// A stream that received something within this time is alive, also if the heartbeat fails.
pub(super) const QUIET: Duration = Duration::from_secs(8);
/// How long one request waits.
const PATIENCE: Duration = Duration::from_secs(6);
/// Requests in a row without an answer, until the API server counts as gone.
const ATTEMPTS: u32 = 2;
/// How long it was silent then. At most 6 + 12 s pass until a hang is noticed, and 8 more if the stream had just spoken:
/// within the 30 s of E24.
pub(super) const SILENCE: Duration = PATIENCE.saturating_mul(ATTEMPTS);

/// Asks forever; counts up in `dead` whenever there is no answer. Any answer will do, a refusal too.
pub(super) async fn beat(client: Rc<ApiClient>, dead: watch::Sender<u64>) {
    let ask = async || {
        let request = Request::get("/livez").body(Body::empty()).expect("a well-formed request");
        // An error is an answer as well: the streams have met it themselves.
        let _ = client.client().send(request).await;
    };
    beat_by(ask, dead).await;
}

/// The same of a server that `ask` waits for.
async fn beat_by(ask: impl AsyncFn(), dead: watch::Sender<u64>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let mut silent = 0;
        while silent < ATTEMPTS && timeout(PATIENCE, ask()).await.is_err() {
            silent += 1;
        }
        if silent == ATTEMPTS {
            tracing::debug!("the API server does not answer");
            dead.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn e24_an_api_server_that_answers_every_second_request_is_not_gone() {
        let (dead, noticed) = watch::channel(0);
        let asked = Cell::new(0_u32);
        let ask = async || {
            asked.set(asked.get() + 1);
            match asked.get() % 2 {
                0 => tokio::time::sleep(PATIENCE / 2).await,
                _ => pending().await,
            }
        };
        let _ = timeout(Duration::from_secs(3_600), beat_by(ask, dead)).await;
        assert!(asked.get() > 200, "{}", asked.get());
        assert_eq!(*noticed.borrow(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn e24_a_hang_is_noticed_within_30_s_by_streams_that_had_just_spoken_too() {
        let (dead, mut noticed) = watch::channel(0);
        let (mut at, mut last) = (Vec::new(), Instant::now());
        let beating = beat_by(async || pending().await, dead);
        tokio::pin!(beating);
        while at.len() < 3 {
            tokio::select! {
                () = &mut beating => {}
                changed = noticed.changed() => {
                    changed.expect("it beats");
                    at.push(last.elapsed() + QUIET);
                    last = Instant::now();
                }
            }
        }
        assert!(at.iter().all(|after| *after <= Duration::from_secs(28)), "{at:?}");
    }
}
