//! Servers that answer one query, or a few, on each connection, and then close it.

use super::*;
use crate::forward::plan::USUAL;

/// Asks this many queries together at a TCP server that closes each connection after this many replies; the replies, and how
/// many connections were made.
async fn asked_where_each_connection_has(replies: usize, together: usize) -> (usize, u64) {
    let (connections, listener) = listening().await;
    tokio::spawn(async move {
        loop {
            let (mut far, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                for _ in 0..replies {
                    let asked = read_query(&mut far).await;
                    write_reply(&mut far, &asked).await;
                }
            });
        }
    });
    let asks = (0..together).map(|_| ask(&connections, asker(), Progress::Unsent, query));
    let all = futures::future::join_all(asks).await;
    (all.iter().filter(|reply| reply.is_ok()).count(), connections.counted(now()).opened)
}

#[tokio::test]
async fn fw54_a_server_that_answers_one_query_on_each_connection_answers_all_of_them() {
    let (good, opened) = asked_where_each_connection_has(1, 20).await;
    assert_eq!(good, 20);
    // Some are made for queries that others' connections have answered meanwhile.
    assert!((20..=28).contains(&opened), "{opened}");
}

#[tokio::test]
async fn fw54_a_server_that_answers_a_few_queries_on_each_connection_answers_all_of_them() {
    for (replies, together) in [(2, 20), (5, 64)] {
        let (good, _) = asked_where_each_connection_has(replies, together).await;
        assert_eq!(good, together, "{replies} on each");
    }
}

#[tokio::test(start_paused = true)]
async fn fw54_a_connection_that_gives_a_second_reply_ends_the_care_for_single_ones() {
    let connections = idle();
    let (near, mut far) = tokio::io::duplex(4096);
    connections.keep(near);
    let [first, second] = [(); 2].map(|()| connections.place(0, query, now()).unwrap());
    let asked = read_query(&mut far).await;
    write_reply(&mut far, &asked).await;
    assert!(first.reply().await.is_ok());
    drop(far);
    assert!(second.reply().await.is_err());

    let (near, mut far) = tokio::io::duplex(4096);
    connections.keep(near);
    let alone = connections.place(0, query, now()).unwrap();
    let has_place = || connections.place(0, query, now()).is_some();
    assert!(!has_place() && connections.place_in_crowd(true, query).is_none());
    let asked = read_query(&mut far).await;
    write_reply(&mut far, &asked).await;
    assert!(alone.reply().await.is_ok());
    assert!(!has_place(), "its server may be about to close it");
    tokio::time::sleep(LINGER).await;
    let again = connections.place(0, query, now()).unwrap();
    assert!(!has_place());
    let asked = read_query(&mut far).await;
    write_reply(&mut far, &asked).await;
    assert!(again.reply().await.is_ok());
    assert!(has_place() && has_place());
}

/// As after a connection that ended behind its first reply.
fn single_replies(connections: &Connections) {
    connections.shared.gives_one.store(true, Ordering::Relaxed);
}

#[tokio::test(start_paused = true)]
async fn l16_slow_names_of_a_server_of_single_replies_hold_up_no_others() {
    let server = Opener::new();
    single_replies(&server.connections);
    // More than there may be connections. The lookups end before the connections do.
    for _ in 0..2 * MAX_CONNECTIONS {
        assert!(!server.ask(stay_silent).await);
    }
    for number in 0..20 {
        assert!(server.ask(answer_one).await, "{number}");
    }
    let open = server.connections.open().len();
    assert!(open <= MAX_CONNECTIONS + 1, "{open}");
}

#[tokio::test(start_paused = true)]
async fn l16_a_slow_name_of_a_server_of_single_replies_begins_no_pause() {
    let server = Opener::new();
    single_replies(&server.connections);
    assert!(!server.ask(stay_silent).await);
    tokio::time::sleep(IDLE + Duration::from_millis(1)).await;
    assert!(server.ask(answer_one).await, "we have ended it");
    let close_late = |far| async move {
        tokio::time::sleep(2 * SILENCE).await;
        drop(far);
    };
    let waits = server.place(close_late).await.unwrap();
    assert!(waits.reply().await.is_err_and(|failure| failure.is_loss()));
    assert!(server.ask(answer_one).await, "the server has ended it, and took its time");
    tokio::time::sleep(SILENCE).await;
    assert!(!server.ask(close_after_a_query).await);
    assert!(
        !server.ask(answer_one).await,
        "the server has ended it at once, and gave no reply lately"
    );
}

#[tokio::test(start_paused = true)]
async fn l16_an_overdue_query_of_a_server_of_single_replies_gives_way() {
    let server = Opener::new();
    single_replies(&server.connections);
    let mut waiting = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        waiting.push(server.place(stay_silent).await.unwrap());
    }
    assert!(!server.ask(answer_one).await, "each has its time");
    tokio::time::sleep(USUAL.interval + Duration::from_millis(100)).await;
    for number in 0..3 {
        assert!(server.ask(answer_one).await, "{number}");
    }
    let failure = waiting.remove(0).reply().await.unwrap_err();
    assert!(failure.reason == Reason::Full && failure.unsent.is_none(), "{failure:?}");
    assert!(waiting.iter().all(|place| place.connection.is_open()), "one had to");
}

#[tokio::test(start_paused = true)]
async fn fw54_a_connection_that_gave_its_single_reply_ends_for_another_query() {
    let answer_and_stay = |mut far: DuplexStream| async move {
        let asked = read_query(&mut far).await;
        write_reply(&mut far, &asked).await;
        stay_silent(far).await;
    };
    let server = Opener::new();
    single_replies(&server.connections);
    for number in 0..2 * MAX_CONNECTIONS {
        assert!(server.ask(answer_and_stay).await, "{number}");
    }
    assert_eq!(server.opened(), 2 * MAX_CONNECTIONS as u64, "none was used again at once");
    let open = server.connections.open().len();
    assert!(open <= MAX_CONNECTIONS + 1, "{open}");
}

/// A restart may look so.
#[tokio::test(start_paused = true)]
async fn fw54_a_busy_server_that_was_taken_for_one_of_single_replies_is_not_for_long() {
    let answer_all = |mut far: DuplexStream| async move {
        while let Ok(length) = far.read_u16().await {
            let mut asked = vec![0; length.into()];
            far.read_exact(&mut asked).await.unwrap();
            write_reply(&mut far, &asked).await;
        }
    };
    let server = Opener::new();
    single_replies(&server.connections);
    for number in 0..LINGER.as_millis() + 2 {
        assert!(server.ask(answer_all).await, "{number}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!server.connections.shared.gives_one.load(Ordering::Relaxed));
    let opened = server.opened();
    assert!(server.ask(answer_all).await && server.opened() == opened);
}

#[tokio::test]
async fn fw54_a_query_whose_new_connection_another_took_gets_the_next_one() {
    let (connections, listener) = listening().await;
    single_replies(&connections);
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut far, _) = listener.accept().await.unwrap();
            let asked = read_query(&mut far).await;
            write_reply(&mut far, &asked).await;
            open.push(far);
        }
    });
    let takes = Arc::clone(&connections);
    let took = tokio::spawn(async move {
        loop {
            match takes.place(0, query, now()) {
                Some(place) => return place,
                None => tokio::task::yield_now().await,
            }
        }
    });
    assert!(ask(&connections, asker(), Progress::Unsent, query).await.is_ok());
    assert_eq!(took.await.unwrap().connection.number, 1);
    assert_eq!(connections.counted(now()).opened, 2);
}

#[tokio::test(start_paused = true)]
async fn fw54_eight_connections_are_made_at_once_where_each_has_one_query() {
    const HANDSHAKES: Duration = Duration::from_millis(200);
    // The second time it becomes known during the first handshake, while all others wait.
    for (known_after, rounds) in [(Duration::ZERO, 5..=7), (Duration::from_millis(100), 6..=8)] {
        let server = Opener { handshake: HANDSHAKES, ..Opener::new() };
        let start = tokio::time::Instant::now();
        let known = async {
            tokio::time::sleep(known_after).await;
            single_replies(&server.connections);
        };
        let together = (0..40).map(|_| async {
            tokio::task::yield_now().await;
            server.ask(answer_one).await
        });
        let (_, answered) = tokio::join!(known, futures::future::join_all(together));
        assert!(!answered.contains(&false));
        let took = start.elapsed().as_millis() / HANDSHAKES.as_millis();
        assert!(rounds.contains(&took), "{took}");
    }
}
