//! First queries over a connection that is open: they leave at once, and no task waits for their replies.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use super::*;
use crate::forward::connections::tests::{lost, restarted};

/// Fewer than one connection takes.
const QUERIES: usize = 20;

/// A forwarder that asks one server over TCP.
struct OverTcp {
    listener: TcpListener,
    upstreams: Upstreams,
    forwarder: Arc<Forwarder>,
}

impl OverTcp {
    /// It has answered one query, so that a connection is open.
    async fn open() -> (OverTcp, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ip, port) = (address.ip(), address.port());
        let servers = vec![config::Server { ip, port, transport: Transport::Tcp, tls: None }];
        let options = GroupOptions::default();
        let upstreams = config::Upstreams::Servers(GroupConfig { servers, options });
        let upstreams = Upstreams::of(&Config { upstreams, ..Config::default() }, Path::new(""));
        let stage = OverTcp { listener, upstreams, forwarder: Forwarder::new() };
        let mut first = stage.ask("first.example.org");
        let mut far = stage.accept().await;
        let asked = query(&mut far).await;
        reply(&mut far, &asked).await;
        assert_eq!(end(&mut first).await, Origin::Upstream);
        // The task of the first lookup has ended.
        while Handle::current().metrics().num_alive_tasks() > 1 {
            tokio::task::yield_now().await;
        }
        (stage, far)
    }

    fn ask(&self, name: &str) -> mpsc::UnboundedReceiver<Resolved> {
        super::ask(&self.forwarder, &self.upstreams, name)
    }

    async fn accept(&self) -> TcpStream {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        accepted.expect("a connection").unwrap().0
    }
}

async fn query(far: &mut TcpStream) -> Vec<u8> {
    let read = async {
        let mut octets = vec![0; far.read_u16().await.unwrap().into()];
        far.read_exact(&mut octets).await.unwrap();
        octets
    };
    tokio::time::timeout(PATIENCE, read).await.expect("a query")
}

async fn reply(far: &mut TcpStream, query: &[u8]) {
    reply_with(far, query, &[vec![0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 192, 0, 2, 1]]).await;
}

/// The reply with these records.
async fn reply_with(far: &mut TcpStream, query: &[u8], records: &[Vec<u8>]) {
    // The question is that of the query, whose length differs.
    let end = 12 + query[12..].iter().position(|octet| *octet == 0).unwrap() + 5;
    let mut reply = query[..end].to_vec();
    (reply[2], reply[3], reply[11]) = (0x81, 0x80, 0);
    reply[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    reply.extend(records.concat());
    far.write_u16(reply.len() as u16).await.unwrap();
    far.write_all(&reply).await.unwrap();
}

async fn end(ended: &mut mpsc::UnboundedReceiver<Resolved>) -> Origin {
    let end = tokio::time::timeout(PATIENCE, ended.recv()).await;
    end.expect("it ends").expect("it is called").origin()
}

#[tokio::test]
async fn fw54_queries_over_an_open_connection_take_no_task_each() {
    let (stage, mut far) = OverTcp::open().await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let mut ends: Vec<_> = (0..QUERIES).map(|n| stage.ask(&format!("n{n}.example.org"))).collect();
    assert!(tasks() <= before + 1, "one looks after all of them: {before}, {}", tasks());
    let mut asked = Vec::new();
    for _ in 0..QUERIES {
        asked.push(query(&mut far).await);
    }
    for asked in asked.iter().rev() {
        reply(&mut far, asked).await;
    }
    for ended in &mut ends {
        assert_eq!(end(ended).await, Origin::Upstream);
        assert!(ended.recv().await.is_none(), "once");
    }
    let forwarder = &stage.forwarder;
    assert_eq!((forwarder.lookups(), forwarder.in_flight()), (0, 0));
    assert_eq!(forwarder.resolved(), 1 + QUERIES as u64);
}

#[tokio::test]
async fn fw54_queries_without_a_task_are_asked_again_when_their_connection_breaks() {
    let (stage, mut far) = OverTcp::open().await;
    let begun = now();
    let mut ends = ["a.example.org", "b.example.org"].map(|name| stage.ask(name));
    query(&mut far).await;
    drop(far);
    let mut far = stage.accept().await;
    let serve = async {
        loop {
            let asked = query(&mut far).await;
            reply(&mut far, &asked).await;
        }
    };
    let all_end = async {
        for ended in &mut ends {
            assert_eq!(end(ended).await, Origin::Upstream);
        }
    };
    tokio::select! {
        () = all_end => {}
        () = serve => {}
    }
    // Within the same send; on a busy machine the next send may have been due.
    let failed = stage.upstreams.servers()[0].failed.load(std::sync::atomic::Ordering::Relaxed);
    assert!(failed == 0 || begun.elapsed() >= Duration::from_millis(500), "{failed}");
}

#[tokio::test]
async fn fw54_a_server_that_has_restarted_loses_no_query_on_its_kept_connections() {
    let (stage, far) = OverTcp::open().await;
    let connections = &stage.upstreams.known()[0].connections;
    restarted(connections, 8).await;
    drop(far);
    let mut ended = stage.ask(NAME);
    let mut far = stage.accept().await;
    let asked = query(&mut far).await;
    reply(&mut far, &asked).await;
    assert_eq!(end(&mut ended).await, Origin::Upstream);
    assert_eq!(lost(connections), 1, "and none on the other seven");
}

#[tokio::test]
async fn fw23_a_query_without_a_task_is_sent_again_and_its_late_reply_is_taken() {
    for late in [false, true] {
        let (stage, mut far) = OverTcp::open().await;
        let begun = now();
        let mut ended = stage.ask(NAME);
        let first = query(&mut far).await;
        // On a busy machine the connection may be silent for a second, and the next send takes another.
        let (second, mut other) = tokio::select! {
            second = query(&mut far) => (second, None),
            mut other = stage.accept() => (query(&mut other).await, Some(other)),
        };
        assert!(begun.elapsed() >= Duration::from_millis(500));
        match late {
            true => reply(&mut far, &first).await,
            false => reply(other.as_mut().unwrap_or(&mut far), &second).await,
        }
        assert_eq!(end(&mut ended).await, Origin::Upstream, "{late}");
    }
}

#[tokio::test]
async fn fw54_a_wrong_reply_closes_the_connection_and_other_queries_are_asked_again() {
    let (stage, mut far) = OverTcp::open().await;
    let mut other = stage.ask("other.example.org");
    let asked_other = query(&mut far).await;
    let _wrong = stage.ask("wrong.example.org");
    let mut asked = query(&mut far).await;
    asked[13] ^= 1;
    reply(&mut far, &asked).await;
    let mut again = stage.accept().await;
    // The other query comes first, or the wrong one, whose next send has come.
    loop {
        let asked = query(&mut again).await;
        reply(&mut again, &asked).await;
        if asked[12..] == asked_other[12..] {
            break;
        }
    }
    assert_eq!(end(&mut other).await, Origin::Upstream);
    assert_eq!(stage.upstreams.discarded(Discard::Question), 1);
}

#[tokio::test]
async fn fw54_a_reply_whose_records_cannot_be_used_leaves_its_connection_to_others() {
    // An address of three octets.
    let malformed = vec![vec![0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 3, 192, 0, 2]];
    // Owners of 120 labels in turn: to read them takes more than the octets of the message allow. They begin behind the
    // question and the eleven octets in front of the first RDATA.
    let owners_at = 12 + "evil.example.org".len() + 2 + 4 + 11;
    let labels = [&b"\x01a".repeat(120)[..], &[0]].concat();
    let length = (labels.len() as u16).to_be_bytes();
    let mut costly = vec![[&[0, 0xff, 0, 0, 1, 0, 0, 1, 0][..], &length, &labels[..]].concat()];
    costly.extend((0..400).map(|number| {
        let [high, low] = (0xc000 | (owners_at + number % 2 * 2) as u16).to_be_bytes();
        vec![high, low, 0xff, 0, 0, 1, 0, 0, 1, 0, 0, 0]
    }));
    for (records, discarded) in [(malformed, 1), (costly, 0)] {
        let (stage, mut far) = OverTcp::open().await;
        let mut other = stage.ask("other.example.org");
        let asked_other = query(&mut far).await;
        let mut evil = stage.ask("evil.example.org");
        let asked = query(&mut far).await;
        reply_with(&mut far, &asked, &records).await;
        assert_eq!(end(&mut evil).await, Origin::Failed);
        reply(&mut far, &asked_other).await;
        assert_eq!(end(&mut other).await, Origin::Upstream);
        let more = tokio::time::timeout(Duration::from_millis(1), stage.listener.accept()).await;
        assert!(more.is_err(), "there is no other connection");
        assert_eq!(stage.upstreams.discarded(Discard::Malformed), discarded);
        let seen = stage.upstreams.servers()[0].failed.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(seen, 1, "the attempt failed");
    }
}
