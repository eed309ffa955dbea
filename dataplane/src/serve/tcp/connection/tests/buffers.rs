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
        let (mut modest, _ended) = connect_to(&greedy.server, 1 << 16);
        for id in 1..=4 {
            modest.write_all(&message(id, &[b'l', 1])).await.expect("write");
        }
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(reply_id(&mut modest).await);
        }
        // There is room for two; the others got a refusal.
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
        let held = || client.server.counters.tcp_buffered.load(Relaxed) as usize;
        assert_eq!((client.asked.get(), held()), (64, 64 * WAITING_OCTETS));
        sleep(seconds(2)).await;
        assert!(held() >= 64 * 60_000, "unread, and all of it counted: {}", held());
    });
}

#[test]
fn wr44_replies_of_one_lookup_to_many_clients_take_what_these_read() {
    local(async {
        let limits = Limits::default();
        let bound = limits.tcp_buffer_bytes;
        let mut first = connect(limits, 1 << 10);
        let mut clients: Vec<_> = (2..=10).map(|_| connect_to(&first.server, 1 << 10)).collect();
        for id in 0..64 {
            first.send(&message(id, b"S\x02")).await;
            for (stream, _) in &mut clients {
                stream.write_all(&message(id, b"S\x02")).await.expect("write");
            }
        }
        sleep(seconds(3)).await;
        let held = first.server.counters.tcp_buffered.load(Relaxed) as usize;
        assert!(held < bound / 8, "what has come for 640 queries takes {held} octets");
        let mut streams: Vec<_> = clients.into_iter().map(|(stream, _)| stream).collect();
        streams.push(first.stream);
        let read = streams.into_iter().map(|mut stream| async move {
            let mut ids = Vec::new();
            for _ in 0..64 {
                ids.push(reply_id(&mut stream).await);
            }
            ids.sort_unstable();
            ids
        });
        for ids in futures::future::join_all(read).await {
            assert_eq!(ids, (0..64).collect::<Vec<u16>>(), "each client gets all of its replies");
        }
    });
}

#[test]
fn wr44_a_late_reply_takes_of_the_share_of_its_client() {
    local(async {
        let mut client = connect(Limits::default(), 1 << 22);
        for id in 0..8 {
            client.send(&message(id, b"S\x01")).await;
        }
        for _ in 0..8 {
            client.reply_id().await;
        }
        let turns = client.server.turns.ended();
        assert!(turns >= 3, "480,000 octets in {turns} turns");
    });
}

#[test]
fn wr44_replies_of_upstreams_past_the_bound_close_whose_they_are() {
    local(async {
        let limits = Limits { tcp_buffer_bytes: 1 << 20, ..Limits::default() };
        let mut client = connect(limits, 1 << 10);
        let (mut modest, _ended) = connect_to(&client.server, 1 << 16);
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
        let held = &greedy.server.counters.tcp_buffered;
        assert!(held.load(Relaxed) >= 96 << 10, "the reserve is reached");
        greedy.send(&message(2, b"e")).await;
        let (mut modest, _ended) = connect_to(&greedy.server, 1 << 16);
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
async fn held_back_beside_a_slow_reader(tcp_connections: usize) -> (Client, DuplexStream) {
    // The reserve starts at 112 KiB: past it with both, but not with one of them alone.
    let limits = Limits { tcp_buffer_bytes: 150 << 10, tcp_connections, ..Limits::default() };
    let mut client = connect(limits, 1 << 10);
    let (mut slow, _) = connect_to(&client.server, 1 << 10);
    slow.write_all(&message(1, b"b")).await.expect("write");
    sleep(seconds(1)).await;
    let three = [message(2, &[b'l', 30]), message(3, b"b"), message(4, b"e")].concat();
    client.send(&three).await;
    sleep(seconds(1)).await;
    assert_eq!(client.asked.get(), 3, "the last query is held back");
    (client, slow)
}

#[test]
fn wr44_what_was_held_back_continues_when_another_reads_its_replies() {
    local(async {
        let (client, mut slow) = held_back_beside_a_slow_reader(9).await;
        assert_eq!(reply_id(&mut slow).await, 1);
        sleep(seconds(1)).await;
        assert_eq!(client.asked.get(), 4, "although its own replies are unread");
    });
}

#[test]
fn wr44_what_was_held_back_continues_when_another_leaves() {
    local(async {
        let (client, slow) = held_back_beside_a_slow_reader(9).await;
        drop(slow);
        sleep(seconds(1)).await;
        assert_eq!(client.asked.get(), 4, "although its own replies are unread");
    });
}

#[test]
fn wr44_what_was_held_back_continues_when_another_is_evicted_for_a_new_one() {
    local(async {
        let (mut client, mut slow) = held_back_beside_a_slow_reader(2).await;
        for _ in 0..3 {
            // The client reads enough to meet the deadline of a write, and not all.
            slow.read_exact(&mut [0; 100]).await.expect("read");
            client.stream.read_exact(&mut [0; 100]).await.expect("read");
            sleep(seconds(2)).await;
        }
        assert_eq!(client.asked.get(), 3);
        let (_new, _ended) = connect_to(&client.server, 1 << 10);
        sleep(seconds(1)).await;
        assert_eq!(client.asked.get(), 4, "although its own replies are unread");
    });
}

#[test]
fn wr44_what_was_held_back_continues_when_there_may_be_more() {
    local(async {
        let (client, _slow) = held_back_beside_a_slow_reader(9).await;
        client.server.set_limits(Limits::default()).await;
        sleep(seconds(1)).await;
        assert_eq!(client.asked.get(), 4);
    });
}

#[test]
fn wr44_a_connection_without_room_is_closed_in_the_end() {
    local(async {
        let limits = Limits { tcp_buffer_bytes: 150 << 10, ..Limits::default() };
        let client = connect(limits, 1 << 16);
        let permits: Vec<_> = (2..11)
            .map(|last| client.server.table.admit([10, 0, 0, last].into()).expect("a permit"))
            .collect();
        permits[0].hold(105_000);
        let mut client = client;
        // The start of a message, on a connection that holds more than the average while buffers are past three quarters.
        client.send(&[&[0xff, 0xff][..], &[7; 20_000]].concat()).await;
        sleep(seconds(9)).await;
        assert!(!client.ended.is_finished());
        sleep(seconds(2)).await;
        assert!(client.ended.is_finished(), "no deadline of its own ends the wait");
        assert_eq!(client.ended.await.expect("no panic"), CloseReason::Backlog);
    });
}

#[test]
fn a_lower_limit_closes_a_busy_connection_when_it_falls_idle() {
    local(async {
        let mut busy = connect(Limits::default(), 1 << 16);
        let (mut idle, idle_ended) = connect_to(&busy.server, 1 << 16);
        idle.write_all(&message(1, b"e")).await.expect("write");
        busy.send(&message(2, &[b'l', 3])).await;
        sleep(seconds(1)).await;
        busy.server.set_limits(Limits { tcp_connections: 0, ..Limits::default() }).await;
        assert_eq!(idle_ended.await.expect("no panic"), CloseReason::Evicted);
        assert_eq!(busy.reply_id().await, 2);
        assert_eq!(busy.ended().await, CloseReason::Evicted);
    });
}
