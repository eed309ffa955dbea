//! Queries for which every connection has as many as it may have in progress: names without a reply must not take the places
//! of others.

use super::super::connection::{MAX_STREAMS, MAX_WAITING};
use super::*;
use crate::forward::plan::USUAL;

/// A connection over pipes whose other side reads all and says nothing.
fn silent(connections: &Arc<Connections>) -> Arc<Connection> {
    let (near, mut far) = tokio::io::duplex(4096);
    tokio::spawn(
        async move { while far.read(&mut [0; 512]).await.is_ok_and(|octets| octets > 0) {} },
    );
    connections.keep(near)
}

/// As many places as it has.
fn fill(connection: &Arc<Connection>) -> Vec<Place> {
    std::iter::from_fn(|| connection.place(query, now())).collect()
}

/// Waits until the tasks of the connections have taken what is sent.
async fn sent() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

async fn place(connections: &Connections) -> Result<Place, Failure> {
    sent().await;
    connections.place_on_new(0, query, async { panic!("one too many") }).await
}

#[tokio::test(start_paused = true)]
async fn l16_names_without_a_reply_take_no_places_of_others_over_tcp() {
    let connections = idle();
    let mut silent: Vec<_> = (0..MAX_CONNECTIONS)
        .map(|_| {
            let connection = silent(&connections);
            let places = fill(&connection);
            assert_eq!(places.len(), MAX_QUERIES);
            (connection, places)
        })
        .collect();
    // The next send of each of these names.
    for number in 0..MAX_CONNECTIONS * MAX_QUERIES {
        let place = place(&connections).await.unwrap_or_else(|why| panic!("{number}: {why:?}"));
        silent[0].1.push(place);
    }
    let crowds: Vec<usize> = silent.iter().map(|(it, _)| it.in_progress()).collect();
    assert_eq!(crowds, [2 * MAX_QUERIES; MAX_CONNECTIONS], "on each as many as on others");
    let place = place(&connections).await.expect("a name of another client");
    assert!(answer(&place.connection.clone(), place.id, now()));
    assert!(place.reply().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn l16_what_got_no_reply_for_ten_seconds_counts_no_more() {
    let connections = idle();
    let connection = silent(&connections);
    let mut places = fill(&connection);
    for _ in 0..2 {
        tokio::time::sleep(IDLE - Duration::from_millis(1)).await;
        assert!(answer(&connection, places.pop().unwrap().id, now()), "it answers others");
    }
    let more = fill(&connection);
    assert_eq!(more.len(), MAX_QUERIES, "30 will never get one");
    assert_eq!(connection.in_progress(), 2 * MAX_QUERIES - 2, "their ids are not used again");
}

#[tokio::test(start_paused = true)]
async fn l16_a_connection_whose_ids_are_taken_ends_when_no_query_waits() {
    let connections = idle();
    let connection = silent(&connections);
    let mut places = fill(&connection);
    sent().await;
    while let Some(place) = connection.place_in_crowd(query, now()) {
        places.push(place);
        sent().await;
    }
    assert_eq!((places.len(), connection.in_progress()), (MAX_WAITING, MAX_WAITING));
    assert!(!connection.is_open() && !connection.is_closed());
    let last = places.pop().unwrap();
    drop(places);
    connections.close_finished();
    assert!(!connection.is_closed(), "one waits still");
    assert!(answer(&connection, last.id, now()) && last.reply().await.is_ok());
    connections.close_finished();
    assert!(connection.is_closed());
    let failures: u64 = connections.counted(now()).failures().map(|(_, count)| count).sum();
    assert_eq!(failures, 0, "no query lost anything");
}

#[tokio::test(start_paused = true)]
async fn l16_a_query_that_is_overdue_gives_its_stream_to_another() {
    let connections = idle();
    let mut kept = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let (connection, mut queries) = connections.add_queue(CancellationToken::new());
        let places = fill(&connection);
        assert_eq!(places.len(), MAX_QUERIES);
        // The task of the connection takes what is sent.
        while queries.try_recv().is_ok() {}
        kept.push((places, queries));
    }
    let full = place(&connections).await.unwrap_err();
    assert_eq!(full.reason, Reason::Full, "each has its time");
    tokio::time::advance(USUAL.interval).await;
    let mut places = Vec::new();
    for _ in 0..MAX_CONNECTIONS * MAX_QUERIES {
        places.push(place(&connections).await.expect("the place of one that is overdue"));
    }
    assert_eq!(place(&connections).await.unwrap_err().reason, Reason::Full);
    for (before, mut queries) in kept {
        let ended = std::iter::from_fn(|| queries.try_recv().ok()).filter_map(|it| it.instead);
        let ended: Vec<u16> = ended.collect();
        let ids: Vec<u16> = before.iter().map(|place| place.id).collect();
        assert_eq!(ended, ids, "each gives way once, the first one first");
        for place in before {
            let failure = place.reply().await.unwrap_err();
            assert!(
                !failure.is_loss() && failure.unsent.is_none(),
                "it is not asked again at once"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn l16_in_a_crowd_there_are_as_many_streams_as_the_server_allows_up_to_a_bound() {
    for (allowed, streams) in [(1_000, MAX_STREAMS), (50, 50), (4, 4)] {
        let connections = idle();
        let (connection, mut queries) = connections.add_queue(CancellationToken::new());
        connection.allow(allowed);
        let mut places = fill(&connection);
        assert_eq!(places.len(), allowed.min(MAX_QUERIES));
        while queries.try_recv().is_ok() {}
        while let Some(place) = connection.place_in_crowd(query, now()) {
            assert!(queries.try_recv().unwrap().instead.is_none());
            places.push(place);
        }
        assert_eq!(places.len(), streams);
    }
}

#[tokio::test(start_paused = true)]
async fn l16_a_stream_for_which_no_query_waits_any_more_is_given_first() {
    let connections = idle();
    let (connection, mut queries) = connections.add_queue(CancellationToken::new());
    let mut places = fill(&connection);
    while queries.try_recv().is_ok() {}
    tokio::time::advance(USUAL.interval).await;
    let gone = places.remove(5).id;
    let _next = connection.place_in_crowd(query, now()).unwrap();
    assert_eq!(queries.try_recv().unwrap().instead, Some(gone));
}

#[tokio::test(start_paused = true)]
async fn l16_names_without_a_reply_take_no_places_where_a_server_takes_one_connection() {
    let connections = idle();
    let connection = silent(&connections);
    let _places = fill(&connection);
    let refused = async { Err(Failure::slow()) };
    sent().await;
    assert!(connections.place_on_new(0, query, refused).await.is_ok(), "the next one is refused");
    let none = async { panic!("not in the pause") };
    assert!(connections.place_on_new(0, query, none).await.is_ok());
    tokio::time::advance(HOLD_OFF).await;
    let waits = connections.place_on_new(0, query, std::future::pending());
    assert!(timeout(USUAL.interval, waits).await.is_ok_and(|place| place.is_ok()), "nor ends");
}
