//! Row L17: what is published lives no longer than it is read. A query that waits for an upstream keeps no records.

use std::sync::{Arc, Weak};
use std::time::Instant;

use dataplane::serve::Limits;
use dataplane::state::Published;
use dataplane_core::Records;

use crate::harness::{House, PATIENCE, Tcp, query, udp};

/// Edits, each with a query behind it that waits: few, so that all are asked before the first lookup ends.
const EDITS: u16 = 8;
/// The state in use, and one that each of two serving threads may still hold.
const IN_USE: usize = 3;

/// Publishes the same records again, as an edit does; returns whether they are still there.
fn edit(house: &House) -> Weak<Records> {
    let before = house.state.published.load_full();
    let records = Arc::new((*before.records).clone());
    let seen = Arc::downgrade(&records);
    let upstreams = Arc::clone(&before.upstreams);
    house.state.published.store(Arc::new(Published { records, upstreams }));
    seen
}

#[test]
fn l17_lookups_that_wait_keep_no_records_of_before_an_edit() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let client = udp();
    let begun = Instant::now();
    // Once more where the machine is so slow that lookups ended before all were asked.
    for attempt in 0.. {
        let mut tcp = Tcp::connect(house.address());
        let mut states = Vec::new();
        for number in 0..EDITS {
            states.push(edit(&house));
            let query = query(number, &format!("name-{number}.of-{attempt}.example"));
            match number % 2 {
                0 => drop(client.send_to(&query, house.address()).unwrap()),
                _ => tcp.send(&query),
            }
            let waiting = usize::from(number) + 1;
            house.until("it waits", |house| house.forwarder.in_flight() >= waiting);
        }
        loop {
            let alive = states.iter().filter(|state| state.strong_count() > 0).count();
            // These were asked last: those that still wait now also waited when the states were counted.
            let is_waiting = house.forwarder.in_flight() >= usize::from(EDITS);
            if !is_waiting {
                break;
            }
            if alive <= IN_USE {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(begun.elapsed() < PATIENCE, "lookups that wait keep old records");
        house.until("none waits", |house| house.forwarder.in_flight() == 0);
    }
}
