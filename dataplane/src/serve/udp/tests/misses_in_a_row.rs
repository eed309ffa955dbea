//! Misses that come one after the other, each with a socket of its own.

use super::*;

/// A thread that adds the clients' socket to its set for each of them, and takes it out again, makes 40 changes.
#[tokio::test]
async fn fw53_misses_in_a_row_leave_the_socket_of_clients_in_the_set() {
    const MISSES: u64 = 20;
    let mut site = Site::for_many(|_| {}).await;
    let mut reading = Reading::begin().expect("this system can");
    let mut batch = Batch::new();
    for number in 1..=MISSES {
        site.client.send(&question(&format!("n{number}.example.org"), 1, true)).unwrap();
        assert!(site.worker.turn(&mut batch, Some(&mut reading)));
        assert_eq!(reading.ports(), 1, "it has a port of its own");
        while site.upstream.asked() < number {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        while reading.has_ports() {
            assert!(site.worker.turn(&mut batch, Some(&mut reading)));
        }
    }
    assert_eq!(reading.changes, 1);
    // Clients that ask for names of the cluster only do not pay for it for long.
    for turns in 1..=100 {
        site.client.send(&question("cart.shop.svc.cluster.local", 1, true)).unwrap();
        assert!(site.worker.turn(&mut batch, Some(&mut reading)));
        assert_eq!(reading.changes, 1 + usize::from(turns >= 64), "after {turns}");
    }
}

#[tokio::test]
async fn fw53_the_socket_of_clients_leaves_the_set_when_none_asks_for_a_while() {
    let site = Site::for_many(|_| {}).await;
    let mut reading = Reading::begin().expect("this system can");
    reading.wait(&*site.socket, Duration::ZERO).unwrap();
    // A second passes without a query.
    assert_eq!(site.worker.receive(&mut Batch::new(), Some(&mut reading), false).unwrap(), 0);
    assert_eq!(reading.changes, 2);
}
