//! What queries and probes of one server leave behind.

use std::net::{IpAddr, Ipv4Addr};

use dataplane_core::RelayError;

use super::super::plan::USUAL;
use super::*;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn server() -> Arc<Server> {
    over(config::Transport::Udp)
}

fn over(transport: config::Transport) -> Arc<Server> {
    let address: SocketAddr = "192.0.2.1:53".parse().unwrap();
    let identity = ServerIdentity { address, transport, tls: None };
    let of_address = Arc::new(AddressCounts::new(address));
    Arc::new(Server::new(1, identity, None, of_address, Arc::default()))
}

#[test]
fn l16_a_query_that_is_overdue_gives_its_place_to_others_once() {
    let (server, now) = (server(), now());
    let in_flight = || server.seen(now).in_flight;
    let (mut silent, other) = (server.send(true).unwrap(), server.send(true).unwrap());
    silent.look(now);
    assert_eq!(in_flight(), 2, "it has its time");
    let overdue = silent.overdue_at().unwrap();
    for _ in 0..2 {
        silent.look(overdue);
        assert_eq!((in_flight(), silent.overdue_at()), (1, None));
    }
    drop(silent);
    assert_eq!(in_flight(), 1, "its place was given back before");
    other.settle(Heard::Good);
    assert_eq!(in_flight(), 0);
}

/// Metrics show it as a counter: one that decreases looks like a process that was started again.
#[test]
fn e55_the_count_of_queries_that_were_sent_never_decreases() {
    let server = server();
    let sent = || {
        let shown = server.seen(now()).sent;
        assert_eq!(server.of_address.shown.sent.load(Ordering::Relaxed), shown);
        shown
    };
    let refused = server.send(true).unwrap();
    let before = sent();
    refused.cancel();
    assert_eq!((before, sent()), (0, 0), "it did not leave");
    let mut silent = server.send(true).unwrap();
    silent.look(silent.overdue_at().unwrap());
    assert_eq!(sent(), 1, "it is overdue");
    silent.settle(Heard::Nothing);
    server.send(true).unwrap().settle(Heard::Good);
    drop(server.send(true).unwrap());
    assert_eq!(sent(), 3, "each once, also one that another server was faster than");
}

#[test]
fn l16_names_without_an_answer_do_not_shrink_a_server_that_answers_others() {
    let server = server();
    let mut silent: Vec<Sent> = (0..20).map(|_| server.send(true).unwrap()).collect();
    server.send(true).unwrap().settle(Heard::Good);
    let places = server.seen(now()).places;
    silent.iter_mut().for_each(|sent| _ = sent.look(now() + USUAL.interval));
    assert_eq!(server.seen(now()).places, places);
}

#[tokio::test]
async fn l16_a_reply_to_a_probe_is_a_sign_of_life_and_gives_a_place_to_who_waits() {
    for heard in [Heard::Good, Heard::Error] {
        let server = server();
        server.configured(false, 40);
        server.send(true).unwrap().settle(Heard::Nothing);
        let mut silent: Vec<Sent> = std::iter::from_fn(|| server.send(true)).collect();
        assert_eq!(silent.len(), 20, "half of the places");
        let mut waits = server.wait(CLIENT);
        assert!(futures::poll!(&mut waits).is_pending());
        server.probed(true, heard, OptHeard::Answered, now());
        assert!(futures::poll!(&mut waits).is_ready(), "{heard:?}: there is one place more");
        silent.iter_mut().for_each(|sent| _ = sent.look(now() + USUAL.interval));
        assert_eq!(server.seen(now()).places, 21, "{heard:?}: it answers others");
    }
}

/// The time by which `Fastest` ranks a server that answers every other query, after 20 ms, and ends the rest like this, after 1 ms.
async fn ranked_by(end: impl Fn(Sent)) -> Duration {
    let server = server();
    for _ in 0..40 {
        for (ms, is_answer) in [(20, true), (1, false)] {
            let sent = server.send(true).unwrap();
            tokio::time::advance(Duration::from_millis(ms)).await;
            match is_answer {
                true => sent.replied(Heard::Good, 0),
                false => end(sent),
            }
        }
    }
    server.seen(now()).latency.unwrap()
}

#[tokio::test(start_paused = true)]
async fn fw22_a_server_that_fails_soon_is_not_taken_for_a_fast_one() {
    let fast = Duration::from_millis(20);
    assert!(ranked_by(|sent| sent.replied(Heard::Error, 2)).await > fast, "SERVFAIL");
    assert!(ranked_by(|sent| sent.settle(Heard::Nothing)).await > fast, "a closed port");
    for error in [RelayError::Referral, RelayError::Chain, RelayError::Malformed] {
        assert!(ranked_by(|sent| sent.was_no_answer(error)).await > fast, "{error:?}");
    }
    // It is asked without the OPT record at once, and the reply to that counts (FW25).
    assert_eq!(ranked_by(|sent| sent.refused_edns(1)).await, fast);
}

/// A server all of whose places are taken.
pub(super) fn full() -> (Arc<Server>, Vec<Sent>) {
    let server = server();
    server.configured(false, 1);
    let taken = std::iter::from_fn(|| server.send(true)).collect();
    (server, taken)
}

#[tokio::test]
async fn fw52_a_place_is_for_the_one_that_has_waited_longest_and_not_for_a_new_query() {
    let (server, mut taken) = full();
    let (mut first, mut second) = (server.wait(CLIENT), server.wait(CLIENT));
    assert!(futures::poll!(&mut first).is_pending());
    drop(taken.pop());
    assert!(server.send(true).is_none(), "a new query comes after those who wait");
    assert!(futures::poll!(&mut second).is_pending() && futures::poll!(&mut first).is_ready());
    let sent = first.send(true);
    sent.settle(Heard::Good);
    assert!(futures::poll!(&mut second).is_ready());
    drop((second, taken.pop()));
    assert!(server.send(true).is_some(), "no other waits");
}

#[tokio::test]
async fn fw52_who_leaves_the_queue_takes_no_place_with_it() {
    let (server, mut taken) = full();
    let [gone, mut given, mut last] = [(); 3].map(|()| server.wait(CLIENT));
    drop(gone);
    drop(taken.pop());
    assert!(futures::poll!(&mut given).is_ready() && futures::poll!(&mut last).is_pending());
    // Its lookup ended before it could use the place.
    drop(given);
    assert!(futures::poll!(&mut last).is_ready());
    drop(last);
    assert_eq!(server.seen(now()).in_flight, taken.len());
}

#[test]
fn fw25_silence_alone_disables_no_edns() {
    let server = server();
    for _ in 0..20 {
        let mut silent = server.send(true).unwrap();
        silent.look(silent.overdue_at().unwrap());
        silent.settle(Heard::Nothing);
    }
    assert!(server.seen(now()).edns);
}

#[test]
fn fw25_a_reply_over_tcp_says_nothing_of_opt_over_udp() {
    for (over, uses_edns) in [(Transport::Connection, false), (Transport::Udp, true)] {
        let (server, now) = (server(), now());
        server.probed(false, Heard::Good, OptHeard::Answered, now);
        server.send(true).unwrap().over(over).replied(Heard::Good, 0);
        server.probed(false, Heard::Good, OptHeard::Answered, now);
        assert_eq!(server.uses_edns(now), uses_edns, "{over:?}");
        // The same of a probe for a group in which it is failing.
        let server = self::server();
        server.probed(false, Heard::Good, OptHeard::Answered, now);
        server.failing_probed(true, Heard::Good, over, now);
        server.probed(false, Heard::Good, OptHeard::Answered, now);
        assert_eq!(server.uses_edns(now), uses_edns, "{over:?}");
    }
}

/// Three lookups of which only the query over TCP gets a reply.
fn answers_over_tcp_only(server: &Arc<Server>) {
    for _ in 0..3 {
        (0..2).for_each(|_| server.send(true).unwrap().settle(Heard::Nothing));
        server.send(true).unwrap().over(Transport::Connection).replied(Heard::Good, 0);
    }
}

#[test]
fn fw27_a_server_that_answers_over_tcp_only_is_asked_over_tcp_first() {
    let (server, later) = (server(), now() + Duration::from_secs(1));
    let candidate = || server.candidate(0, later).unwrap();
    answers_over_tcp_only(&server);
    assert!(server.form_probe_at().is_some_and(|at| at <= later) && server.is_up());
    for probes in 0..3 {
        let found = (candidate().transport, candidate().has_silent_udp);
        assert_eq!(found, (Transport::Udp, false), "after {probes} probes");
        server.form_probe();
        server.forms_probed(Some(false), Some(false), later);
    }
    assert_eq!((candidate().transport, candidate().has_silent_udp), (Transport::Connection, true));
    // Names without a reply, and errors over TCP, change nothing.
    for heard in [Heard::Nothing, Heard::Error, Heard::Good] {
        server.send(true).unwrap().over(Transport::Connection).settle(heard);
        assert_eq!(server.asked_over(), Transport::Connection, "{heard:?}");
    }
    server.send(true).unwrap().replied(Heard::Error, 2);
    assert_eq!((candidate().transport, candidate().has_silent_udp), (Transport::Udp, false));
}

#[test]
fn fw27_a_probe_that_is_answered_over_udp_ends_what_was_found_of_it() {
    let end: [fn(&Server); 3] = [
        |server| server.probed(true, Heard::Error, OptHeard::Answered, now()),
        |server| server.failing_probed(true, Heard::Good, Transport::Udp, now()),
        |server| server.forms_probed(Some(true), Some(false), now()),
    ];
    for end in end {
        let server = server();
        answers_over_tcp_only(&server);
        (0..3).for_each(|_| server.forms_probed(Some(false), Some(false), now()));
        assert_eq!(server.asked_over(), Transport::Connection);
        end(&server);
        assert_eq!(server.asked_over(), Transport::Udp);
    }
}

#[test]
fn fw25_udp_that_is_silent_about_opt_alone_is_asked_without_it() {
    let server = server();
    answers_over_tcp_only(&server);
    server.forms_probed(Some(false), Some(true), now());
    assert!(server.uses_edns(now()), "once is no proof");
    assert!(server.form_probe_at().is_some_and(|at| at <= now() + Duration::from_secs(1)));
    server.forms_probed(Some(false), Some(true), now());
    assert!(!server.uses_edns(now()) && server.asked_over() == Transport::Udp);
    let next = server.form_probe_at();
    assert!(next.is_some_and(|at| at > now() + Duration::from_secs(14 * 60)), "{next:?}");
}

#[test]
fn fw25_silence_about_opt_over_udp_says_nothing_of_tcp() {
    let server = server();
    let candidate = || {
        let found = server.candidate(0, now()).unwrap();
        (found.edns, found.edns_over_tcp, found.signs_over_tcp)
    };
    assert_eq!(candidate(), (true, true, false));
    (0..2).for_each(|_| server.probed(false, Heard::Good, OptHeard::Answered, now()));
    assert_eq!(candidate(), (false, true, false), "it is not known whether its TCP answers");
    server.send(true).unwrap().over(Transport::Connection).replied(Heard::Good, 0);
    assert_eq!(candidate(), (false, true, true));
    assert!(server.may_give_signatures(now()));
    server.send(true).unwrap().over(Transport::Connection).stream_failed();
    assert_eq!(candidate(), (false, true, false));
    server.probed_over_tcp(Heard::Good, now());
    assert_eq!(candidate(), (false, true, true));
    server.refused_edns(now());
    assert_eq!(candidate(), (false, false, false));
}

/// Clear text would be sent to the port of an encrypted one (FW2).
#[test]
fn fw27_a_server_with_another_transport_never_has_silent_udp() {
    let server = over(config::Transport::Tls);
    server.forms_probed(Some(false), Some(true), now());
    (0..9).for_each(|_| server.forms_probed(Some(false), Some(false), now()));
    let candidate = server.candidate(0, now()).unwrap();
    assert!(!candidate.has_silent_udp && !server.seen(now()).has_silent_udp);
    assert_eq!(candidate.transport, Transport::Connection);
}

#[tokio::test(start_paused = true)]
async fn l16_a_connection_that_fails_takes_places_where_udp_is_silent() {
    for is_silent in [false, true] {
        let server = server();
        server.configured(false, 40);
        answers_over_tcp_only(&server);
        if is_silent {
            (0..3).for_each(|_| server.forms_probed(Some(false), Some(false), now()));
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        let before = server.seen(now()).places;
        server.send(true).unwrap().over(Transport::Connection).stream_failed();
        let loses = server.seen(now()).places < before;
        assert_eq!(loses, is_silent, "what is asked over UDP first keeps them");
    }
}
