//! What a panic, which is a defect of ours, costs: one query or one connection, and not its server.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

#[tokio::test(start_paused = true)]
async fn fw54_a_query_whose_writing_panics_leaves_its_connection_to_others() {
    let (near, mut far) = tokio::io::duplex(4096);
    let connections = idle();
    let connection = connections.keep(near);
    let panics = || depart(&connections, (), |(), _| panic!("a defect"), |(), _| {});
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    let place = connections.place(0, query, now()).expect("the connection is as it was");
    let asked = read_query(&mut far).await;
    write_reply(&mut far, &asked).await;
    place.reply().await.expect("a reply");
    assert_eq!(connection.in_progress(), 0);
}

#[tokio::test(start_paused = true)]
async fn fw54_a_connection_whose_task_panics_is_one_that_broke() {
    let connections = idle();
    let (queries, taken) = mpsc::channel(MAX_QUERIES);
    let connection = connections.add(Outlet::Task(queries), CancellationToken::new());
    let (came, mut arrived) = mpsc::unbounded_channel();
    let landed =
        move |(), arrived: Arrived| came.send(matches!(arrived, Arrived::Failed(..))).unwrap();
    assert!(depart(&connections, (), |(), id| query(id), landed).is_none());
    connections.carry(&connection, async move {
        let _taken = taken;
        panic!("a defect");
    });
    assert_eq!(arrived.recv().await, Some(true), "it fails at once");
    assert!(connection.is_closed() && connection.is_gone());
    assert_eq!(connections.common.panics(), 1);
    connections.close_finished();
    assert!(connections.open().is_empty(), "others are made");
}

#[tokio::test(start_paused = true)]
async fn fw54_a_handshake_that_panics_is_counted_and_begins_the_pause() {
    let connections = idle();
    let opening = async { panic!("a defect") };
    assert!(connections.place_on_new(0, query, opening).await.is_err());
    let failures: u64 = connections.counted(now()).failures().map(|(_, count)| count).sum();
    assert_eq!((connections.common.panics(), failures), (1, 1));
    let next = async { unreachable!("the pause holds") };
    assert!(connections.place_on_new(0, query, next).await.is_err());
}
