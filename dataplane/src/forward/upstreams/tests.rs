//! Configurations, and what their groups are made of.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;
use crate::forward::now;
use crate::forward::server::{Found, Heard, OptHeard};
use crate::forward::unusable::Down;
use crds::config::{Group as GroupConfig, GroupCache, Server, ServerTls, StubDomain};

mod former;

fn server(text: &str, transport: config::Transport) -> Server {
    let address: SocketAddr = text.parse().unwrap();
    let tls = transport
        .is_encrypted()
        .then(|| ServerTls { server_name: "dns.example".into(), ca_bundle: None });
    Server { ip: address.ip(), port: address.port(), transport, tls }
}

fn group(servers: &[Server]) -> GroupConfig {
    GroupConfig { servers: servers.to_vec(), options: GroupOptions::default() }
}

#[test]
fn a55_servers_are_listed_once_default_group_first() {
    let udp = |text| server(text, config::Transport::Udp);
    let stub = |domain: &str, servers: &[Server]| StubDomain {
        domain: domain.into(),
        group: group(servers),
    };
    let config = Config {
        upstreams: config::Upstreams::Servers(group(&[udp("10.0.0.2:53"), udp("10.0.0.3:53")])),
        stub_domains: vec![
            stub("corp.example", &[udp("10.20.0.53:53")]),
            stub("lab.corp.example", &[udp("10.20.0.53:53"), udp("10.20.0.53:5353")]),
        ],
        ..Config::default()
    };
    let upstreams = Upstreams::of(&config, Path::new(""));
    let listed: Vec<_> = upstreams.servers().iter().map(|s| s.address.to_string()).collect();
    assert_eq!(listed, ["10.0.0.2:53", "10.0.0.3:53", "10.20.0.53:53", "10.20.0.53:5353"]);
    let shared = &upstreams.group(2).unwrap().servers[0];
    assert!(
        Arc::ptr_eq(shared, &upstreams.group(1).unwrap().servers[0]),
        "one server in two groups"
    );
    assert!(upstreams.group(3).is_none() && upstreams.problems().is_empty());

    upstreams.servers()[2].sent.store(7, Ordering::Relaxed);
    let now = now();
    assert_eq!(shared.seen(now).places, 2 * 2_048, "what both groups may have in progress");
    for _ in 0..3 {
        shared.send(true).unwrap().settle(Heard::Nothing);
    }
    shared.probe(now);
    shared.probed(true, Heard::Nothing, OptHeard::Answered, now);
    let sent_before = upstreams.servers()[2].sent.load(Ordering::Relaxed);
    let down = |group: &str, group_servers| Down {
        group: group.into(),
        server: "10.20.0.53:53".into(),
        transport: "UDP".into(),
        server_name: String::new(),
        group_servers,
        seconds: 120,
        remedy: None,
    };
    let both = [down("corp.example", 1), down("lab.corp.example", 2)];
    let later = now + Duration::from_secs(120);
    assert_eq!(upstreams.down(later, 9), both);
    assert_eq!(upstreams.down(later, 1), both[..1]);

    let less = Config { upstreams: config::Upstreams::None, ..config.clone() };
    let next = upstreams.next(&less, Path::new(""));
    assert!(next.group(0).is_none());
    assert_eq!(next.down(later, 9), both);
    assert_eq!(next.route(1), upstreams.route(1), "an edit elsewhere leaves a route what it is");
    let sent = |of: &Upstreams| -> Vec<u64> {
        of.servers().iter().map(|server| server.sent.load(Ordering::Relaxed)).collect()
    };
    assert_eq!(sent(&next), [sent_before, 0]);
    upstreams.servers()[0].sent.store(3, Ordering::Relaxed);
    let last = next.next(&config, Path::new(""));
    assert_eq!(sent(&last), [3, 0, sent_before, 0], "those that come back keep their counts");
    assert_ne!(last.route(0), upstreams.route(0), "a group that was gone is another route");
}

fn over_tls(group: &mut GroupConfig, name: &str) {
    group.servers[0].transport = config::Transport::Tls;
    let tls = config::ServerTls { server_name: name.to_owned(), ca_bundle: None };
    group.servers[0].tls = Some(tls);
}

#[test]
fn ca1_only_what_changes_replies_makes_a_group_another_route() {
    let server = |port: u16| server(&format!("10.0.0.2:{port}"), config::Transport::Udp);
    let mut config =
        Config { upstreams: config::Upstreams::Servers(group(&[server(53)])), ..Config::default() };
    type Edit = fn(&mut GroupConfig);
    let edits: [(Edit, bool); 10] = [
        (|group| group.options.policy = Policy::Sequential, true),
        (|group| group.options.limits.in_flight = 7, true),
        (|group| group.options.case_randomisation = true, false),
        (|group| group.options.cache = GroupCache { max_ttl_seconds: Some(60) }, false),
        (|group| group.servers[0].port = 5353, false),
        (|group| group.servers.push(group.servers[0].clone()), true),
        (|group| group.servers[1].port = 54, false),
        // A kept reply knows the place of the server that gave it.
        (|group| group.servers.reverse(), false),
        (|group| over_tls(group, "a.example"), false),
        (|group| over_tls(group, "b.example"), false),
    ];
    let mut upstreams = Upstreams::of(&config, Path::new(""));
    for (place, (edit, is_same)) in edits.into_iter().enumerate() {
        let config::Upstreams::Servers(group) = &mut config.upstreams else { panic!() };
        edit(group);
        let next = upstreams.next(&config, Path::new(""));
        assert_eq!(next.route(0) == upstreams.route(0), is_same, "edit {place}");
        upstreams = next;
    }
    config.access.rebind_protection = !config.access.rebind_protection;
    let next = upstreams.next(&config, Path::new(""));
    assert_ne!(next.route(0), upstreams.route(0), "rebind protection");
    config.reverse_cidrs = vec!["203.0.113.0/24".parse().unwrap()];
    let ranges = next.next(&config, Path::new(""));
    assert_ne!(ranges.route(0), next.route(0), "what rebind protection removes");
    config.access.rebind_protection = false;
    let open = ranges.next(&config, Path::new(""));
    config.reverse_cidrs.clear();
    let next = open.next(&config, Path::new(""));
    assert_eq!(next.route(0), open.route(0), "without it these ranges change no reply");
    config.cache.max_negative_ttl_seconds += 1;
    let last = next.next(&config, Path::new(""));
    assert_ne!(last.route(0), next.route(0), "the longest time of denials");
    config.domain = "other.example".into();
    let moved = last.next(&config, Path::new(""));
    assert_ne!(moved.route(0), last.route(0), "the cluster zone, of which replies have nothing");
}

#[test]
fn e55_an_address_with_two_transports_is_two_servers_and_one_written_twice_is_one() {
    let (udp, tls) = (config::Transport::Udp, config::Transport::Tls);
    let servers = [udp, tls, udp].map(|transport| server("10.0.0.2:53", transport));
    let mut config =
        Config { upstreams: config::Upstreams::Servers(group(&servers)), ..Config::default() };
    config.limits.upstream_ports = 100;
    let upstreams = Upstreams::of(&config, Path::new(""));
    let members = &upstreams.group(0).unwrap().servers;
    let [by_udp, by_tls] = &members[..] else { panic!("{} servers", members.len()) };
    for _ in 0..3 {
        by_udp.send(true).unwrap().settle(Heard::Good);
    }
    by_tls.send(true).unwrap().settle(Heard::Good);
    by_tls.send(true).unwrap().cancel();
    let view = upstreams.view(now());
    let sent: Vec<u64> = view.groups[0].servers.iter().map(|server| server.sent).collect();
    assert_eq!(sent, [3, 1]);
    let of_address = &upstreams.servers()[0];
    assert_eq!((upstreams.servers().len(), of_address.sent.load(Ordering::Relaxed)), (1, 4));
    // Only the one that is asked by datagrams needs ports: it may have all of them.
    let free = upstreams.registry.common.ports().free(by_udp.id, now());
    assert_eq!(free, 100);

    for server in [by_udp, by_tls] {
        server.loop_probed(Found::Loop, now());
        for _ in 0..3 {
            server.send(true).unwrap().settle(Heard::Nothing);
        }
        server.probed(true, Heard::Nothing, OptHeard::Answered, now());
    }
    assert_eq!(upstreams.notes(now()).len(), 1, "an address is named once");
    let transports = |rows: Vec<Down>| -> Vec<(String, usize)> {
        rows.into_iter().map(|row| (row.transport, row.group_servers)).collect()
    };
    let both = ["UDP", "TLS"].map(|transport| (transport.to_owned(), 2));
    assert_eq!(transports(upstreams.down(now(), 9)), both);
    assert_eq!(transports(upstreams.looping(now(), 9)), both);
    assert!(upstreams.without_servers(9).is_empty());
}

#[test]
fn fw28_a_server_that_answers_with_errors_only_is_shown_with_what_to_do() {
    let servers = ["10.0.0.2:53", "10.0.0.3:53"].map(|text| server(text, config::Transport::Udp));
    let config =
        Config { upstreams: config::Upstreams::Servers(group(&servers)), ..Config::default() };
    let upstreams = Upstreams::of(&config, Path::new(""));
    let group = upstreams.group(0).unwrap();
    assert!(upstreams.failing(now(), 9).is_empty());
    (0..10).for_each(|_| group.replied(0, true, now(), now()));
    let later = now() + Duration::from_secs(61);
    let shown = upstreams.failing(later, 9);
    let [row] = &shown[..] else { panic!("one server") };
    assert_eq!((row.server.as_str(), row.group_servers), ("10.0.0.2:53", 2));
    assert!(row.seconds >= 60 && row.remedy.is_some(), "{row:?}");
    assert!(upstreams.down(later, 9).is_empty(), "it answers");
    group.servers[0].loop_probed(Found::Loop, now());
    assert!(upstreams.failing(later, 9).is_empty(), "it leads back and is not asked");
}

#[test]
fn e55_an_address_with_two_names_is_two_servers_on_every_page() {
    let servers = ["one.example", "two.example"].map(|name| {
        let mut server = server("10.0.0.2:853", config::Transport::Tls);
        server.tls.as_mut().unwrap().server_name = name.into();
        server
    });
    let config =
        Config { upstreams: config::Upstreams::Servers(group(&servers)), ..Config::default() };
    let upstreams = Upstreams::of(&config, Path::new(""));
    for server in &upstreams.group(0).unwrap().servers {
        server.loop_probed(Found::Loop, now());
        for _ in 0..3 {
            server.send(true).unwrap().settle(Heard::Nothing);
        }
        server.probed(true, Heard::Nothing, OptHeard::Answered, now());
    }
    let names = |rows: serde_json::Value| -> Vec<String> {
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| row["serverName"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let view = upstreams.view(now());
    let both = ["one.example", "two.example"];
    assert_eq!(names(serde_json::to_value(&view.groups[0].servers).unwrap()), both, "/upstreams");
    assert_eq!(names(serde_json::to_value(upstreams.down(now(), 9)).unwrap()), both, "/config");
    assert_eq!(names(serde_json::to_value(upstreams.looping(now(), 9)).unwrap()), both, "/config");
    for name in both {
        assert!(view.text().contains(&format!("  10.0.0.2:853 TLS {name}  looping")), "{view:?}");
    }
}

#[test]
fn n16_a_group_that_names_no_usable_server_says_why() {
    let mut stub = server("10.20.0.53:853", config::Transport::Tls);
    let bundle = config::CaBundle::Pem("no certificate".into());
    stub.tls.as_mut().unwrap().ca_bundle = Some(bundle);
    let config = Config {
        upstreams: config::Upstreams::FromResolvConf(GroupOptions::default()),
        stub_domains: vec![StubDomain { domain: "corp.example".into(), group: group(&[stub]) }],
        ..Config::default()
    };
    let upstreams = Upstreams::of(&config, Path::new("/nonexistent/resolv.conf"));
    let empty = upstreams.without_servers(9);
    let named: Vec<&str> = empty.iter().map(|group| &*group.group).collect();
    assert_eq!(named, ["upstreams", "corp.example"]);
    assert!(empty[0].why.contains("write servers under upstreams"), "{}", empty[0].why);
    assert!(empty[1].why.contains("correct tls"), "{}", empty[1].why);
    assert_eq!(upstreams.without_servers(1).len(), 1);
}

#[test]
fn fw29_only_a_group_that_had_no_server_up_recovers() {
    let servers = ["10.0.0.2:53", "10.0.0.3:53"].map(|at| server(at, config::Transport::Udp));
    let config =
        Config { upstreams: config::Upstreams::Servers(group(&servers)), ..Config::default() };
    let upstreams = Upstreams::of(&config, Path::new(""));
    let [first, second] = [0, 1].map(|place| Arc::clone(&upstreams.known()[place]));
    let down = |server: &Arc<crate::forward::server::Server>| {
        for _ in 0..3 {
            server.send(true).unwrap().settle(Heard::Nothing);
        }
        server.probed(true, Heard::Nothing, OptHeard::Answered, now());
        assert!(!server.is_up());
    };
    let recoveries = || {
        upstreams.group(0).unwrap().is_down();
        upstreams.recoveries(0)
    };
    for _ in 0..3 {
        down(&first);
        assert_eq!(recoveries(), 0);
        first.probed(true, Heard::Good, OptHeard::Answered, now());
        assert_eq!(recoveries(), 0, "the other one was up");
    }
    down(&first);
    down(&second);
    assert_eq!(recoveries(), 0);
    second.probed(true, Heard::Good, OptHeard::Answered, now());
    assert_eq!(recoveries(), 1);
    first.probed(true, Heard::Good, OptHeard::Answered, now());
    assert_eq!(recoveries(), 1);
    // One that leads back to us is not up either (FW27, FW50).
    down(&first);
    second.loop_probed(Found::Loop, now());
    assert!(upstreams.group(0).unwrap().is_down());
    second.loop_probed(Found::NoLoop, now());
    assert_eq!(recoveries(), 2);
}

#[test]
fn fw50_only_servers_of_the_default_group_are_asked_whether_they_lead_back() {
    let [both, other] =
        ["10.0.0.2:53", "10.20.0.53:53"].map(|address| server(address, config::Transport::Udp));
    let stub = StubDomain { domain: "b.example".into(), group: group(&[both.clone(), other]) };
    let config = Config {
        upstreams: config::Upstreams::Servers(group(&[both])),
        stub_domains: vec![stub],
        ..Config::default()
    };
    let upstreams = Upstreams::of(&config, Path::new(""));
    let is_probed = |of: &Upstreams| -> Vec<bool> {
        of.known().iter().map(|server| server.loop_probe_at(0, now()).is_some()).collect()
    };
    assert_eq!(is_probed(&upstreams), [true, false]);
    let only_stubs = Config { upstreams: config::Upstreams::None, ..config };
    assert_eq!(is_probed(&upstreams.next(&only_stubs, Path::new(""))), [false, false]);
}

#[test]
fn fw10_upstream_ports_are_at_most_a_quarter_of_the_descriptors() {
    let quarter = dataplane_udp::raise_descriptor_limit().unwrap() / 4;
    for (configured, expected) in [(1, 1), (u32::MAX, quarter.min(u32::MAX.into()))] {
        assert_eq!(ports(configured) as u64, expected);
    }
}

#[test]
fn fw2_encrypted_servers_are_asked_or_refused_by_name_and_never_asked_in_clear_text() {
    let transports = [config::Transport::Tls, config::Transport::Https, config::Transport::Quic];
    let of = |ca_bundle: Option<config::CaBundle>| {
        let servers = transports.map(|transport| {
            let mut server = server("192.0.2.1:853", transport);
            server.tls.as_mut().unwrap().ca_bundle.clone_from(&ca_bundle);
            server
        });
        let upstreams = config::Upstreams::Servers(group(&servers));
        Upstreams::of(&Config { upstreams, ..Config::default() }, Path::new(""))
    };
    let public = of(None);
    assert!(public.problems().is_empty(), "{:?}", public.problems());
    let asked_over = |server: &Arc<crate::forward::server::Server>| server.transport();
    let transports: Vec<_> = public.known().iter().map(asked_over).collect();
    assert_eq!(transports, [crate::forward::plan::Transport::Connection; 3]);
    let (name, key) = ("corp-ca".to_owned(), "ca.crt".to_owned());
    let refused = [
        (config::CaBundle::Pem("no certificate".into()), "holds no certificate"),
        (config::CaBundle::ConfigMap { name, key }, "ConfigMap corp-ca"),
    ];
    for (bundle, why) in refused {
        let upstreams = of(Some(bundle));
        assert!(upstreams.group(0).unwrap().servers.is_empty());
        assert_eq!(upstreams.problems().len(), 3);
        let problem = &upstreams.problems()[0];
        assert!(problem.contains("192.0.2.1:853") && problem.contains(why), "{problem}");
    }
}

#[test]
fn fw44_a_group_may_only_lower_the_cap_of_ttls() {
    // A group has one field: it caps denials too, and with 0 nothing of the group is kept.
    for (own, cap, of_denials) in [
        (None, 3600, 30),
        (Some(60), 60, 30),
        (Some(10), 10, 10),
        (Some(0), 0, 0),
        (Some(90_000), 3600, 30),
    ] {
        let cache = GroupCache { max_ttl_seconds: own };
        let options = GroupOptions { cache, ..GroupOptions::default() };
        let config = Config {
            upstreams: config::Upstreams::Servers(GroupConfig { servers: Vec::new(), options }),
            ..Config::default()
        };
        let upstreams = Upstreams::of(&config, Path::new(""));
        let caps = &upstreams.group(0).unwrap().caps;
        assert_eq!((caps.max_s, caps.max_negative_s), (cap, of_denials), "{own:?}");
    }
}

#[test]
fn fw3_what_is_skipped_of_resolv_conf_is_reported() {
    let path = std::env::temp_dir().join(format!("noted-resolv.conf-{}", std::process::id()));
    std::fs::write(&path, "nameserver 127.0.0.53\nnameserver 10.0.0.2\n").unwrap();
    let upstreams = config::Upstreams::FromResolvConf(GroupOptions::default());
    let upstreams = Upstreams::of(&Config { upstreams, ..Config::default() }, &path);
    std::fs::remove_file(&path).unwrap();
    let notes = upstreams.notes(now());
    assert!(notes.len() == 1 && notes[0].contains("nameserver 127.0.0.53"), "{notes:?}");
}

#[test]
fn fw10_the_port_of_the_quic_listener_is_kept_while_there_is_one() {
    let mut config = Config { upstreams: config::Upstreams::None, ..Config::default() };
    let quic = config::QuicListener { port: 8853, certificate: "dns".into() };
    config.listeners.quic = Some(quic);
    let first = Upstreams::of(&config, Path::new(""));
    assert!(first.registry.common.keeps(8853));
    config.listeners.quic = None;
    let next = first.next(&config, Path::new(""));
    assert!(!next.registry.common.keeps(8853));
}
