//! What is reported of objects that are not served, within its bounds.

use super::*;

fn key(number: usize) -> Key {
    Key::new("shop", format!("bad-{number}"))
}

/// The most reasons that a namespace may have, in each namespace.
fn spread(number: usize) -> Key {
    Key::new(format!("shop-{}", number / MAX_OF_NAMESPACE), format!("bad-{number}"))
}

#[test]
fn e15_the_faults_of_one_namespace_hide_those_of_no_other() {
    let mut unserved = Unserved::default();
    unserved.begin(Resource::Services);
    for number in 0..2 * MAX_REASONS {
        unserved.set(Resource::Services, &key(number), reason("unreadable"));
    }
    let victim = Key::new("victim", "cart");
    assert!(unserved.set(Resource::Services, &victim, reason("unreadable")));
    assert_eq!(unserved.all().count(), MAX_OF_NAMESPACE + 1);
    assert!(unserved.set(Resource::Services, &key(0), None), "a place is free");
    assert!(unserved.set(Resource::Services, &key(MAX_REASONS), reason("unreadable")));
    unserved.begin(Resource::Services);
    unserved.complete(Resource::Services, |_| false);
    assert!(unserved.reasons.is_empty() && unserved.shares.is_empty());
    assert!(unserved.by_share.is_empty());
}

#[test]
fn e15_one_object_that_changes_among_thousands_is_one_change() {
    let mut unserved = Unserved::default();
    for number in 0..MAX_REASONS {
        unserved.set(Resource::Services, &spread(number), reason("unreadable"));
    }
    assert_eq!(unserved.take_changes().new.len(), MAX_REASONS);
    unserved.set(Resource::Services, &spread(7), None);
    unserved.set(Resource::Services, &spread(8), reason("something else"));
    let changes = unserved.take_changes();
    assert_eq!((changes.gone.len(), changes.new.len()), (2, 1));
    unserved.begin(Resource::Services);
    unserved.complete(Resource::Services, |_| false);
    assert_eq!(unserved.take_changes().gone.len(), MAX_REASONS - 1);
}

#[test]
fn e15_a_reason_that_repeats_a_large_field_is_cut() {
    let mut unserved = Unserved::default();
    let long = format!("it cannot be read: invalid type: string {:?}", "é".repeat(500_000));
    assert!(unserved.set(Resource::Services, &key(0), Some(long.clone())));
    assert!(!unserved.set(Resource::Services, &key(0), Some(long)), "the same");
    let kept = unserved.all().next().unwrap().reason;
    assert!(kept.len() < MAX_REASON_OCTETS + 10 && kept.ends_with(" ..."), "{kept}");
}

fn reason(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn at_the_bound_known_objects_still_change_their_reason_and_nothing_else_is_news() {
    let mut unserved = Unserved::default();
    for number in 0..MAX_REASONS {
        assert!(unserved.set(Resource::Services, &spread(number), reason("unreadable")));
    }
    assert!(!unserved.set(Resource::Services, &spread(0), reason("unreadable")));
    assert!(unserved.set(Resource::Services, &spread(0), reason("something else")));
    assert_eq!(unserved.all().count(), MAX_REASONS);
    assert!(unserved.all().any(|skipped| skipped.reason == "something else"));
    // Its namespace has the most reasons that it may have, so this one is only counted.
    let more = Key::new("shop-3", "more");
    unserved.set(Resource::Services, &more, reason("unreadable"));
    assert!(unserved.all().all(|skipped| skipped.name != "more"));
    assert_eq!(unserved.take_changes().not_listed, 1);
    assert!(unserved.set(Resource::Services, &spread(300), None));
    unserved.set(Resource::Services, &more, reason("unreadable"));
    assert!(unserved.all().any(|skipped| skipped.name == "more"));
}

#[test]
fn e15_who_has_a_hundred_namespaces_hides_no_fault_of_another_one() {
    let mut unserved = Unserved::default();
    for number in 0..MAX_REASONS {
        unserved.set(Resource::Services, &spread(number), reason("unreadable"));
    }
    let faults = |resource| Key::new("victim", format!("{resource:?}"));
    for resource in [Resource::Services, Resource::EndpointSlices] {
        unserved.set(resource, &faults(resource), reason("unreadable"));
    }
    let of = |unserved: &Unserved, namespace: &str| {
        unserved.all().filter(|skipped| skipped.namespace == namespace).count()
    };
    assert_eq!((of(&unserved, "victim"), unserved.all().count()), (2, MAX_REASONS));
    // This continues until all namespaces have the same number: then none hides another.
    for number in 0..3 * MAX_OF_NAMESPACE {
        let key = Key::new(format!("more-{}", number % 3), format!("bad-{number}"));
        unserved.set(Resource::Services, &key, reason("unreadable"));
    }
    let least = (0..100).map(|number| of(&unserved, &format!("shop-{number}"))).min();
    assert!(least >= Some(95), "{least:?}");
    assert_eq!(unserved.by_share.iter().map(|(share, _)| share).sum::<usize>(), MAX_REASONS);
}

#[test]
fn e15_a_limit_that_others_filled_is_no_reason_once_they_are_gone() {
    let mut unserved = Unserved::default();
    let texts =
        |own: &str| Texts { own: own.to_owned(), crowded: "more than 9 addresses".to_owned() };
    for number in 0..2 * MAX_LOOKS {
        let own = if number == 3 { "a bad address" } else { "" };
        assert!(unserved.set_texts(Resource::EndpointSlices, &spread(number), texts(own)));
    }
    let still = |_: Resource, _: &Key| ("more than 9 addresses".to_owned(), 1);
    assert!(!unserved.look_again(still), "still");
    // The calls check all of them, some at a time.
    let looks = (0..9).filter(|_| unserved.look_again(|_, _| (String::new(), 1))).count();
    assert!((2..=3).contains(&looks), "{looks}");
    let left: Vec<String> = unserved.all().map(|skipped| skipped.reason).collect();
    assert_eq!(left, ["a bad address"]);
    assert_eq!(unserved.shares.len(), 1);
}

#[test]
fn l12_a_look_at_slices_of_thousands_of_rows_ends_and_the_next_one_continues() {
    use std::cell::RefCell;
    let mut unserved = Unserved::default();
    for number in 0..9 {
        let texts = Texts { own: String::new(), crowded: "more than 9 addresses".to_owned() };
        unserved.set_texts(Resource::EndpointSlices, &key(number), texts);
    }
    let looked = RefCell::new(Vec::new());
    let mut look = || {
        unserved.look_again(|_, key| {
            looked.borrow_mut().push(key.name.to_string());
            ("more than 9 addresses".to_owned(), MAX_ROWS / 2)
        });
        looked.take()
    };
    assert_eq!(look(), ["bad-0", "bad-1"]);
    assert_eq!(look(), ["bad-2", "bad-3"]);
    assert_eq!(look(), ["bad-4", "bad-5"]);
    assert_eq!(look(), ["bad-6", "bad-7"]);
    assert_eq!(look(), ["bad-8"]);
    assert_eq!(look(), ["bad-0", "bad-1"]);
}

#[test]
fn a_list_takes_away_what_it_does_not_show_unless_that_is_held() {
    let mut unserved = Unserved::default();
    unserved.begin(Resource::Services);
    (0..4).for_each(|number| {
        unserved.set(Resource::Services, &key(number), reason("unreadable"));
    });
    unserved.set(Resource::Namespaces, &key(9), reason("unreadable"));
    unserved.complete(Resource::Services, |_| false);
    assert_eq!(unserved.all().count(), 5);
    unserved.begin(Resource::Services);
    unserved.set(Resource::Services, &key(1), reason("unreadable"));
    unserved.complete(Resource::Services, |held| *held == key(2));
    let left: Vec<String> = unserved.all().map(|skipped| skipped.name).collect();
    assert_eq!(left, ["bad-1", "bad-2", "bad-9"]);
}
