//! The query log and dnstap, as their readers see them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use serde_json::Value;

use super::harness::{Answer, Folder, PATIENCE, Process, address, wait_for};
use super::{CART, service};

/// How long a query waits while the process is stopped.
const WAITED: Duration = Duration::from_millis(300);

/// The lines of the query log so far.
pub(crate) fn lines(process: &Process) -> Vec<Value> {
    let output = process.output();
    output.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn configure(folder: &Folder, process: Option<&Process>, queries: &str) {
    folder.write("dns.yaml", &super::cluster_dns(&format!("{{logging: {{queries: {queries}}}}}")));
    if let Some(process) = process {
        wait_for("the configuration", || {
            let logging = process.config()["document"]["logging"].clone();
            let is = logging["queries"].as_str().unwrap_or("None") == queries;
            is.then_some(())
        });
    }
}

#[test]
fn o18_the_query_log_follows_the_configuration_without_a_restart() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    configure(&folder, None, "None");
    let process = Process::start(&folder.0, &[]);
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    configure(&folder, Some(&process), "Denials");
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    let missing = "missing.shop.svc.cluster.local";
    // The log is turned on a moment after the configuration is shown.
    let denied = wait_for("a line", || {
        assert_eq!(process.ask(missing), Answer::NxDomain);
        lines(&process).into_iter().next()
    });
    assert_eq!(denied["name"], "missing.shop.svc.cluster.local.");
    assert_eq!((&denied["type"], &denied["outcome"]), (&"A".into(), &"NXDOMAIN".into()));
    assert_eq!((&denied["origin"], &denied["reason"]), (&"own".into(), &"nx_domain".into()));
    assert_eq!((&denied["transport"], &denied["message"]), (&"udp".into(), &"query".into()));
    assert!(denied["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{denied}");
    assert!(denied["duration_us"].is_u64() && denied["timestamp"].is_string(), "{denied}");
    configure(&folder, Some(&process), "All");
    let is_cart = |line: &Value| line["name"] == "cart.shop.svc.cluster.local.";
    let found = wait_for("a line of an answer", || {
        assert_eq!(process.ask(CART), address("10.96.0.1"));
        lines(&process).into_iter().find(is_cart)
    });
    assert_eq!((&found["outcome"], &found["reason"]), (&"NOERROR".into(), &"found".into()));
    configure(&folder, Some(&process), "None");
    // Queries that came before the change may be logged late: silent is what stays so over several queries.
    let mut seen = (0, 0);
    wait_for("the log to be silent", || {
        assert_eq!(process.ask(CART), address("10.96.0.1"));
        let (count, same) = (lines(&process).len(), seen.1 + 1);
        seen = if count == seen.0 { (count, same) } else { (count, 0) };
        (seen.1 >= 20).then_some(())
    });
    wait_for("every line to be counted", || {
        let counted = process.metric("clusterdns_query_log_lines_total") as usize;
        (counted == lines(&process).len()).then_some(())
    });
    assert_eq!(process.metric("clusterdns_query_log_lost_total"), 0.0);
}

#[test]
fn o18_the_duration_in_the_query_log_begins_when_the_query_reached_the_kernel() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    configure(&folder, None, "All");
    let process = Process::start(&folder.0, &[]);
    wait_for("the log to be on", || {
        assert_eq!(process.ask(CART), address("10.96.0.1"));
        lines(&process).into_iter().next()
    });
    process.stop();
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    client.send_to(&crate::load::query(7), process.dns).unwrap();
    // The kernel measures how long it waits, so this time must really pass.
    std::thread::sleep(WAITED);
    process.signal("CONT");
    let from = client.local_addr().unwrap().to_string();
    let line =
        wait_for("its line", || lines(&process).into_iter().find(|line| line["client"] == *from));
    let took = Duration::from_micros(line["duration_us"].as_u64().unwrap());
    assert!(took >= WAITED, "{line}");
}

/// A strict reader of dnstap: frame lengths, control types and content type must be exactly right.
pub(crate) struct Reader<S>(S);

impl Reader<UnixStream> {
    pub(crate) fn accept(listener: &UnixListener) -> Self {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Reader::greet(stream)
    }
}

impl<S: Read + Write> Reader<S> {
    fn greet(stream: S) -> Self {
        let mut reader = Reader(stream);
        let typed = |kind: u8| {
            let mut frame = b"\0\0\0\x01\0\0\0\x16protobuf:dnstap.Dnstap".to_vec();
            frame.splice(0..0, [0, 0, 0, kind]);
            frame
        };
        assert_eq!(reader.control(), typed(4), "READY");
        let accept = [&b"\0\0\0\0\0\0\0\x22"[..], &typed(1)].concat();
        reader.0.write_all(&accept).unwrap();
        assert_eq!(reader.control(), typed(2), "START");
        reader
    }

    fn length(&mut self) -> usize {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).expect("a length");
        u32::from_be_bytes(length) as usize
    }

    fn octets(&mut self, count: usize) -> Vec<u8> {
        let mut octets = vec![0; count];
        self.0.read_exact(&mut octets).expect("a whole frame");
        octets
    }

    fn control(&mut self) -> Vec<u8> {
        assert_eq!(self.length(), 0, "the escape of a control frame");
        let length = self.length();
        self.octets(length)
    }

    /// Type and DNS message of the next frame.
    fn message(&mut self) -> (u64, Vec<u8>) {
        let length = self.length();
        assert_ne!(length, 0, "a data frame");
        decoded(&self.octets(length))
    }

    /// The next message about a client. Probes of upstreams for loops (FW50) are messages too, and come when they like.
    fn about_a_client(&mut self) -> (u64, Vec<u8>) {
        loop {
            let (kind, dns) = self.message();
            if matches!(kind, 5 | 6) {
                return (kind, dns);
            }
        }
    }
}

impl<S: Read + Write> Reader<S> {
    /// Type and protocol of the next message about a client.
    pub(crate) fn kind_and_protocol_of_a_client(&mut self) -> (u64, u64) {
        loop {
            let length = self.length();
            assert_ne!(length, 0, "a data frame");
            let message = fields(octets(&fields(&self.octets(length)), 14));
            if matches!(number(&message, 1), 5 | 6) {
                return (number(&message, 1), number(&message, 3));
            }
        }
    }
}

/// Type and DNS message of a frame.
pub(crate) fn decoded(frame: &[u8]) -> (u64, Vec<u8>) {
    let outer = fields(frame);
    assert_eq!(number(&outer, 15), 1, "MESSAGE");
    assert!(octets(&outer, 2).starts_with(b"clusterdns "));
    let message = fields(octets(&outer, 14));
    let kind = number(&message, 1);
    let dns = octets(&message, if matches!(kind, 5 | 7) { 10 } else { 14 });
    (kind, dns.to_vec())
}

fn kind_of(frame: &[u8]) -> u64 {
    decoded(frame).0
}

/// Fields of a message in Protocol Buffers: number, value of a number, octets.
type Fields = Vec<(u64, u64, Vec<u8>)>;

fn fields(mut from: &[u8]) -> Fields {
    let mut found = Fields::new();
    while !from.is_empty() {
        let tag = varint(&mut from);
        let (value, octets) = match tag & 7 {
            0 => (varint(&mut from), Vec::new()),
            2 => {
                let length = varint(&mut from) as usize;
                let (octets, rest) = from.split_at(length);
                from = rest;
                (0, octets.to_vec())
            }
            5 => {
                let (octets, rest) = from.split_first_chunk::<4>().expect("four octets");
                from = rest;
                (u32::from_le_bytes(*octets).into(), Vec::new())
            }
            other => panic!("wire type {other}"),
        };
        found.push((tag >> 3, value, octets));
    }
    found
}

fn varint(from: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = from.split_first().expect("a number");
        *from = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

fn number(fields: &Fields, field: u64) -> u64 {
    fields.iter().find(|(number, ..)| *number == field).expect("a field").1
}

fn octets(fields: &Fields, field: u64) -> &[u8] {
    &fields.iter().find(|(number, ..)| *number == field).expect("a field").2
}

#[test]
fn dnstap_shows_queries_and_replies_and_comes_back_after_its_reader_was_away() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let socket = folder.0.join("dnstap.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let process = Process::start(&folder.0, &["--dnstap-socket", socket.to_str().unwrap()]);
    let mut reader = Reader::accept(&listener);
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    let (kind, query) = reader.about_a_client();
    assert_eq!(kind, 5, "CLIENT_QUERY");
    assert!(query.windows(5).any(|part| part == b"\x04cart"), "{query:?}");
    let (kind, reply) = reader.about_a_client();
    assert_eq!(kind, 6, "CLIENT_RESPONSE");
    assert_eq!((reply[..2].to_vec(), reply[2] & 0x80), (query[..2].to_vec(), 0x80));
    assert!(reply.ends_with(&[10, 96, 0, 1]), "{reply:?}");
    let before = process.metric("clusterdns_dnstap_sent_total");
    drop(reader);
    // A reader that has gone is seen while nothing is written.
    wait_for("the end of the reader to be seen", || {
        (process.metric("clusterdns_dnstap_connected") == 0.0).then_some(())
    });
    let mut reader = Reader::accept(&listener);
    let kind = {
        assert_eq!(process.ask(CART), address("10.96.0.1"));
        reader.about_a_client().0
    };
    assert_eq!(kind, 5);
    // Counted behind the write, so its reader may be first.
    wait_for("the count of what was sent", || {
        (process.metric("clusterdns_dnstap_sent_total") > before).then_some(())
    });
}

#[test]
fn dnstap_ends_its_stream_when_the_program_ends() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let socket = folder.0.join("dnstap.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut process = Process::start(&folder.0, &["--dnstap-socket", socket.to_str().unwrap()]);
    let mut reader = Reader::accept(&listener);
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    process.signal("INT");
    let mut seen = Vec::new();
    let last = loop {
        match reader.length() {
            0 => {
                let length = reader.length();
                break reader.octets(length);
            }
            length => seen.push(kind_of(&reader.octets(length))),
        }
    };
    assert_eq!(last, [0, 0, 0, 3], "STOP");
    assert!(seen.contains(&5) && seen.contains(&6), "nothing is missing: {seen:?}");
    reader.0.write_all(b"\0\0\0\0\0\0\0\x04\0\0\0\x05").unwrap();
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn dnstap_shows_what_upstreams_are_asked() {
    let folder = Folder::new();
    let port = super::denying_upstream();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tap = listener.local_addr().unwrap().port();
    folder.write(
        "dns.yaml",
        &super::cluster_dns(&format!(
            "{{upstreams: {{servers: [{{address: 127.0.0.1, port: {port}}}]}}, \
             logging: {{dnstap: {{address: 127.0.0.1, port: {tap}}}}}}}"
        )),
    );
    let process = Process::start(&folder.0, &[]);
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = Reader::greet(stream);
    assert_eq!(process.ask("www.example.com"), Answer::NxDomain);
    let mut seen = Vec::new();
    // A probe for loops may be among them (FW50).
    while !(seen.contains(&5) && seen.contains(&6) && seen.contains(&7) && seen.contains(&8)) {
        let (kind, message) = reader.message();
        if message.windows(4).any(|part| part == b"\x03www") {
            seen.push(kind);
        }
    }
}
