//! Running out of descriptors (T7, N20), in a process of its own so that only it does.

use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::Ordering;

use dataplane::forward::Limit;
use dataplane::serve::Limits;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::harness::{House, OURS, Reply, THEIRS, Tcp, query, receive, udp};

/// Few enough to run out of at once, enough for the runtime and the sockets.
const LIMIT: u32 = 64;

#[test]
fn wr44_t7_without_a_descriptor_accepting_pauses_and_udp_answers() {
    alone("descriptors::without_descriptors");
}

#[test]
fn n20_fw10_without_a_descriptor_a_forwarded_query_fails_and_no_server_does() {
    alone("descriptors::forwarding_without_descriptors");
}

/// Runs this test with few descriptors.
fn alone(name: &str) {
    let program = std::env::current_exe().unwrap();
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
#[ignore = "run by a test above, with few descriptors"]
fn forwarding_without_descriptors() {
    let house = House::on(&["127.0.0.1:0"], Limits::default());
    house.upstream.release();
    let client = udp();
    let ask = |id| {
        client.send_to(&query(id, THEIRS), house.address()).unwrap();
        receive(&client).0
    };
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let allow = |number| setrlimit(Resource::RLIMIT_NOFILE, number, most).unwrap();
    // The thread that answers has opened what it waits with: without that it would share the port of a loop probe.
    client.send_to(&query(0, OURS), house.address()).unwrap();
    assert_eq!(receive(&client).0, Reply::ours(0));
    // Below all that are open but the first three. A loop probe (FW50) may close its own at any time: it is not used again.
    allow(3);
    let failed = |id| Reply { id, rcode: 2, address: None };
    assert_eq!([ask(1), ask(2)], [failed(1), failed(2)], "at once, and none is remembered");
    let upstreams = house.state.published.load().upstreams.clone();
    let counts = &upstreams.servers()[0];
    let sent = || [&counts.sent, &counts.failed].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(sent(), [0, 0], "no server is at fault");
    assert_eq!(house.forwarder.limited(Limit::UpstreamPorts), 2);
    allow(most);
    assert_eq!((ask(3), sent()), (Reply::theirs(3), [1, 0]));
}

#[test]
#[ignore = "run by a test above, with few descriptors"]
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
