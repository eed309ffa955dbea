//! WR41, FW53: 64 lookups at a time on one connection, others in their turn, and answers that need none at once.

use super::super::super::frame::LATER_OCTETS;
use super::*;

/// Lookups at a time, and queries that may wait for their turn besides.
const AT_ONCE: u16 = 64;
const LATER: u16 = 1024;

/// A connection on which this many queries were asked that an upstream answers after two seconds.
async fn behind(slow: u16) -> Client {
    let mut client = connect(Limits::default(), 1 << 16);
    for id in 0..slow {
        client.send(&message(id, &[b'l', 2])).await;
    }
    sleep(Duration::from_millis(500)).await;
    client
}

async fn reply_ids(client: &mut Client, count: u16) -> Vec<u16> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(client.reply_id().await);
    }
    ids
}

#[test]
fn fw53_own_names_are_answered_at_once_behind_64_slow_ones_on_their_connection() {
    local(async {
        let start = Instant::now();
        let mut client = behind(AT_ONCE + 36).await;
        client.send(&message(777, b"e")).await;
        assert_eq!(client.reply_id().await, 777);
        assert!(start.elapsed() < seconds(1), "before any of the others");
    });
}

#[test]
fn wr41_64_lookups_at_a_time_and_the_others_in_the_order_in_which_they_came() {
    local(async {
        let start = Instant::now();
        let mut client = behind(2 * AT_ONCE + 1).await;
        for (turn, count) in [(1, AT_ONCE), (2, AT_ONCE), (3, 1)] {
            let mut ids = reply_ids(&mut client, count).await;
            ids.sort_unstable();
            let first = (turn - 1) * AT_ONCE;
            assert_eq!(ids, (first..first + count).collect::<Vec<u16>>());
            assert_eq!(start.elapsed().as_secs(), 2 * u64::from(turn));
        }
    });
}

#[test]
fn wr41_reading_pauses_only_where_no_more_may_wait_and_nothing_is_lost() {
    local(async {
        let all = AT_ONCE + LATER;
        let mut client = behind(all).await;
        for id in [all, all + 1] {
            client.send(&message(id, b"e")).await;
        }
        sleep(Duration::from_millis(500)).await;
        assert_eq!(client.asked.get(), usize::from(all), "all of them, and none behind them");
        let mut ids = reply_ids(&mut client, all + 2).await;
        let early = ids[..usize::from(AT_ONCE) + 2].iter().filter(|id| **id >= all).count();
        assert_eq!(early, 2, "as soon as some of the others have their turn");
        ids.sort_unstable();
        assert_eq!(ids, (0..all + 2).collect::<Vec<u16>>());
        assert_eq!(client.ended().await, CloseReason::Idle);
    });
}

#[test]
fn wr44_a_query_that_waits_for_its_turn_counts_and_the_bound_on_all_buffers_holds() {
    local(async {
        let client = behind(AT_ONCE + 100).await;
        let held = client.server.counters.tcp_buffered.load(Relaxed) as usize;
        assert_eq!(held, usize::from(AT_ONCE) * WAITING_OCTETS + 100 * LATER_OCTETS);
    });
    local(async {
        let bound = 80 * WAITING_OCTETS;
        let limits = Limits { tcp_buffer_bytes: bound, ..Limits::default() };
        let mut client = connect(limits, 1 << 16);
        for id in 0..1000 {
            client.send(&message(id, &[b'l', 2])).await;
        }
        sleep(seconds(1)).await;
        let held = client.server.counters.tcp_buffered.load(Relaxed) as usize;
        assert!(held <= bound, "{held} octets");
        assert!(!client.ended.is_finished());
    });
}

#[test]
fn wr42_queries_that_wait_for_their_turn_keep_a_connection_open() {
    local(async {
        let mut client = connect(Limits::default(), 1 << 16);
        for id in 0..=AT_ONCE {
            client.send(&message(id, &[b'l', 30])).await;
        }
        // It ends its side, and still gets its replies.
        client.stream.shutdown().await.expect("shutdown");
        assert_eq!(reply_ids(&mut client, AT_ONCE + 1).await.last(), Some(&AT_ONCE));
        assert_eq!(client.ended().await, CloseReason::Client);
    });
}

#[test]
fn e45_a_drain_waits_for_queries_that_wait_for_their_turn() {
    local(async {
        let mut client = behind(AT_ONCE + 1).await;
        client.server.drain();
        assert_eq!(reply_ids(&mut client, AT_ONCE + 1).await.last(), Some(&AT_ONCE));
        assert_eq!(client.ended().await, CloseReason::Drain);
    });
}
