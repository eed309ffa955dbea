//! Whom one lookup asks, and when (FW22, FW23): decided here, without sockets and clock.

use crds::config::Policy;

use super::upstreams::{Member, Transport};

/// Sends in one lookup.
const MAX_SENDS: usize = 8;
/// UDP sends to one server, before it is asked over TCP once; TCP sends to a server that has TCP only.
const MAX_SENDS_PER_SERVER: usize = 3;

/// The order of members for one lookup. `turn` counts the group's lookups, `random` is drawn anew
/// for each. `fastest` needs measurements, which the full forwarder brings: random until then.
pub(super) fn order(members: &[Member], policy: Policy, turn: usize, random: u64) -> Vec<Member> {
    let mut order = members.to_vec();
    match policy {
        Policy::Sequential => {}
        Policy::RoundRobin => order.rotate_left(turn % members.len().max(1)),
        Policy::Random | Policy::Fastest => shuffle(&mut order, random),
    }
    order
}

/// Fisher-Yates; 15! is below 2^41, so 64 random bits give every permutation nearly equally.
fn shuffle(order: &mut [Member], mut random: u64) {
    for last in (1..order.len()).rev() {
        let choices = last as u64 + 1;
        order.swap(last, (random % choices) as usize);
        random /= choices;
    }
}

/// The sends still to come.
#[derive(Debug)]
pub(super) struct Plan {
    order: Vec<Member>,
    /// Not asked again: they gave an error or a referral (FW21).
    excluded: Vec<bool>,
    /// The next in `order`, and how often the order was walked before.
    place: usize,
    round: usize,
    sends: usize,
}

impl Plan {
    pub(super) fn new(order: Vec<Member>) -> Plan {
        let excluded = vec![false; order.len()];
        Plan { order, excluded, place: 0, round: 0, sends: 0 }
    }

    /// The next send, if there is one: position in the order, whom, and over what.
    pub(super) fn peek(&mut self) -> Option<(usize, Member, Transport)> {
        while self.sends < MAX_SENDS && self.round <= MAX_SENDS_PER_SERVER {
            let Some(&member) = self.order.get(self.place) else {
                self.place = 0;
                self.round += 1;
                continue;
            };
            let last = self.round == MAX_SENDS_PER_SERVER;
            let transport = match member.transport {
                Transport::Udp if last => Some(Transport::Tcp),
                Transport::Udp => Some(Transport::Udp),
                Transport::Tcp => (!last).then_some(Transport::Tcp),
            };
            match transport {
                Some(transport) if !self.excluded[self.place] => {
                    return Some((self.place, member, transport));
                }
                _ => self.place += 1,
            }
        }
        None
    }

    /// Takes the next send.
    pub(super) fn next(&mut self) -> Option<(usize, Member, Transport)> {
        let send = self.peek()?;
        self.place += 1;
        self.sends += 1;
        Some(send)
    }

    /// This one gave an error: it is not asked again.
    pub(super) fn exclude(&mut self, place: usize) {
        self.excluded[place] = true;
    }

    /// Whether the next send goes to a server that this lookup has not asked.
    pub(super) fn next_is_new(&mut self) -> bool {
        self.peek().is_some() && self.round == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn members(count: usize, transport: Transport) -> Vec<Member> {
        (0..count).map(|server| Member { server, transport }).collect()
    }

    fn sends(plan: &mut Plan) -> Vec<(usize, Transport)> {
        std::iter::from_fn(|| plan.next()).map(|(_, m, transport)| (m.server, transport)).collect()
    }

    #[test]
    fn fw23_two_servers_get_three_datagrams_and_a_stream_each() {
        use Transport::{Tcp, Udp};
        let mut plan = Plan::new(members(2, Udp));
        let expected =
            [(0, Udp), (1, Udp), (0, Udp), (1, Udp), (0, Udp), (1, Udp), (0, Tcp), (1, Tcp)];
        assert_eq!(sends(&mut plan), expected);
    }

    #[test]
    fn fw23_other_numbers_of_servers_end_too() {
        use Transport::{Tcp, Udp};
        assert_eq!(
            sends(&mut Plan::new(members(1, Udp))),
            [(0, Udp), (0, Udp), (0, Udp), (0, Tcp)]
        );
        assert_eq!(sends(&mut Plan::new(members(1, Tcp))), [(0, Tcp); 3]);
        assert_eq!(sends(&mut Plan::new(members(15, Udp))).len(), 8);
        assert_eq!(sends(&mut Plan::new(Vec::new())), []);
    }

    #[test]
    fn fw21_a_server_that_gave_an_error_is_not_asked_again() {
        let mut plan = Plan::new(members(2, Transport::Udp));
        let (place, first, _) = plan.next().unwrap();
        assert!(plan.next_is_new());
        plan.exclude(place);
        assert!(sends(&mut plan).iter().all(|(server, _)| *server != first.server));
        assert!(!plan.next_is_new());
    }

    #[test]
    fn fw22_each_policy_has_its_order() {
        let members = members(3, Transport::Udp);
        let first = |policy, turn, random| order(&members, policy, turn, random)[0].server;
        assert_eq!([0, 1, 2, 3].map(|turn| first(Policy::Sequential, turn, 5)), [0, 0, 0, 0]);
        assert_eq!([0, 1, 2, 3].map(|turn| first(Policy::RoundRobin, turn, 5)), [0, 1, 2, 0]);
        let mut permutations = BTreeMap::new();
        for random in 0..600 {
            let order = order(&members, Policy::Random, 0, random);
            let order: Vec<usize> = order.iter().map(|member| member.server).collect();
            *permutations.entry(order).or_insert(0) += 1;
        }
        assert_eq!(permutations.values().collect::<Vec<_>>(), [&100; 6]);
    }
}
