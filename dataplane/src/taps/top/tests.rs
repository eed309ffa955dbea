//! What is counted, for how long, and how many of a flood; time is an argument.

use super::*;

const NO: fn() = || {};

fn query(name: &str) -> Vec<u8> {
    let mut query = vec![0; HEADER];
    query.extend(Name::from_text(name).unwrap().wire());
    query.extend([0, 28, 0, 1]);
    query
}

fn put(top: &Top, now: Instant, name: &str, client: &str, rcode: u8) {
    let (query, reply) = (query(name), [0, 0, 0x81, 0x80 | rcode]);
    let client = format!("{client}:5353").parse().unwrap();
    top.put(now, &Exchange { client, query: &query, reply: &reply, ..Exchange::default() }, NO);
}

fn rows(rows: &[TopRow]) -> Vec<(&str, Option<&str>, u64)> {
    rows.iter().map(|it| (it.key.as_str(), it.qtype.as_deref(), it.count)).collect()
}

#[test]
fn names_clients_and_denials_are_counted_while_it_is_on() {
    let (top, start) = (Top::default(), Instant::now());
    put(&top, start, "before.example", "10.0.0.1", 0);
    top.start(start, Duration::from_secs(60), NO);
    put(&top, start, "a.Example", "10.0.0.1", 0);
    put(&top, start, "a.example", "10.0.0.2", 0);
    put(&top, start, "b.example", "10.0.0.1", 3);
    let view = top.view(start + Duration::from_secs(10), NO);
    assert_eq!((view.is_on, view.seconds, view.seconds_left, view.queries), (true, 10, 50, 3));
    let aaaa = Some("AAAA");
    assert_eq!(rows(&view.names), [("a.example.", aaaa, 2), ("b.example.", aaaa, 1)]);
    assert_eq!(rows(&view.clients), [("10.0.0.1", None, 2), ("10.0.0.2", None, 1)]);
    assert_eq!(rows(&view.denials), [("b.example.", aaaa, 1)]);
}

#[test]
fn it_ends_by_itself_and_gives_its_memory_back() {
    let (top, start) = (Top::default(), Instant::now());
    let mut is_on = false;
    top.start(start, LONGEST * 9, || is_on = true);
    assert!(is_on);
    let mut is_off = false;
    let late = start + LONGEST;
    let exchange = Exchange::default();
    top.put(late - Duration::from_secs(1), &exchange, || is_off = true);
    assert!(!is_off, "ten minutes at most");
    top.put(late, &exchange, || is_off = true);
    assert!(is_off && top.lock().is_none());
    assert!(!top.view(late, NO).is_on);
    // When it is asked for again, its counts begin at zero.
    top.start(late, Duration::from_secs(1), NO);
    assert_eq!(top.view(late, NO).queries, 0);
    top.start(late, Duration::from_secs(5), NO);
    assert_eq!(top.view(late, NO).seconds_left, 5, "longer, and what is counted is kept");
}

#[test]
fn a_flood_is_drawn_from_and_its_weight_is_that_of_all() {
    let (top, start) = (Top::default(), Instant::now());
    top.start(start, LONGEST, NO);
    let all = 400_000_u64;
    // All within the same second.
    for number in 0..all {
        let name = if number % 4 == 0 { "heavy.example" } else { "other.example" };
        put(&top, start, name, "10.0.0.1", 0);
    }
    let view = top.view(start, NO);
    assert!(view.one_of >= 32, "{}", view.one_of);
    let near = |found: u64, expected: u64| found > expected * 8 / 10 && found < expected * 12 / 10;
    assert!(near(view.queries, all), "{}", view.queries);
    assert!(near(view.names[1].count, all / 4), "{:?}", view.names);
    // Little traffic: every query is counted again after a while.
    for second in 1..40 {
        for _ in 0..60 {
            put(&top, start + Duration::from_secs(second), "late.example", "10.0.0.1", 0);
        }
    }
    assert!(top.view(start + Duration::from_secs(41), NO).one_of <= 4);
}

#[test]
fn nonsense_counts_for_its_client_only_and_a_busy_sketch_is_passed_over() {
    let (top, start) = (Top::default(), Instant::now());
    top.start(start, LONGEST, NO);
    let client = "10.0.0.9:1".parse().unwrap();
    top.put(start, &Exchange { client, query: &[0; 13], ..Exchange::default() }, NO);
    let held = top.lock();
    put(&top, start, "a.example", "10.0.0.1", 0);
    drop(held);
    let view = top.view(start, NO);
    assert_eq!((view.names.len(), view.clients.len(), view.passed_over), (0, 1, 1));
}

#[test]
fn a_configuration_that_changes_neither_ends_nor_begins_it() {
    let (taps, start) = (super::super::Taps::default(), Instant::now());
    let logging = crds::config::Logging::default();
    taps.apply(&logging);
    assert!(taps.wanted().begin(Duration::ZERO).is_none() && !taps.top(start).is_on);
    taps.count_top(start, LONGEST);
    taps.apply(&logging);
    assert!(taps.wanted().begin(Duration::ZERO).is_some() && taps.top(start).is_on);
    assert!(!taps.top(start + LONGEST).is_on && taps.wanted().begin(Duration::ZERO).is_none());
    // No query comes, and the page is not read.
    taps.count_top(start, LONGEST);
    taps.end_top(start + LONGEST - Duration::from_nanos(1));
    assert!(taps.wanted().begin(Duration::ZERO).is_some());
    taps.end_top(start + LONGEST);
    assert!(taps.wanted().begin(Duration::ZERO).is_none() && taps.top.lock().is_none());
}
