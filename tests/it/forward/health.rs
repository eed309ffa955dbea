//! Servers that are dead, broken or old: found out once, not by every query.

use crds::config::Policy;
use dataplane_core::{Discard, LookupKey, Waiting};
use futures::future::join_all;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use tests::upstream::{Script, UpstreamTransport};

use super::stage::{FIRST, SECOND, Stage, answers, failure, options, waiting};

/// 10.0.0.2 follows this script, 10.0.0.3 answers everything.
fn beside(first: &str) -> String {
    format!("server 10.0.0.2\n* *\n  {first}\nserver 10.0.0.3\n* *\n  answer @ 60 A 192.0.2.3")
}

fn has_opt(packet: &[u8]) -> bool {
    Message::from_vec(packet).unwrap().edns.is_some()
}

#[tokio::test]
async fn f10_g144_a_silent_server_is_found_out_once_and_leads_again_when_it_answers() {
    let stage = Stage::new(&beside("silent"));
    stage.probe();
    for n in 0..3 {
        let reply = stage.ask(0, &format!("n{n}.example"), RecordType::A).await;
        assert_eq!(answers(&reply), ["192.0.2.3"]);
    }
    stage.until(0, "down").await;
    let before = stage.upstream(FIRST).times_asked("later.example.");
    assert_eq!(answers(&stage.ask(0, "later.example", RecordType::A).await), ["192.0.2.3"]);
    assert_eq!((before, stage.upstream(FIRST).times_asked("later.example.")), (0, 0));
    let down = stage.published.upstreams.down(std::time::Instant::now(), 9);
    assert_eq!((down.len(), down[0].group.as_str()), (1, "upstreams"));

    stage.upstream(FIRST).play(Script::one("* *\n  answer @ 60 A 192.0.2.2").unwrap());
    stage.until(0, "healthy").await;
    assert_eq!(answers(&stage.ask(0, "again.example", RecordType::A).await), ["192.0.2.2"]);
    assert_eq!(stage.published.upstreams.recoveries(0), 0, "the other server was up (FW29)");
}

#[tokio::test]
async fn fw27_a_server_that_answers_its_probe_is_not_down() {
    let script = "server 10.0.0.2\n* *\n  silent\n. NS\n  rcode REFUSED\n\
                  server 10.0.0.3\n* *\n  answer @ 60 A 192.0.2.3";
    let stage = Stage::new(script);
    stage.probe();
    for n in 0..4 {
        stage.ask(0, &format!("n{n}.example"), RecordType::A).await;
    }
    while stage.upstream(FIRST).times_asked(".") == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(stage.view().groups[0].servers[0].state, "healthy");
}

/// A resolver that knows what it is probed for, and gets no replies itself.
#[tokio::test]
async fn fw27_a_server_that_answers_nothing_but_its_probe_is_asked_behind_others() {
    let script = "server 10.0.0.2\n* *\n  silent\n. NS\n  answer @ 60 NS a.root.\n\
                  server 10.0.0.3\n* *\n  answer @ 60 A 192.0.2.3";
    let stage = Stage::with(script, |config| options(config).policy = Policy::RoundRobin);
    stage.probe();
    let ask = async |n: usize| {
        let reply = stage.ask(0, &format!("n{n}.example"), RecordType::A).await;
        assert_eq!(answers(&reply), ["192.0.2.3"]);
    };
    // Every other one begins there; fewer at a time than a server is given that answers none.
    for first in [0, 10, 20, 30] {
        join_all((first..first + 10).map(ask)).await;
    }
    join_all((40..50).map(ask)).await;
    let asked = stage.upstream(FIRST).asked();
    let later = |name: &str| (40..50).any(|n| name == format!("n{n}.example."));
    assert!(!asked.iter().any(|asked| later(&asked.name)), "they have not waited for it");
    assert!(asked.len() >= 20, "{}", asked.len());
    let view = stage.view();
    assert_eq!(view.groups[0].servers[0].state, "healthy", "it answers its probe");
    assert_eq!(stage.published.upstreams.failing(std::time::Instant::now(), 9), []);
}

#[tokio::test]
async fn f11_g142_fw29_a_group_that_was_down_answers_again_within_seconds() {
    let stage = Stage::new("server 10.0.0.2\n* *\n  silent");
    stage.probe();
    stage.ask(0, "n.example", RecordType::A).await;
    stage.until(0, "down").await;
    let reply = stage.ask(0, "while.example", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(22)));
    assert_eq!(stage.upstream(FIRST).times_asked("while.example."), 1, "FW24: once");
    // A failure that would be remembered for an hour.
    let (again, upstreams) =
        (waiting(0, "again.example", RecordType::A), &stage.published.upstreams);
    let (cache, route) = (stage.forwarder.cache(), upstreams.route(0).unwrap());
    let at = (stage.forwarder.clock().now_ms() + 3_600_000, upstreams.recoveries(0));
    cache.note_failure(route, &again.key, true, at, upstreams.cache());
    let failed = stage.ask_cached(&again).await;
    assert_eq!(failure(&failed), (ResponseCode::ServFail, Some(13)));
    stage.upstream(FIRST).play(Script::one("* *\n  answer @ 60 A 192.0.2.2").unwrap());
    stage.until(0, "healthy").await;
    // The group looks at its servers as soon as one of them changes.
    while upstreams.recoveries(0) == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(answers(&stage.ask_cached(&again).await), ["192.0.2.2"], "FW29");
}

#[tokio::test]
async fn g145_a_server_with_errors_only_is_asked_last_after_ten_but_with_sequential() {
    for (policy, asked) in [(Policy::RoundRobin, 10), (Policy::Sequential, 24)] {
        let script = beside("rcode SERVFAIL");
        let stage = Stage::with(&script, |config| options(config).policy = policy);
        // Of the first policy every other lookup begins there.
        for n in 0..24 {
            let reply = stage.ask(0, &format!("n{n}.example"), RecordType::A).await;
            assert_eq!(answers(&reply), ["192.0.2.3"]);
        }
        assert_eq!(stage.view().groups[0].servers[0].state, "failing");
        assert_eq!(stage.upstream(FIRST).asked().len(), asked, "{policy:?}");
        assert_eq!(stage.upstream(SECOND).asked().len(), 24);
    }
}

#[tokio::test]
async fn f20_g143_a_server_that_refuses_edns_is_asked_without_and_remembered() {
    for rcode in ["FORMERR", "NOTIMP", "BADVERS"] {
        let stage =
            Stage::new(&format!("server 10.0.0.2\n* *\n  opt {rcode}\n  answer @ 60 A 192.0.2.2"));
        stage.probe();
        for n in 0..2 {
            let reply = stage.ask(0, &format!("n{n}.example"), RecordType::A).await;
            assert_eq!(answers(&reply), ["192.0.2.2"], "{rcode}");
            assert!(reply.edns.is_some(), "the client still gets its own");
            let remembered = async {
                while stage.view().groups[0].servers[0].edns {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            };
            let within = std::time::Duration::from_secs(30);
            tokio::time::timeout(within, remembered).await.expect("a probe is refused too");
        }
        let asked = stage.upstream(FIRST).asked();
        let of_client = asked.iter().filter(|asked| asked.name.ends_with(".example."));
        let opts: Vec<bool> = of_client.map(|asked| has_opt(&asked.packet)).collect();
        // With OPT first, and never again; each more than once where this machine stood still for half a second (FW23).
        let without = opts.iter().position(|has_opt| !has_opt).expect("asked without OPT");
        assert!(without > 0 && opts.len() >= 3, "{rcode}: {opts:?}");
        assert!(opts[without..].iter().all(|has_opt| !has_opt), "{rcode}: {opts:?}");
        let of_second = asked.iter().filter(|asked| asked.name == "n1.example.");
        assert!(of_second.into_iter().all(|asked| !has_opt(&asked.packet)), "{rcode}");
    }
}

#[tokio::test]
async fn f20_fw25_the_server_of_one_name_switches_edns_off_for_no_other() {
    let stage = Stage::new(
        "server 10.0.0.2\n* *\n  answer @ 60 A 192.0.2.2\n\
         evil.example. A\n  opt FORMERR\n  answer @ 60 A 192.0.2.66",
    );
    stage.probe();
    let evil = stage.ask(0, "evil.example", RecordType::A).await;
    assert_eq!(answers(&evil), ["192.0.2.66"], "at once, without OPT");
    while stage.upstream(FIRST).times_asked(".") == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    stage.ask(0, "www.example.org", RecordType::A).await;
    let asked = stage.upstream(FIRST).asked();
    let www = asked.iter().find(|asked| asked.name == "www.example.org.").expect("it was asked");
    assert!(has_opt(&www.packet));
    assert!(stage.view().groups[0].servers[0].edns);
}

#[tokio::test]
async fn fw25_a_reply_without_signatures_is_kept_for_30_s_for_who_wants_them() {
    let stage = Stage::new(
        "server 10.0.0.2\n* *\n  opt FORMERR\n  answer @ 60 A 192.0.2.2\n\
         server 10.0.0.3\n* *\n  answer @ 60 A 192.0.2.3",
    );
    stage.forwarder.clock().stop();
    let plain = waiting(0, "www.example.org", RecordType::A);
    let key = LookupKey::new(plain.key.name().clone(), RecordType::A.into(), true, false);
    let validates = Waiting { key, ..waiting(0, "www.example.org", RecordType::A) };
    let steps = [
        (0, &validates, 2),
        (29, &validates, 2),
        (1, &validates, 4),
        (0, &plain, 6),
        (31, &plain, 6),
    ];
    for (seconds, waiting, asked) in steps {
        stage.forwarder.clock().advance(std::time::Duration::from_secs(seconds));
        assert_eq!(answers(&stage.ask_cached(waiting).await), ["192.0.2.2"]);
        stage.until_no_lookup().await;
        assert_eq!(stage.upstream(FIRST).times_asked("www.example.org."), asked);
    }
}

#[tokio::test]
async fn fw25_where_no_server_understands_opt_its_replies_are_kept() {
    // One that has always been silent is no better.
    let stage = Stage::new(
        "server 10.0.0.2\n* *\n  silent\nserver 10.0.0.3\n* *\n  opt FORMERR\n  answer @ 60 A 192.0.2.2",
    );
    stage.probe();
    for n in 0..3 {
        stage.ask(0, &format!("n{n}.example.org"), RecordType::A).await;
    }
    stage.until(0, "down").await;
    while stage.view().groups[0].servers[1].edns {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let plain = waiting(0, "a.example", RecordType::A);
    let key = LookupKey::new(plain.key.name().clone(), RecordType::A.into(), true, false);
    let validates = Waiting { key, ..plain };
    for _ in 0..2 {
        stage.ask_cached(&validates).await;
        assert_eq!(stage.upstream(SECOND).times_asked("a.example."), 1);
    }
}

#[tokio::test]
async fn f20_a_server_that_drops_edns_is_asked_without_once_a_probe_has_found_it_out() {
    let stage = Stage::new("server 10.0.0.2\n* *\n  opt silent\n  answer @ 60 A 192.0.2.2");
    stage.probe();
    let found_out = async {
        // One answer without OPT could be that of a server that has just started.
        for n in 0.. {
            if !stage.view().groups[0].servers[0].edns {
                break;
            }
            stage.ask(0, &format!("n{n}.example"), RecordType::A).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), found_out).await.expect("probes");
    assert_eq!(answers(&stage.ask(0, "next.example", RecordType::A).await), ["192.0.2.2"]);
}

#[tokio::test]
async fn f19_fw14_the_case_of_names_is_random_and_must_come_back() {
    let stage = Stage::with(
        "server 10.0.0.2\n* *\n  answer @ 60 A 192.0.2.2\n\
         wrong.example. A\n  first wrong-case\n  answer @ 60 A 192.0.2.3",
        |config| match &mut config.upstreams {
            crds::config::Upstreams::Servers(group) => group.options.case_randomisation = true,
            other => panic!("{other:?}"),
        },
    );
    for n in 0..8 {
        let name = format!("a-name-of-many-letters-{n}.example");
        assert_eq!(answers(&stage.ask(0, &name, RecordType::A).await), ["192.0.2.2"]);
    }
    let asked = stage.upstream(FIRST).asked();
    let mixed = |name: &str| name != name.to_ascii_lowercase() && name != name.to_ascii_uppercase();
    assert!(asked.iter().all(|asked| mixed(&asked.name)), "one in 2^27 is not mixed");

    assert_eq!(answers(&stage.ask(0, "wrong.example", RecordType::A).await), ["192.0.2.3"]);
    assert_eq!(stage.published.upstreams.discarded(Discard::Case), 1);
    assert_eq!(stage.upstream(FIRST).times_asked_over("wrong.example.", UpstreamTransport::Tcp), 1);
}
