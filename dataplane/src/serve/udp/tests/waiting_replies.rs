//! Replies of upstreams that wait while clients ask.

use super::*;

/// Asks for this many names one after the other, and waits until the upstream has replied to all; no reply is read.
async fn ask_and_wait(site: &mut Site, reading: &Reading, batch: &mut Batch, names: u64) {
    let published = site.responder.state.published.load_full();
    for number in 0..names {
        site.client.send(&question(&format!("n{number}.example.org"), 1, true)).unwrap();
        assert_eq!(site.worker.receive(batch, None, false).unwrap(), 1);
        site.worker.decide_batch(&published, batch);
        site.worker.ask(ASKED_AT_ONCE);
    }
    let waiting = (reading.ports() as u64, site.responder.forwarder.lookups() as u64);
    assert_eq!(waiting, (names, names));
    while site.upstream.asked() < names {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn l3_fw53_a_query_is_read_though_more_upstreams_reply_than_one_wait_shows() {
    let mut site = Site::for_many(|_| {}).await;
    let mut reading = Reading::begin().expect("this system can");
    let mut batch = Batch::new();
    ask_and_wait(&mut site, &reading, &mut batch, 40).await;
    site.client.send(&question("cart.shop.svc.cluster.local", 1, true)).unwrap();
    // The client's socket is the last of those that have something to read.
    assert_eq!(site.worker.receive(&mut batch, Some(&mut reading), false).unwrap(), 1);
    assert!(reading.read() && reading.ports() > 0, "some replies wait for the next turn");
}

/// Replies are read in the order in which they came, whose they are.
#[tokio::test]
async fn l2_fewer_queries_are_sent_while_replies_wait_than_are_read() {
    let mut site = Site::for_many(|_| {}).await;
    let mut reading = Reading::begin().expect("this system can");
    let mut batch = Batch::new();
    ask_and_wait(&mut site, &reading, &mut batch, 40).await;
    for number in 0..8 {
        site.client.send(&question(&format!("more{number}.example.org"), 1, true)).unwrap();
    }
    let (mut read, mut before) = (0, 40);
    for turn in 1..=3 {
        assert!(site.worker.turn(&mut batch, Some(&mut reading)));
        assert_eq!(site.worker.later.len(), 8 - turn * ASKED_BEHIND);
        read += before + ASKED_BEHIND - reading.ports();
        before = reading.ports();
    }
    assert!(read > 3 * ASKED_BEHIND, "{read} replies were read meanwhile");
    while reading.ports() > 0 {
        // The upstream is a task of this thread.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(site.worker.turn(&mut batch, Some(&mut reading)));
    }
    assert_eq!(site.upstream.asked(), 48);
}
