//! Servers that answer over TCP and not over UDP, or over UDP only queries without an OPT record.

use std::time::Duration;

use crds::config::Policy;
use dataplane::forward::ServerView;
use futures::future::join_all;
use hickory_proto::rr::RecordType;
use tests::upstream::{Script, UpstreamTransport};

use super::stage::{FIRST, SECOND, Stage, answers, options, undisturbed};

/// A bound, so that a failing test ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks for several names at a time until each server is like this.
async fn asked_until(stage: &Stage, width: usize, is_so: impl Fn(&ServerView) -> bool) {
    let found_out = async {
        for round in 0.. {
            if stage.view().groups[0].servers.iter().all(&is_so) {
                break;
            }
            let names = (0..width).map(|n| format!("n{n}.round{round}.example"));
            join_all(names.map(|name| async move { stage.ask(0, &name, RecordType::A).await }))
                .await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, found_out).await;
    ended.unwrap_or_else(|_| panic!("{}", stage.view().text()));
}

/// Asks once, and returns how often the servers were asked over UDP and over TCP.
async fn asked_over(stage: &Stage, servers: &[[u8; 4]], name: &str) -> [usize; 2] {
    let asked = undisturbed(async || {
        let before = counts(stage, servers, name);
        assert_eq!(answers(&stage.ask(0, name, RecordType::A).await), ["192.0.2.2"]);
        let after = counts(stage, servers, name);
        [after[0] - before[0], after[1] - before[1]]
    });
    asked.await
}

fn counts(stage: &Stage, servers: &[[u8; 4]], name: &str) -> [usize; 2] {
    let asked = format!("{name}.");
    [UpstreamTransport::Udp, UpstreamTransport::Tcp].map(|over| {
        servers.iter().map(|ip| stage.upstream(*ip).times_asked_over(&asked, over)).sum()
    })
}

#[tokio::test]
async fn fw25_a_server_that_drops_opt_over_udp_is_found_out_though_its_tcp_answers() {
    let stage = Stage::new("server 10.0.0.2\n* *\n  opt lost-over-udp\n  answer @ 60 A 192.0.2.2");
    stage.probe();
    asked_until(&stage, 1, |server| !server.edns).await;
    assert_eq!(asked_over(&stage, &[FIRST], "next.example").await, [1, 0]);
    let server = &stage.view().groups[0].servers[0];
    assert_eq!((server.state, server.udp_is_silent), ("healthy", false));
}

#[tokio::test]
async fn fw27_servers_whose_udp_is_silent_are_asked_over_tcp_first_and_shown_so() {
    const SILENT: &str = "* *\n  udp at-most 0\n  answer @ 60 A 192.0.2.2\n";
    for servers in [&[FIRST][..], &[FIRST, SECOND]] {
        let scripts = ["server 10.0.0.2\n", "server 10.0.0.3\n"].map(|of| format!("{of}{SILENT}"));
        let scripts = scripts[..servers.len()].concat();
        let stage = Stage::with(&scripts, |config| options(config).policy = Policy::RoundRobin);
        stage.probe();
        // With several at a time, three queries in a row are silent before a reply comes over TCP.
        asked_until(&stage, 4, |server| server.udp_is_silent).await;
        assert_eq!(asked_over(&stage, servers, "next.example").await, [0, 1]);
        let view = stage.view();
        let shown = &view.groups[0].servers[0];
        assert_eq!((shown.state, shown.edns), ("healthy", true));
        let line = "healthy, over TCP, as its UDP is silent, latency ";
        assert!(view.text().contains(line), "{}", view.text());
        assert!(view.warnings[0].contains("answers over TCP and not over UDP"), "{view:?}");
        let json = serde_json::to_value(shown).unwrap();
        assert_eq!(json["udpIsSilent"], true);

        let recovered = "* *\n  tcp close\n  answer @ 60 A 192.0.2.2";
        for ip in servers {
            stage.upstream(*ip).play(Script::one(recovered).unwrap());
        }
        asked_until(&stage, 1, |server| !server.udp_is_silent).await;
        assert_eq!(asked_over(&stage, servers, "again.example").await, [1, 0]);
    }
}
