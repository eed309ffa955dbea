//! Queries that wait for a place.

use super::*;

#[tokio::test(start_paused = true)]
async fn fw54_places_that_become_free_wake_those_who_wait_for_a_handshake() {
    const WAIT: usize = 5;
    let (near, mut far) = tokio::io::duplex(4096);
    let connections = idle();
    connections.keep(near);
    let places: Vec<Place> = (0..32).map(|_| connections.place(0, query, now()).unwrap()).collect();
    let waiting = (0..WAIT).map(|_| {
        let connections = Arc::clone(&connections);
        // One of them begins this handshake, which does not end; the others wait for it.
        async move { connections.place_on_new(0, query, std::future::pending()).await }
    });
    let waiting: Vec<_> = waiting.map(tokio::spawn).collect();
    for _ in 0..WAIT {
        let asked = read_query(&mut far).await;
        write_reply(&mut far, &asked).await;
    }
    for waits in waiting {
        let place = timeout(SILENCE / 2, waits).await.expect("a place was free").unwrap();
        assert_eq!(place.unwrap().connection.number, 1);
    }
    drop(places);
}

#[tokio::test(start_paused = true)]
async fn fw54_a_query_that_was_lost_takes_no_notice_from_others() {
    let (near, mut far) = tokio::io::duplex(4096);
    let connections = idle();
    connections.keep(near);
    let places: Vec<Place> = (0..32).map(|_| connections.place(0, query, now()).unwrap()).collect();
    let spawn = |after| {
        let connections = Arc::clone(&connections);
        tokio::spawn(
            async move { connections.place_on_new(after, query, std::future::pending()).await },
        )
    };
    // The query was lost on the first connection, so it begins a handshake.
    let lost = spawn(1);
    let other = spawn(0);
    let asked = read_query(&mut far).await;
    write_reply(&mut far, &asked).await;
    let place = timeout(SILENCE / 2, other).await.expect("a place was free").unwrap();
    assert_eq!(place.unwrap().connection.number, 1);
    assert!(!lost.is_finished());
    lost.abort();
    drop(places);
}
