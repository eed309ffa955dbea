//! What clients of HTTPS can make the process hold for a moment, by frames of HTTP/2 that take much more memory than octets on
//! the way. Each client writes frames by hand, and the process is stopped until all of them are there: it then finds them all
//! at once.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::harness::{Folder, Process, wait_for};
use crate::service;
use crate::tls::{NAME, PORT, own_address, secret};

/// Connections: fewer than one client may have.
const CONNECTIONS: usize = 32;
/// Requests at a time on each.
const STREAMS: u32 = 64;
/// What all of them may add to the memory of the process: half a MiB each.
const MOST_KIB: u64 = 16 << 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
/// A type that no specification has, which is passed over (RFC 9113 §4.1).
const UNKNOWN: u8 = 0xfa;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A session of TLS in which HTTP/2 has begun.
fn begin(
    server: SocketAddr,
    trust: &Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let session = ClientConnection::new(Arc::clone(trust), NAME.try_into().unwrap()).unwrap();
    let stream = TcpStream::connect(server).unwrap();
    let mut client = StreamOwned::new(session, stream);
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    client.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
    client.flush().unwrap();
    // Else a process that is stopped reads nothing of it.
    while client.conn.is_handshaking() || client.conn.wants_write() {
        client.conn.complete_io(&mut client.sock).unwrap();
    }
    client
}

/// Requests whose headers are one octet each on the way, and as many as the library takes of each.
fn headers() -> Vec<u8> {
    let request = |number: u32| {
        // GET https://…/ with the field `a` without a value, which the first request puts into the table.
        let mut block = vec![0x82, 0x87, 0x84];
        block.extend(if number == 0 { &[0x40, 1, b'a', 0][..] } else { &[] });
        block.extend([0x80 | 62; 940]);
        frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &block)
    };
    (0..STREAMS).flat_map(request).collect()
}

/// Bodies in pieces of one octet with padding, each behind a frame that says nothing: the piece keeps the whole buffer that it
/// came in. And empty pieces, which say nothing either.
fn pieces() -> Vec<u8> {
    let request = |number: u32| {
        let mut block = vec![0x83, 0x87, 0x04, 10];
        block.extend(b"/dns-query\x0f\x10\x17application/dns-message");
        frame(HEADERS, END_HEADERS, 2 * number + 1, &block)
    };
    let mut octets: Vec<u8> = (0..STREAMS).flat_map(request).collect();
    octets.extend((0..90).flat_map(|_| frame(DATA, 0, 1, &[])));
    for number in 0..250 {
        octets.extend(frame(UNKNOWN, 0, 0, &[0; 7_000]));
        octets.extend(frame(DATA, PADDED, 2 * (number % STREAMS) + 1, &[5, 1, 0, 0, 0, 0, 0]));
    }
    octets
}

/// How many KiB the process had before these octets came on each connection, and at most after that, until `is_over`.
fn peak(port: u16, octets: &[u8], is_over: impl Fn(&Process) -> bool) -> (u64, u64) {
    let (folder, certificates) = (Folder::new(), Folder::new());
    let mut trust = secret(&certificates);
    trust.alpn_protocols = vec![b"h2".to_vec()];
    let trust = Arc::new(trust);
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    folder.write(
        "dns.yaml",
        &crate::cluster_dns(&format!(
            "{{listeners: {{https: {{port: {port}, certificate: {{name: dns-tls}}}}}}}}"
        )),
    );
    let flags = ["--certificates-dir", certificates.0.to_str().unwrap()];
    let process = Process::start_at(own_address(), &folder.0, &flags);
    let server = SocketAddr::new(process.dns.ip(), port);
    wait_for("the port to be open", || TcpStream::connect(server).ok());
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| begin(server, &trust)).collect();
    wait_for("all sessions", || {
        let open = process.metric("clusterdns_tcp_connections");
        (open >= CONNECTIONS as f64).then_some(())
    });
    process.forget_peak();
    let before = process.in_status("VmRSS:");
    process.stop();
    std::thread::scope(|scope| {
        let write = |mut client: StreamOwned<ClientConnection, TcpStream>| {
            // It may be refused before its end.
            let _ = client.write_all(octets).and_then(|()| client.flush());
            client
        };
        let writing: Vec<_> =
            clients.into_iter().map(|it| scope.spawn(move || write(it))).collect();
        // As much as the kernel takes of each.
        std::thread::sleep(Duration::from_millis(500));
        process.signal("CONT");
        let clients: Vec<_> = writing.into_iter().map(|it| it.join().unwrap()).collect();
        wait_for("their end", || is_over(&process).then_some(()));
        drop(clients);
    });
    (before, process.in_status("VmHWM:"))
}

#[test]
fn t4_headers_of_http_2_that_are_short_on_the_way_take_no_memory_of_others() {
    let responses =
        |process: &Process| process.metric("clusterdns_https_responses_total{status=\"404\"}");
    let all = (CONNECTIONS * STREAMS as usize) as f64;
    // On a busy machine some are closed by their deadline before it is their turn.
    let is_over = |process: &Process| {
        responses(process) >= all || process.metric("clusterdns_tcp_connections") == 0.0
    };
    let (before, peak) = peak(PORT + 5, &headers(), is_over);
    assert!(peak <= before + MOST_KIB, "{before} KiB became {peak} KiB");
}

#[test]
fn t4_bodies_of_http_2_in_pieces_of_one_octet_take_no_memory_of_others() {
    // Their kernels have taken all of it.
    let (before, peak) = peak(PORT + 6, &pieces(), |_| true);
    assert!(peak <= before + MOST_KIB, "{before} KiB became {peak} KiB");
}
