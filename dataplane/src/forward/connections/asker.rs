//! Who asks over a connection, and when the next query of the same lookup may be sent (FW54).

use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::forward::plan::USUAL;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(in crate::forward) struct Asker<'a> {
    /// Clients have turns for copies of queries (L16).
    pub(in crate::forward) client: IpAddr,
    /// Ended as soon as the next query of the same lookup may be sent to the server, because this one is not asked again by itself.
    pub(in crate::forward) next: &'a CancellationToken,
    /// Whether this query waits at the server.
    pub(in crate::forward) waits: &'a AtomicBool,
    /// The same query waits at the server.
    pub(in crate::forward) is_repeat: bool,
}

impl Asker<'_> {
    /// Waits for a place. While a query that was lost waits for one, the next query of the lookup waits no longer than the time between
    /// two sends: a handshake may take longer, and the next query may use any connection.
    pub(super) async fn placed<T>(&self, was_lost: bool, place: impl Future<Output = T>) -> T {
        if !was_lost {
            return place.await;
        }
        self.waits.store(false, Ordering::Relaxed);
        let mut place = pin!(place);
        let placed = match timeout(USUAL.interval, &mut place).await {
            Ok(placed) => placed,
            Err(_) => {
                self.next.cancel();
                place.await
            }
        };
        self.waits.store(true, Ordering::Relaxed);
        placed
    }
}
