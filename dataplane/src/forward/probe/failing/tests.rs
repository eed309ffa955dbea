//! Servers on loopback that answer with errors only, to the queries of all groups or of one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crds::config::Transport;
use dataplane_core::{LookupKey, Name, RelayError};
use tokio::net::UdpSocket;

use super::*;
use crate::forward::attempt::AttemptResult;
use crate::forward::attempt::NO_CLIENT;
use crate::forward::lookup::{Lookup, lookup};
use crate::forward::plan::Standing;
use crate::forward::probe::tests::{of_one, old_server, with_stub_domains};

/// Answers what is asked about names below this one, and refuses all others.
async fn refuses_all_but(far: Arc<UdpSocket>, below: &'static [u8]) {
    let mut buffer = [0; 512];
    while let Ok((octets, peer)) = far.recv_from(&mut buffer).await {
        let is_below = buffer[12..octets].windows(below.len()).any(|part| part == below);
        (buffer[2], buffer[3]) = (0x81, if is_below { 0x80 } else { 0x85 });
        let _ = far.send_to(&buffer[..octets], peer).await;
    }
}

fn in_five_seconds() -> Instant {
    now() + Duration::from_secs(5)
}

/// Makes the only server of these groups failing in them.
fn refused(groups: &[&Arc<Group>]) {
    groups.iter().for_each(|group| (0..10).for_each(|_| group.replied(0, true, now(), now())));
}

/// How its only server is ranked.
fn ranked(group: &Group) -> Standing {
    group.candidate(0, now()).expect("it leads to no loop").standing
}

/// The groups in which a server is failing.
fn failing(upstreams: &Upstreams) -> Vec<String> {
    upstreams.failing(now(), 9).into_iter().map(|row| row.group).collect()
}

#[tokio::test]
async fn fw28_a_server_that_refuses_one_group_is_failing_in_it_while_it_answers_others() {
    let bind = async || UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (other, far) = (bind().await, bind().await);
    let upstreams = with_stub_domains(&other, &["first.example", "second.example"], &far);
    tokio::spawn(refuses_all_but(Arc::new(far), b"\x06second"));
    let [first, second] = [1, 2].map(|place| upstreams.group(place).unwrap());
    // Clients of both ask by turns.
    for _ in 0..10 {
        assert!(lookup(first, &[0], &first.probe, now()).await.is_err());
        assert!(lookup(second, &[0], &second.probe, now()).await.is_ok());
    }
    assert_eq!(failing(&upstreams), ["first.example"]);
    let states = upstreams.view(now()).groups.into_iter().map(|group| group.servers[0].state);
    assert!(states.eq(["healthy", "failing", "healthy"]), "also in metrics");
    probe_due(&upstreams, in_five_seconds());
    assert_eq!(first.failing_probe_at(0), None, "it is on its way");
    while first.failing_probe_at(0).is_none() && !failing(&upstreams).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(failing(&upstreams), ["first.example"], "it is asked about the first one");
    refused(&[second]);
    assert_eq!(failing(&upstreams), ["first.example", "second.example"]);
    probe_due(&upstreams, in_five_seconds());
    while ranked(second) == Standing::Avoided {
        tokio::task::yield_now().await;
    }
    assert_eq!(failing(&upstreams), ["first.example", "second.example"], "clients have not asked");
    assert!(lookup(second, &[0], &second.probe, now()).await.is_ok());
    assert_eq!(failing(&upstreams), ["first.example"], "the second one is answered");
    assert_eq!(ranked(first), Standing::Avoided);
}

/// Answers `. NS`, as a resolver does that knows the root and reaches no other server, and counts what else it is asked.
async fn knows_the_root_only(far: UdpSocket, others: Arc<AtomicUsize>) {
    let mut buffer = [0; 512];
    while let Ok((octets, peer)) = far.recv_from(&mut buffer).await {
        let is_root = buffer[12] == 0;
        others.fetch_add(usize::from(!is_root), Ordering::Relaxed);
        (buffer[2], buffer[3]) = (0x81, if is_root { 0x80 } else { 0x82 });
        let _ = far.send_to(&buffer[..octets], peer).await;
    }
}

#[tokio::test(start_paused = true)]
async fn fw28_a_broken_resolver_that_answers_its_probe_is_failing_all_the_time() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = of_one(far.local_addr().unwrap(), Transport::Udp);
    let others = Arc::<AtomicUsize>::default();
    tokio::spawn(knows_the_root_only(far, Arc::clone(&others)));
    let group = upstreams.group(0).unwrap();
    let key = LookupKey::new(Name::from_text("www.example").unwrap(), 1, false, false);
    let (start, mut first) = (now(), Vec::new());
    refused(&[group]);
    for second in 1..=70 {
        tokio::time::advance(Duration::from_secs(1)).await;
        probe_due(&upstreams, now());
        while group.failing_probe_at(0).is_none() && !failing(&upstreams).is_empty() {
            tokio::task::yield_now().await;
        }
        // Others are asked first except for these.
        if ranked(group) == Standing::Healthy {
            first.push(second);
            assert!(lookup(group, &[0], &key, now()).await.is_err());
        }
    }
    assert_eq!(first, [5, 15, 35], "one query finds out");
    assert_eq!(others.load(Ordering::Relaxed), 3);
    let shown = upstreams.failing(now(), 9);
    assert!(now() - start >= Duration::from_secs(70) && shown[0].seconds >= 70, "{shown:?}");
}

#[tokio::test]
async fn fw25_a_failing_server_that_refuses_edns_is_led_back_by_a_probe() {
    let (address, counts) = old_server().await;
    let upstreams = of_one(address, Transport::Udp);
    refused(&[upstreams.group(0).unwrap()]);
    probe_due(&upstreams, in_five_seconds());
    let group = upstreams.group(0).unwrap();
    while group.failing_probe_at(0).is_none() && !failing(&upstreams).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(ranked(group), Standing::Healthy);
    assert_eq!(counts.each_ref().map(|count| count.load(Ordering::Relaxed)), [1, 1]);
    let server = &upstreams.known()[0];
    assert!(server.seen(now()).edns, "as after a client's query: it may be about these names");
    crate::forward::probe::probe_due(&upstreams, 0, now());
    while server.seen(now()).edns {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn fw28_a_server_of_many_groups_is_probed_for_four_at_once_and_for_each_in_its_turn() {
    const DOMAINS: [&str; 5] = ["a.example", "b.example", "c.example", "d.example", "e.example"];
    // It is silent.
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = with_stub_domains(&far, &DOMAINS, &far);
    let groups: Vec<&Arc<Group>> = upstreams.groups().collect();
    refused(&groups);
    let probed = || groups.iter().map(|group| u8::from(group.failing_probe_at(0).is_none()));
    for _ in 0..2 {
        probe_due(&upstreams, in_five_seconds());
        assert!(probed().eq([1, 1, 1, 1, 0, 0]), "{:?}", probed().collect::<Vec<_>>());
    }
    while probed().any(|is_probed| is_probed == 1) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(upstreams.known()[0].failed_probes(), 4);
    assert_eq!(failing(&upstreams).len(), groups.len(), "silence ends nothing");
    probe_due(&upstreams, in_five_seconds());
    assert!(probed().eq([1, 1, 0, 0, 1, 1]), "{:?}", probed().collect::<Vec<_>>());
}

#[tokio::test]
async fn fw28_referrals_are_no_error_codes() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = of_one(far.local_addr().unwrap(), Transport::Udp);
    let group = upstreams.group(0).unwrap();
    refused(&[group]);
    let mut lookup = Lookup::new(group, &[0], NO_CLIENT, &group.probe, now()).unwrap();
    let (send, sent, _) = lookup.take_first(now()).unwrap();
    let referral = AttemptResult::Error(RelayError::Referral, Default::default());
    assert!(lookup.ended(send, sent, referral).is_none());
    assert!(failing(&upstreams).is_empty(), "its code is NOERROR");
    assert_eq!(upstreams.known()[0].seen(now()).heard, [0, 1, 0]);
}
