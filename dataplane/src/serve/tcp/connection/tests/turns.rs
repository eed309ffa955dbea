//! WR44: what one client has the thread do, beside the others. Answers are counted, not time.

use super::*;

/// Connections of one client, and queries for the largest replies on each.
const CONNECTIONS: usize = 256;
const QUERIES: u16 = 4;

#[test]
fn wr44_a_client_waits_for_few_replies_of_another_that_has_asked_for_many() {
    local(async {
        let (server, asked) = server(Limits::default());
        let mut greedy: Vec<_> =
            (0..CONNECTIONS).map(|_| connect_from("10.0.0.9:5353", &server, 1 << 20)).collect();
        let (mut victim, _serving) = connect_from("10.0.0.1:5353", &server, 1 << 10);
        // Everything is there before the server looks at any of it.
        for (stream, _) in &mut greedy {
            let queries: Vec<u8> = (0..QUERIES).flat_map(|id| message(id, b"b")).collect();
            stream.write_all(&queries).await.expect("write");
        }
        for turn in 0..20 {
            let before = asked.get();
            victim.write_all(&message(turn, b"e")).await.expect("write");
            assert_eq!(reply_id(&mut victim).await, turn);
            // Two turns at most, of one reply and what is left of 64 KiB; and its own.
            let meanwhile = asked.get() - before;
            assert!(meanwhile <= 5, "{meanwhile} answers while one waited for its own");
        }
        // All of the others come too, each connection in its turn.
        for (stream, _) in &mut greedy {
            for id in 0..QUERIES {
                assert_eq!(reply_id(stream).await, id);
            }
        }
        assert_eq!(asked.get(), CONNECTIONS * usize::from(QUERIES) + 20);
    });
}

#[test]
fn wr44_queries_that_an_upstream_answers_take_of_the_share_of_their_client_too() {
    local(async {
        let (server, asked) = server(Limits::default());
        let mut greedy: Vec<_> =
            (0..CONNECTIONS).map(|_| connect_from("10.0.0.9:5353", &server, 1 << 20)).collect();
        let (mut victim, _serving) = connect_from("10.0.0.1:5353", &server, 1 << 10);
        for (stream, _) in &mut greedy {
            // Each comes after a second.
            let queries: Vec<u8> = (0..QUERIES).flat_map(|id| message(id, b"l\x01")).collect();
            stream.write_all(&queries).await.expect("write");
        }
        let before = asked.get();
        victim.write_all(&message(1, b"e")).await.expect("write");
        assert_eq!(reply_id(&mut victim).await, 1);
        let meanwhile = asked.get() - before;
        assert!(meanwhile <= 300, "{meanwhile} queries are begun while one waits, of two turns");
    });
}
