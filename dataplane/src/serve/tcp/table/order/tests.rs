//! The orders give the connection that a look at all of them would give, and count how many they look at.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::super::super::super::Limits;
use super::super::super::super::counters::CloseReason;
use super::super::super::tests::local;
use super::super::{Limit, Permit};
use super::*;

const SESSION_OCTETS: usize = 16 << 10;

fn client(number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    IpAddr::from([10, 0, high, low])
}

fn table(connections: usize, per_client: usize) -> Rc<ConnectionTable> {
    let limits = Limits {
        tcp_connections: connections,
        tcp_connections_per_client: per_client,
        ..Limits::default()
    };
    Rc::new(ConnectionTable::new(limits, Arc::default()))
}

fn work(permit: &Permit) {
    permit.message_came(Instant::now());
    permit.set_waits_since(None);
}

fn answered(permit: &Permit) {
    permit.set_waits_since(Some(Instant::now()));
}

/// What [`ConnectionTable::choose`] promises, found among all connections.
fn expected(table: &ConnectionTable, address: IpAddr, limit: Limit) -> Option<(u64, CloseReason)> {
    let would_have = table.connections_of(address) + 1;
    let entries = table.entries.borrow();
    let is_meant = |entry: &Entry| match limit {
        Limit::PerClient => entry.client.address == address,
        Limit::Total => true,
        Limit::Sessions => entry.session.get() > 0,
    };
    let all = || entries.iter().filter(|(_, entry)| is_meant(entry));
    let count = |entry: &Entry| entry.client.connections.get();
    let may_go = |entry: &Entry| entry.client.address == address || count(entry) >= would_have;
    let waiting = all().filter(|(_, entry)| may_go(entry));
    let waiting = waiting.filter_map(|(number, entry)| Some((entry.waits_since.get()?, *number)));
    let newest = all().map(|(number, entry)| (count(entry), *number)).max();
    let newest = newest.filter(|(most, _)| limit != Limit::PerClient && *most > would_have);
    let last = all().map(|(number, entry)| (entry.last_message.get(), *number)).min();
    let stuck = last.filter(|(at, _)| at.elapsed() > table.deadlines().write);
    let (reason, share) = match limit {
        Limit::PerClient => (CloseReason::EvictedByClient, CloseReason::EvictedByClient),
        Limit::Total | Limit::Sessions => (CloseReason::Evicted, CloseReason::LargestShare),
    };
    let waiting = waiting.min().map(|(_, number)| (number, reason));
    let newest = newest.map(|(_, number)| (number, share));
    waiting.or(newest).or(stuck.map(|(_, number)| (number, reason)))
}

/// One thing that happens at the table.
#[derive(Clone, Copy, Debug)]
enum Event {
    Opens { client: u16, has_session: bool },
    Asks(usize),
    IsAnswered(usize),
    Closes(usize),
    Passes(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..5_u16, any::<bool>())
            .prop_map(|(client, has_session)| Event::Opens { client, has_session }),
        4 => any::<usize>().prop_map(Event::Asks),
        2 => any::<usize>().prop_map(Event::IsAnswered),
        1 => any::<usize>().prop_map(Event::Closes),
        2 => (1..3_000_u64).prop_map(Event::Passes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wr44_the_connection_that_gives_way_is_the_one_that_a_look_at_all_would_find(
        events in prop::collection::vec(event(), 1..120),
    ) {
        local(async {
            let table = table(12, 5);
            let mut permits: Vec<Permit> = Vec::new();
            for event in events {
                match event {
                    Event::Opens { client: number, has_session } => {
                        for limit in [Limit::PerClient, Limit::Total, Limit::Sessions] {
                            let address = client(number);
                            let chosen = table.choose(address, limit);
                            assert_eq!(chosen, expected(&table, address, limit), "{limit:?}");
                        }
                        permits.extend(match has_session {
                            true => table.admit_session(client(number), SESSION_OCTETS),
                            false => table.admit(client(number)),
                        });
                    }
                    Event::Passes(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                    _ if permits.is_empty() => {}
                    Event::Asks(at) => work(&permits[at % permits.len()]),
                    Event::IsAnswered(at) => answered(&permits[at % permits.len()]),
                    Event::Closes(at) => drop(permits.swap_remove(at % permits.len())),
                }
            }
            permits.clear();
            for among in Among::BOTH {
                let order = table.order(among).borrow();
                assert!(order.ranks.is_empty() && order.messages.is_empty(), "{among:?}");
            }
        });
    }
}

/// How many connections each client has, the total being 4,096 or nearly so.
fn shapes() -> [(&'static str, Vec<u16>); 4] {
    [
        ("clients with one connection", vec![1; 4_096]),
        ("clients at their limit", vec![256; 16]),
        ("each number of connections once", (1..=90).chain([1]).collect()),
        ("one large client among small ones", [vec![256], vec![1; 3_840]].concat()),
    ]
}

/// What may be looked at for one new connection: each rank once, the own connections, and those that are stuck.
const LOOKS: u64 = 100;

#[test]
fn l15_who_gives_way_is_found_in_some_tens_of_steps_at_any_number_of_clients() {
    const NEW: u64 = 500;
    for (shape, counts) in shapes() {
        for busy in [0, 1, 2] {
            local(async {
                let total = counts.iter().map(|count| usize::from(*count)).sum();
                let table = table(total, 256);
                let mut permits = Vec::new();
                for (number, count) in counts.iter().enumerate() {
                    for _ in 0..*count {
                        permits.extend(table.admit(client(number as u16)));
                    }
                }
                assert_eq!(permits.len(), total, "{shape}");
                tokio::time::sleep(Duration::from_secs(10)).await;
                // None, half or all of them have asked something meanwhile: each time that is out of date is corrected
                // once.
                let asked = permits.iter().filter(|permit| permit.number % 2 < busy);
                let messages = asked.map(work).count() as u64;
                let before = table.looks.get();
                // New clients open connections, and those that have most.
                for number in 0..NEW {
                    let address = client(if number % 2 == 0 { 10_000 + number as u16 } else { 0 });
                    drop(table.admit(address));
                }
                let looks = table.looks.get() - before;
                let most = NEW * LOOKS + 2 * messages;
                assert!(looks <= most, "{shape}: {looks} looks for {NEW} connections, not {most}");
            });
        }
    }
}
