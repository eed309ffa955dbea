//! A socket that cannot be read for a while.

use super::*;
use crate::serve::responder::tests::names::Lines;

#[tokio::test]
async fn a_socket_that_cannot_be_read_is_logged_once_until_it_can() {
    let Site { upstream: _upstream, socket: _socket, responder, client, mut worker } =
        Site::start().await;
    let lines = Arc::new(Lines::default());
    let of_thread = tracing::Dispatch::new(Arc::clone(&lines));
    let mut batch = Batch::new();
    tracing::dispatcher::with_default(&of_thread, || {
        for (is_broken, turns, logged) in [(true, 3, 1), (false, 1, 1), (true, 2, 2)] {
            worker.is_broken = is_broken;
            for _ in 0..turns {
                client.send(&question("cart.shop.svc.cluster.local", 1, true)).unwrap();
                assert!(worker.turn(&mut batch, None));
            }
            assert_eq!(lines.0.load(Ordering::Relaxed), logged);
        }
    });
    assert_eq!(responder.counters.udp_receive_failed.load(Ordering::Relaxed), 5);
}
