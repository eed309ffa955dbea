//! A server that is alone in its group, and cannot be reached for a while.

use super::*;

/// Every datagram that has come, and from where.
fn came(far: &std::net::UdpSocket) -> Vec<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; 512];
    let mut next = || {
        let (octets, peer) = far.recv_from(&mut buffer).ok()?;
        Some((buffer[..octets].to_vec(), peer))
    };
    std::iter::from_fn(&mut next).collect()
}

/// Clients that come later wait for the lookup that is in progress (FW11).
#[tokio::test]
async fn fw23_f11_a_lookup_is_answered_where_its_only_server_is_back_after_two_seconds() {
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    far.set_nonblocking(true).unwrap();
    let upstreams = upstreams(far.local_addr().unwrap());
    let group = upstreams.group(0).unwrap();
    tokio::time::pause();
    let (key, began) = (LookupKey::new(Name::ROOT, 1, false, false), now());
    let mut asks = Box::pin(lookup(group, &[0], &key, began));
    let mut lost = 0;
    // Nothing listens at its port for TCP, and each datagram is lost.
    while now() < began + Duration::from_millis(2_100) {
        assert!(poll!(&mut asks).is_pending());
        lost += came(&far).len();
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    let mut sent = Vec::new();
    while sent.is_empty() && now() < began + Duration::from_millis(2_600) {
        assert!(poll!(&mut asks).is_pending());
        sent = came(&far);
        tokio::time::advance(Duration::from_millis(20)).await;
    }
    let (mut reply, peer) = sent.pop().expect("it is asked again");
    assert_eq!(lost, 2, "RFC 9520: three datagrams in all");
    // Without the OPT, which has 11 octets.
    reply.truncate(reply.len() - 11);
    (reply[2], reply[3], reply[11]) = (0x81, 0x83, 0);
    far.send_to(&reply, peer).unwrap();
    let ended = loop {
        match poll!(&mut asks) {
            std::task::Poll::Ready(ended) => break ended,
            std::task::Poll::Pending => tokio::task::yield_now().await,
        }
    };
    assert!(ended.is_ok(), "{ended:?}");
}
