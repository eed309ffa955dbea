//! Whether the API server answers at all. A watch may rightly be silent for a minute, so its silence proves nothing;
//! a small request without an answer proves it (E24). TCP keepalive finds a dead peer as fast; only this request
//! finds one that hangs.

use std::rc::Rc;
use std::time::Duration;

use hyper::Request;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::timeout;

use super::client::ApiClient;

/// Time between two requests.
const INTERVAL: Duration = Duration::from_secs(8);
/// A stream that received something within this time is alive, also if the heartbeat fails.
pub(super) const QUIET: Duration = Duration::from_secs(8);
/// How long it waits. At most 8 + 10 s pass until a hang is noticed, and 8 more if the stream had
/// just spoken: within the 30 s of E24.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Asks forever; counts up in `dead` whenever there is no answer. Any answer will do, a refusal too.
pub(super) async fn beat(client: Rc<ApiClient>, dead: watch::Sender<u64>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let request = Request::get("/version").body(Body::empty()).expect("a well-formed request");
        // An error is an answer as well: the streams have met it themselves.
        if timeout(PATIENCE, client.client().send(request)).await.is_err() {
            tracing::debug!("the API server does not answer");
            dead.send_modify(|count| *count += 1);
        }
    }
}
