//! A server that answers over UDP and takes no TCP, as many do.

use super::*;
use crate::forward::upstreams::Group;

/// More than [`PLACES`], so that it can have fewer.
const MANY: usize = 1_024;

fn one_server(transport: config::Transport, address: SocketAddr) -> Upstreams {
    let limits = GroupLimits { in_flight: MANY as u32 };
    upstreams_over(transport, &[address], GroupOptions { limits, ..GroupOptions::default() })
}

fn places(group: &Group) -> usize {
    group.servers[0].seen(now()).places
}

#[tokio::test]
async fn l16_dead_names_of_one_client_leave_a_server_without_tcp_its_places() {
    let (far, _closed) = without_listener().await;
    let upstreams = one_server(config::Transport::Udp, far.local_addr().unwrap());
    let group = upstreams.group(0).unwrap();
    let key = |name: &str| LookupKey::new(Name::from_text(name).unwrap(), 1, false, false);
    let ask = |client: u8, key: LookupKey| {
        let client = IpAddr::from([10, 0, 0, client]);
        let lookup = Lookup::new(group, &[0], client, &key, now()).unwrap();
        Box::pin(async move { lookup.run(&key, None).await })
    };
    tokio::time::pause();
    let mut dead = Vec::new();
    // For three seconds, one client asks for 20 names a second that get no reply, another one for as many that get one.
    for step in 0..60 {
        dead.push(ask(1, key(&format!("dead{step}.example"))));
        let mut asked = ask(2, key(&format!("live{step}.example")));
        let began = std::time::Instant::now();
        let ended = loop {
            dead.retain_mut(|lookup| futures::FutureExt::now_or_never(lookup).is_none());
            if let std::task::Poll::Ready(ended) = poll!(&mut asked) {
                break ended;
            }
            let mut buffer = [0; 512];
            if let Ok((octets, peer)) = far.try_recv_from(&mut buffer)
                && buffer[13..].to_ascii_lowercase().starts_with(b"live")
            {
                // NXDOMAIN. Without the OPT, which has 11 octets.
                let reply = &mut buffer[..octets - 11];
                (reply[2], reply[3], reply[11]) = (0x81, 0x83, 0);
                far.send_to(reply, peer).await.unwrap();
            }
            assert!(began.elapsed() < Duration::from_secs(30), "a reply");
            tokio::task::yield_now().await;
        };
        assert!(ended.is_ok(), "{ended:?}");
        assert_eq!(places(group), MANY, "in step {step}");
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    let failure = group.servers[0].seen(now()).connections.latest;
    assert!(failure.is_some(), "it was asked over TCP");
}

#[tokio::test(start_paused = true)]
async fn l16_a_stream_that_fails_takes_places_only_of_a_server_that_is_asked_over_streams() {
    let address = SocketAddr::from(([192, 0, 2, 1], 53));
    for (transport, left) in [(config::Transport::Udp, MANY), (config::Transport::Tcp, MANY / 2)] {
        for result in [AttemptResult::Unreachable, AttemptResult::HeldOff] {
            let upstreams = one_server(transport, address);
            let group = upstreams.group(0).unwrap();
            let mut lookup = Lookup::new(group, &[0], NO_CLIENT, &group.probe, now()).unwrap();
            let (send, sent, server) = lookup.take_first(now()).unwrap();
            let send = Send { transport: Transport::Connection, ..send };
            assert!(lookup.ended(send, sent, result).is_none());
            let seen = server.seen(now());
            assert_eq!((seen.places, seen.in_flight), (left, 0), "{transport:?}");
            assert_eq!(seen.heard[Heard::Nothing as usize], 1, "{transport:?}");
            assert!(seen.latency.is_some(), "{transport:?}");
        }
    }
}
