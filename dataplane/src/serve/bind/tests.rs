//! Ports that are free, taken or forbidden, and what is said of them.

use std::io::Write;
use std::net::Ipv6Addr;

use super::*;

/// Other tests of this process hold up to a thousand random UDP ports of all addresses: one that is free over TCP, or was free,
/// may be theirs.
const TRIES: usize = 20;

fn address(text: &str) -> SocketAddr {
    text.parse().expect("address")
}

fn failed(transport: &'static str, at: &str, code: i32) -> Failure {
    Failure::new(transport, address(at))(io::Error::from_raw_os_error(code))
}

#[test]
fn port_0_is_one_port_for_both_transports_and_all_workers() {
    let bound = all(&Listen::at([address("127.0.0.1:0")]), 3).expect("bind");
    let [bound] = &bound[..] else { panic!("one address") };
    assert_ne!(bound.address.port(), 0);
    assert_eq!(bound.tcp.local_addr().expect("tcp"), bound.address);
    assert_eq!(bound.udp.len(), 3);
    for socket in &bound.udp {
        assert_eq!(socket.local_addr(), bound.address);
    }
}

#[test]
fn wr44_what_the_kernel_keeps_of_a_connection_has_a_bound_also_after_its_end() {
    let listen = Listen::at([address("127.0.0.1:0")]);
    for listener in [streams(&listen).expect("bound").remove(0), {
        all(&listen, 1).expect("bound").remove(0).tcp
    }] {
        let client = std::net::TcpStream::connect(listener.local_addr().expect("an address"));
        let _client = client.expect("connected");
        listener.set_nonblocking(false).expect("a socket");
        let (accepted, _) = listener.accept().expect("accepted");
        let accepted = socket2::SockRef::from(&accepted);
        // The kernel doubles what it is asked for.
        assert!(accepted.send_buffer_size().expect("a size") <= 2 * SEND_OCTETS);
        assert!(accepted.recv_buffer_size().expect("a size") <= 2 * RECEIVE_OCTETS);
        assert_eq!(accepted.tcp_notsent_lowat().expect("octets"), UNSENT_OCTETS);
        assert_eq!(accepted.tcp_user_timeout().expect("a time"), Some(UNREAD_WITHIN));
    }
}

#[test]
fn addresses_that_differ_in_nothing_but_their_ports_are_one_at_another_port() {
    let at = |addresses: &[&str], port| {
        let addresses: Vec<_> = addresses.iter().map(|text| address(text)).collect();
        let at = at_port(&addresses, port);
        at.iter().map(SocketAddr::to_string).collect::<Vec<_>>()
    };
    let twice = ["10.0.0.1:53", "10.0.0.1:5353", "[fd00::1]:53", "10.0.0.2:53"];
    assert_eq!(at(&twice, 853), ["10.0.0.1:853", "[fd00::1]:853", "10.0.0.2:853"]);
    assert_eq!(at(&twice[..2], 0), ["10.0.0.1:0", "10.0.0.1:0"], "each has a port of its own");
    // The wildcard address takes the port at every address of its family.
    let wildcard = ["10.0.0.1:53", "0.0.0.0:5353", "[fd00::1]:53"];
    assert_eq!(at(&wildcard, 853), ["0.0.0.0:853", "[fd00::1]:853"]);
}

#[test]
fn t8_every_transport_listens_at_one_port_of_both_wildcard_addresses() {
    if UdpSocket::bind("[::1]:0").is_err() {
        let _ = std::io::stderr().write_all(b"NOT RUN: this machine has no IPv6\n");
        return;
    }
    type Open = fn(Vec<SocketAddr>) -> anyhow::Result<usize>;
    let transports: [(&str, Open); 3] = [
        ("DNS", |at| Ok(all(&Listen::at(at), 1)?.len())),
        ("TLS and HTTPS", |at| Ok(streams(&Listen::at(at))?.len())),
        ("QUIC", |at| Ok(datagrams(&at)?.len())),
    ];
    for (transport, open) in transports {
        let opened = (0..TRIES).find_map(|_| {
            let free = UdpSocket::bind("0.0.0.0:0").expect("a port").local_addr().expect("bound");
            open(vec![free, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), free.port())]).ok()
        });
        assert_eq!(opened, Some(2), "{transport}");
    }
}

#[test]
fn the_socket_of_quic_has_the_queue_of_those_of_dns_and_its_losses_are_counted() {
    let dns = Socket::bind(address("127.0.0.1:0"), &Options::default()).expect("bound");
    let quic = datagrams(&[address("127.0.0.1:0")]).expect("bound").remove(0);
    let size = socket2::SockRef::from(&quic).recv_buffer_size().expect("a size");
    assert_eq!(size, socket2::SockRef::from(&dns).recv_buffer_size().expect("a size"));
    let counters = super::super::ServeCounters::default();
    counters.add_quic_sockets(vec![quic.try_clone().expect("a descriptor")]);
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    // Each counts as its octets at least.
    for _ in 0..=size / 1000 {
        client.send_to(&[0; 1000], quic.local_addr().expect("bound")).expect("sent");
    }
    assert!(counters.udp_drops() > 0, "nothing reads them");
}

#[test]
fn a_taken_udp_port_is_named_with_the_way_out() {
    // At which no other test listens over TCP.
    let (taken, port) = loop {
        let taken = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let address = taken.local_addr().expect("address");
        if TcpListener::bind(address).is_ok() {
            break (taken, address.port());
        }
    };
    let error = all(&Listen::at([address(&format!("127.0.0.1:{port}"))]), 1).expect_err("taken");
    let text = error.to_string();
    assert!(text.contains(&format!("UDP 127.0.0.1:{port}")), "{text}");
    assert!(text.contains("ss -lunp"), "{text}");
    assert!(text.contains("--listen"), "{text}");
    drop(taken);
}

/// The port of a new listener may be one from which a query left before.
#[test]
fn a_taken_port_of_quic_may_be_that_of_our_own_query() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let error = datagrams(&[taken.local_addr().expect("address")]).expect_err("taken");
    let text = error.to_string();
    assert!(text.contains("our socket to an upstream") && text.contains("ss -anup"), "{text}");
}

#[test]
fn a_taken_tcp_port_is_named_even_where_udp_is_shared() {
    let first = all(&Listen::at([address("127.0.0.1:0")]), 1).expect("first");
    let error = all(&Listen::at([first[0].address]), 1).expect_err("second");
    assert!(error.to_string().contains("TCP 127.0.0.1:"), "{error}");
    assert!(error.to_string().contains("ss -ltnp"), "{error}");
}

#[test]
fn d3_a_port_is_shared_with_another_process_only_where_both_say_so() {
    let shared = |address| Listen { shares_ports: true, ..Listen::at([address]) };
    let first = all(&shared(address("127.0.0.1:0")), 1).expect("first");
    let at = first[0].address;
    check(&shared(at)).expect("it may be shared");
    all(&shared(at), 2).expect("it is shared");
    assert!(all(&Listen::at([at]), 1).is_err(), "this one does not say so");
    let alone = all(&Listen::at([address("127.0.0.1:0")]), 1).expect("alone");
    assert!(all(&shared(alone[0].address), 1).is_err(), "the first one does not say so");
}

#[test]
fn d3_a_check_takes_no_datagram_of_the_process_that_serves() {
    // It shares its port with no other socket, so a check that opened one would be refused.
    let udp = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let at = udp.local_addr().expect("address");
    check(&Listen { shares_ports: true, ..Listen::at([at]) }).expect("TCP alone is tried");
    let text = check(&Listen::at([at])).expect_err("taken").to_string();
    assert!(text.contains("UDP 127.0.0.1:"), "{text}");
}

#[test]
fn tcp_is_tried_first_as_only_that_cannot_be_shared_with_who_serves() {
    let taken = || {
        let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
        let at = tcp.local_addr().ok()?;
        Some((UdpSocket::bind(at).ok()?, tcp, at))
    };
    let (udp, tcp, at) = (0..TRIES).find_map(|_| taken()).expect("a port free over both");
    let text = all(&Listen::at([at]), 1).expect_err("taken").to_string();
    assert!(text.contains("TCP 127.0.0.1:"), "{text}");
    drop((tcp, udp));
}

#[test]
fn a_privileged_port_without_permission_says_what_to_allow() {
    let text = failed("UDP", "0.0.0.0:53", libc::EACCES).explain(BY_FLAG).to_string();
    for part in
        ["UDP 0.0.0.0:53", "1024", "net.ipv4.ip_unprivileged_port_start=53", "CAP_NET_BIND_SERVICE"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn an_address_that_is_not_ours_fails_although_another_is() {
    // TEST-NET-1 (RFC 5737): no machine has the address.
    let listen = [address("127.0.0.1:0"), address("192.0.2.1:0")];
    let error = all(&Listen::at(listen), 1).expect_err("not ours");
    assert!(error.to_string().contains("192.0.2.1:0"), "{error}");
    assert!(error.to_string().contains("ip address"), "{error}");
}

#[test]
fn a_missing_family_is_distinguished_from_a_wrong_address() {
    for (at, code, missing) in [
        ("[::]:53", libc::EAFNOSUPPORT, true),
        ("[fd00::1]:53", libc::EAFNOSUPPORT, true),
        ("[::]:53", libc::EADDRNOTAVAIL, true),
        ("[::1]:53", libc::EADDRNOTAVAIL, true),
        ("[fd00::1]:53", libc::EADDRNOTAVAIL, false),
        ("10.0.0.1:53", libc::EADDRNOTAVAIL, false),
        ("[::]:53", libc::EADDRINUSE, false),
    ] {
        let failure = failed("UDP", at, code);
        assert_eq!(failure.family_is_missing(), missing, "{at} {code}");
    }
}

#[test]
fn a_listening_family_that_is_missing_is_no_error_unless_it_is_the_only_one() {
    let without_ipv6 = |address: SocketAddr| match address {
        SocketAddr::V4(_) => Ok(address),
        SocketAddr::V6(_) => Err(failed("UDP", &address.to_string(), libc::EAFNOSUPPORT)),
    };
    let (ipv4, ipv6) = (address("0.0.0.0:53"), address("[::]:53"));
    let (opened, missing) = every(&[ipv6, ipv4], BY_FLAG, without_ipv6).expect("IPv4 is enough");
    assert_eq!((opened, missing), (vec![ipv4], vec![ipv6]));
    let error = every(&[ipv6], BY_FLAG, without_ipv6).expect_err("nothing is left");
    assert!(error.to_string().contains("does not have the address family"), "{error}");
}

#[test]
fn a_check_finds_what_is_taken_and_leaves_what_is_free() {
    let finds = |free: SocketAddr| {
        check(&Listen::at([free])).ok()?;
        all(&Listen::at([free]), 1).ok()?;
        let tcp = TcpListener::bind(free).ok()?;
        assert!(check(&Listen::at([free])).expect_err("taken").to_string().contains("TCP"));
        drop(tcp);
        let udp = UdpSocket::bind(free).ok()?;
        assert!(check(&Listen::at([free])).expect_err("taken").to_string().contains("UDP"));
        drop(udp);
        Some(())
    };
    let some = || all(&Listen::at([address("127.0.0.1:0")]), 1).expect("bind")[0].address;
    assert!((0..TRIES).any(|_| finds(some()).is_some()), "free again: the check keeps nothing");
    assert!(check(&Listen::at([address("192.0.2.1:0")])).is_err(), "no machine has the address");
}

#[test]
fn nothing_to_listen_on_is_an_error() {
    assert!(check(&Listen::at([])).is_err());
    assert!(all(&Listen::at([]), 1).expect_err("nothing").to_string().contains("--listen"));
}
