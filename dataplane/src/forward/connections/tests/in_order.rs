//! A server that answers the queries on each connection one after the other, as CoreDNS and dnsmasq do: a name whose reply is
//! late, or whose connection it ends, must not delay others (L16).

use super::*;
use crate::forward::plan::USUAL;

/// Time until the reply to a dead name.
const LATE: Duration = Duration::from_secs(6);
/// The ids of queries for dead names are drawn; a query says by its second part what it asks for.
const DEAD: &[u8] = b"dead";
const GOOD: &[u8] = b"good";
const SLOW: &[u8] = b"slow";
const USED: &[u8] = b"used";

fn dead(id: u16) -> Vec<u8> {
    [&id.to_be_bytes(), DEAD].concat()
}

fn slow(id: u16) -> Vec<u8> {
    [&id.to_be_bytes(), SLOW].concat()
}

fn good(id: u16) -> Vec<u8> {
    [&id.to_be_bytes(), GOOD].concat()
}

/// A server over TCP; `in_order`: whether it begins a query when the one before is answered.
async fn server(in_order: bool) -> Arc<Connections> {
    let (connections, listener) = listening().await;
    tokio::spawn(async move {
        loop {
            let (far, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(far, in_order));
        }
    });
    connections
}

async fn serve(far: TcpStream, in_order: bool) {
    let (mut read, write) = far.into_split();
    let write = Arc::new(tokio::sync::Mutex::new(write));
    while let Ok(octets) = read.read_u16().await {
        let mut asked = vec![0; octets.into()];
        read.read_exact(&mut asked).await.unwrap();
        let write = Arc::clone(&write);
        let answer = async move {
            if asked.ends_with(DEAD) {
                tokio::time::sleep(LATE).await;
            }
            if asked.ends_with(USED) {
                tokio::time::sleep(USUAL.interval / 2).await;
            }
            if asked.ends_with(SLOW) {
                tokio::time::sleep(2 * USUAL.interval).await;
            }
            // The client may be gone.
            let mut write = write.lock().await;
            if write.write_u16(asked.len() as u16).await.is_ok() {
                let _ = write.write_all(&asked).await;
            }
        };
        match in_order {
            true => answer.await,
            false => drop(tokio::spawn(answer)),
        }
    }
}

/// Asks for a dead name for the time of a lookup.
fn ask_for_dead(connections: &Arc<Connections>) {
    let connections = Arc::clone(connections);
    tokio::spawn(async move {
        let _ = timeout(USUAL.budget, ask(&connections, asker(), Progress::Unsent, dead)).await;
    });
}

/// Whether a name that the server answers at once gets its reply while a lookup has time.
async fn is_answered(connections: &Arc<Connections>) -> bool {
    let asks = ask(connections, asker(), Progress::Unsent, good);
    timeout(USUAL.budget, asks)
        .await
        .is_ok_and(|ended| ended.is_ok_and(|it| it.octets.ends_with(GOOD)))
}

/// Asks for this many dead names a second, and five good ones, for some seconds; which of the good ones got a reply.
async fn asked_beside_dead_names(in_order: bool, dead_a_second: u32) -> Vec<bool> {
    const SECONDS: u32 = 2;
    let connections = server(in_order).await;
    assert!(is_answered(&connections).await);
    let mut good = Vec::new();
    for step in 0..SECONDS * dead_a_second {
        ask_for_dead(&connections);
        if step % (dead_a_second / 5) == 0 {
            let connections = Arc::clone(&connections);
            good.push(tokio::spawn(async move { is_answered(&connections).await }));
        }
        tokio::time::sleep(Duration::from_secs(1) / dead_a_second).await;
    }
    futures::future::join_all(good).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn l16_late_names_delay_no_others_at_a_server_that_answers_in_order() {
    assert_eq!(asked_beside_dead_names(true, 15).await, [true; 10]);
}

/// Each of them takes longer than the time between two sends, and ends in its order.
#[tokio::test]
async fn l16_slow_names_of_a_server_that_works_on_several_are_all_answered() {
    let connections = server(false).await;
    assert!(is_answered(&connections).await);
    let mut asked = Vec::new();
    for number in 0..120 {
        let connections = Arc::clone(&connections);
        let name = if number % 6 == 0 { good } else { slow };
        asked.push(tokio::spawn(async move {
            timeout(USUAL.budget, ask(&connections, asker(), Progress::Unsent, name)).await
        }));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for (number, ended) in futures::future::join_all(asked).await.into_iter().enumerate() {
        assert!(ended.unwrap().is_ok_and(|ended| ended.is_ok()), "{number}");
    }
    let opened = connections.counted(now()).opened;
    assert!(opened <= 16, "{opened}");
}

/// What was sent together with a late name, before that was known.
#[tokio::test]
async fn l16_a_query_behind_a_late_name_is_asked_once_more_on_another_connection() {
    let connections = server(true).await;
    assert!(is_answered(&connections).await);
    let late = connections.place(0, dead, now()).expect("a connection is open");
    let behind = ask(&connections, asker(), Progress::Unsent, good);
    assert!(timeout(USUAL.budget, behind).await.is_ok_and(|ended| ended.is_ok()));
    assert_eq!(connections.counted(now()).opened, 2);
    drop(late);
}

#[tokio::test]
async fn l16_late_names_delay_no_others_at_a_server_that_works_on_several() {
    assert_eq!(asked_beside_dead_names(false, 15).await, [true; 10]);
}

/// It may have to ask others for the name by which it is tried.
#[tokio::test]
async fn l16_a_server_that_is_late_with_the_trial_is_tried_by_the_query_itself() {
    let (connections, listener) = listening().await;
    tokio::spawn(async move {
        loop {
            let (mut far, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                loop {
                    let asked = read_query(&mut far).await;
                    if !asked.ends_with(GOOD) {
                        std::future::pending::<()>().await;
                    }
                    write_reply(&mut far, &asked).await;
                }
            });
        }
    });
    ask_for_dead(&connections);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(is_answered(&connections).await);
}

/// dnsmasq does so where it cannot reach the server of a name.
#[tokio::test]
async fn l16_a_server_that_ends_the_connection_of_a_name_is_asked_for_others() {
    let (connections, listener) = listening().await;
    tokio::spawn(async move {
        loop {
            let (mut far, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                loop {
                    let asked = read_query(&mut far).await;
                    if asked.ends_with(DEAD) {
                        return;
                    }
                    write_reply(&mut far, &asked).await;
                }
            });
        }
    });
    for number in 0..5 {
        assert!(is_answered(&connections).await, "{number}");
        assert!(ask(&connections, asker(), Progress::Unsent, dead).await.is_err());
        tokio::time::sleep(pause::SHORT).await;
    }
}

/// Both are lost together, also on the next connection, and would be without end.
#[tokio::test]
async fn l16_a_query_that_is_lost_together_with_another_one_is_asked_alone_at_last() {
    let (connections, listener) = listening().await;
    tokio::spawn(async move {
        loop {
            let (mut far, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut asked = read_query(&mut far).await;
                // What was sent together with it has come, too.
                tokio::time::sleep(Duration::from_millis(20)).await;
                while !asked.ends_with(DEAD) && !is_behind_dead(&mut far) {
                    write_reply(&mut far, &asked).await;
                    asked = read_query(&mut far).await;
                }
            });
        }
    });
    for _ in 0..3 {
        // A server that ends a connection after one reply may give one on each.
        for _ in 0..2 {
            assert!(is_answered(&connections).await);
        }
        let lost = ask(&connections, asker(), Progress::Unsent, dead);
        let (lost, good) = tokio::join!(lost, is_answered(&connections));
        assert!(lost.is_err() && good);
    }
}

/// Whether a query for a dead name has come behind another one.
fn is_behind_dead(far: &mut TcpStream) -> bool {
    let mut octets = [0; 512];
    let came = far.try_read(&mut octets).unwrap_or(0);
    octets[..came].windows(DEAD.len()).any(|part| part == DEAD)
}

#[tokio::test(start_paused = true)]
async fn l16_a_query_that_waits_alone_gives_way_as_soon_as_it_would_stall_its_connection() {
    let server = idle();
    let (near, _far) = tokio::io::duplex(4096);
    let connection = server.keep(near);
    let place = connection.place_alone(query, now()).expect("it is idle");
    assert!(server.place(0, query, now()).is_none(), "none is sent behind it");
    assert!(server.place_in_crowd(true, query).is_none());
    assert!(!connection.end_if_alone(now()));
    tokio::time::advance(USUAL.interval).await;
    assert!(connection.end_if_alone(now()));
    let ended = place.reply().await.unwrap_err();
    assert_eq!(ended.reason, Reason::Full);
}

/// What the server still does for names that no lookup waits for must not take connections from others.
#[tokio::test(start_paused = true)]
async fn l16_a_silent_connection_without_a_lookup_is_closed_while_the_server_replies() {
    let server = idle();
    let ((near, _far), (other, _far_end)) = (tokio::io::duplex(4096), tokio::io::duplex(4096));
    let (silent, replies) = (server.keep(near), server.keep(other));
    let waits = silent.place(query, now()).unwrap();
    tokio::time::advance(SILENCE).await;
    let id = replies.place(query, now()).unwrap().id;
    assert!(answer(&replies, id, now()));
    server.close_finished();
    assert!(!silent.is_closed(), "a lookup waits");
    drop(waits);
    tokio::time::advance(SILENCE).await;
    server.close_finished();
    assert!(!silent.is_closed(), "the server gave no reply lately");
    let id = replies.place(query, now()).unwrap().id;
    assert!(answer(&replies, id, now()));
    server.close_finished();
    assert!(silent.is_closed());
}

#[tokio::test(start_paused = true)]
async fn l16_stalled_connections_are_shared_where_there_are_as_many_as_may_be() {
    let server = idle();
    let mut kept = Vec::new();
    for _ in 0..MAX_STALLED_AT_FIRST {
        let (near, far) = tokio::io::duplex(4096);
        kept.push((server.keep(near).place(query, now()).unwrap(), far));
    }
    tokio::time::advance(USUAL.interval).await;
    let (near, _far) = tokio::io::duplex(4096);
    let free = server.keep(near);
    assert!(server.place(0, query, now()).is_none(), "it is left for queries that are asked alone");
    let none = async { panic!("one too many") };
    let shared = server.place_on_new(0, query, none).await.unwrap();
    assert_eq!(shared.connection.in_progress(), 2);
    assert!(free.place_alone(query, now()).is_some());
}

/// None of them is late, but one connection serves four of them a second.
#[tokio::test]
async fn l16_names_that_take_their_time_are_spread_over_connections() {
    let connections = server(true).await;
    assert!(is_answered(&connections).await);
    let used = |id: u16| [&id.to_be_bytes(), USED].concat();
    let mut asked = Vec::new();
    for _ in 0..60 {
        let connections = Arc::clone(&connections);
        asked.push(tokio::spawn(async move {
            timeout(USUAL.budget, ask(&connections, asker(), Progress::Unsent, used)).await
        }));
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    for (number, ended) in futures::future::join_all(asked).await.into_iter().enumerate() {
        assert!(ended.unwrap().is_ok_and(|ended| ended.is_ok()), "{number}");
    }
}
