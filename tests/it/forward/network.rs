//! A network that loses datagrams and lets replies overtake each other (F17), over real sockets. That 99.9 % of lookups succeed
//! is counted over many more of them without sockets, by the test of the same row in dataplane/src/forward/plan/tests.rs. And
//! one that leads nowhere.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Mutex;

use futures::future::join_all;
use hickory_proto::rr::RecordType;
use serde_json::Value;
use tests::client::{Section, Transport};
use tests::control_plane::not_allowed;
use tests::data_plane::{DataPlane, wait_for};
use tests::netns::{has_nft, inside, nft};
use tests::scratch::Scratch;
use tests::upstream::{Script, ScriptedUpstream, UpstreamTransport};

use super::stage::{FIRST, SECOND, Stage, answers};

/// At the same time, to each group of servers.
const LOOKUPS: usize = 400;
/// Lookups that may fail. Of two or six datagrams in a row, all are lost with these chances; then a connection is tried.
///
/// - One server, 30 % lost on the way there and 30 % on the way back, connections spared: 0.51^2 = 26 % go over TCP, where
///   nothing is lost. None fails.
/// - Two servers, 30 % of everything lost on the way there: 0.3^6 = 0.07 %, also if no connection helps. Of 400 that
///   is 0.29, and six or more fail in one run of a million: 0.29^6 / 720.
const FAILED: usize = 5;

/// A script of servers that have an address for every name of the test, 150 to 250 ms after they are asked.
fn slow(servers: &str) -> String {
    let mut script = format!("server {servers}\n");
    // Another delay for each name, in no order: a generator of Knuth's.
    let mut state = 17_u64;
    for name in 0..LOOKUPS {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let delay_ms = 150 + (state >> 33) % 100;
        writeln!(script, "n{name}.example. A\n  delay {delay_ms}ms\n  answer @ 60 A 192.0.2.1")
            .unwrap();
    }
    script
}

fn stage(servers: &str) -> Stage {
    Stage::with(&slow(servers), |config| config.limits.in_flight_per_client = 2 * LOOKUPS as u32)
}

/// Asks for all names at once; returns how many had their address, and the names in the order of their replies.
async fn ask_all(stage: &Stage) -> (usize, Vec<usize>) {
    let order = Mutex::new(Vec::new());
    let asks = (0..LOOKUPS).map(async |name| {
        let reply = stage.ask(0, &format!("n{name}.example"), RecordType::A).await;
        order.lock().unwrap().push(name);
        answers(&reply) == ["192.0.2.1"]
    });
    let succeeded = join_all(asks).await.into_iter().filter(|has| *has).count();
    (succeeded, order.into_inner().unwrap())
}

#[test]
fn f17_lookups_succeed_where_datagrams_are_lost_and_overtake_each_other() {
    inside(async || {
        if !has_nft("add table inet loss") {
            return;
        }
        let (one, two) = (stage("10.0.0.2"), stage("10.0.0.2 10.0.0.3"));
        let port = |stage: &Stage, ip| stage.upstream(ip).address().port();
        let (there, first, second) = (port(&one, FIRST), port(&two, FIRST), port(&two, SECOND));
        nft(&format!(
            "add chain inet loss in {{ type filter hook input priority 0; }}
             add rule inet loss in udp dport {there} numgen random mod 100 < 30 drop
             add rule inet loss in udp sport {there} numgen random mod 100 < 30 drop
             add rule inet loss in udp dport {{ {first}, {second} }} numgen random mod 100 < 30 drop
             add rule inet loss in tcp dport {{ {first}, {second} }} numgen random mod 100 < 30 drop"
        ))
        .unwrap();
        let ((of_one, order), (of_two, _)) = tokio::join!(ask_all(&one), ask_all(&two));
        assert!(of_one >= LOOKUPS - FAILED, "{of_one} of {LOOKUPS} from one server");
        assert!(of_two >= LOOKUPS - FAILED, "{of_two} of {LOOKUPS} from two servers");
        assert!(!order.is_sorted(), "no reply overtook another");
        // It was such a network: of 600 datagrams to the only server 180 are lost, within five deviations (11).
        let asked = one.upstream(FIRST).asked();
        let is_udp = |transport| transport == UpstreamTransport::Udp;
        let came = asked.iter().filter(|asked| is_udp(asked.transport)).count();
        let sent = one.counters()[0].0 as usize - (asked.len() - came);
        let lost = sent - came;
        assert!((20..=40).contains(&(lost * 100 / sent)), "{lost} of {sent} lost");
    });
}

/// Takes IPv6 away; whether the system says of a server with such an address that we have none.
fn without_ipv6() -> bool {
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    let connected = UdpSocket::bind("[::]:0").and_then(|socket| socket.connect("[2001:db8::1]:53"));
    connected.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
}

#[test]
fn fw21_servers_to_which_no_route_leads_are_down_and_the_next_one_is_asked() {
    inside(async || {
        let script = Script::one("* *\n  answer @ 600 A 192.0.2.9").expect("a script");
        let upstream = ScriptedUpstream::start(script).expect("an upstream");
        let port = upstream.address().port();
        let folder = Scratch::new("no-route").expect("a folder");
        // This namespace has no default route, and now no IPv6, as most nodes.
        let mut elsewhere = vec!["203.0.113.1", "203.0.113.2, transport: TCP"];
        match without_ipv6() {
            true => elsewhere.push("'2001:db8::1'"),
            false => not_allowed("a namespace without IPv6"),
        }
        let server = |address: &&str| format!("    - {{address: {address}}}\n");
        let servers: String = elsewhere.iter().map(server).collect();
        let resource = format!(
            "apiVersion: clusterdns.dev/v1alpha1
kind: ClusterDNS
metadata: {{name: cluster}}
spec:
  upstreams:
    policy: Sequential
    servers:
{servers}    - {{address: 127.0.0.1, port: {port}}}
"
        );
        folder.write("clusterdns.yaml", resource).expect("written");
        let plane = DataPlane::of_manifests(folder.path());
        plane.wait_until_ready();
        for name in 0..20 {
            let name = format!("n{name}.example.org.");
            let reply = plane.ask(&format!("{name} A"), Transport::Udp);
            let expected = format!("{name} 600 A 192.0.2.9");
            assert_eq!(reply.records[Section::Answer as usize], [expected], "{reply}");
        }
        wait_for("the state of each", || {
            let shown: Value = serde_json::from_str(&plane.get("/upstreams").1).ok()?;
            let servers = shown["groups"][0]["servers"].as_array()?;
            let states: Vec<_> = servers.iter().map(|it| it["state"].as_str()).collect();
            let (reached, others) = states.split_last()?;
            let are_down = others.iter().all(|state| *state == Some("down"));
            (others.len() == elsewhere.len() && are_down && *reached == Some("healthy"))
                .then_some(())
        });
    });
}
