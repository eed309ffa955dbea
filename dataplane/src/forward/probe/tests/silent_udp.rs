//! Servers that answer over TCP and not over UDP, and such as answer no OPT record over UDP (FW25, FW27).

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Longer than any memory of the state of a server.
const IN_A_QUARTER: Duration = Duration::from_secs(15 * 60);

/// UDP and TCP at one address.
async fn bind() -> (UdpSocket, TcpListener) {
    loop {
        let stream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(far) = UdpSocket::bind(stream.local_addr().unwrap()).await {
            return (far, stream);
        }
    }
}

/// Answers each query over TCP.
async fn answers_over_tcp(listener: TcpListener) {
    answers_opt_with(listener, 0).await;
}

/// Answers each query over TCP, and those with an OPT record with this response code.
async fn answers_opt_with(listener: TcpListener, rcode: u8) {
    while let Ok((mut far, _)) = listener.accept().await {
        tokio::spawn(async move {
            while let Ok(length) = far.read_u16().await {
                let mut octets = vec![0; length.into()];
                far.read_exact(&mut octets).await.unwrap();
                let has_opt = octets[11] != 0;
                (octets[2], octets[3]) = (0x81, 0x80 | if has_opt { rcode } else { 0 });
                far.write_u16(length).await.unwrap();
                far.write_all(&octets).await.unwrap();
            }
        });
    }
}

/// Answers queries over UDP without an OPT record.
async fn drops_opt(far: UdpSocket) {
    let mut buffer = [0; 512];
    while let Ok((octets, peer)) = far.recv_from(&mut buffer).await {
        if buffer[11] == 0 {
            (buffer[2], buffer[3]) = (0x81, 0x80);
            let _ = far.send_to(&buffer[..octets], peer).await;
        }
    }
}

/// Asks in both forms, and waits for what comes of that.
async fn forms_probed(upstreams: &Upstreams, at: Instant) {
    let server = &upstreams.known()[0];
    assert!(server.form_probe_at().is_some_and(|due| due <= at), "it is due");
    forms::probe_due(upstreams, at);
    assert_eq!(server.form_probe_at(), None, "one at a time");
    until(|| !server.is_form_probing()).await;
}

/// Waits until this is so; a bound, so that a failing test ends.
async fn until(is_so: impl Fn() -> bool) {
    let looks = async {
        while !is_so() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), looks).await.expect("what a probe finds");
}

#[tokio::test]
async fn fw27_a_probe_that_gets_its_reply_over_tcp_finds_the_server_up_and_its_udp_silent() {
    let (far, listener) = bind().await;
    tokio::spawn(answers_over_tcp(listener));
    let upstreams = of_one(far.local_addr().unwrap(), Transport::Udp);
    let server = &upstreams.known()[0];
    (0..3).for_each(|_| server.send(true).unwrap().settle(Heard::Nothing));
    probe_due(&upstreams, 0, now());
    until(|| server.form_probe_at().is_some()).await;
    assert!(server.is_up());
    assert_eq!(server.failed_probes(), 0);
    for probes in 0..3 {
        assert!(!server.seen(now()).has_silent_udp, "after {probes} probes");
        forms_probed(&upstreams, now() + Duration::from_secs(1)).await;
    }
    assert!(server.seen(now()).has_silent_udp);
    let key = &upstreams.group(0).unwrap().probe;
    assert!(matches!(leads_back(key, server, true).await, Found::NoLoop), "over TCP");
    tokio::spawn(drops_opt(far));
    for is_silent in [true, false] {
        // A minute after the probe before, or a second where that has not decided.
        forms_probed(&upstreams, now() + Duration::from_secs(60)).await;
        assert_eq!(server.seen(now()).has_silent_udp, is_silent, "it is seen twice");
    }
    assert!(!server.uses_edns(now()));
}

/// Otherwise each query of a client would be sent twice, and ask for the next probe.
#[tokio::test]
async fn fw25_a_refusal_of_opt_over_tcp_is_learned_where_udp_is_silent() {
    let (far, listener) = bind().await;
    tokio::spawn(answers_opt_with(listener, 1));
    let upstreams = of_one(far.local_addr().unwrap(), Transport::Udp);
    let server = &upstreams.known()[0];
    (0..3).for_each(|_| server.send(true).unwrap().settle(Heard::Nothing));
    probe_due(&upstreams, 0, now());
    until(|| !server.uses_edns(now())).await;
    assert!(server.is_up());
    let candidate = server.candidate(0, now()).unwrap();
    assert!(!candidate.edns_over_tcp && !candidate.signs_over_tcp);
}

#[tokio::test]
async fn fw25_after_silence_clients_get_their_replies_while_a_probe_tries_opt() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = of_one(far.local_addr().unwrap(), Transport::Udp);
    tokio::spawn(drops_opt(far));
    let (server, began) = (&upstreams.known()[0], now());
    (0..2).for_each(|_| server.probed(false, Heard::Good, OptHeard::Answered, began));
    assert_eq!(server.form_probe_at(), Some(began + IN_A_QUARTER));
    let later = began + 2 * IN_A_QUARTER;
    assert!(!server.uses_edns(later), "the probe has not decided");
    forms_probed(&upstreams, later).await;
    assert!(!server.uses_edns(later));
    let next = server.form_probe_at();
    assert!(next.is_some_and(|at| at >= began + IN_A_QUARTER), "for another quarter of an hour");
    assert!(server.is_up() && !server.seen(now()).has_silent_udp);
}

#[tokio::test]
async fn fw25_after_silence_a_server_that_answers_opt_now_gets_it_again() {
    let far = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let upstreams = of_one(far.local_addr().unwrap(), Transport::Udp);
    tokio::spawn(answers_only(far, b"\0"));
    let (server, began) = (&upstreams.known()[0], now());
    (0..2).for_each(|_| server.probed(false, Heard::Good, OptHeard::Answered, began));
    forms_probed(&upstreams, began + IN_A_QUARTER).await;
    assert!(server.uses_edns(now()));
    assert_eq!(server.form_probe_at(), None);
}
