//! Limits and evictions, without connections behind the permits.

use std::sync::atomic::AtomicUsize;
use std::task::Wake;
use std::time::Duration;

use super::super::tests::local;
use super::*;

fn table(limits: Limits) -> Rc<ConnectionTable> {
    Rc::new(ConnectionTable::new(limits, Arc::default()))
}

fn limits(connections: usize, per_client: usize) -> Limits {
    Limits {
        tcp_connections: connections,
        tcp_connections_per_client: per_client,
        ..Limits::default()
    }
}

fn client(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn closes(permit: &Permit) -> Option<CloseReason> {
    permit.entry.close.get()
}

/// Something is in progress on it.
fn work(permit: &Permit) {
    permit.set_quiet_since(None);
    permit.set_waits_since(None);
}

/// The first octets of a message have arrived.
fn begin_message(permit: &Permit) {
    permit.set_quiet_since(None);
}

fn answered(permit: &Permit) {
    permit.set_quiet_since(Some(Instant::now()));
    permit.set_waits_since(Some(Instant::now()));
}

async fn second() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[test]
fn wr44_t1_a_client_at_its_limit_loses_its_own_longest_idle() {
    local(async {
        let table = table(limits(100, 2));
        let other = table.admit(client(2)).expect("other");
        second().await;
        let first = table.admit(client(1)).expect("first");
        second().await;
        let second = table.admit(client(1)).expect("second");
        let third = table.admit(client(1)).expect("third");
        assert_eq!(closes(&first), Some(CloseReason::EvictedByClient));
        for permit in [&other, &second, &third] {
            assert_eq!(closes(permit), None);
        }
        drop(first);
        let fourth = table.admit(client(1)).expect("fourth");
        assert_eq!(closes(&second), Some(CloseReason::EvictedByClient));
        assert_eq!((closes(&third), closes(&fourth)), (None, None));
    });
}

#[test]
fn wr44_t2_at_the_limit_of_all_the_longest_idle_goes() {
    local(async {
        let table = table(limits(3, 3));
        let mut permits = Vec::new();
        for number in 0..3 {
            permits.push(table.admit(client(number)).expect("permit"));
            second().await;
        }
        // The first is busy, the second was used lately: the third has been idle for longest.
        work(&permits[0]);
        answered(&permits[1]);
        let new = table.admit(client(9)).expect("new");
        assert_eq!(closes(&permits[2]), Some(CloseReason::Evicted));
        for permit in [&permits[0], &permits[1], &new] {
            assert_eq!(closes(permit), None);
        }
    });
}

#[test]
fn wr44_with_no_idle_connection_the_new_one_is_refused() {
    local(async {
        let table = table(limits(2, 2));
        let busy: Vec<_> =
            (0..2).map(|number| table.admit(client(number)).expect("permit")).collect();
        busy.iter().for_each(work);
        assert!(table.admit(client(9)).is_none());
        assert!(busy.iter().all(|permit| closes(permit).is_none()));
        // Nothing came from the first for longer than any lookup takes: it only occupies its place.
        tokio::time::sleep(Duration::from_secs(6)).await;
        busy[1].message_came(Instant::now());
        assert!(table.admit(client(9)).is_some());
        assert_eq!(closes(&busy[0]), Some(CloseReason::Evicted));
        assert_eq!(closes(&busy[1]), None);
    });
}

#[test]
fn a_seat_given_back_makes_room_and_is_no_longer_counted() {
    local(async {
        let table = table(limits(1, 1));
        for _ in 0..5 {
            let permit = table.admit(client(1)).expect("permit");
            permit.hold(1000);
            assert_eq!(table.held.get(), 1000);
            assert_eq!(closes(&permit), None);
        }
        assert_eq!(table.held.get(), 0);
        assert!(table.clients.borrow().is_empty());
        assert_eq!(table.counters.tcp_open.load(Ordering::Relaxed), 0);
        table.empty().await;
    });
}

#[test]
fn wr44_past_the_bound_of_all_buffers_the_largest_backlog_is_closed() {
    local(async {
        let limits = Limits { tcp_buffer_bytes: 10_000, ..Limits::default() };
        let table = table(limits);
        let permits: Vec<_> =
            (0..3).map(|number| table.admit(client(number)).expect("permit")).collect();
        permits[0].hold(1000);
        permits[1].hold(6000);
        assert!(!permits[0].is_paused() && !permits[1].is_paused(), "room is left");
        permits[2].hold(1500);
        assert!(permits[1].is_paused(), "the largest is not read");
        assert!(!permits[0].is_paused() && !permits[2].is_paused(), "others are");
        permits[2].hold(4000);
        assert_eq!(closes(&permits[1]), Some(CloseReason::Backlog));
        assert_eq!(table.held.get(), 5000, "it is counted no longer");
        assert_eq!(closes(&permits[0]), None);
        assert_eq!(closes(&permits[2]), None);
        permits[1].hold(9000);
        assert_eq!(table.held.get(), 5000, "nor is what it still holds");
    });
}

#[test]
fn wr44_with_nothing_idle_the_newest_of_the_largest_client_gives_way() {
    local(async {
        let table = table(limits(6, 4));
        let mut permits: Vec<Permit> = Vec::new();
        // The client of the next connection, and the number of the connection that gives way.
        for (number, gives_way) in [
            (1, None),
            (1, None),
            (1, None),
            (1, None),
            (2, None),
            (2, None),
            (3, Some(3)),
            (3, Some(2)),
            (4, Some(7)),
        ] {
            let before: Vec<_> = permits.iter().map(closes).collect();
            let permit = table.admit(client(number)).expect("a permit");
            work(&permit);
            for (other, before) in before.into_iter().enumerate() {
                let share = Some(CloseReason::LargestShare).filter(|_| gives_way == Some(other));
                assert_eq!(closes(&permits[other]), before.or(share), "{other}, for {number}");
            }
            permits.push(permit);
        }
        // Clients 1 and 2 have two each: with a third, client 2 would have the most itself.
        assert!(table.admit(client(2)).is_none());
        assert_eq!(permits.iter().filter(|permit| closes(permit).is_none()).count(), 6);
    });
}

#[test]
fn l15_half_a_message_is_no_work_and_small_clients_are_left_alone() {
    local(async {
        let table = table(limits(4, 4));
        let small = table.admit(client(1)).expect("small");
        second().await;
        let crowd: Vec<_> = (0..3).map(|_| table.admit(client(2)).expect("crowd")).collect();
        crowd.iter().for_each(begin_message);
        // The small client has waited for longest, but it has fewer than the crowd's client would have.
        let fourth = table.admit(client(2)).expect("fourth");
        assert_eq!(closes(&crowd[0]), Some(CloseReason::Evicted));
        begin_message(&fourth);
        second().await;
        answered(&small);
        let _new = table.admit(client(3)).expect("new");
        assert_eq!(closes(&crowd[1]), Some(CloseReason::Evicted));
        assert_eq!(closes(&small), None);
    });
}

#[test]
fn t1_half_messages_of_a_client_at_its_limit_make_room_for_its_next() {
    local(async {
        let table = table(limits(100, 2));
        let half: Vec<_> = (0..2).map(|_| table.admit(client(1)).expect("permit")).collect();
        half.iter().for_each(begin_message);
        let _third = table.admit(client(1)).expect("third");
        assert_eq!(closes(&half[0]), Some(CloseReason::EvictedByClient));
    });
}

#[test]
fn t1_pods_that_share_a_64_bit_prefix_are_clients_of_their_own() {
    local(async {
        let table = table(limits(100, 1));
        let address = |text: &str| text.parse::<IpAddr>().expect("address");
        let first = table.admit(address("fd00:10:244:1::5")).expect("first");
        let _second = table.admit(address("fd00:10:244:1::6")).expect("second");
        assert_eq!(closes(&first), None);
    });
}

#[test]
fn wr44_many_small_backlogs_of_one_client_count_together() {
    local(async {
        let limits = Limits { tcp_buffer_bytes: 10_000, ..Limits::default() };
        let table = table(limits);
        let many: Vec<_> = (0..6).map(|_| table.admit(client(1)).expect("permit")).collect();
        let other = table.admit(client(2)).expect("other");
        many.iter().for_each(|permit| permit.hold(1100));
        other.hold(2000);
        assert!(many[0].is_paused(), "its client holds most");
        assert!(!other.is_paused(), "it holds more than each of them, its client less");
        other.hold(4000);
        assert_eq!(closes(&other), None);
        assert_eq!(many.iter().filter(|permit| closes(permit).is_some()).count(), 1);
    });
}

/// Counts how often a connection is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn wr44_a_paused_reader_is_woken_when_any_client_frees_octets() {
    local(async {
        let limits = Limits { tcp_connections: 2, tcp_buffer_bytes: 10_000, ..Limits::default() };
        let table = table(limits.clone());
        let stuck = table.admit(client(1)).expect("stuck");
        let woken = Arc::new(Woken::default());
        let times = || woken.0.load(Ordering::Relaxed);
        let mut waiting = table.admit(client(2)).expect("waiting");
        let pause = |stuck: &Permit, waiting: &Permit| {
            assert!(waiting.poll_close(&Context::from_waker(&woken.clone().into())).is_pending());
            work(stuck);
            work(waiting);
            stuck.hold(4000);
            waiting.hold(4000);
            assert!(waiting.is_paused());
        };
        pause(&stuck, &waiting);
        stuck.hold(4001);
        assert_eq!(times(), 0, "still too much");
        stuck.hold(3000);
        assert_eq!(times(), 1, "it was written");
        pause(&stuck, &waiting);
        table.set_limits(Limits { tcp_buffer_bytes: 20_000, ..limits.clone() });
        assert_eq!(times(), 2, "there may be more");
        table.set_limits(limits);
        pause(&stuck, &waiting);
        tokio::time::sleep(Duration::from_secs(6)).await;
        waiting.message_came(Instant::now());
        let _third = table.admit(client(3)).expect("a permit");
        assert_eq!((closes(&stuck), times()), (Some(CloseReason::Evicted), 3), "evicted");
        waiting = table.admit(client(4)).expect("in place of the third");
        drop(waiting);
        assert_eq!(table.paused.get(), 0);
    });
}

#[test]
fn a_lower_limit_closes_the_longest_idle_and_others_when_they_fall_idle() {
    local(async {
        let table = table(limits(600, 600));
        let mut permits = Vec::new();
        for _ in 0..600 {
            permits.push(table.admit(client(1)).expect("permit"));
        }
        second().await;
        for permit in &permits[400..] {
            permit.set_quiet_since(Some(Instant::now()));
        }
        permits[0].set_quiet_since(None);
        table.set_limits(limits(100, 100));
        assert!(table.shrink(), "some at a time");
        let open = || permits.iter().filter(|permit| closes(permit).is_none()).count();
        assert_eq!(open(), 600 - EVICTIONS_AT_ONCE);
        assert!(!table.shrink());
        assert_eq!(open(), 100);
        assert_eq!(closes(&permits[0]), None, "in use");
        assert!(permits[1..400].iter().all(|permit| closes(permit).is_some()), "idle for longest");
        assert!(!permits[0].is_surplus());
        table.set_limits(limits(99, 99));
        assert!(permits[0].is_surplus());
    });
}
