//! The order of servers as tables: policies, and how servers stand in their group.

use std::collections::BTreeMap;

use crds::config::Policy;

use super::*;

#[test]
fn fw22_each_policy_has_its_order() {
    let first = |policy, turn, random| order(candidates(3), policy, turn, random)[0].member;
    assert_eq!([0, 1, 2, 3].map(|turn| first(Policy::Sequential, turn, 5)), [0, 0, 0, 0]);
    assert_eq!([0, 1, 2, 3].map(|turn| first(Policy::RoundRobin, turn, 5)), [0, 1, 2, 0]);
    let mut permutations = BTreeMap::new();
    for random in 0..600 {
        let order = order(candidates(3), Policy::Random, 0, random);
        let order: Vec<usize> = order.iter().map(|candidate| candidate.member).collect();
        *permutations.entry(order).or_insert(0) += 1;
    }
    assert_eq!(permutations.values().collect::<Vec<_>>(), [&100; 6]);
}

#[test]
fn fw22_fastest_asks_the_lowest_latency_first_and_explores_one_in_twenty() {
    let mut servers = candidates(3);
    for (server, ms) in servers.iter_mut().zip([30, 10, 20]) {
        server.latency = Some(Duration::from_millis(ms));
    }
    let members = |random| -> Vec<usize> {
        let order = order(servers.clone(), Policy::Fastest, 0, random);
        order.iter().map(|candidate| candidate.member).collect()
    };
    let others = (0..1200).filter(|random| members(*random) != [1, 2, 0]).count();
    // One in twenty is in random order, of which one in six is the same.
    assert_eq!(others, 1200 / 20 * 5 / 6);
}

#[test]
fn fw22_what_does_not_answer_comes_last_and_in_its_order() {
    let mut servers = candidates(5);
    servers[0].standing = Standing::Down;
    servers[1].standing = Standing::Avoided;
    servers[4].standing = Standing::InTurn;
    let members = |policy| -> Vec<usize> {
        order(servers.clone(), policy, 0, 0).iter().map(|candidate| candidate.member).collect()
    };
    assert_eq!(members(Policy::RoundRobin), [4, 2, 3, 1, 0], "one in its turn is first (FW27)");
    assert_eq!(members(Policy::Sequential), [1, 2, 3, 4, 0], "only one that is down moves");
}

#[test]
fn fw25_who_wants_signatures_asks_those_first_that_may_give_them() {
    let mut servers = candidates(4);
    for (server, (standing, edns)) in servers.iter_mut().zip([
        (Standing::Healthy, false),
        (Standing::Avoided, true),
        (Standing::Healthy, true),
        (Standing::Healthy, true),
    ]) {
        (server.standing, server.edns) = (standing, edns);
    }
    let members = |policy| -> Vec<usize> {
        let mut order = order(servers.clone(), policy, 0, 0);
        signing_first(&mut order, policy);
        order.iter().map(|candidate| candidate.member).collect()
    };
    assert_eq!(members(Policy::RoundRobin), [2, 3, 0, 1]);
    assert_eq!(members(Policy::Sequential), [0, 1, 2, 3]);
}

#[test]
fn fw25_who_wants_signatures_is_asked_for_over_tcp_where_udp_is_silent_about_opt() {
    let started = Instant::now();
    let mut silent = Candidate { edns: false, signs_over_tcp: true, ..candidate(0) };
    let forms = |candidate| {
        let mut plan = Plan::new(vec![candidate], started);
        let mut forms = Vec::new();
        for ms in [0, 500, 1000, 2500] {
            let Next::Send(send) = plan.next(started + Duration::from_millis(ms)) else { break };
            forms.push((send.transport, send.edns));
        }
        forms
    };
    let (udp, tcp) = ((Transport::Udp, false), (Transport::Connection, true));
    assert_eq!(forms(silent), [udp, udp, tcp, udp]);
    silent.ask_for_signatures();
    assert_eq!(forms(silent), [tcp, tcp, tcp, udp]);
    let mut plan = Plan::new(vec![silent], started);
    let Next::Send(send) = plan.next(started) else { panic!("no send") };
    plan.without_edns(send);
    assert_eq!(plan.next(started), Next::Send(Send { edns: false, ..send }), "it refuses it");
}
