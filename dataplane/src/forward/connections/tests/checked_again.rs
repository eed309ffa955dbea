//! A certificate that expires is noticed although the server resumes every session (FW2): their line has an end.

use std::net::Ipv4Addr;

use crds::config::{CaBundle, ServerTls, Transport};
use quinn::Endpoint;
use quinn::crypto::rustls::QuicServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::server::ServerSessionMemoryCache;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ServerConfig, SupportedProtocolVersion};

use super::*;
use crate::forward::server_identity::ServerIdentity;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// The server as it is with its certificate, and with that certificate after its time. Both know the same sessions.
struct Configs {
    good: Arc<ServerConfig>,
    expired: Arc<ServerConfig>,
    identity: ServerIdentity,
}

fn configs(
    transport: Transport,
    version: &'static SupportedProtocolVersion,
    address: SocketAddr,
) -> Configs {
    let key = rcgen::KeyPair::generate().unwrap();
    let sessions = ServerSessionMemoryCache::new(64);
    let made = |year| {
        let mut params = rcgen::CertificateParams::new(["dns.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.self_signed(&key).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let protocol: &[u8] = if transport == Transport::Quic { b"doq" } else { b"dot" };
        config.alpn_protocols = vec![protocol.to_vec()];
        config.session_storage = Arc::clone(&sessions) as _;
        (certificate.pem(), Arc::new(config))
    };
    let ((authority, good), (_, expired)) = (made(4000), made(2002));
    let tls = ServerTls {
        server_name: "dns.example".to_owned(),
        ca_bundle: Some(CaBundle::Pem(authority)),
    };
    Configs { good, expired, identity: ServerIdentity { address, transport, tls: Some(tls) } }
}

/// Sends back what comes on each connection, with the configuration of the moment.
async fn echo(listener: TcpListener, config: Arc<Mutex<Arc<ServerConfig>>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = TlsAcceptor::from(Arc::clone(&config.lock().unwrap()));
        tokio::spawn(async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            while let Ok(length) = stream.read_u16().await {
                let mut octets = vec![0; length.into()];
                stream.read_exact(&mut octets).await.unwrap();
                write_reply(&mut stream, &octets).await;
                stream.flush().await.unwrap();
            }
        });
    }
}

/// Whether a new connection is made, on which the tickets of its session have come.
async fn connects(connections: &Arc<Connections>) -> Result<(), Reason> {
    let made = Arc::clone(connections).connect().await;
    let connection = made.map_err(|failure| failure.reason)?;
    let place = connection.place(query, now()).unwrap();
    place.reply().await.unwrap();
    connection.close();
    Ok(())
}

async fn is_noticed(configs: Configs, present: impl Fn(&Arc<ServerConfig>)) {
    let client = Client::new(&configs.identity).unwrap();
    let connections = Arc::new(Connections::new(configs.identity.address, client, Arc::default()));
    let handshakes = || {
        let counted = connections.counted(now());
        (counted.full, counted.resumed)
    };
    present(&configs.good);
    let full_then_resumed = [(1, 0), (1, 1), (1, 2)];
    for expected in full_then_resumed {
        assert_eq!((connects(&connections).await, handshakes()), (Ok(()), expected));
    }
    // From now on only a full handshake shows it.
    present(&configs.expired);
    let pass = |time| connections.client.as_ref().unwrap().pass(time);
    pass(HOUR - MINUTE);
    assert_eq!((connects(&connections).await, handshakes()), (Ok(()), (1, 3)));
    pass(MINUTE);
    for _ in 0..2 {
        assert_eq!(connects(&connections).await, Err(Reason::CertificateTime));
    }
    present(&configs.good);
    for expected in [(2, 3), (2, 4)] {
        assert_eq!((connects(&connections).await, handshakes()), (Ok(()), expected));
    }
}

#[tokio::test]
async fn f22_fw2_an_expired_certificate_is_noticed_although_sessions_are_resumed() {
    for version in [&TLS12, &TLS13] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let configs = configs(Transport::Tls, version, listener.local_addr().unwrap());
        let presented = Arc::new(Mutex::new(Arc::clone(&configs.good)));
        tokio::spawn(echo(listener, Arc::clone(&presented)));
        is_noticed(configs, |config| *presented.lock().unwrap() = Arc::clone(config)).await;
    }
}

#[tokio::test]
async fn f22_fw2_an_expired_certificate_is_noticed_over_quic_too() {
    let of = |config: &Arc<ServerConfig>| {
        let config = QuicServerConfig::try_from(Arc::clone(config)).unwrap();
        quinn::ServerConfig::with_crypto(Arc::new(config))
    };
    let any = configs(Transport::Quic, &TLS13, (Ipv4Addr::LOCALHOST, 0).into());
    let listener = Endpoint::server(of(&any.good), any.identity.address).unwrap();
    let mut configs = any;
    configs.identity.address = listener.local_addr().unwrap();
    tokio::spawn(echo_quic(listener.clone(), Arc::default()));
    is_noticed(configs, |config| listener.set_server_config(Some(of(config)))).await;
}
