//! WR44: the bound on the buffers of all connections.

use super::*;

/// A connection that holds 120,004 octets of replies unread.
async fn greedy(limits: Limits) -> Client {
    let mut greedy = connect(limits, 1 << 10);
    for id in 0..2 {
        greedy.send(&message(id, b"b")).await;
    }
    sleep(seconds(1)).await;
    greedy
}

#[test]
fn wr44_lookups_that_would_not_fit_are_refused_at_once() {
    local(async {
        let limits =
            Limits { tcp_buffer_bytes: 120_004 + 3 * WAITING_OCTETS - 1, ..Limits::default() };
        let greedy = greedy(limits).await;
        let (mut modest, _ended) = connect_to(&greedy.hall, 1 << 16);
        for id in 1..=4 {
            modest.write_all(&message(id, &[b'l', 1])).await.expect("write");
        }
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(reply_id(&mut modest).await);
        }
        // There is room for two; the others were told so.
        assert_eq!(ids, [0xffff, 0xffff, 1, 2]);
    });
}

#[test]
fn wr44_a_query_at_an_upstream_counts_little_and_its_reply_as_long_as_it_is() {
    local(async {
        let mut client = connect(Limits::default(), 1 << 10);
        for id in 0..64 {
            client.send(&message(id, &[b'L', 2])).await;
        }
        sleep(seconds(1)).await;
        let held = || client.hall.counters.tcp_buffered.load(Relaxed) as usize;
        assert_eq!((client.asked.get(), held()), (64, 64 * WAITING_OCTETS));
        sleep(seconds(2)).await;
        assert!(held() >= 64 * 60_002, "unread, and all of it counted: {}", held());
    });
}

#[test]
fn wr44_replies_of_upstreams_past_the_bound_close_whose_they_are() {
    local(async {
        let limits = Limits { tcp_buffer_bytes: 1 << 20, ..Limits::default() };
        let mut client = connect(limits, 1 << 10);
        let (mut modest, _ended) = connect_to(&client.hall, 1 << 16);
        modest.write_all(&message(7, &[b'l', 3])).await.expect("write");
        for id in 0..64 {
            client.send(&message(id, &[b'L', 2])).await;
        }
        let reason = (&mut client.ended).await.expect("no panic");
        assert_eq!((reason, client.asked.get()), (CloseReason::Backlog, 65));
        assert_eq!(reply_id(&mut modest).await, 7);
    });
}

#[test]
fn wr44_at_the_bound_the_largest_backlog_is_not_read_and_others_are() {
    local(async {
        // The reserve starts at 96 KiB: one client that does not read 60,000 octets twice is past it.
        let limits = Limits { tcp_buffer_bytes: 128 << 10, ..Limits::default() };
        let mut greedy = greedy(limits).await;
        assert_eq!(greedy.asked.get(), 2);
        let held = &greedy.hall.counters.tcp_buffered;
        assert!(held.load(Relaxed) >= 96 << 10, "the reserve is reached");
        greedy.send(&message(2, b"e")).await;
        let (mut modest, _ended) = connect_to(&greedy.hall, 1 << 16);
        modest.write_all(&message(7, b"e")).await.expect("write");
        assert_eq!(reply_id(&mut modest).await, 7);
        assert_eq!(greedy.asked.get(), 3, "only the modest one was read");
        for _ in 0..3 {
            greedy.reply_id().await;
        }
        assert_eq!(greedy.asked.get(), 4, "read again once there is room");
    });
}

/// One connection with a query held back at the bound, beside another that does not read its reply.
async fn held_back_beside_a_slow_reader() -> (Client, DuplexStream) {
    // The reserve starts at 112 KiB: past it with both, but not with one of them alone.
    let limits = Limits { tcp_buffer_bytes: 150 << 10, ..Limits::default() };
    let mut client = connect(limits, 1 << 10);
    let (mut slow, _) = connect_to(&client.hall, 1 << 10);
    slow.write_all(&message(1, b"b")).await.expect("write");
    sleep(seconds(1)).await;
    let three = [message(2, &[b'l', 30]), message(3, b"b"), message(4, b"e")].concat();
    client.send(&three).await;
    sleep(seconds(1)).await;
    assert_eq!(client.asked.get(), 3, "the last query is held back");
    (client, slow)
}

#[test]
fn wr44_what_was_held_back_goes_on_when_another_reads_its_replies() {
    local(async {
        let (client, mut slow) = held_back_beside_a_slow_reader().await;
        assert_eq!(reply_id(&mut slow).await, 1);
        sleep(seconds(1)).await;
        assert_eq!(client.asked.get(), 4, "although its own replies are unread");
    });
}

#[test]
fn wr44_what_was_held_back_goes_on_when_another_leaves() {
    local(async {
        let (client, slow) = held_back_beside_a_slow_reader().await;
        drop(slow);
        sleep(seconds(1)).await;
        assert_eq!(client.asked.get(), 4, "although its own replies are unread");
    });
}
