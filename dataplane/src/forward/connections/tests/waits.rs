//! Queries that wait for a place.

use super::*;
use crate::forward::overdue::tests::come_few_at_once;

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

/// All that one look finds begin a task each, while clients wait.
#[tokio::test(start_paused = true)]
async fn l3_few_queries_without_a_reply_are_looked_after_at_once_on_connections() {
    const QUERIES: usize = 50;
    let connections = idle();
    let far: Vec<_> = (0..QUERIES.div_ceil(MAX_QUERIES))
        .map(|_| {
            let (near, far) = tokio::io::duplex(4096);
            connections.keep(near);
            far
        })
        .collect();
    let (late, looks) = mpsc::unbounded_channel();
    for _ in 0..QUERIES {
        let (late, left) = (late.clone(), now());
        let landed = move |(), arrived: Arrived| {
            assert!(matches!(arrived, Arrived::Overdue(_)), "{arrived:?}");
            late.send((left, now())).unwrap();
        };
        assert!(depart(&connections, (), |(), id| query(id), landed).is_none());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    come_few_at_once(QUERIES, looks).await;
    drop(far);
}

/// A reply to one that was looked at must not hide another one from the next look.
#[tokio::test]
async fn fw23_each_query_without_a_task_is_called_once_where_others_end_before() {
    let connections = idle();
    let (near, _far) = tokio::io::duplex(4096);
    let connection = connections.keep(near);
    let start = now();
    let at = |ms| start + Duration::from_millis(ms);
    let called = Arc::new(Mutex::new(Vec::new()));
    let ask = |ms| {
        let (called, mut drawn) = (Arc::clone(&called), 0);
        let made = connection.call(at(ms), |id| {
            drawn = id;
            let call = move |arrived: Arrived| {
                let is_late = matches!(arrived, Arrived::Overdue(_));
                called.lock().unwrap().push((ms, is_late));
            };
            Some((query(id), Box::new(call) as connection::OnArrival))
        });
        assert!(made);
        drawn
    };
    let (first, second, _third) = (ask(0), ask(10), ask(20));
    let task = connection.place(query, at(25)).unwrap();
    ask(30);
    assert_eq!(connection.overdue(at(505)), Some(at(510)));
    assert!(answer(&connection, first, at(506)) && answer(&connection, second, at(507)));
    assert_eq!(connection.overdue(at(520)), Some(at(530)));
    assert!(answer(&connection, task.id, at(525)));
    ask(40);
    assert_eq!(connection.overdue(at(560)), None);
    let expected = [(0, true), (10, false), (20, true), (30, true), (40, true)];
    assert_eq!(*called.lock().unwrap(), expected);
}

/// A handshake may take longer than the time between two sends, and the next query may use any connection.
#[tokio::test(start_paused = true)]
async fn fw54_the_next_query_of_a_lookup_does_not_wait_for_the_place_of_a_lost_one() {
    let connections = idle();
    let other = Arc::clone(&connections);
    let handshake = tokio::spawn(async move {
        drop(other.place_on_new(0, query, std::future::pending()).await);
    });
    tokio::task::yield_now().await;
    let (next, waits) = (CancellationToken::new(), AtomicBool::new(true));
    let lost = Asker { client: NO_CLIENT, next: &next, waits: &waits, is_repeat: false };
    let mut asks = pin!(ask(&connections, lost, Progress::Lost(1), query));
    let sent_next = timeout(HANDSHAKE / 2, async {
        tokio::select! {
            () = next.cancelled() => {}
            ended = &mut asks => panic!("{ended:?} before the next query was sent"),
        }
    });
    sent_next.await.expect("the next query may be sent");
    assert!(!waits.load(Ordering::Relaxed), "the server does not have the one that was lost");
    handshake.abort();
}
