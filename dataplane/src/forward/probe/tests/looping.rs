//! A server that leads back to us is probed on, until it does so no longer.

use super::*;

/// Later than the next probe of a server that was probed now.
fn in_a_minute() -> Instant {
    now() + Duration::from_secs(61)
}

/// The next loop probe, and who sent it.
async fn loop_probe_of(far: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 512];
    let came = timeout(Duration::from_secs(30), far.recv_from(&mut buffer)).await;
    let (octets, peer) = came.expect("a probe").unwrap();
    let zone = b"\x0fclusterdns-loop\0";
    assert!(buffer[..octets].windows(zone.len()).any(|part| part == zone), "of another kind");
    (buffer[..octets].to_vec(), peer)
}

#[tokio::test]
async fn fw50_g137_a_server_that_leads_back_is_probed_on_and_asked_again() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = of_one(far.local_addr().unwrap(), Transport::Udp);
    let (server, group) = (&upstreams.known()[0], upstreams.group(0).unwrap());
    server.loop_probed(Found::Loop, now());
    assert!(group.candidate(0, now()).is_none(), "it is left out");
    assert!(server.loop_probe_at(0, now()).is_some_and(|at| at > now()), "after a minute");
    // It is silent: the server may lead back to us still.
    probe_due(&upstreams, 0, in_a_minute());
    loop_probe_of(&far).await;
    while server.loop_probe_at(0, now()).is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(server.seen(now()).looping_for.is_some(), "silence ends no loop");
    probe_due(&upstreams, 0, in_a_minute());
    let (mut reply, peer) = loop_probe_of(&far).await;
    (reply[2], reply[3]) = (0x81, 0x83);
    far.send_to(&reply, peer).await.unwrap();
    while server.seen(now()).looping_for.is_some() {
        tokio::task::yield_now().await;
    }
    assert!(group.candidate(0, now()).is_some(), "clients' queries reach it again");
}
