//! When connections end, and how long the next one waits for that.

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

/// Opens connections whose other side is given to `serve`, and counts them.
struct Opener {
    connections: Arc<Connections>,
    opened: Arc<AtomicU64>,
}

impl Opener {
    fn new() -> Opener {
        Opener { connections: idle(), opened: Arc::default() }
    }

    /// Sends one query, which opens a connection if there is none; returns whether it got a reply.
    async fn ask<S: Future<Output = ()> + Send + 'static>(
        &self,
        serve: impl Fn(DuplexStream) -> S + Send + 'static,
    ) -> bool {
        let (connections, opened) = (Arc::clone(&self.connections), Arc::clone(&self.opened));
        let opening = async move {
            opened.fetch_add(1, Ordering::Relaxed);
            let (near, far) = tokio::io::duplex(4096);
            tokio::spawn(serve(far));
            Ok(connections.keep(near))
        };
        let place = match self.connections.place(0, query, now()) {
            Some(place) => Ok(place),
            None => self.connections.place_on_new(0, query, opening).await,
        };
        match place {
            Ok(place) => timeout(SILENCE / 10, place.reply()).await.is_ok_and(|it| it.is_ok()),
            Err(_) => false,
        }
    }

    fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

/// Takes one query and ends the connection.
async fn close_after_a_query(mut far: DuplexStream) {
    read_query(&mut far).await;
}

/// Answers one query and ends the connection.
async fn answer_one(mut far: DuplexStream) {
    let asked = read_query(&mut far).await;
    write_reply(&mut far, &asked).await;
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
    let silent = |far| async move {
        let _far = far;
        std::future::pending().await
    };
    assert!(!server.ask(silent).await);
    tokio::time::sleep(SILENCE).await;
    let start = tokio::time::Instant::now();
    while start.elapsed() < 4 * HOLD_OFF {
        let together = (0..40).map(|_| server.ask(silent));
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
async fn fw54_a_query_whose_second_connection_breaks_too_is_not_sent_again() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connections = Arc::new(Connections::new(listener.local_addr().unwrap(), None));
    let asks = Arc::clone(&connections);
    let asked = tokio::spawn(async move { ask(&asks, Progress::Unsent, query).await });
    for _ in 0..TRIES {
        let (mut far, _) = listener.accept().await.unwrap();
        read_query(&mut far).await;
        // Replies to other queries: there is no pause before the next connection, and it has place for several.
        for _ in 0..2 {
            let other = connections.place(0, query, now()).unwrap();
            let octets = read_query(&mut far).await;
            write_reply(&mut far, &octets).await;
            other.reply().await.unwrap();
        }
    }
    assert!(asked.await.unwrap().is_err_and(|failure| failure.is_loss()));
    assert_eq!(connections.counted(now()).opened, TRIES as u64);
}

/// Asks this many queries together at a TCP server that closes each connection after this many replies; the replies, and how
/// many connections were made.
async fn asked_where_each_connection_has(replies: usize, together: usize) -> (usize, u64) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connections = Arc::new(Connections::new(listener.local_addr().unwrap(), None));
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
    let asks = (0..together).map(|_| ask(&connections, Progress::Unsent, query));
    let all = futures::future::join_all(asks).await;
    (all.iter().filter(|reply| reply.is_ok()).count(), connections.counted(now()).opened)
}

#[tokio::test]
async fn fw54_a_server_that_answers_one_query_on_each_connection_answers_all_of_them() {
    let (good, opened) = asked_where_each_connection_has(1, 20).await;
    assert_eq!(good, 20);
    assert!((20..=21).contains(&opened), "{opened}");
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

#[tokio::test(start_paused = true)]
async fn l16_slow_names_of_a_server_of_single_replies_hold_up_no_others() {
    let server = Opener::new();
    server.connections.shared.gives_one.store(true, Ordering::Relaxed);
    let silent = |far| async move {
        let _far = far;
        std::future::pending().await
    };
    // More than there may be connections. The lookups end before the connections do.
    for _ in 0..2 * MAX_CONNECTIONS {
        assert!(!server.ask(silent).await);
    }
    for number in 0..20 {
        assert!(server.ask(answer_one).await, "{number}");
    }
    let open = server.connections.open().len();
    assert!(open <= MAX_CONNECTIONS + 1, "{open}");
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
