//! The listener for DNS over TLS, as the configuration asks for it.

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

#[test]
fn t8_the_program_serves_tls_as_the_configuration_asks() {
    let (folder, certificates) = (Folder::new(), Folder::new());
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    let secret = certificates.0.join("dns-tls");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(secret.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let trust = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    // On an address of this process alone, so that no other program has its port.
    let id = std::process::id();
    let address = Ipv4Addr::new(127, 64 | (id >> 16) as u8 & 63, (id >> 8) as u8, id as u8);
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
    let process = Process::start_at(address, &folder.0, &["--certificates-dir", certificates]);
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
