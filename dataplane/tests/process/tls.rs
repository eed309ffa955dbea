//! The encrypted listeners, as the configuration asks for them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::{Folder, PATIENCE, Process, wait_for};
use crate::load::{is_answer, query};
use crate::service;

const NAME: &str = "dns.example";
/// Above those that need permission, below those that systems give away.
const PORT: u16 = 8853;

/// An address of this process alone, so that no other program has its ports.
fn own_address() -> Ipv4Addr {
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

/// What clients are to trust, and a folder with the Secret `dns-tls` in it.
fn secret(certificates: &Folder) -> ClientConfig {
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
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut https = trust.clone();
    https.alpn_protocols = vec![b"http/1.1".to_vec()];
    let session = ClientConnection::new(Arc::new(https), NAME.try_into().unwrap()).unwrap();
    let mut client = StreamOwned::new(session, stream);
    let packet = query(7);
    let head = format!(
        "POST /resolve HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\nContent-Type: application/dns-message\r\n\
         Content-Length: {}\r\n\r\n",
        packet.len()
    );
    client.write_all(&[head.as_bytes(), &packet].concat()).unwrap();
    let mut response = Vec::new();
    // A server may leave without the alert.
    let _ = client.read_to_end(&mut response);
    let end = response.windows(4).position(|part| part == b"\r\n\r\n").expect("a response");
    assert!(is_answer(&response[end + 4..], 7), "{}", String::from_utf8_lossy(&response));

    let mut quic = trust;
    quic.alpn_protocols = vec![b"doq".to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(quic).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reply = runtime.block_on(async {
        let mut endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
        let connection = endpoint.connect(server, NAME).unwrap().await.expect("a connection");
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        let packet = query(0);
        let prefix = u16::try_from(packet.len()).unwrap().to_be_bytes();
        send.write_all(&[&prefix[..], &packet].concat()).await.unwrap();
        send.finish().unwrap();
        receive.read_to_end(1 << 17).await.unwrap()
    });
    assert!(is_answer(&reply[2..], 0));
    let expiry =
        process.metric("clusterdns_certificate_expiry_timestamp_seconds{secret=\"dns-tls\"}");
    assert!(expiry > 1_700_000_000.0);
    let shown = process.config()["certificates"][0].clone();
    assert_eq!(
        (&shown["secret"], &shown["trouble"]),
        (&"dns-tls".into(), &serde_json::Value::Null)
    );
}
