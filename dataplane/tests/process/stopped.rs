//! A process that does not run for a while and continues (L9).

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use crate::harness::{Folder, Process, address, wait_for};
use crate::load::{is_answer, query};
use crate::{CART, service};

/// Fewer than the kernel queues for a socket of the default size.
const QUEUED: u16 = 50;
/// WR46: what waited longer is dropped, as its client has given up.
const STALE: Duration = Duration::from_secs(4);

#[test]
fn l9_after_a_stop_what_waited_too_long_is_dropped_and_the_rest_answered() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let process = Process::start(&folder.0, &[]);
    process.wait_for_answer(CART, address("10.96.0.1"));
    let clients: Vec<UdpSocket> = (0..2)
        .map(|_| {
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            client.set_read_timeout(Some(STALE)).unwrap();
            client
        })
        .collect();
    process.stop();
    for id in 0..QUEUED {
        clients[0].send_to(&query(id), process.dns).unwrap();
    }
    // The kernel measures how long each waited, so this time must really pass; nothing can be polled meanwhile.
    std::thread::sleep(STALE + Duration::from_millis(200));
    let mut reply = [0; 1500];
    let mut id = 1000;
    wait_for("a reply to a query that did not wait", || {
        id += 1;
        clients[1].send_to(&query(id), process.dns).unwrap();
        // Only now, so that the first of them is behind the stale ones in the queue.
        process.signal("CONT");
        // On a busy machine it may have waited too long as well: then the next one is asked.
        let (octets, _) = clients[1].recv_from(&mut reply).ok()?;
        is_answer(&reply[..octets], id).then_some(())
    });
    let stale = || process.metric("clusterdns_udp_stale_total");
    wait_for("the stale ones to be counted", || (stale() >= f64::from(QUEUED)).then_some(()));
    clients[0].set_nonblocking(true).unwrap();
    assert!(clients[0].recv_from(&mut reply).is_err(), "a stale query has no reply");
}
