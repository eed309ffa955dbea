//! Each form of file, whole and broken at every octet.

use super::*;

/// A query for `a.example` of this type.
fn query(kind: u8) -> Vec<u8> {
    [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x01A\x07example\0\0", &[kind, 0, 1]].concat()
}

/// An IPv4 packet with a datagram to this port.
fn packet(port: u16, message: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet.extend([0x9c, 0x40]);
    packet.extend(port.to_be_bytes());
    packet.extend((8 + message.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(message);
    packet
}

fn ethernet(packet: &[u8]) -> Vec<u8> {
    [&[0; 12][..], &[0x81, 0, 0, 5, 8, 0], packet].concat()
}

fn pcap(link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
    file.extend(link.to_le_bytes());
    for frame in frames {
        file.extend([0; 8]);
        file.extend(
            [(frame.len() as u32).to_le_bytes(), (frame.len() as u32).to_le_bytes()].concat(),
        );
        file.extend(frame);
    }
    file
}

fn pcapng(link: u16, packets: &[Vec<u8>]) -> Vec<u8> {
    let block = |kind: u32, body: Vec<u8>| {
        let length = (body.len() as u32 + 12).to_be_bytes();
        [&kind.to_be_bytes()[..], &length, &body, &length].concat()
    };
    let section = [&[0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0][..], &[0xff; 8]].concat();
    let interface = [&link.to_be_bytes()[..], &[0; 6]].concat();
    let mut file = [block(0x0a0d_0d0a, section), block(1, interface)].concat();
    for packet in packets {
        let length = (packet.len() as u32).to_be_bytes();
        let mut body = [&[0; 12][..], &length, &length, packet].concat();
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(block(6, body));
    }
    file
}

/// A frame with this message and its sender.
fn dnstap_frame(kind: u8, message: &[u8]) -> Vec<u8> {
    let inner = [&[1 << 3, kind, 10 << 3 | 2, message.len() as u8][..], message].concat();
    // A fixed number of 32 bits in front, as times have.
    let inner = [&[9 << 3 | 5, 1, 2, 3, 4][..], &inner].concat();
    let outer = [&[1 << 3 | 2, 1, b'x', 14 << 3 | 2, inner.len() as u8][..], &inner].concat();
    let outer = [&outer[..], &[15 << 3, 1]].concat();
    [&(outer.len() as u32).to_be_bytes()[..], &outer].concat()
}

fn dnstap(frames: &[Vec<u8>]) -> Vec<u8> {
    let control = |kind: u8| vec![0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, kind];
    [control(2), frames.concat(), control(3)].concat()
}

fn texts(captured: &Captured) -> Vec<String> {
    captured.questions.list().iter().map(ToString::to_string).collect()
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let reply = || {
        let mut reply = query(1);
        reply[2] |= 0x80;
        reply
    };
    let frames = |wrap: fn(&[u8]) -> Vec<u8>| {
        vec![
            wrap(&packet(53, &query(1))),
            wrap(&packet(5353, &query(1))),
            wrap(&packet(53, &reply())),
            wrap(&packet(53, &query(28))),
        ]
    };
    let raw = |packet: &[u8]| packet.to_vec();
    let taps = [(5, query(1)), (7, query(1)), (6, reply()), (1, query(28))];
    let taps: Vec<_> = taps.iter().map(|(kind, message)| dnstap_frame(*kind, message)).collect();
    vec![
        ("pcap of Ethernet", pcap(1, &frames(ethernet))),
        ("pcap of IP", pcap(101, &frames(raw))),
        ("pcapng", pcapng(101, &frames(raw))),
        ("dnstap", dnstap(&taps)),
    ]
}

#[test]
fn questions_of_clients_are_read_from_captures_and_dnstap() {
    for (what, file) in files() {
        let captured = read(&file);
        assert_eq!(texts(&captured), ["a.example. A", "a.example. AAAA"], "{what}");
        assert_eq!((captured.passed_over, &captured.broken), (2, &None), "{what}");
    }
}

#[test]
fn a_broken_file_ends_with_what_was_read_before() {
    for (what, file) in files() {
        for end in 0..file.len() {
            let captured = read(&file[..end]);
            assert!(captured.count <= 2, "{what}");
        }
        let captured = read(&file[..file.len() - 17]);
        assert_eq!(texts(&captured)[..1], ["a.example. A"], "{what}");
        assert!(captured.broken.is_some(), "{what}");
        // Every octet is damaged in turn, the lengths too.
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 0xff;
            assert!(read(&damaged).count <= 3, "{what} at {at}");
        }
    }
}

#[test]
fn questions_are_read_from_the_logs_of_both_servers() {
    let log = r#"
{"timestamp":"2026-01-01T00:00:00Z","message":"query","client":"10.0.0.1:1","transport":"udp","name":"A.example.","type":"A","outcome":"NOERROR"}
2026-01-01T00:00:00Z stdout F {"message":"query","name":"b.example.","type":"TYPE65","outcome":"NOERROR"}
{"message":"started","version":"1"}
[INFO] 10.244.0.5:40212 - 1234 "AAAA IN c.example. udp 45 false 512" NOERROR qr,aa,rd 106 0.000127s
[INFO] 10.244.0.5:40212 - 1234 "AXFR IN c.example. tcp 45 false 512" REFUSED qr 0 0.000127s
[INFO] plugin/reload: Running configuration SHA512 = "x"
"#;
    let captured = read(log.as_bytes());
    assert_eq!(texts(&captured), ["a.example. A", "b.example. HTTPS", "c.example. AAAA"]);
    assert_eq!((captured.passed_over, captured.broken), (3, None));
}

#[test]
fn a_file_with_more_questions_than_can_be_asked_keeps_no_more() {
    use crate::compare::names::MAX_QUESTIONS;
    let line = |number: usize| format!("\"A IN n{number}. udp\n");
    let file: String = (0..MAX_QUESTIONS + 7).chain([3, 4]).map(line).collect();
    let captured = read(file.as_bytes());
    assert_eq!(captured.questions.list().len(), MAX_QUESTIONS);
    assert_eq!((captured.count, captured.questions.left_out), (MAX_QUESTIONS + 9, 7));
}
