//! A dnstap reader that is not ours: `fstrm_capture` of the authors of Frame Streams, where it is installed (Debian:
//! fstrm-bin). It keeps what it reads in a file, which is compared with what was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use super::harness::{Folder, Process, wait_for};
use super::missing::not_installed;
use super::taps::decoded;
use super::{cluster_dns, service};

const READER: &str = "fstrm_capture";
const CONTENT_TYPE: &str = "protobuf:dnstap.Dnstap";
/// Queries of a client; each has a reply.
const ASKED: u16 = 200;

/// The reader, which writes to a file.
struct Capture {
    child: Child,
    file: PathBuf,
    said: Arc<Mutex<String>>,
}

impl Capture {
    /// Starts it; nothing where it is not installed.
    fn start(folder: &Folder, at: &[&str]) -> Option<Capture> {
        let file = folder.0.join("captured.fstrm");
        let mut command = Command::new(READER);
        command.args(["-dddd", "-t", CONTENT_TYPE, "-w"]).arg(&file).args(at);
        let Ok(mut child) = command.stderr(Stdio::piped()).spawn() else {
            not_installed(READER);
            return None;
        };
        let said = Arc::new(Mutex::new(String::new()));
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let kept = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Some(Capture { child, file, said })
    }

    fn wait_for(&self, text: &str) {
        wait_for(text, || self.said.lock().unwrap().contains(text).then_some(()));
    }

    /// Types and DNS messages that it has written, once a stream has come to its end.
    fn messages(mut self) -> Vec<(u64, Vec<u8>)> {
        self.wait_for("sending FSTRM_CONTROL_FINISH");
        self.wait_for("closing (read");
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        wait_for("the reader to end", || self.child.try_wait().unwrap());
        let mut octets = &std::fs::read(&self.file).unwrap()[..];
        let start = frame(&mut octets).expect_err("START");
        assert!(start.ends_with(CONTENT_TYPE.as_bytes()), "{start:?}");
        let mut found = Vec::new();
        loop {
            match frame(&mut octets) {
                Ok(data) => found.push(decoded(&data)),
                Err(stop) => {
                    assert_eq!(stop, [0, 0, 0, 3], "STOP");
                    assert!(octets.is_empty());
                    return found;
                }
            }
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.said.lock().unwrap());
        }
    }
}

/// The next data frame of a file, or the control frame that comes in its place.
fn frame(octets: &mut &[u8]) -> Result<Vec<u8>, Vec<u8>> {
    let mut length = || {
        let (first, rest) = octets.split_first_chunk::<4>().expect("a length");
        *octets = rest;
        u32::from_be_bytes(*first) as usize
    };
    let data = length();
    let is_control = data == 0;
    let octets_of = if is_control { length() } else { data };
    let (frame, rest) = octets.split_at(octets_of);
    *octets = rest;
    if is_control { Err(frame.to_vec()) } else { Ok(frame.to_vec()) }
}

/// Asks over UDP and TCP in turn; what was asked, and what came back.
fn ask_all(process: &Process) -> Vec<(Vec<u8>, Vec<u8>)> {
    let ask = |id: u16| {
        let mut query = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        query[..2].copy_from_slice(&id.to_be_bytes());
        query.extend_from_slice(b"\x04cart\x04shop\x03svc\x07cluster\x05local\0\0\x01\0\x01");
        let mut reply = vec![0; 1500];
        let length = if id.is_multiple_of(2) {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket.set_read_timeout(Some(super::harness::PATIENCE)).unwrap();
            socket.send_to(&query, process.dns).unwrap();
            socket.recv_from(&mut reply).unwrap().0
        } else {
            let mut stream = TcpStream::connect(process.dns).unwrap();
            stream.set_read_timeout(Some(super::harness::PATIENCE)).unwrap();
            let framed = [&(query.len() as u16).to_be_bytes()[..], &query].concat();
            stream.write_all(&framed).unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let length = usize::from(u16::from_be_bytes(length));
            stream.read_exact(&mut reply[..length]).unwrap();
            length
        };
        reply.truncate(length);
        (query, reply)
    };
    (0..ASKED).map(ask).collect()
}

/// Every query and its reply, each as it was on the wire, and no others of clients.
fn compare(captured: &[(u64, Vec<u8>)], asked: &[(Vec<u8>, Vec<u8>)]) {
    let of = |wanted: u64| {
        let of_kind = captured.iter().filter(|(kind, _)| *kind == wanted);
        let mut found: Vec<_> = of_kind.map(|(_, message)| message).collect();
        found.sort();
        found
    };
    let (mut queries, mut replies): (Vec<_>, Vec<_>) = asked.iter().map(|(q, r)| (q, r)).unzip();
    queries.sort();
    replies.sort();
    assert_eq!(of(5), queries, "CLIENT_QUERY");
    assert_eq!(of(6), replies, "CLIENT_RESPONSE");
}

fn captured(capture: Capture, mut process: Process) {
    wait_for("the reader to be connected", || {
        (process.metric("clusterdns_dnstap_connected") == 1.0).then_some(())
    });
    let asked = ask_all(&process);
    process.signal("INT");
    assert_eq!(process.wait().code(), Some(0));
    compare(&capture.messages(), &asked);
}

#[test]
fn dnstap_over_a_unix_socket_is_read_by_fstrm_capture() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let socket = folder.0.join("dnstap.sock");
    let Some(capture) = Capture::start(&folder, &["-u", socket.to_str().unwrap()]) else { return };
    capture.wait_for("opened output file");
    captured(capture, Process::start(&folder.0, &["--dnstap-socket", socket.to_str().unwrap()]));
}

#[test]
fn dnstap_over_tcp_is_read_by_fstrm_capture() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    // Free a moment ago; where it is taken meanwhile, the reader ends and another one is tried.
    let started = (0..10).find_map(|_| {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut capture = Capture::start(&folder, &["-a", "127.0.0.1", "-p", &port.to_string()])?;
        let is_ready = wait_for("the reader", || {
            let is_ready = capture.said.lock().unwrap().contains("opened output file");
            if is_ready { Some(true) } else { capture.child.try_wait().unwrap().map(|_| false) }
        });
        is_ready.then_some((capture, port))
    });
    let Some((capture, port)) = started else { return };
    let spec = format!("{{logging: {{dnstap: {{address: 127.0.0.1, port: {port}}}}}}}");
    folder.write("dns.yaml", &cluster_dns(&spec));
    captured(capture, Process::start(&folder.0, &[]));
}
