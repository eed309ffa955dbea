//! Encrypted listeners that the configuration changes while they are open: another path, another Secret.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::Config;
use crds::config::{HttpsListener, Listeners as Wanted, QuicListener, TlsListener};
use dataplane::listeners::Listeners;
use dataplane::settings;
use tokio::sync::watch;

use crate::harness::{House, OURS, PATIENCE, Reply, query};
use crate::https::{self, patient};
use crate::quic;
use crate::tls::{self, Secret};

/// TLS and QUIC with one Secret, HTTPS with another, at this path.
fn config(tls: &str, https: &str, path: &str) -> Config {
    let certificate = |of: &str| of.to_owned();
    let listeners = Wanted {
        tls: Some(TlsListener { port: 0, certificate: certificate(tls) }),
        https: Some(HttpsListener {
            port: 0,
            path: path.to_owned(),
            certificate: certificate(https),
        }),
        quic: Some(QuicListener { port: 0, certificate: certificate(tls) }),
    };
    Config { listeners, ..Config::default() }
}

fn address(listeners: &Listeners, name: &str) -> SocketAddr {
    let mut all = listeners.addresses();
    all.find(|(found, _)| *found == name).expect("it is open").1[0]
}

#[test]
fn e5_what_came_at_start_counts_and_a_port_that_becomes_free_is_opened() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let (base, old) = (Secret::new("follows"), Config::default());
    let house = House::on(&["127.0.0.1:0"], settings::limits(&old, u64::MAX));
    let mut new = Config::default();
    new.listeners.quic = Some(QuicListener { port, certificate: "one".into() });
    new.limits.tcp_connections = 1;
    // It was there before anything follows the configurations.
    let (configs, follower) = watch::channel(Arc::new(old));
    configs.send_replace(Arc::new(new));
    let closed = || house.serving.counters().closed_listeners().len();
    let watched = async {
        let begin = Instant::now();
        let mut taken = Some(taken);
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert!(begin.elapsed() < 2 * PATIENCE);
            match (closed(), taken.is_some()) {
                (0, false) => return,
                (0, true) => {}
                // Now the other process lets go of it.
                (_, _) => taken = None,
            }
        }
    };
    let listeners = Listeners::new(base.0.clone());
    house.runtime.block_on(async {
        tokio::select! {
            () = watched => {}
            never = listeners.follow(&house.serving, follower) => match never {},
        }
    });
    assert_eq!(house.serving.limits().tcp_connections, 1);
}

#[test]
fn o18_another_path_and_secrets_that_change_places_are_used_at_once() {
    let base = Secret::new("changes");
    let (one, two) = (base.0.join("one"), base.0.join("two"));
    let made = [&one, &two].map(|folder: &_| {
        std::fs::create_dir_all(folder).unwrap();
        tls::renew(Path::new(folder))
    });
    let house = House::on(&["127.0.0.1:0"], patient());
    let mut listeners = Listeners::new(base.0.clone());
    listeners.open(&house.serving, &config("one", "two", "/dns-query"));
    let at = |name| address(&listeners, name);
    let (over_tls, over_https, over_quic) = (at("TLS"), at("HTTPS"), at("QUIC"));
    let mut open = tls::Client::connect(over_tls, &made[0]).expect("a session");
    let mut kept = https::Client::connect(over_https, &made[1]);
    assert_eq!(kept.post(&query(1, OURS)).status, 200);

    listeners.open(&house.serving, &config("two", "one", "/resolve"));
    assert_eq!(listeners.addresses().count(), 3, "none was opened twice");
    assert_eq!(kept.post(&query(2, OURS)).status, 404, "on a connection that is open, too");
    let headers = "Content-Type: application/dns-message\r\nContent-Length: ";
    let packet = query(3, OURS);
    let headers = format!("{headers}{}\r\n", packet.len());
    let response = kept.request("POST /resolve", &headers, &packet);
    assert_eq!((response.status, Reply::parse(&response.body)), (200, Reply::ours(3)));
    assert_eq!(open.ask(4, OURS), Reply::ours(4), "what is open stays");
    let mut new = tls::Client::connect(over_tls, &made[1]).expect("the other certificate");
    assert_eq!(new.ask(5, OURS), Reply::ours(5));
    assert!(tls::Client::connect(over_tls, &made[0]).is_err(), "not the one before");
    let mut new = https::Client::connect(over_https, &made[0]);
    assert_eq!(new.request("POST /resolve", &headers, &packet).status, 200);
    let begin = Instant::now();
    while let Err(error) = house.runtime.block_on(quic::try_to_connect(over_quic, &made[1])) {
        assert!(begin.elapsed() < PATIENCE, "QUIC uses the other certificate: {error}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let secrets = house.serving.counters().certificates().into_iter();
    assert_eq!(secrets.map(|it| it.secret).collect::<Vec<_>>(), ["two", "one", "two"]);
}
