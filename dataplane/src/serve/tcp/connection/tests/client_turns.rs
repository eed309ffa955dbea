//! WR44: what one client has the thread do, beside the others. Answers are counted, not time.

use super::*;

/// Connections of one client, and queries for the largest replies on each.
const CONNECTIONS: usize = 256;
const QUERIES: u16 = 4;

/// A client that has sent queries on many connections, and one with a single connection.
struct Crowd {
    greedy: Vec<DuplexStream>,
    victim: DuplexStream,
    asked: Rc<Cell<usize>>,
}

impl Crowd {
    /// All queries of the greedy client are there before the server looks at any of them.
    async fn with_queries(question: &[u8]) -> Crowd {
        let (server, asked) = server(Limits::default());
        let connect = |_| connect_from("10.0.0.9:5353", &server, 1 << 20).0;
        let mut greedy: Vec<DuplexStream> = (0..CONNECTIONS).map(connect).collect();
        let (victim, _) = connect_from("10.0.0.1:5353", &server, 1 << 10);
        let queries: Vec<u8> = (0..QUERIES).flat_map(|id| message(id, question)).collect();
        for stream in &mut greedy {
            stream.write_all(&queries).await.expect("write");
        }
        Crowd { greedy, victim, asked }
    }

    /// Queries of the greedy client that were begun while the other one waited for the answer to this one of its own.
    async fn begun_meanwhile(&mut self, id: u16) -> usize {
        let before = self.asked.get();
        self.victim.write_all(&message(id, b"e")).await.expect("write");
        assert_eq!(reply_id(&mut self.victim).await, id);
        self.asked.get() - before
    }
}

#[test]
fn wr44_a_client_waits_for_few_replies_of_another_that_has_asked_for_many() {
    local(async {
        let mut crowd = Crowd::with_queries(b"b").await;
        for turn in 0..20 {
            // Two turns at most, of one reply and what is left of 64 KiB; and its own.
            let meanwhile = crowd.begun_meanwhile(turn).await;
            assert!(meanwhile <= 5, "{meanwhile} answers while one waited for its own");
        }
        // All of the others come too, each connection in its turn.
        for stream in &mut crowd.greedy {
            for id in 0..QUERIES {
                assert_eq!(reply_id(stream).await, id);
            }
        }
        assert_eq!(crowd.asked.get(), CONNECTIONS * usize::from(QUERIES) + 20);
    });
}

#[test]
fn wr44_small_replies_that_take_long_count_by_their_time() {
    local(async {
        let mut crowd = Crowd::with_queries(b"s").await;
        for turn in 0..10 {
            let meanwhile = crowd.begun_meanwhile(turn).await;
            assert!(meanwhile <= 5, "{meanwhile} answers while one waited for its own");
        }
    });
}

#[test]
fn wr44_queries_that_an_upstream_answers_take_of_the_share_of_their_client_too() {
    local(async {
        // The reply to each comes after a second.
        let mut crowd = Crowd::with_queries(b"l\x01").await;
        let meanwhile = crowd.begun_meanwhile(1).await;
        assert!(meanwhile <= 300, "{meanwhile} queries are begun while one waits, of two turns");
    });
}
