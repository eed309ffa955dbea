//! When connections end, and how long the next one waits for that.

use std::io::{Read, Write};

use socket2::SockRef;

use super::*;

#[tokio::test(start_paused = true)]
async fn fw54_a_query_that_has_just_left_keeps_its_connection() {
    let (near, mut far) = tokio::io::duplex(4096);
    let connections = idle();
    let connection = connections.keep(near);
    tokio::time::sleep(IDLE - Duration::from_millis(10)).await;
    let place = connections.place(0, query, now()).unwrap();
    let asked = read_query(&mut far).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    write_reply(&mut far, &asked).await;
    place.reply().await.expect("it was not idle");
    let used = tokio::time::Instant::now();
    while connection.is_open() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(used.elapsed() >= IDLE, "{:?} after the latest reply", used.elapsed());
}

/// An open connection shows no certificate again (FW2).
#[tokio::test(start_paused = true)]
async fn fw54_a_busy_connection_gets_no_more_queries_after_an_hour() {
    let (near, mut far) = tokio::io::duplex(4096);
    let connections = idle();
    let connection = connections.keep(near);
    let start = tokio::time::Instant::now();
    while let Some(place) = connections.place(0, query, now()) {
        assert!(start.elapsed() <= MAX_AGE, "it was made {:?} ago", start.elapsed());
        let asked = read_query(&mut far).await;
        write_reply(&mut far, &asked).await;
        place.reply().await.expect("a reply");
        tokio::time::sleep(IDLE / 2).await;
    }
    assert!(start.elapsed() >= MAX_AGE && !connection.is_open());
    while !connection.is_closed() {
        tokio::time::sleep(IDLE).await;
    }
    assert_eq!(lost(&connections), 0);
}

#[tokio::test(start_paused = true)]
async fn fw54_a_connection_is_dead_where_queries_wait_ten_seconds_for_a_reply() {
    let (near, _far) = tokio::io::duplex(4096);
    let connections = idle();
    let connection = connections.keep(near);
    tokio::time::sleep(IDLE / 2).await;
    let start = tokio::time::Instant::now();
    let place = connections.place(0, query, now()).unwrap();
    assert!(place.reply().await.is_err_and(|failure| failure.is_loss()));
    assert!(start.elapsed() >= IDLE && !connection.is_open());
}

#[tokio::test(start_paused = true)]
async fn fw54_a_server_that_closes_without_a_reply_is_not_connected_at_full_speed() {
    let server = Opener::new();
    let start = tokio::time::Instant::now();
    let mut asked = 0;
    while start.elapsed() < 10 * HOLD_OFF {
        assert!(!server.ask(close_after_a_query).await);
        asked += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(asked > 1000 && server.opened() <= 11, "{asked}, {}", server.opened());
    tokio::time::sleep(HOLD_OFF).await;
    let before = server.opened();
    for _ in 0..100 {
        assert!(server.ask(answer_one).await, "a server that gives replies has no pause");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(server.opened() - before, 100);
}

#[tokio::test(start_paused = true)]
async fn fw54_a_server_that_accepts_and_is_silent_gets_few_connections() {
    let server = Opener::new();
    assert!(!server.ask(stay_silent).await);
    tokio::time::sleep(SILENCE).await;
    let start = tokio::time::Instant::now();
    while start.elapsed() < 4 * HOLD_OFF {
        let together = (0..40).map(|_| server.ask(stay_silent));
        assert!(!futures::future::join_all(together).await.contains(&true));
        // Where all of them were refused, no time has passed.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!((2..=7).contains(&server.opened()), "{}", server.opened());
}

#[tokio::test(start_paused = true)]
async fn fw54_replies_that_are_wrong_end_no_pause() {
    let server = Opener::new();
    for round in 0..5 {
        let (near, mut far) = tokio::io::duplex(4096);
        let connections = Arc::clone(&server.connections);
        let opening = async move { Ok(connections.keep(near)) };
        let place = server.connections.place_on_new(0, query, opening).await;
        let Ok(place) = place else { panic!("round {round}") };
        let asked = read_query(&mut far).await;
        write_reply(&mut far, &asked).await;
        place.reply().await.unwrap().distrust();
        assert!(!server.ask(answer_one).await, "it waits");
        assert_eq!(server.opened(), 0);
        tokio::time::sleep(HOLD_OFF).await;
    }
    assert!(server.ask(answer_one).await);
}

#[tokio::test(start_paused = true)]
async fn fw54_failures_are_counted_also_after_the_client_has_left() {
    let connections = idle();
    let asked = connections.place_on_new(0, query, std::future::pending());
    assert!(timeout(HANDSHAKE / 4, asked).await.is_err(), "another server was faster");
    tokio::time::sleep(HANDSHAKE).await;
    let failures = || connections.counted(now()).failures().filter(|it| it.1 > 0).collect();
    let counted: Vec<_> = failures();
    assert_eq!(counted, [("timeout", 1)]);
    tokio::time::sleep(HOLD_OFF).await;
    let (near, far) = tokio::io::duplex(4096);
    let connection = connections.keep(near);
    drop(connections.place(0, query, now()).unwrap());
    drop(far);
    while connection.is_open() {
        tokio::task::yield_now().await;
    }
    let counted: Vec<_> = failures();
    assert_eq!(counted, [("timeout", 1), ("broken", 1)]);
}

#[tokio::test]
async fn fw54_a_query_whose_stream_is_reset_twice_is_not_sent_again() {
    let connections = idle();
    let (connection, mut queries) = connections.add_queue(CancellationToken::new());
    for _ in 0..2 {
        let _place = connections.place(0, query, now()).unwrap();
        let id = queries.recv().await.unwrap().id;
        assert!(answer(&connection, id, now()), "a server that gives replies to others");
    }
    let asks = Arc::clone(&connections);
    let asked = tokio::spawn(async move { ask(&asks, asker(), Progress::Unsent, query).await });
    for _ in 0..TRIES {
        let id = queries.recv().await.unwrap().id;
        assert!(connection.answered(id, Err(Failure::reset("not this one")), now()));
    }
    assert!(asked.await.unwrap().is_err_and(|failure| failure.reason == Reason::Reset));
    assert!(queries.try_recv().is_err());
}

#[tokio::test]
async fn fw54_a_query_whose_connections_all_end_behind_replies_to_others_has_its_end() {
    const MOST: usize = MORE_TRIES + TRIES;
    let (connections, listener) = listening().await;
    let asks = Arc::clone(&connections);
    let asked = tokio::spawn(async move { ask(&asks, asker(), Progress::Unsent, query).await });
    for _ in 0..MOST {
        let (mut far, _) = listener.accept().await.unwrap();
        read_query(&mut far).await;
        for _ in 0..2 {
            let other = connections.place(0, query, now()).unwrap();
            let octets = read_query(&mut far).await;
            write_reply(&mut far, &octets).await;
            other.reply().await.unwrap();
        }
    }
    assert!(asked.await.unwrap().is_err_and(|failure| failure.is_loss()));
    assert_eq!(connections.counted(now()).opened, MOST as u64);
}

#[tokio::test]
async fn fw54_a_query_that_was_lost_is_asked_on_no_connection_made_before() {
    let (connections, listener) = listening().await;
    restarted(&connections, 8).await;
    let serving = tokio::spawn(async move {
        let (mut far, _) = listener.accept().await.unwrap();
        let asked = read_query(&mut far).await;
        write_reply(&mut far, &asked).await;
        far
    });
    assert!(ask(&connections, asker(), Progress::Unsent, query).await.is_ok());
    assert_eq!((lost(&connections), connections.counted(now()).opened), (1, 9));
    serving.await.unwrap();
}

/// The runtime has not heard of them yet.
#[tokio::test]
async fn fw54_replies_that_came_before_a_write_fails_are_read() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let connections = idle();
    connections.keep(near);
    let answered = connections.place(0, query, now()).unwrap();
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    let mut asked = [0; 4];
    far.read_exact(&mut asked).unwrap();
    far.write_all(&asked).unwrap();
    SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    let late = connections.place(0, query, now()).unwrap();
    assert!(answered.reply().await.is_ok());
    assert!(late.reply().await.is_err_and(|failure| failure.is_loss()));
}

#[tokio::test(start_paused = true)]
async fn fw54_a_connection_that_we_end_does_not_say_that_its_server_answers_one_query() {
    let connections = idle();
    let (near, mut far) = tokio::io::duplex(4096);
    let connection = connections.keep(near);
    let [first, _second] = [(); 2].map(|()| connections.place(0, query, now()).unwrap());
    let asked = read_query(&mut far).await;
    write_reply(&mut far, &asked).await;
    assert!(first.reply().await.is_ok());
    // No query waits for this id.
    write_reply(&mut far, &asked).await;
    while !connection.is_closed() {
        tokio::task::yield_now().await;
    }
    assert!(!connections.shared.gives_one.load(Ordering::Relaxed));
}
