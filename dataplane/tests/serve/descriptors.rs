//! Running out of descriptors (T7), in a process of its own so that only it does.

use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::Ordering;

use dataplane::serve::Limits;

use crate::harness::{House, OURS, Reply, Tcp, query, receive, udp};

/// Few enough to run out of at once, enough for the runtime and the sockets.
const LIMIT: u32 = 64;

#[test]
fn wr44_t7_without_a_descriptor_accepting_pauses_and_udp_answers() {
    let program = std::env::current_exe().unwrap();
    let name = "descriptors::without_descriptors";
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit -n {LIMIT} && exec \"$0\" --ignored --exact {name}"))
        .arg(program)
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by the test above, with few descriptors"]
fn without_descriptors() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    let client = udp();
    let mut open = Vec::new();
    while let Ok(stream) = TcpStream::connect(house.address()) {
        open.push(stream);
        assert!(open.len() < LIMIT as usize, "the limit does not hold here");
    }
    // Ours are used up by both ends; what the kernel completed beyond waits to be accepted.
    house.until("accepting fails", |house| {
        house.serving.counters().tcp_accept_failed.load(Ordering::Relaxed) > 0
    });
    client.send_to(&query(1, OURS), house.address()).unwrap();
    assert_eq!(receive(&client).0, Reply::ours(1));
    drop(open);
    let mut after = Tcp::connect(house.address());
    assert_eq!(after.ask(2, OURS), Reply::ours(2), "accepted again");
    let failed = house.serving.counters().tcp_accept_failed.load(Ordering::Relaxed);
    // 10 ms doubled each time: a spin would have counted thousands.
    assert!(failed < 200, "{failed} attempts without a pause");
}
