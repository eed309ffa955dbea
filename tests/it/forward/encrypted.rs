//! Upstreams over TLS, HTTPS and QUIC (FW2, FW54): connections kept and resumed, names checked, never clear text.

mod forged;
mod https;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crds::config::{self, CaBundle, Config, Group, GroupOptions, Policy, Server, ServerTls};
use dataplane::forward::ConnectionsView;
use dataplane::state::Published;
use futures::future::{Either, join_all, select};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use tests::control_plane::not_allowed;
use tests::upstream::{Credentials, Encrypted, Script, ScriptedUpstream, UpstreamTransport};

use super::stage::{FIRST, Stage, answers, failure, server};

pub(super) const NAME: &str = "dns.example";
const ALL: [UpstreamTransport; 3] =
    [UpstreamTransport::Tls, UpstreamTransport::Https, UpstreamTransport::Quic];
const ANSWERS: &str = "* *\n  answer @ 600 A 192.0.2.9";

fn named(over: UpstreamTransport) -> Encrypted {
    Encrypted::named(over, NAME).unwrap()
}

/// Starts an upstream, and says how the configuration names it.
fn start(encrypted: Encrypted, script: &str) -> (ScriptedUpstream, Server) {
    let transport = match encrypted.over {
        UpstreamTransport::Udp => config::Transport::Udp,
        UpstreamTransport::Tcp => config::Transport::Tcp,
        UpstreamTransport::Tls => config::Transport::Tls,
        UpstreamTransport::Https => config::Transport::Https,
        UpstreamTransport::Quic => config::Transport::Quic,
    };
    let ca_bundle = Some(CaBundle::Pem(encrypted.credentials.authority.clone()));
    let tls = Some(ServerTls { server_name: NAME.to_owned(), ca_bundle });
    let script = Script::one(script).unwrap();
    let upstream = ScriptedUpstream::start_encrypted(encrypted, script).unwrap();
    let server = Server { transport, tls, ..server(upstream.address()) };
    (upstream, server)
}

pub(super) fn config_of(servers: Vec<Server>) -> Config {
    let options = GroupOptions { policy: Policy::Sequential, ..GroupOptions::default() };
    let upstreams = config::Upstreams::Servers(Group { servers, options });
    Config { upstreams, ..Config::default() }
}

/// A forwarder that asks this upstream alone.
fn stage(encrypted: Encrypted, script: &str) -> Stage {
    stage_with(encrypted, script, |_| {})
}

fn stage_with(encrypted: Encrypted, script: &str, change: impl FnOnce(&mut Server)) -> Stage {
    let (upstream, mut server) = start(encrypted, script);
    change(&mut server);
    Stage::of(BTreeMap::from([(IpAddr::from(FIRST), upstream)]), &config_of(vec![server]))
}

pub(super) fn connections(stage: &Stage) -> ConnectionsView {
    let connections = stage.view().groups[0].servers[0].connections.clone();
    connections.unwrap_or_else(|| panic!("{}", stage.view().text()))
}

#[tokio::test]
async fn fw2_an_encrypted_server_gets_padded_queries_and_nothing_in_clear_text() {
    for over in ALL {
        let stage = stage(named(over), ANSWERS);
        for name in ["a.example", "some-longer-name.example.org"] {
            let reply = stage.ask(0, name, RecordType::A).await;
            assert_eq!(answers(&reply), ["192.0.2.9"], "{over:?} {}", stage.view().text());
        }
        let asked = stage.upstream(FIRST).asked();
        assert!(asked.iter().all(|asked| asked.transport == over), "{asked:?}");
        assert!(asked.iter().all(|asked| asked.packet.len().is_multiple_of(128)));
        assert_eq!(stage.upstream(FIRST).in_clear_text(), 0, "{over:?}");
        assert_eq!((connections(&stage).open, connections(&stage).handshakes), (1, 1));
        let text = stage.view().text();
        assert!(text.contains("handshakes 1, 0 of them resumed"), "{text}");
    }
}

#[tokio::test]
async fn fw2_an_encrypted_server_is_asked_over_ipv6() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return not_allowed("IPv6");
    }
    for over in ALL {
        let stage = stage(Encrypted { ip: Ipv6Addr::LOCALHOST.into(), ..named(over) }, ANSWERS);
        let reply = stage.ask(0, "a.example", RecordType::A).await;
        assert_eq!(answers(&reply), ["192.0.2.9"], "{over:?} {}", stage.view().text());
    }
}

#[tokio::test]
async fn fw54_a_thousand_queries_take_no_thousand_handshakes() {
    for over in ALL {
        let stage = stage(named(over), ANSWERS);
        for round in 0..50 {
            let ask = |n| {
                let stage = &stage;
                async move { stage.ask(0, &format!("n{round}-{n}.example"), RecordType::A).await }
            };
            let replies = join_all((0..20).map(ask)).await;
            assert!(replies.iter().all(|reply| answers(reply) == ["192.0.2.9"]), "{over:?}");
        }
        let (full, resumed) = stage.upstream(FIRST).handshakes();
        // One connection; a busy machine may be silent for a second and open another.
        assert!(full == 1 && resumed <= 3, "{over:?}: {full}, {resumed}");
    }
}

#[tokio::test]
async fn fw54_a_connection_that_ends_costs_clients_nothing_and_the_session_is_resumed() {
    for over in ALL {
        let encrypted = Encrypted { queries_per_connection: Some(10), ..named(over) };
        let stage = stage(encrypted, ANSWERS);
        for n in 0..60 {
            let reply = stage.ask(0, &format!("n{n}.example"), RecordType::A).await;
            let text = stage.view().text();
            assert_eq!(answers(&reply), ["192.0.2.9"], "{over:?} {n}: {text}");
        }
        let server = &stage.view().groups[0].servers[0];
        // Each end of a connection would be one failure; a busy machine may be silent by itself.
        assert!(server.good == 60 && server.silent <= 2, "{over:?}: {server:?}");
        let seen = connections(&stage);
        assert!(seen.handshakes >= 6, "{seen:?}");
        assert_eq!(seen.resumed, seen.handshakes - 1, "{over:?}: {seen:?}");
        let lost: u64 =
            ["broken", "stream_reset"].iter().filter_map(|it| seen.failures.get(it)).sum();
        assert!(lost >= 5, "{seen:?}");
        let (full, resumed) = stage.upstream(FIRST).handshakes();
        if over != UpstreamTransport::Quic {
            assert_eq!((full, resumed as u64), (1, seen.resumed));
        }
    }
}

#[tokio::test]
async fn fw2_no_query_is_early_data_also_where_a_server_takes_it() {
    for over in ALL {
        let encrypted =
            Encrypted { queries_per_connection: Some(1), takes_early_data: true, ..named(over) };
        let stage = stage(encrypted, ANSWERS);
        for n in 0..6 {
            let reply = stage.ask(0, &format!("n{n}.example"), RecordType::A).await;
            assert_eq!(answers(&reply), ["192.0.2.9"], "{over:?} {n}: {}", stage.view().text());
        }
        let seen = connections(&stage);
        assert!(seen.resumed >= 3, "{over:?}: {seen:?}");
        assert_eq!(stage.upstream(FIRST).early(), 0, "{over:?}");
    }
}

#[tokio::test]
async fn fw54_replies_come_in_any_order_and_each_reaches_its_query() {
    let rule = |n: u64| {
        format!("n{n}.example. A\n  delay {}ms\n  answer @ 60 A 192.0.2.{n}\n", 400 - 20 * n)
    };
    let script: String = (0..20).map(rule).collect();
    for over in ALL {
        let stage = stage(named(over), &script);
        let ask = |n| {
            let stage = &stage;
            async move { stage.ask(0, &format!("n{n}.example"), RecordType::A).await }
        };
        let replies = join_all((0..20).map(ask)).await;
        for (n, reply) in replies.iter().enumerate() {
            assert_eq!(answers(reply), [format!("192.0.2.{n}")], "{over:?}");
        }
    }
}

/// What a stage reports when no server gives an answer.
async fn refused(stage: Stage, reason: &str) -> String {
    let reply = stage.ask(0, "a.example", RecordType::A).await;
    let text = stage.view().text();
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(22)), "{text}");
    assert!(connections(&stage).failures.contains_key(reason), "{reason}: {text}");
    let asked = stage.upstream(FIRST).asked();
    assert!(asked.iter().all(|asked| asked.transport != UpstreamTransport::Udp), "{asked:?}");
    assert_eq!(stage.upstream(FIRST).in_clear_text(), 0, "{text}");
    text
}

#[tokio::test]
async fn f22_fw2_a_server_that_does_not_prove_its_name_gets_no_query_and_is_named() {
    let cases = ALL.map(|over| async move {
        let other_name = stage_with(named(over), ANSWERS, |server| {
            server.tls.as_mut().unwrap().server_name = "other.example".to_owned();
        });
        let other_authority = stage_with(named(over), ANSWERS, |server| {
            let other = Credentials::of(NAME).unwrap().authority;
            server.tls.as_mut().unwrap().ca_bundle = Some(CaBundle::Pem(other));
        });
        let public = stage_with(named(over), ANSWERS, |server| {
            server.tls.as_mut().unwrap().ca_bundle = None;
        });
        let credentials = Credentials::expired(NAME).unwrap();
        let expired = stage(Encrypted { credentials, ..named(over) }, ANSWERS);
        let cases = [
            (other_name, "certificate_name", "write one of them as tls.serverName"),
            (other_authority, "certificate_authority", "tls.caBundle"),
            (public, "certificate_authority", "tls.caBundle"),
            (expired, "certificate_time", "renew it at the server"),
        ];
        join_all(cases.map(|(stage, reason, advice)| async move {
            let text = refused(stage, reason).await;
            assert!(text.contains("warning: upstream 127.0.0.1"), "{over:?}: {text}");
            assert!(text.contains(advice), "{over:?}: {text}");
        }))
        .await
    });
    join_all(cases).await;
}

#[tokio::test]
async fn f22_a_server_that_is_down_for_its_certificate_is_reported_with_the_remedy() {
    let credentials = Credentials::expired(NAME).unwrap();
    let stage = stage(Encrypted { credentials, ..named(UpstreamTransport::Tls) }, ANSWERS);
    stage.probe();
    stage.ask(0, "a.example", RecordType::A).await;
    stage.until(0, "down").await;
    let down = stage.published.upstreams.down(std::time::Instant::now(), 9);
    assert!(down[0].remedy.is_some_and(|remedy| remedy.contains("renew it")), "{down:?}");
}

#[tokio::test]
async fn fw54_a_quic_server_that_allows_few_streams_answers_all_queries() {
    let encrypted = Encrypted { streams: Some(4), ..named(UpstreamTransport::Quic) };
    let script = "* *\n  delay 20ms\n  answer @ 600 A 192.0.2.9";
    let stage = stage(encrypted, script);
    for round in 0..3 {
        let ask = |n| {
            let stage = &stage;
            async move { stage.ask(0, &format!("n{round}-{n}.example"), RecordType::A).await }
        };
        let replies = join_all((0..20).map(ask)).await;
        let text = stage.view().text();
        assert!(replies.iter().all(|reply| answers(reply) == ["192.0.2.9"]), "{text}");
    }
    // One connection would take all queries if its server allowed it; it does not, so others are opened.
    let seen = connections(&stage);
    assert!(seen.handshakes > 1, "{seen:?}");
}

#[tokio::test]
async fn fw54_a_stream_that_is_reset_costs_other_queries_nothing() {
    let script = format!("{ANSWERS}\nbad.example. *\n  answer @ 600 A 192.0.2.1\n  tcp close\n");
    let half = format!("{ANSWERS}\nbad.example. *\n  answer @ 600 A 192.0.2.1\n  tcp half\n");
    let (quic, https) = (UpstreamTransport::Quic, UpstreamTransport::Https);
    for (over, script, reason) in [
        (quic, &script, "stream_reset"),
        (quic, &half, "malformed"),
        (https, &script, "stream_reset"),
        (https, &half, "stream_reset"),
    ] {
        let stage = stage(named(over), script);
        let bad = stage.ask(0, "bad.example", RecordType::A);
        let good = (0..20).map(|n| {
            let stage = &stage;
            async move { stage.ask(0, &format!("n{n}.example"), RecordType::A).await }
        });
        let (bad, good) = futures::join!(bad, join_all(good));
        assert!(good.iter().all(|reply| answers(reply) == ["192.0.2.9"]), "{over:?}");
        assert_eq!(failure(&bad).0, ResponseCode::ServFail);
        let seen = connections(&stage);
        let ended = seen.failures.get(reason).copied().unwrap_or(0);
        // A busy machine may take the connection for silent once; no stream ends one.
        assert!(ended > 0 && seen.handshakes <= ended.div_ceil(2), "{over:?}: {seen:?}");
    }
}

#[tokio::test]
async fn l16_handshakes_that_do_not_end_take_no_places_of_another_group() {
    const BELOW: usize = 100;
    const BESIDE: usize = 30;
    for over in ALL {
        let (slow, of_slow) = start(Encrypted { stalls: true, ..named(over) }, ANSWERS);
        let (fast, of_fast) = start(named(UpstreamTransport::Tls), ANSWERS);
        let mut config = config_of(vec![of_fast]);
        let group = Group { servers: vec![of_slow], options: GroupOptions::default() };
        config.stub_domains = vec![config::StubDomain { domain: "corp.example".into(), group }];
        let upstreams = [(FIRST.into(), fast), ([10, 0, 0, 3].into(), slow)];
        let stage = Stage::of(BTreeMap::from(upstreams), &config);
        let ask = |group, name: String| {
            let stage = &stage;
            async move { stage.ask(group, &name, RecordType::A).await }
        };
        let below = join_all((0..BELOW).map(|n| ask(1, format!("n{n}.corp.example"))));
        let mut below = Box::pin(below);
        assert!(futures::poll!(below.as_mut()).is_pending());
        let beside = join_all((0..BESIDE).map(|n| ask(0, format!("n{n}.example")))).await;
        assert!(beside.iter().all(|reply| answers(reply) == ["192.0.2.9"]), "{over:?}");
        let below = below.await;
        assert!(below.iter().all(|reply| failure(reply).0 == ResponseCode::ServFail), "{over:?}");
        let slow = stage.view().groups[1].servers[0].connections.clone();
        let tried: u64 = slow.iter().flat_map(|slow| slow.failures.values()).sum();
        assert!(tried <= 2, "one handshake at a time: {tried}");
    }
}

#[tokio::test]
async fn l16_names_without_a_reply_take_no_connection_places_of_others_in_their_group() {
    // Each of them is sent three times within a second: there are 1,024 places.
    const SILENT: usize = 600;
    const OTHERS: usize = 30;
    let silent = |n: usize| format!("n{n}.silent.example");
    let rules: String = (0..SILENT).map(|n| format!("{}. *\n  silent\n", silent(n))).collect();
    for over in ALL {
        // Over QUIC there are no streams for all of them: those that are overdue must be given back.
        let encrypted = Encrypted { streams: Some(48), ..named(over) };
        let stage = stage(encrypted, &format!("{ANSWERS}\n{rules}"));
        stage.probe();
        let ask = |name: String| {
            let stage = &stage;
            async move { stage.ask(0, &name, RecordType::A).await }
        };
        assert_eq!(answers(&ask("first.example".to_owned()).await), ["192.0.2.9"], "{over:?}");
        let without = join_all((0..SILENT).map(|n| ask(silent(n))));
        let others = async {
            let mut answered = 0;
            for n in 0..OTHERS {
                let reply = ask(format!("n{n}.example")).await;
                answered += usize::from(answers(&reply) == ["192.0.2.9"]);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            answered
        };
        let answered = match select(pin!(without), pin!(others)).await {
            // On a slow machine they end before.
            Either::Left((_, others)) => others.await,
            Either::Right((answered, _)) => answered,
        };
        // One that is slow may lose some, but not all that come after the second sends of the silent names.
        assert!(answered >= OTHERS - 5, "{over:?}: {answered}, {}", stage.view().text());
    }
}

#[tokio::test]
async fn a55_another_configuration_keeps_connections() {
    for over in ALL {
        let (upstream, server) = start(named(over), ANSWERS);
        let mut config = config_of(vec![server]);
        let upstreams = BTreeMap::from([(IpAddr::from(FIRST), upstream)]);
        let mut stage = Stage::of(upstreams, &config);
        stage.ask(0, "a.example", RecordType::A).await;
        config.cache.max_ttl_seconds = 60;
        let next = stage.published.upstreams.next(&config, std::path::Path::new("/nonexistent"));
        let records = stage.published.records.clone();
        stage.published = Arc::new(Published { records, upstreams: Arc::new(next) });
        let reply = stage.ask(0, "b.example", RecordType::A).await;
        assert_eq!((answers(&reply), reply.answers[0].ttl), (vec!["192.0.2.9".to_owned()], 60));
        assert_eq!((connections(&stage).opened, stage.upstream(FIRST).handshakes()), (1, (1, 0)));
    }
}
