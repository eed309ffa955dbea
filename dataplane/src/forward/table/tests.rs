//! Lookups in progress, and those that have just ended: who joins which, and how many there may be.

use std::time::Duration;

use dataplane_core::{Name, TtlCaps, Verdict};

use super::*;

fn key(name: &str) -> LookupKey {
    LookupKey::new(Name::from_text(name).unwrap(), 1, false, false)
}

/// After all that has ended so far.
fn later() -> Instant {
    now() + Duration::from_secs(1)
}

#[tokio::test]
async fn fw11_one_lookup_per_route_and_key_and_a_bound_on_all() {
    let table = Arc::new(Table::default());
    let Joined::Begun(first, running) = table.join(1, &key("a.example"), 2, now()) else {
        panic!()
    };
    let Joined::Running(second) = table.join(1, &key("a.example"), 2, now()) else { panic!() };
    let Joined::Begun(..) = table.join(2, &key("a.example"), 2, now()) else {
        panic!("another route")
    };
    assert_eq!(table.len(), 1, "the one that was never run left");
    let Joined::Begun(_, _other) = table.join(1, &key("b.example"), 2, now()) else { panic!() };
    assert!(matches!(table.join(1, &key("c.example"), 2, now()), Joined::Full(())));
    let errors = Unresolved::Errors(dataplane_core::ErrorCodes::default());
    running.end(Err(errors));
    for waiter in [first, second] {
        assert!(matches!(ended(waiter).await, Err(Unresolved::Errors(_))));
    }
    assert!(matches!(table.join(1, &key("a.example"), 2, now()), Joined::Begun(..)), "it is over");
}

#[tokio::test]
async fn fw11_a_lookup_that_breaks_off_ends_for_those_who_wait() {
    let table = Arc::new(Table::default());
    let Joined::Begun(waiter, running) = table.join(1, &key("a.example"), 1, now()) else {
        panic!()
    };
    drop(running);
    assert!(matches!(ended(waiter).await, Err(Unresolved::Silence)));
    assert_eq!(table.len(), 0);
}

#[tokio::test]
async fn fw11_who_came_before_a_lookup_was_over_gets_its_result_if_it_is_not_kept() {
    let (table, before) = (Arc::new(Table::default()), now());
    let begin = |name: &str| match table.join(1, &key(name), 1, later()) {
        Joined::Begun(_, running) => running,
        _ => panic!("{name}"),
    };
    let is_over = |route, name: &str, came| match table.join(route, &key(name), 1, came) {
        Joined::Over((), ended) => ended.is_err(),
        _ => false,
    };
    begin("a.example").end_unkept(Err(Unresolved::Silence));
    assert!(is_over(1, "a.example", before));
    assert!(!is_over(2, "a.example", before) && !is_over(1, "b.example", before));
    assert!(!is_over(1, "a.example", later()), "it came later");
    begin("b.example").end(Err(Unresolved::Silence));
    assert!(!is_over(1, "b.example", before), "the cache has it");
    // A later one that did not ask says that there may be another reply now.
    begin("a.example").end_unkept(Err(Unresolved::NoServer));
    assert!(!is_over(1, "a.example", before));
}

#[tokio::test]
async fn fw11_results_that_are_not_kept_have_a_bound() {
    let (table, before) = (Arc::new(Table::default()), now());
    let end = |name: &str, ended| match table.join(1, &key(name), 1, later()) {
        Joined::Begun(_, running) => running.end_unkept(ended),
        _ => panic!("{name}"),
    };
    for number in 0..100 * SHARDS {
        end(&format!("n{number}.example"), Err(Unresolved::Silence));
    }
    let held = table.shards.iter().map(|shard| shard.lock().unwrap().unkept.len());
    assert!(held.eq([UNKEPT; SHARDS]));
    // A long one is not held for others.
    for (octets, is_shared) in [(100, true), (2 * MAX_UNKEPT_OCTETS, false)] {
        let key = LookupKey::new(Name::from_text("a.example").unwrap(), 16, false, false);
        let length = u16::try_from(octets).unwrap().to_be_bytes();
        let question = [key.name().wire(), &[0, 16, 0, 1]].concat();
        let record =
            [&[0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 0][..], &length, &vec![0; octets][..]].concat();
        let reply = [&[0, 0, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0][..], &question, &record].concat();
        let Verdict::Good(relayed) = key.judge(0, &reply, &TtlCaps::default()) else { panic!() };
        let Joined::Begun(_, running) = table.join(1, &key, 1, later()) else { panic!() };
        running.end_unkept(Ok(relayed));
        let joined = table.join(1, &key, 1, before);
        assert_eq!(matches!(joined, Joined::Over((), Ok(_))), is_shared, "{octets}");
    }
}

#[tokio::test]
async fn fw53_a_lookup_for_which_many_wait_ends_for_some_at_a_time() {
    const CLIENTS: usize = 4 * MAX_AT_ONCE + 5;
    let table = Arc::new(Table::default());
    let (sender, calls) = std::sync::mpsc::channel();
    let mut running = None;
    for number in 0..CLIENTS {
        let sender = sender.clone();
        let late = Late::new(move |ended| sender.send((number, ended.is_err())).unwrap());
        if let Joined::Begun((), begun) = table.join_late(1, key("a.example"), 1, now(), late) {
            running = Some(begun);
        }
    }
    running.expect("the first begins it").end(Err(Unresolved::NoServer));
    let mut got = calls.try_iter().collect::<Vec<_>>();
    assert_eq!(got.len(), MAX_AT_ONCE, "on the thread that ended it");
    while got.len() < CLIENTS {
        yield_now().await;
        let now = calls.try_iter().collect::<Vec<_>>();
        assert!(now.len() <= MAX_AT_ONCE, "{} at once", now.len());
        got.extend(now);
    }
    assert!(got.into_iter().eq((0..CLIENTS).map(|number| (number, true))), "each once");
}

#[test]
fn fw11_those_who_are_called_get_the_end_once_also_of_a_lookup_that_breaks_off() {
    let table = Arc::new(Table::default());
    let (sender, calls) = std::sync::mpsc::channel();
    let late = |number: u8| {
        let sender = sender.clone();
        Late::new(move |ended| sender.send((number, ended)).unwrap())
    };
    let join = |number| table.join_late(1, key("a.example"), 1, now(), late(number));
    let Joined::Begun((), running) = join(1) else { panic!() };
    assert!(matches!(join(2), Joined::Running(())));
    let other = table.join_late(1, key("b.example"), 1, now(), late(3));
    assert!(matches!(other, Joined::Full(_)), "it may be called by who gets it back");
    drop(other);
    running.end(Err(Unresolved::NoServer));
    let Joined::Begun((), running) = join(4) else { panic!("the first is over") };
    drop(running);
    let got: Vec<_> = calls.try_iter().map(|(number, ended)| (number, ended.err())).collect();
    let (end, broken) = (Some(Unresolved::NoServer), Some(Unresolved::Silence));
    assert_eq!(got, [(1, end), (2, end), (4, broken)]);
    assert_eq!(table.len(), 0);
}

/// Who chooses names that meet in one place makes each look there slow.
#[test]
fn two_tables_of_lookups_have_other_places_for_one_key() {
    let of = |table: &Table| table.id(1, key("a.example")).hash;
    assert_ne!(of(&Table::default()), of(&Table::default()));
}
