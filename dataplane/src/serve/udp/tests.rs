//! One batch by hand: what leaves when.

use std::net::UdpSocket;

use dataplane_core::Index;
use dataplane_udp::Options;

use super::*;
use crate::serve::ServeCounters;
use crate::serve::responder::tests::{Upstream, question, with_records};
use crate::settings;

/// A worker that the test drives, with one upstream and one client.
struct Site {
    _upstream: Upstream,
    socket: Arc<Socket>,
    responder: Arc<Responder>,
    client: UdpSocket,
    worker: Worker,
}

impl Site {
    async fn start() -> Site {
        let upstream = Upstream::start().await;
        let config = upstream.config();
        let records = Index::new(settings::of(&config).expect("settings")).records();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = Arc::new(Socket::bind(any, &Options::default()).unwrap());
        let mut responder = with_records(&config, records, "/nonexistent");
        responder.counters = Arc::new(ServeCounters::new(vec![Arc::clone(&socket)]));
        let responder = Arc::new(responder);
        let client = UdpSocket::bind(any).unwrap();
        client.connect(socket.local_addr()).unwrap();
        let (stale, stop) = (Duration::from_secs(600), Arc::default());
        let worker = Worker::new(Arc::clone(&socket), Arc::clone(&responder), 0, stale, stop);
        Site { _upstream: upstream, socket, responder, client, worker }
    }
}

#[tokio::test]
async fn l3_fw53_answers_of_ours_leave_before_upstreams_are_asked_for_their_batch() {
    let Site { _upstream, socket, responder, client, mut worker } = Site::start().await;
    client.set_nonblocking(true).unwrap();
    for name in ["www.example.org", "cart.shop.svc.cluster.local"] {
        client.send(&question(name, 1, true)).unwrap();
    }
    let mut batch = Batch::new();
    assert_eq!(socket.recv(&mut batch).unwrap(), 2);
    let published = responder.state.published.load_full();
    worker.decide(&published, &mut batch);
    assert_eq!((worker.later.len(), responder.forwarder.in_flight()), (1, 1), "it has its place");
    assert_eq!(responder.forwarder.lookups(), 0);
    assert_eq!(socket.send(&mut batch).sent, 1);
    let mut octets = [0; 512];
    let own = client.recv(&mut octets).expect("the answer of ours");
    assert_eq!(octets[12..17], *b"\x04cart", "{:?}", &octets[..own]);
    worker.ask(&published.upstreams);
    assert_eq!((worker.later.len(), responder.forwarder.lookups()), (0, 1));
    assert!(worker.later.capacity() >= BATCH, "the room stays for the next batch");
    responder.finish_late().await;
    assert!(client.recv(&mut octets).is_ok() && octets[12..16] == *b"\x03www");
}

#[tokio::test]
async fn ca30_fw53_replies_leave_before_an_upstream_is_asked_again() {
    let Site { _upstream, socket, responder, client, mut worker } = Site::start().await;
    let (mut batch, published) = (Batch::new(), responder.state.published.load_full());
    // A miss, two hits, and one hit more shortly before the end of its 600 s.
    for _ in 0..4 {
        client.send(&question("www.example.org", 1, true)).unwrap();
        assert_eq!(socket.recv(&mut batch).unwrap(), 1);
        worker.decide(&published, &mut batch);
        if worker.refreshes.is_empty() {
            socket.send(&mut batch);
            worker.ask(&published.upstreams);
            while responder.forwarder.lookups() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        if responder.forwarder.cache().outcomes()[0] == 2 {
            responder.forwarder.clock().advance(Duration::from_secs(595));
        }
    }
    let asks = |worker: &Worker| (worker.refreshes.len(), responder.forwarder.lookups());
    assert_eq!(asks(&worker), (1, 0), "it has its place, and is not asked yet");
    assert_eq!(socket.send(&mut batch).sent, 1);
    worker.ask(&published.upstreams);
    assert_eq!(asks(&worker), (0, 1));
}
