//! Plans as tables: when which server is asked, and over what.

mod ranking;

use super::*;

fn candidate(member: usize) -> Candidate {
    Candidate {
        member,
        transport: Transport::Udp,
        has_silent_udp: false,
        standing: Standing::Healthy,
        latency: None,
        edns: true,
        edns_over_tcp: true,
        signs_over_tcp: false,
    }
}

fn candidates(count: usize) -> Vec<Candidate> {
    (0..count).map(candidate).collect()
}

/// What is sent while no server replies: milliseconds, server, transport.
fn sends(plan: &mut Plan, started: Instant) -> Vec<(u128, usize, &'static str)> {
    let (mut now, mut sent) = (started, Vec::new());
    loop {
        match plan.next(now) {
            Next::Send(send) => {
                let over = match send.transport {
                    Transport::Udp => "udp",
                    Transport::Connection => "tcp",
                };
                sent.push(((now - started).as_millis(), plan.member(send.place), over));
            }
            Next::Wait(until) => now = until,
            Next::Listen(_) | Next::Expired => return sent,
        }
    }
}

#[test]
fn g129_two_servers_get_three_datagrams_and_a_stream_each() {
    let started = Instant::now();
    let mut plan = Plan::new(candidates(2), started);
    let expected = [
        (0, 0, "udp"),
        (500, 1, "udp"),
        (1000, 0, "udp"),
        (1500, 1, "udp"),
        (2000, 0, "udp"),
        (2500, 1, "udp"),
        (3000, 0, "tcp"),
        (3500, 1, "tcp"),
    ];
    assert_eq!(sends(&mut plan, started), expected);
    assert_eq!(plan.next(started + Duration::from_secs(4)), Next::Expired);
}

/// Whether a lookup has a reply in time, where a part of all datagrams is lost on the way there or back, and a reply takes
/// 150 to 250 ms, so that replies overtake each other. Connections lose nothing and take twice as long.
fn succeeds(servers: usize, lost_percent: u64, draw: &mut impl FnMut() -> u64) -> bool {
    let started = Instant::now();
    let (mut plan, mut now) = (Plan::new(candidates(servers), started), started);
    let mut first_reply = None;
    loop {
        let until = match plan.next(now) {
            Next::Send(send) => {
                let trip = Duration::from_millis(150 + draw() % 100);
                let arrives = match send.transport {
                    Transport::Connection => Some(now + 2 * trip),
                    Transport::Udp => (draw() % 100 >= lost_percent).then_some(now + trip),
                };
                first_reply = first_reply.into_iter().chain(arrives).min();
                continue;
            }
            Next::Wait(until) | Next::Listen(until) => until,
            Next::Expired => return false,
        };
        if first_reply.is_some_and(|reply| reply < until) {
            return true;
        }
        now = until;
    }
}

#[test]
fn f17_lookups_succeed_where_a_third_of_all_datagrams_is_lost() {
    const LOOKUPS: usize = 10_000;
    // A generator of Knuth's, so that every run is the same.
    let mut state = 7_u64;
    let mut draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut good =
        |servers, percent| (0..LOOKUPS).filter(|_| succeeds(servers, percent, &mut draw)).count();
    for servers in 1..=3 {
        assert!(good(servers, 30) >= LOOKUPS * 999 / 1000, "{servers} servers");
    }
    assert!(good(1, 100) > 0, "over a stream in the end");
}

#[test]
fn fw23_a_server_that_is_alone_gets_its_last_datagram_late_and_its_stream_before() {
    let started = Instant::now();
    let expected = [(0, 0, "udp"), (500, 0, "udp"), (1000, 0, "tcp"), (2500, 0, "udp")];
    assert_eq!(sends(&mut Plan::new(candidates(1), started), started), expected);
    // Over a stream the system sends again what was lost.
    let stream = Candidate { transport: Transport::Connection, ..candidate(0) };
    let expected = [(0, 0, "tcp"), (500, 0, "tcp"), (1000, 0, "tcp")];
    assert_eq!(sends(&mut Plan::new(vec![stream], started), started), expected);
}

#[test]
fn fw23_a_server_whose_udp_is_silent_gets_one_datagram_in_the_end() {
    let started = Instant::now();
    let silent = |member| Candidate {
        transport: Transport::Connection,
        has_silent_udp: true,
        ..candidate(member)
    };
    let expected = [(0, 0, "tcp"), (500, 0, "tcp"), (1000, 0, "tcp"), (2500, 0, "udp")];
    assert_eq!(sends(&mut Plan::new(vec![silent(0)], started), started), expected);
    let expected = [
        (0, 0, "tcp"),
        (500, 1, "udp"),
        (1000, 0, "tcp"),
        (1500, 1, "udp"),
        (2000, 0, "tcp"),
        (2500, 1, "udp"),
        (3000, 0, "udp"),
        (3500, 1, "tcp"),
    ];
    assert_eq!(sends(&mut Plan::new(vec![silent(0), candidate(1)], started), started), expected);
    let down = Candidate { standing: Standing::Down, ..silent(0) };
    assert_eq!(sends(&mut Plan::new(vec![down], started), started), [(0, 0, "tcp")]);
}

#[test]
fn fw23_a_server_that_is_alone_after_its_datagrams_gets_no_fourth() {
    let started = Instant::now();
    let at = |ms| started + Duration::from_millis(ms);
    let mut plan = Plan::new(candidates(2), started);
    for ms in [0, 500, 1000, 1500, 2000] {
        assert!(matches!(plan.next(at(ms)), Next::Send(_)));
    }
    plan.error(1, at(2100));
    assert_eq!(sends(&mut plan, started), [(2500, 0, "tcp")]);
}

#[test]
fn fw23_other_numbers_of_servers_end_too() {
    let started = Instant::now();
    let count = |order| sends(&mut Plan::new(order, started), started).len();
    assert_eq!(count(candidates(1)), 4);
    assert_eq!(count(vec![Candidate { transport: Transport::Connection, ..candidate(0) }]), 3);
    assert_eq!(count(candidates(15)), 8);
    assert_eq!(count(Vec::new()), 0);
}

#[test]
fn fw23_of_servers_that_give_errors_at_once_eight_are_asked() {
    let started = Instant::now();
    let mut plan = Plan::new(candidates(15), started);
    let mut asked = 0;
    while let Next::Send(send) = plan.next(started) {
        plan.error(send.place, started);
        asked += 1;
    }
    assert_eq!(asked, 8);
}

#[test]
fn fw24_servers_that_are_all_down_are_asked_once_and_two_seconds_are_enough() {
    let started = Instant::now();
    let down = |member| Candidate { standing: Standing::Down, ..candidate(member) };
    let mut plan = Plan::new((0..3).map(down).collect(), started);
    assert_eq!(sends(&mut plan, started), [(0, 0, "udp"), (250, 1, "udp"), (500, 2, "udp")]);
    assert_eq!(plan.next(started + Duration::from_secs(2)), Next::Expired);
    let mut one_up: Vec<Candidate> = (0..3).map(down).collect();
    one_up[2].standing = Standing::Avoided;
    let mut plan = Plan::new(one_up, started);
    assert!(matches!(plan.next(started + Duration::from_secs(3)), Next::Send(_)));
    assert_eq!(plan.next(started + Duration::from_secs(4)), Next::Expired);
}

#[test]
fn fw21_a_server_that_gave_an_error_is_not_asked_again_and_the_next_at_once() {
    let started = Instant::now();
    let mut plan = Plan::new(candidates(2), started);
    let Next::Send(first) = plan.next(started) else { panic!() };
    plan.error(first.place, started);
    let sent = sends(&mut plan, started);
    assert_eq!(sent[0], (0, 1, "udp"));
    assert!(sent.iter().all(|(_, member, _)| *member == 1) && sent.len() == 4, "{sent:?}");
}

#[test]
fn fw21_an_error_does_not_hurry_a_server_that_has_its_time() {
    let started = Instant::now();
    let mut plan = Plan::new(candidates(2), started);
    let Next::Send(_) = plan.next(started) else { panic!() };
    let second = started + USUAL.interval;
    let Next::Send(send) = plan.next(second) else { panic!() };
    plan.error(send.place, second + Duration::from_millis(1));
    let sent = sends(&mut plan, started);
    assert_eq!(sent, [(1000, 0, "udp"), (1500, 0, "tcp"), (2500, 0, "udp")], "it is alone now");
}

#[test]
fn fw52_a_server_without_a_place_is_asked_when_it_has_one() {
    let started = Instant::now();
    let at = |ms| started + Duration::from_millis(ms);
    let mut plan = Plan::new(candidates(2), started);
    for member in 0..2 {
        let Next::Send(send) = plan.next(started) else { panic!() };
        assert_eq!(plan.member(send.place), member, "the other one is asked at once");
        plan.full(send, started);
    }
    assert_eq!(plan.next(at(900)), Next::Listen(at(4000)));
    assert_eq!(plan.waiting().collect::<Vec<_>>(), [0, 1]);
    plan.freed(1);
    let Next::Send(send) = plan.next(at(900)) else { panic!() };
    assert_eq!((plan.member(send.place), send.transport), (1, Transport::Udp));
    // Waiting for a place costs no send: the first server may still be asked three times, and over TCP.
    plan.freed(0);
    let mut first = 0;
    let mut now = at(900);
    loop {
        match plan.next(now) {
            Next::Send(send) => first += usize::from(plan.member(send.place) == 0),
            Next::Wait(until) => now = until,
            Next::Listen(_) | Next::Expired => break,
        }
    }
    assert!(first >= 4, "{first}");
}

#[test]
fn fw21_a_server_that_gave_an_error_is_not_waited_for_either() {
    let started = Instant::now();
    let at = |ms| started + Duration::from_millis(ms);
    for truncated in [false, true] {
        let mut plan = Plan::new(candidates(1), started);
        let Next::Send(first) = plan.next(started) else { panic!() };
        // Its second send finds no place; then the reply to the first comes.
        let Next::Send(second) = plan.next(at(500)) else { panic!() };
        plan.full(second, at(500));
        assert_eq!(plan.waiting().count(), 1);
        match truncated {
            false => plan.error(first.place, at(600)),
            true => plan.over_stream(first.place, at(600)),
        }
        assert_eq!(plan.waiting().count(), 0, "truncated: {truncated}");
        if truncated {
            let stream = Send { transport: Transport::Connection, ..first };
            assert_eq!(plan.next(at(600)), Next::Send(stream), "a place at its stream is another");
            plan.full(stream, at(600));
            plan.over_stream(first.place, at(700));
            assert_eq!(plan.waiting().count(), 1, "another datagram says nothing new");
            plan.freed(first.place);
            assert_eq!(plan.next(at(800)), Next::Send(stream));
        }
        assert_eq!(plan.next(at(3900)), Next::Listen(at(4000)));
    }
}

#[test]
fn fw52_a_server_whose_connections_are_full_is_asked_again_after_half_a_second() {
    let started = Instant::now();
    let at = |ms| started + Duration::from_millis(ms);
    let mut plan =
        Plan::new(vec![Candidate { transport: Transport::Connection, ..candidate(0) }], started);
    for ms in [0, 500, 1000, 1500, 2000, 2500] {
        let Next::Send(send) = plan.next(at(ms)) else { panic!() };
        plan.no_place(send, at(ms));
        assert_eq!((plan.waiting().count(), plan.next(at(ms))), (0, Next::Wait(at(ms + 500))));
    }
    // None of these was a send.
    let asked: Vec<u128> = sends(&mut plan, started).into_iter().map(|(ms, ..)| ms).collect();
    assert_eq!(asked, [3000, 3500]);
    let mut plan = Plan::new(candidates(2), started);
    let Next::Send(first) = plan.next(started) else { panic!() };
    plan.no_place(first, started);
    let Next::Send(second) = plan.next(started) else { panic!("at once") };
    assert_eq!(plan.member(second.place), 1);
    plan.error(second.place, at(10));
    assert_eq!(plan.next(at(10)), Next::Wait(at(500)));
    assert_eq!(plan.next(at(500)), Next::Send(first));
}

#[test]
fn fw52_while_all_servers_are_down_no_place_is_waited_for() {
    let started = Instant::now();
    let down = |member| Candidate { standing: Standing::Down, ..candidate(member) };
    let mut plan = Plan::new((0..2).map(down).collect(), started);
    for _ in 0..2 {
        let Next::Send(send) = plan.next(started) else { panic!() };
        plan.full(send, started);
    }
    assert_eq!(
        (plan.waiting().count(), plan.next(started)),
        (0, Next::Listen(started + ALL_DOWN.budget))
    );
}

#[test]
fn fw21_only_a_server_that_gave_no_error_is_waited_for_until_the_end() {
    let started = Instant::now();
    let at = |ms| started + Duration::from_millis(ms);
    let mut plan = Plan::new(candidates(2), started);
    let sends = [0, 500, 1000, 1500].map(|ms| match plan.next(at(ms)) {
        Next::Send(send) => send,
        other => panic!("{other:?}"),
    });
    assert_eq!(sends.map(|send| send.place), [0, 1, 0, 1]);
    plan.error(1, at(1510));
    assert_eq!(plan.listens_until(sends.into_iter()), at(4000), "the first gave none");
    plan.error(0, at(1520));
    assert_eq!(plan.listens_until(sends.into_iter()), at(2000));
    let rest = Send { transport: Transport::Connection, ..sends[0] };
    assert_eq!(plan.listens_until([rest].into_iter()), at(4000), "the rest of a truncated reply");
    // Without a port it could not be asked again; its earlier query is with it.
    let mut plan = Plan::new(candidates(1), started);
    let Next::Send(send) = plan.next(started) else { panic!() };
    plan.leave_out(send.place, at(500));
    assert_eq!(plan.listens_until([send].into_iter()), at(4000));
    assert_eq!(plan.next(at(500)), Next::Listen(at(4000)));
}

#[test]
fn fw26_a_truncated_reply_is_asked_for_over_tcp_at_once_and_once() {
    let started = Instant::now();
    let mut plan = Plan::new(candidates(2), started);
    let Next::Send(first) = plan.next(started) else { panic!() };
    plan.over_stream(first.place, started);
    let tcp = Send { transport: Transport::Connection, ..first };
    assert_eq!(plan.next(started), Next::Send(tcp));
    // A late datagram says the same: the stream is not asked again, the next server is.
    plan.over_stream(first.place, started);
    let sent = sends(&mut plan, started);
    assert_eq!(sent[0], (0, 1, "udp"));
    assert!(sent.iter().all(|(_, member, _)| *member == 1), "{sent:?}");
}

#[test]
fn fw26_in_a_pause_of_connections_a_truncated_reply_is_asked_for_again_once() {
    let started = Instant::now();
    let mut plan = Plan::new(candidates(1), started);
    let Next::Send(first) = plan.next(started) else { panic!() };
    plan.over_stream(first.place, started);
    let Next::Send(tcp) = plan.next(started) else { panic!() };
    plan.held_off(tcp, started);
    let again = started + USUAL.interval;
    assert_eq!((plan.next(started), plan.next(again)), (Next::Wait(again), Next::Send(tcp)));
    plan.held_off(tcp, again);
    assert_eq!(plan.next(again), Next::Listen(started + BUDGET), "its group has no other way");
}

#[test]
fn fw25_a_query_that_was_refused_for_its_opt_is_sent_again_without() {
    let started = Instant::now();
    let mut plan = Plan::new(candidates(1), started);
    let Next::Send(first) = plan.next(started) else { panic!() };
    assert!(first.edns);
    plan.without_edns(first);
    assert_eq!(plan.next(started), Next::Send(Send { edns: false, ..first }));
    let Next::Send(later) = plan.next(started + USUAL.interval) else { panic!() };
    assert!(!later.edns);
}

#[test]
fn fw21_a_closed_port_leads_to_the_next_server_at_once_but_not_to_itself() {
    let started = Instant::now();
    let mut plan = Plan::new(candidates(2), started);
    for member in 0..2 {
        let Next::Send(send) = plan.next(started) else { panic!() };
        assert_eq!(plan.member(send.place), member);
        plan.unreachable(started);
    }
    assert_eq!(plan.next(started), Next::Wait(started + USUAL.interval));
}
