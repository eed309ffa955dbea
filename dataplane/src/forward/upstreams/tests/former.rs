//! Servers that are not configured any more: how many are remembered, and which of their connections are closed.

use super::*;

#[test]
fn a55_former_servers_are_remembered_up_to_a_limit_the_newest_first() {
    let of = |last: u16| {
        let servers = [server(&format!("10.0.0.1:{last}"), config::Transport::Udp)];
        let upstreams = config::Upstreams::Servers(group(&servers));
        Config { upstreams, ..Config::default() }
    };
    let first = Upstreams::of(&of(1000), Path::new(""));
    let last = (1001..1400).fold(first, |earlier, port| earlier.next(&of(port), Path::new("")));
    let former = last.registry.former();
    let ports: Vec<u16> = former.iter().map(|server| server.address().port()).collect();
    assert_eq!(ports, (1399 - 256..1399).rev().collect::<Vec<_>>());
}

#[test]
fn a55_authorities_of_former_servers_are_remembered_up_to_a_limit() {
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let of = |edit: usize| {
        // What is around the certificate counts too.
        let bundle = format!("# {edit}{}\n{}", "x".repeat(200 << 10), made.cert.pem());
        let mut group = group(&[server("10.0.0.1:853", config::Transport::Tls)]);
        over_tls(&mut group, "a.example");
        if let Some(tls) = &mut group.servers[0].tls {
            tls.ca_bundle = Some(config::CaBundle::Pem(bundle));
        }
        Config { upstreams: config::Upstreams::Servers(group), ..Config::default() }
    };
    let first = Upstreams::of(&of(0), Path::new(""));
    let last = (1..20).fold(first, |earlier, edit| earlier.next(&of(edit), Path::new("")));
    let former = last.registry.former();
    let octets: usize = former.iter().map(|server| server.identity.authority_octets()).sum();
    assert!(octets > 800 << 10 && octets <= 1 << 20, "{octets} of {}", former.len());
}

/// Metrics show them as counters: one that falls looks like a process that was started again, and one that jumps like
/// many replies.
#[test]
fn e55_counts_of_an_address_rise_only_by_what_was_counted() {
    let of = |transports: &[config::Transport]| {
        let servers: Vec<_> = transports.iter().map(|by| server("10.0.0.1:853", *by)).collect();
        Config { upstreams: config::Upstreams::Servers(group(&servers)), ..Config::default() }
    };
    let (udp, tcp, tls) = (config::Transport::Udp, config::Transport::Tcp, config::Transport::Tls);
    let mut upstreams = Upstreams::of(&of(&[udp]), Path::new(""));
    let mut counted = 0;
    // An edit and its return, and one server beside another one that is removed then.
    for transports in [&[udp][..], &[tcp], &[udp], &[udp, tls], &[tls], &[udp]] {
        upstreams = upstreams.next(&of(transports), Path::new(""));
        for _ in 0..2 {
            let shown = upstreams.by_address();
            let row = &shown["10.0.0.1:853"];
            let replies: u64 = row.replies.iter().map(|replies| replies.count()).sum();
            assert_eq!(
                (shown.len(), row.sent, replies, row.failed_probes),
                (1, counted, counted, counted)
            );
            for server in upstreams.known() {
                server.send(true).unwrap().settle(Heard::Good);
                server.probed(true, Heard::Nothing, OptHeard::Answered, now());
                counted += 1;
            }
        }
    }
}

#[tokio::test]
async fn fw10_sockets_of_a_server_that_was_removed_are_closed_too() {
    let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = far.local_addr().unwrap().to_string();
    let servers = group(&[server(&address, config::Transport::Udp)]);
    let mut config = Config { upstreams: config::Upstreams::Servers(servers), ..Config::default() };
    config.limits.upstream_ports = 2;
    let upstreams = Upstreams::of(&config, Path::new(""));
    let removed = Arc::clone(&upstreams.known()[0]);
    drop(crate::forward::sockets::send(&removed.pool, |id| id.to_be_bytes().to_vec()).unwrap());
    config.upstreams = config::Upstreams::None;
    let next = upstreams.next(&config, Path::new(""));
    assert_eq!(removed.pool.len(), 1);
    crate::forward::probe::probe_due(&next, 0, now() + Duration::from_secs(31));
    assert_eq!(removed.pool.len(), 0);
}
