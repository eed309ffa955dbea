//! What comes between a query and its reply: errors of the network, a reply that was cut, another configuration, the end
//! of the thread that asked, and replies to many queries at once.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::yield_now;

use super::*;
use crate::forward::sockets::MAX_DATAGRAM;

#[tokio::test]
async fn fw21_an_icmp_error_leads_to_the_next_server_without_a_timer() {
    for way in WAYS {
        let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let stage = Stage::behind(&[closed], way).await;
        // No time passes while there is something to do: only the error can lead on.
        tokio::time::pause();
        let mut ended = stage.ask();
        let (mut octets, began) = ([0; 512], std::time::Instant::now());
        let (length, from) = loop {
            stage.read_once();
            yield_now().await;
            if let Ok(came) = stage.far.try_recv_from(&mut octets) {
                break came;
            }
            assert!(began.elapsed() < PATIENCE, "{way:?}: the second server is not asked");
        };
        tokio::time::resume();
        stage.reply(&address(&octets[..length]), from).await;
        assert_eq!(stage.end(&mut ended).await, Origin::Upstream, "{way:?}");
        let failed = |server: usize| {
            let counts = &stage.upstreams.servers()[server];
            counts.failed.load(std::sync::atomic::Ordering::Relaxed)
        };
        assert_eq!((failed(0), failed(1)), (1, 0), "{way:?}");
        assert_eq!(stage.kept_from(), Some(Member::at(1)), "{way:?}: who gave it is kept");
    }
}

/// With TC=1.
fn cut(query: &[u8]) -> Vec<u8> {
    let mut cut = error(query, 0);
    cut[2] |= 2;
    cut
}

/// With more octets than are read of a datagram, and without TC=1.
fn too_long(query: &[u8]) -> Vec<u8> {
    let mut long = error(query, 0);
    let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 192, 0, 2, 1];
    (long[6], long[7]) = (1, 44);
    long.extend(record.repeat(300));
    assert!(long.len() > MAX_DATAGRAM);
    long
}

/// Makes a reply of a query.
type Reply = fn(&[u8]) -> Vec<u8>;

#[tokio::test]
async fn fw26_a_reply_that_was_cut_is_asked_for_over_tcp_and_not_relayed() {
    let both = |way| [(way, cut as Reply), (way, too_long)];
    for (way, reply) in WAYS.into_iter().flat_map(both) {
        // The port must be free for TCP too.
        let (stage, streams) = loop {
            let stage = Stage::new(way).await;
            if let Ok(streams) = TcpListener::bind(stage.far.local_addr().unwrap()).await {
                break (stage, streams);
            }
        };
        let mut ended = stage.ask();
        let (query, from) = stage.query().await;
        stage.reply(&reply(&query), from).await;
        let answers = async {
            let (mut stream, _) = streams.accept().await.unwrap();
            let mut octets = vec![0; stream.read_u16().await.unwrap().into()];
            stream.read_exact(&mut octets).await.unwrap();
            let reply = address(&octets);
            stream.write_u16(reply.len() as u16).await.unwrap();
            stream.write_all(&reply).await.unwrap();
            stream
        };
        let (end, _stream) = tokio::join!(stage.end(&mut ended), answers);
        assert_eq!(end, Origin::Upstream, "{way:?}");
        assert_eq!(stage.forwarder.resolved(), 1, "{way:?}");
        assert_eq!(stage.upstreams.discarded(Discard::Malformed), 0, "{way:?}");
        assert!(stage.far.try_recv(&mut [0; 512]).is_err(), "{way:?}: it is asked once over UDP");
    }
}

/// As of small servers that copy the counts of a query and send no OPT record.
#[tokio::test]
async fn fw12_a_reply_that_announces_an_opt_record_and_has_none_ends_the_lookup() {
    for way in WAYS {
        let stage = Stage::new(way).await;
        let mut ended = stage.ask();
        let (query, from) = stage.query().await;
        let mut reply = address(&query);
        reply[10..12].copy_from_slice(&query[10..12]);
        assert_eq!(reply[10..12], [0, 1], "the query has an OPT record");
        stage.reply(&reply, from).await;
        assert_eq!(stage.end(&mut ended).await, Origin::Upstream, "{way:?}");
        assert_eq!(stage.upstreams.discarded(Discard::Malformed), 0, "{way:?}");
        assert!(stage.far.try_recv(&mut [0; 512]).is_err(), "{way:?}: it is asked once");
    }
}

#[tokio::test]
async fn e5_a_server_that_a_configuration_removes_still_ends_its_lookups() {
    for way in WAYS {
        let mut stage = Stage::new(way).await;
        let mut ended = stage.ask();
        let (query, from) = stage.query().await;
        let other = Upstreams::of(&Config::default(), Path::new(""));
        drop(std::mem::replace(&mut stage.upstreams, other));
        stage.reply(&address(&query), from).await;
        assert_eq!(stage.end(&mut ended).await, Origin::Upstream, "{way:?}");
        assert_eq!(stage.open_ports(), 0, "{way:?}: its sockets are closed");
    }
}

#[tokio::test]
async fn d3_what_a_thread_asked_is_read_when_it_answers_no_clients_any_more() {
    let stage = Stage::new((4096, true)).await;
    let mut ended = stage.ask();
    let (query, from) = stage.query().await;
    let reading = stage.reading.take().expect("it reads");
    let runtime = tokio::runtime::Handle::current();
    let finishes = std::thread::spawn(move || {
        let _lookups = runtime.enter();
        reading.finish(Duration::from_millis(10));
    });
    stage.reply(&address(&query), from).await;
    assert_eq!(stage.end(&mut ended).await, Origin::Upstream);
    // No socket is open any more.
    let joined = tokio::task::spawn_blocking(move || finishes.join().is_ok());
    assert!(tokio::time::timeout(PATIENCE, joined).await.expect("it ends").unwrap());
}

#[tokio::test]
async fn fw10_replies_on_one_shared_socket_are_read_as_fast_as_queries_leave() {
    // One, and as many more as are read between two looks for queries of clients: not fewer than are sent.
    const QUERIES: usize = 5;
    let stage = Stage::new((1, true)).await;
    let mut ends: Vec<_> =
        (0..QUERIES).map(|n| stage.ask_for(&format!("w{n:02}.example.org"))).collect();
    for _ in 0..QUERIES {
        let (query, from) = stage.query().await;
        stage.reply(&address(&query), from).await;
    }
    stage.read_once();
    let ended = ends.iter_mut().filter_map(|ended| ended.try_recv().ok());
    assert!(ended.map(|end| end.origin()).eq([Origin::Upstream; QUERIES]), "all of them");
}
