//! Names in the cache after many that were not: their sockets are open still.

use super::*;

#[tokio::test]
async fn fw53_hits_after_a_burst_of_misses_do_not_pay_for_the_sockets_that_it_left() {
    const MISSES: u64 = 100;
    const PORTS: u32 = 64;
    const HITS: usize = 1_000;
    let mut site = Site::for_many(|config| config.limits.upstream_ports = PORTS).await;
    let mut reading = Reading::begin().expect("this system can");
    let mut batch = Batch::new();
    for number in 1..=MISSES {
        site.client.send(&question(&format!("n{number}.example.org"), 1, true)).unwrap();
        assert!(site.worker.turn(&mut batch, Some(&mut reading)));
        while site.upstream.asked() < number {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        while site.responder.forwarder.lookups() > 0 {
            assert!(site.worker.turn(&mut batch, Some(&mut reading)));
        }
    }
    assert_eq!(reading.ports(), PORTS as usize);
    let before = reading.waits;
    for _ in 0..HITS {
        site.client.send(&question("n1.example.org", 1, true)).unwrap();
        assert!(site.worker.turn(&mut batch, Some(&mut reading)));
    }
    // There is one in 0.1 s.
    let looks = reading.waits - before;
    assert!(looks < HITS / 4, "{looks} looks at these sockets");
    assert_eq!(site.upstream.asked(), MISSES);
}
