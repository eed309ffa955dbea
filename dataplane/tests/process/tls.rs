//! The encrypted listeners, as the configuration asks for them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::{Folder, PATIENCE, Process, wait_for};
use crate::load::{is_answer, query};
use crate::service;
use crate::taps::{Reader, lines};

pub(crate) const NAME: &str = "dns.example";
/// Above the ports that need permission, below those that systems give to clients.
pub(crate) const PORT: u16 = 8853;

/// An address of this process alone, so that no other program has its ports.
pub(crate) fn own_address() -> Ipv4Addr {
    let id = std::process::id();
    Ipv4Addr::new(127, 64 | (id >> 16) as u8 & 63, (id >> 8) as u8, id as u8)
}

#[test]
fn t8_the_program_serves_tls_as_the_configuration_asks() {
    let (folder, certificates) = (Folder::new(), Folder::new());
    let trust = secret(&certificates);
    let port = PORT;
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    folder.write(
        "dns.yaml",
        &format!(
            "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {{name: default}}\n\
             spec: {{listeners: {{tls: {{port: {port}, certificate: {{name: dns-tls}}}}}}}}\n"
        ),
    );
    let certificates = certificates.0.to_str().unwrap();
    let process =
        Process::start_at(own_address(), &folder.0, &["--certificates-dir", certificates]);
    let server = SocketAddr::new(process.dns.ip(), port);
    let stream = wait_for("the port to be open", || TcpStream::connect(server).ok());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let session = ClientConnection::new(Arc::new(trust), NAME.try_into().unwrap()).unwrap();
    let mut client = StreamOwned::new(session, stream);
    let packet = query(7);
    let prefix = u16::try_from(packet.len()).unwrap().to_be_bytes();
    client.write_all(&[&prefix[..], &packet].concat()).unwrap();
    let mut length = [0; 2];
    client.read_exact(&mut length).expect("a reply");
    let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
    client.read_exact(&mut reply).unwrap();
    assert!(is_answer(&reply, 7));
    assert_eq!(process.config()["document"]["listeners"]["tls"]["port"], port);
}

/// What clients trust, and a folder with the Secret `dns-tls` in it.
pub(crate) fn secret(certificates: &Folder) -> ClientConfig {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let secret = certificates.0.join("dns-tls");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(secret.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// The reply to query 7 over HTTPS at `/resolve`.
fn over_https(stream: TcpStream, trust: &ClientConfig) -> Vec<u8> {
    let mut client = asked_over_https(stream, trust, &query(7));
    let mut response = Vec::new();
    // A server may leave without the alert.
    let _ = client.read_to_end(&mut response);
    let end = response.windows(4).position(|part| part == b"\r\n\r\n").expect("a response");
    response.split_off(end + 4)
}

/// A client that has sent this query at `/resolve`.
fn asked_over_https(
    stream: TcpStream,
    trust: &ClientConfig,
    packet: &[u8],
) -> StreamOwned<ClientConnection, TcpStream> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut https = trust.clone();
    https.alpn_protocols = vec![b"http/1.1".to_vec()];
    let session = ClientConnection::new(Arc::new(https), NAME.try_into().unwrap()).unwrap();
    let mut client = StreamOwned::new(session, stream);
    let head = format!(
        "POST /resolve HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\nContent-Type: application/dns-message\r\n\
         Content-Length: {}\r\n\r\n",
        packet.len()
    );
    client.write_all(&[head.as_bytes(), packet].concat()).unwrap();
    client
}

/// The reply to query 0 over QUIC.
fn over_quic(server: SocketAddr, trust: &ClientConfig) -> Vec<u8> {
    let mut quic = trust.clone();
    quic.alpn_protocols = vec![b"doq".to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(quic).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
        let connection = endpoint.connect(server, NAME).unwrap().await.expect("a connection");
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        let packet = query(0);
        let prefix = u16::try_from(packet.len()).unwrap().to_be_bytes();
        send.write_all(&[&prefix[..], &packet].concat()).await.unwrap();
        send.finish().unwrap();
        receive.read_to_end(1 << 17).await.unwrap().split_off(2)
    })
}

#[test]
fn t8_the_program_serves_https_and_quic_as_the_configuration_asks() {
    let (folder, certificates) = (Folder::new(), Folder::new());
    let trust = secret(&certificates);
    let port = PORT + 1;
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    folder.write(
        "dns.yaml",
        &crate::cluster_dns(&format!(
            "{{listeners: {{https: {{port: {port}, path: /resolve, certificate: {{name: dns-tls}}}}, \
             quic: {{port: {port}, certificate: {{name: dns-tls}}}}}}}}"
        )),
    );
    let flags = ["--certificates-dir", certificates.0.to_str().unwrap()];
    let process = Process::start_at(own_address(), &folder.0, &flags);
    let server = SocketAddr::new(process.dns.ip(), port);
    let stream = wait_for("the port to be open", || TcpStream::connect(server).ok());
    assert!(is_answer(&over_https(stream, &trust), 7));
    assert!(is_answer(&over_quic(server, &trust), 0));
    let expiry =
        process.metric("clusterdns_certificate_expiry_timestamp_seconds{secret=\"dns-tls\"}");
    assert!(expiry > 1_700_000_000.0);
    let start =
        process.metric("clusterdns_certificate_start_timestamp_seconds{secret=\"dns-tls\"}");
    assert!(start < expiry, "{start}");
    let shown = process.config()["certificates"][0].clone();
    assert_eq!(
        (&shown["secret"], &shown["trouble"]),
        (&"dns-tls".into(), &serde_json::Value::Null)
    );
}

#[test]
fn o18_the_query_log_and_dnstap_show_what_came_over_https_and_quic() {
    let (folder, certificates) = (Folder::new(), Folder::new());
    let trust = secret(&certificates);
    let port = PORT + 2;
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    folder.write(
        "dns.yaml",
        &crate::cluster_dns(&format!(
            "{{logging: {{queries: All}}, listeners: {{https: {{port: {port}, path: /resolve, \
             certificate: {{name: dns-tls}}}}, quic: {{port: {port}, certificate: {{name: dns-tls}}}}}}}}"
        )),
    );
    let socket = folder.0.join("dnstap.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let certificates = certificates.0.to_str().unwrap();
    let flags = ["--certificates-dir", certificates, "--dnstap-socket", socket.to_str().unwrap()];
    let process = Process::start_at(own_address(), &folder.0, &flags);
    let mut reader = Reader::accept(&listener);
    let server = SocketAddr::new(process.dns.ip(), port);
    let stream = wait_for("the port to be open", || TcpStream::connect(server).ok());
    // What DNSTAP calls them: CLIENT_QUERY, CLIENT_RESPONSE; DOH, DOQ.
    let (query, reply) = (5, 6);
    for (name, protocol) in [("https", 4), ("quic", 7)] {
        match protocol {
            4 => assert!(is_answer(&over_https(stream.try_clone().unwrap(), &trust), 7)),
            _ => assert!(is_answer(&over_quic(server, &trust), 0)),
        }
        assert_eq!(reader.kind_and_protocol_of_a_client(), (query, protocol));
        assert_eq!(reader.kind_and_protocol_of_a_client(), (reply, protocol));
        let line = wait_for("a line", || {
            lines(&process).into_iter().find(|line| line["transport"] == name)
        });
        assert_eq!((&line["outcome"], &line["type"]), (&"NOERROR".into(), &"A".into()));
        assert_eq!(line["name"], "cart.shop.svc.cluster.local.");
    }
}

/// A client that gives up is one that had to wait, so its line is needed to find the reason.
#[test]
fn o18_a_query_that_its_client_gave_up_over_https_is_in_the_query_log() {
    let (folder, certificates) = (Folder::new(), Folder::new());
    let trust = secret(&certificates);
    let port = PORT + 4;
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let upstream = silent.local_addr().unwrap().port();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    folder.write(
        "dns.yaml",
        &crate::cluster_dns(&format!(
            "{{logging: {{queries: All}}, upstreams: {{servers: [{{address: 127.0.0.1, port: {upstream}}}]}}, \
             listeners: {{https: {{port: {port}, path: /resolve, certificate: {{name: dns-tls}}}}}}}}"
        )),
    );
    let flags = ["--certificates-dir", certificates.0.to_str().unwrap()];
    let process = Process::start_at(own_address(), &folder.0, &flags);
    let server = SocketAddr::new(process.dns.ip(), port);
    let stream = wait_for("the port to be open", || TcpStream::connect(server).ok());
    let mut packet = query(7);
    packet.splice(12..packet.len() - 4, *b"\x04gone\x07example\x00");
    let client = asked_over_https(stream, &trust, &packet);
    wait_for("the upstream to be asked", || {
        let mut asked = [0; 512];
        let octets = silent.recv(&mut asked).unwrap();
        asked[..octets].windows(5).any(|part| part == b"\x04gone").then_some(())
    });
    drop(client);
    let line = wait_for("its line", || {
        lines(&process).into_iter().find(|line| line["name"] == "gone.example.")
    });
    assert_eq!((&line["transport"], &line["outcome"]), (&"https".into(), &"SERVFAIL".into()));
    assert_eq!(line["origin"], "failed");
}

#[test]
fn o18_a_listener_whose_port_is_taken_is_shown_until_it_is_open() {
    let (folder, certificates) = (Folder::new(), Folder::new());
    secret(&certificates);
    let port = PORT + 7;
    let taken = TcpListener::bind((own_address(), port)).unwrap();
    let configure = |more: &str| {
        let tls = format!("{{port: {port}, certificate: {{name: dns-tls}}}}");
        folder.write(
            "dns.yaml",
            &crate::cluster_dns(&format!("{{listeners: {{tls: {tls}}}{more}}}")),
        );
    };
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    configure("");
    let flags = ["--certificates-dir", certificates.0.to_str().unwrap()];
    let process = Process::start_at(own_address(), &folder.0, &flags);
    let closed = || process.config()["closedListeners"].clone();
    let shown = wait_for("it to be shown", || closed().get(0).cloned());
    assert_eq!((&shown["listener"], &shown["port"]), (&"TLS".into(), &port.into()));
    let why = shown["why"].as_str().unwrap();
    assert!(why.contains("in use") && why.contains("in spec.listeners"), "{shown}");
    // It is tried again with the next configuration.
    drop(taken);
    configure(", ttlSeconds: 7");
    wait_for("it to be open", || TcpStream::connect((own_address(), port)).ok());
    wait_for("it to be shown no more", || closed().as_array().unwrap().is_empty().then_some(()));
}
