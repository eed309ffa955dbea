//! A server that leads back to us is probed on, until it does so no longer; one that has a text for every name does not lead back.

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

/// Adds a TXT record of the name in the question, with one character-string.
pub(super) fn add_text(reply: &mut Vec<u8>, text: &[u8]) {
    let length = text.len() as u8;
    reply[7] = 1;
    reply.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 0, 0, length + 1, length]);
    reply.extend(text);
}

/// Whether a server is looping that gives the next loop probe this answer, or its label where there is none.
async fn is_looping_after(far: &UdpSocket, upstreams: &Upstreams, text: Option<&[u8]>) -> bool {
    let server = &upstreams.known()[0];
    loop_probe(server, 0);
    let (query, peer) = loop_probe_of(far).await;
    let label = query[13..][..usize::from(query[12])].to_vec();
    // Without the OPT, which has 11 octets.
    let mut reply = query[..query.len() - 11].to_vec();
    (reply[2], reply[3], reply[11]) = (0x81, 0x80, 0);
    add_text(&mut reply, text.unwrap_or(&label));
    far.send_to(&reply, peer).await.unwrap();
    while server.loop_probe_at(0, now()).is_none() {
        tokio::task::yield_now().await;
    }
    server.seen(now()).looping_for.is_some()
}

#[tokio::test]
async fn fw50_a_server_that_has_a_text_for_every_name_leads_back_to_no_one() {
    const OLDER: &[u8] = b"0123456789abcdef0123456789abcdef";
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = of_one(far.local_addr().unwrap(), Transport::Udp);
    for text in [Some(&b"v=spf1 -all"[..]), Some(b""), Some(OLDER), None] {
        assert!(!is_looping_after(&far, &upstreams, text).await, "{text:?}");
    }
    // Of a loop that is known, the answer of the program before this one is no end.
    for (text, is_looping) in [(Some(OLDER), true), (Some(b"v=spf1 -all"), false)] {
        upstreams.known()[0].loop_probed(Found::Loop, now());
        assert_eq!(is_looping_after(&far, &upstreams, text).await, is_looping, "{text:?}");
    }
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
