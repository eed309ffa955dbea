//! Stores that others fill, and what stays kept.

use kube::core::DynamicObject;
use serde_json::json;

use super::*;
use crate::fixtures::from;
use crate::observe::octets::octets;
use crate::observe::stubs::{is_stub, stub_of_budget, stub_of_service};

const MIB: usize = 1 << 20;

fn named(name: &str) -> ObjectMeta {
    from(json!({"namespace": "dns", "name": name}))
}

fn share(budget: &Arc<Budget>, store: u64) -> Share {
    Share::new(budget.clone(), store, "services")
}

/// Names that a namespace takes in the log.
fn named_in(budget: &Budget, namespace: &str) -> Vec<String> {
    let books = budget.books();
    let here = books.refused.iter().filter(|(of, _, _)| of == namespace);
    here.map(|(_, kind, name)| format!("{kind} {name}")).collect()
}

fn octets_of(budget: &Budget) -> Octets {
    budget.books().octets.values().fold(Octets::default(), |sum, octets| sum + *octets)
}

fn admit(share: &mut Share, name: &str, octets: usize) -> BudgetVerdict {
    match share.admit(&named(name), octets, false) {
        true => BudgetVerdict::Whole,
        false => share.admit_stub(&named(name), octets, Some(STUB)),
    }
}

#[test]
fn k23_what_others_write_is_kept_up_to_a_bound_and_the_rest_is_named() {
    let budget = Arc::new(Budget::of(48 * MIB, READ_WHEN_NEEDED));
    let (mut one, mut other) = (share(&budget, 1), share(&budget, 2));
    assert_eq!(admit(&mut other, "ours", MIB), BudgetVerdict::Whole);
    let verdicts: Vec<BudgetVerdict> =
        (0..60).map(|n| admit(&mut one, &format!("m{n}"), MIB)).collect();
    let whole = verdicts.iter().filter(|it| **it == BudgetVerdict::Whole).count();
    assert_eq!((whole, verdicts[whole]), (39, BudgetVerdict::Stub), "40 MiB, and stubs");
    assert_eq!(octets_of(&budget), Octets { whole: 40 * MIB, stubs: 21 * STUB, needed: 0 });
    assert_eq!(named_in(&budget, "dns").len(), 21);
    assert_eq!(named_in(&budget, "dns")[0], "services m39");
    assert_eq!(budget.not_kept("dns"), BTreeSet::from(["services".to_owned()]));
    assert!(budget.not_kept("elsewhere").is_empty());
    // Freed room is used again.
    one.remove(&named("m0"));
    assert_eq!(admit(&mut one, "m39", MIB), BudgetVerdict::Whole);
    assert_eq!(named_in(&budget, "dns").len(), 20);
    drop(one);
    assert_eq!((octets_of(&budget).whole, named_in(&budget, "dns").len()), (MIB, 0));
    assert!(budget.not_kept("dns").is_empty());
}

#[test]
fn k23_a_full_cache_keeps_what_it_holds_whole_also_while_it_lists_again() {
    let budget = Arc::new(Budget::of(48 * MIB, READ_WHEN_NEEDED));
    let (mut ours, mut full) = (share(&budget, 1), share(&budget, 2));
    assert_eq!(admit(&mut ours, "deployment", 4_000), BudgetVerdict::Whole);
    // Some 10,000 objects that fit no more, and their stubs.
    for n in 0..39 {
        assert_eq!(admit(&mut full, &format!("m{n}"), MIB), BudgetVerdict::Whole);
    }
    for n in 0..10_000 {
        assert_eq!(admit(&mut full, &format!("big{n}"), 2 * MIB), BudgetVerdict::Stub, "{n}");
    }
    assert!(ours.admit(&named("large"), 4 * MIB, true), "more than there is room for");
    for round in 0..3 {
        assert_eq!(admit(&mut ours, "deployment", 4_000), BudgetVerdict::Whole, "{round}");
        full.list();
        // In the reverse order, and with what is new first.
        assert_eq!(admit(&mut full, &format!("new{round}"), 2 * MIB), BudgetVerdict::Stub);
        assert_eq!(admit(&mut ours, "deployment", 4_000), BudgetVerdict::Whole, "while it lists");
        if round == 1 {
            full.list();
        }
        for n in (0..39).rev() {
            assert_eq!(
                admit(&mut full, &format!("m{n}"), MIB),
                BudgetVerdict::Whole,
                "{round} {n}"
            );
        }
        full.listed();
        let whole = octets_of(&budget).whole;
        assert_eq!(whole, 43 * MIB + 4_000, "no more room is taken");
    }
    full.list();
    assert_eq!(admit(&mut full, "m0", MIB), BudgetVerdict::Whole);
    full.listed();
    assert_eq!(octets_of(&budget).whole, 5 * MIB + 4_000, "what is not listed any more is gone");
}

#[test]
fn k23_a_list_that_is_given_up_forgets_nothing_of_what_has_no_room() {
    let budget = Arc::new(Budget::of(8 * STUB, READ_WHEN_NEEDED));
    let mut share = share(&budget, 1);
    assert_eq!(admit(&mut share, "whole", 6 * STUB), BudgetVerdict::Whole);
    assert_eq!(admit(&mut share, "stub", 2 * STUB), BudgetVerdict::Stub);
    let (held, names) = (octets_of(&budget), named_in(&budget, "dns"));
    share.list();
    assert_eq!(admit(&mut share, "whole", 6 * STUB), BudgetVerdict::Whole);
    share.give_up_list();
    assert_eq!((octets_of(&budget), named_in(&budget, "dns")), (held, names));
    // An event makes room.
    share.remove(&named("whole"));
    share.list();
    assert_eq!(admit(&mut share, "stub", 2 * STUB), BudgetVerdict::Whole);
    share.listed();
    assert!(budget.not_kept("dns").is_empty() && !share.has_to_be_listed());
}

/// The room of an object of another store is free again. The list that keeps one more whole breaks off, and the store forgets it.
#[test]
fn k23_a_list_that_is_given_up_is_due_again_for_what_it_had_kept() {
    let budget = Arc::new(Budget::of(8 * STUB, READ_WHEN_NEEDED));
    let (mut share, mut other) = (share(&budget, 1), share(&budget, 2));
    assert_eq!(admit(&mut other, "large", 6 * STUB), BudgetVerdict::Whole);
    assert_eq!(admit(&mut share, "refused", 4 * STUB), BudgetVerdict::Stub);
    assert!(!share.has_to_be_listed());
    other.remove(&named("large"));
    assert!(share.has_to_be_listed());
    share.list();
    assert_eq!(admit(&mut share, "refused", 4 * STUB), BudgetVerdict::Whole);
    share.give_up_list();
    assert_eq!(admit(&mut other, "small", 2 * STUB), BudgetVerdict::Whole);
    assert!(share.has_to_be_listed(), "the store has the stub");
    share.list();
    assert_eq!(admit(&mut share, "refused", 4 * STUB), BudgetVerdict::Whole);
    share.listed();
    assert!(!share.has_to_be_listed());
}

#[test]
fn k23_what_is_ours_is_kept_whole_however_full_the_cache_is() {
    let budget = Arc::new(Budget::of(8 * STUB, READ_WHEN_NEEDED));
    let (mut ours, mut full) = (share(&budget, 1), share(&budget, 2));
    (0..20).for_each(|n| {
        admit(&mut full, &format!("m{n}"), STUB);
    });
    assert!(ours.admit(&named("new"), 4_000, true));
    assert!(ours.admit(&named("new"), 5_000, true), "it grew");
    assert_eq!(admit(&mut full, "m0", STUB), BudgetVerdict::Whole, "what is held stays");
}

#[test]
fn k23_it_is_known_whether_what_is_always_kept_takes_most_of_the_room() {
    let budget = Arc::new(Budget::of(48 * MIB, READ_WHEN_NEEDED));
    let (mut nodes, mut others) = (share(&budget, 1), share(&budget, 2));
    for n in 0..30 {
        assert_eq!(admit(&mut others, &format!("m{n}"), MIB), BudgetVerdict::Whole);
    }
    assert!(!budget.is_mostly_needed(), "others fill it");
    for n in 0..21 {
        assert_eq!(budget.is_mostly_needed(), n > 20, "{n}");
        assert!(nodes.admit(&named(&format!("n{n}")), MIB, true));
    }
    assert!(budget.is_mostly_needed(), "21 of 40 MiB");
    nodes.list();
    assert!(nodes.admit(&named("n0"), MIB, true));
    assert!(budget.is_mostly_needed(), "while they are listed again");
    nodes.listed();
    assert!(!budget.is_mostly_needed(), "the others are gone");
}

#[test]
fn k23_more_objects_than_stubs_fit_for_take_no_more_memory() {
    let budget = Arc::new(Budget::of(100 * STUB, READ_WHEN_NEEDED));
    let mut share = share(&budget, 1);
    assert!(!budget.is_incomplete("services", "dns"));
    let verdicts: Vec<_> =
        (0..300).map(|n| admit(&mut share, &format!("m{n}"), 2 * STUB)).collect();
    let nothing = verdicts.iter().filter(|it| **it == BudgetVerdict::Nothing).count();
    assert!(nothing > 100, "{nothing}");
    let Octets { whole, stubs, .. } = octets_of(&budget);
    assert!(whole + stubs <= 100 * STUB);
    assert_eq!(named_in(&budget, "dns").len(), MAX_NAMED);
    // One that is not found may exist, until a list was kept in full.
    assert!(budget.is_incomplete("services", "dns"));
    assert!(!budget.is_incomplete("services", "elsewhere"));
    share.list();
    assert_eq!(admit(&mut share, "m0", 2 * STUB), BudgetVerdict::Whole);
    share.listed();
    assert!(!budget.is_incomplete("services", "dns"));
}

#[test]
fn o2_a_stub_of_a_service_or_a_budget_has_what_decisions_read_of_it() {
    let mut service: DynamicObject = from(json!({"metadata": {"name": "other", "namespace": "dns",
        "annotations": {"x": "y"}}, "spec": {"clusterIP": "10.96.0.11", "clusterIPs": ["10.96.0.11"],
        "selector": {"k8s-app": "kube-dns"}, "externalName": "x", "ports": [{"port": 53, "name": "dns"}]},
        "status": {"loadBalancer": {}}}));
    stub_of_service(&mut service);
    let spec = json!({"clusterIP": "10.96.0.11", "clusterIPs": ["10.96.0.11"],
        "selector": {"k8s-app": "kube-dns"}, "ports": [{"port": 53}]});
    assert!(is_stub(&service));
    assert_eq!(service.data, json!({"spec": spec}));
    let spec = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}});
    let mut budget: DynamicObject =
        from(json!({"metadata": {"name": "b"}, "spec": spec, "status": {"a": 1}}));
    stub_of_budget(&mut budget);
    assert_eq!((is_stub(&budget), budget.data), (true, json!({"spec": spec})));
}

#[test]
fn k23_a_stub_is_small_however_large_the_selector_is() {
    let pairs = |key: &str| -> serde_json::Map<String, serde_json::Value> {
        (0..20_000).map(|n| (format!("{key}{n:05}"), json!("x".repeat(60)))).collect()
    };
    let values: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let ports: Vec<_> = (0..5_000).map(|n| json!({"port": n, "name": n.to_string()})).collect();
    let mut service: DynamicObject = from(json!({"metadata": {"name": "a"},
        "spec": {"clusterIP": "10.96.0.11", "selector": pairs("k"), "ports": ports}}));
    let expression = |operator: &str| json!({"key": "k", "operator": operator, "values": values});
    let mut expressions = vec![expression("In"), expression("NotIn")];
    expressions.extend((0..5_000).map(|n| json!({"key": n.to_string(), "operator": "Exists"})));
    let mut budget: DynamicObject = from(json!({"metadata": {"name": "b"}, "spec": {
        "selector": {"matchLabels": pairs("k"), "matchExpressions": expressions}}}));
    assert!(octets(&service) > MIB && octets(&budget) > MIB);
    stub_of_service(&mut service);
    stub_of_budget(&mut budget);
    assert!(octets(&service) < 9 << 10 && octets(&budget) < 24 << 10);
    assert_eq!(service.data["spec"]["ports"], json!([{"port": 53}]), "it serves DNS");
    let selector = &budget.data["spec"]["selector"];
    assert_eq!(selector["matchLabels"].as_object().unwrap().len(), 16);
    let kept = selector["matchExpressions"].as_array().unwrap();
    assert_eq!((kept.len(), &kept[0]["operator"]), (16, &json!("Exists")), "none is narrowed");
}

#[test]
fn a_stub_says_that_an_object_exists_and_whose_it_is() {
    let mut map: DynamicObject = from(
        json!({"metadata": {"name": "a", "namespace": "dns", "uid": "u",
        "labels": {"clusterdns.dev/instance": "default", "team": "a"}, "annotations": {"x": "y"},
        "ownerReferences": [{"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "name": "default",
            "uid": "dns-uid"}]}, "data": {"a": "what it holds and no decision reads, of any length".repeat(9)}}),
    );
    assert!(!is_stub(&map));
    let before = octets(&map);
    stub_of_budget(&mut map);
    assert!(is_stub(&map) && octets(&map) < before);
    let metadata = &map.metadata;
    assert_eq!(
        metadata.labels.as_ref().unwrap().keys().collect::<Vec<_>>(),
        ["clusterdns.dev/instance"]
    );
    assert_eq!((metadata.name.as_deref(), metadata.uid.as_deref()), (Some("a"), Some("u")));
    assert_eq!(metadata.owner_references.as_ref().unwrap().len(), 1);
}

#[test]
fn k23_a_namespace_with_many_large_objects_does_not_hide_those_of_another() {
    let budget = Arc::new(Budget::of(0, READ_WHEN_NEEDED));
    let mut full = share(&budget, 1);
    for n in 0..MAX_NAMED + 1 {
        admit(&mut full, &format!("m{n}"), MIB);
    }
    let elsewhere: ObjectMeta = from(json!({"namespace": "elsewhere", "name": "large"}));
    let mut other = share(&budget, 2);
    assert!(!other.admit(&elsewhere, MIB, false));
    other.admit_stub(&elsewhere, MIB, Some(STUB));
    assert_eq!(named_in(&budget, "dns").len(), MAX_NAMED);
    assert_eq!(named_in(&budget, "elsewhere"), ["services large"]);
}

#[test]
fn k23_edits_of_what_does_not_fit_change_nothing_that_is_reported() {
    let budget = Arc::new(Budget::of(0, READ_WHEN_NEEDED));
    let mut full = share(&budget, 1);
    admit(&mut full, "m0", MIB);
    let before = budget.not_kept("dns");
    for n in 0..5 {
        admit(&mut full, "m0", MIB + n);
        admit(&mut full, &format!("m{n}"), MIB);
        assert_eq!(budget.not_kept("dns"), before);
    }
}

#[test]
fn k23_what_has_no_name_in_the_log_is_reported_until_a_list_shows_that_it_is_gone() {
    let budget = Arc::new(Budget::of(4 * MIB, READ_WHEN_NEEDED));
    let (mut full, mut other) = (share(&budget, 1), Share::new(budget.clone(), 2, "configmaps"));
    assert_eq!(admit(&mut full, "first", 3 * MIB), BudgetVerdict::Whole);
    let refused: Vec<String> = (0..MAX_NAMED + 50).map(|n| format!("m{n}")).collect();
    for name in &refused {
        assert_eq!(admit(&mut full, name, MIB), BudgetVerdict::Stub);
    }
    assert_eq!(admit(&mut other, "map", MIB), BudgetVerdict::Stub);
    let both: BTreeSet<String> = ["configmaps", "services"].map(str::to_owned).into();
    assert_eq!(budget.not_kept("dns"), both, "one kind hides no other");
    assert!(!full.has_to_be_listed(), "nothing has changed");
    let (with_name, unnamed) = refused.split_at(MAX_NAMED);
    with_name.iter().for_each(|name| full.remove(&named(name)));
    assert_eq!(budget.not_kept("dns"), both, "fifty are still there");
    assert!(full.has_to_be_listed(), "to name them");
    full.list();
    assert_eq!(admit(&mut full, "first", 3 * MIB), BudgetVerdict::Whole);
    for name in unnamed {
        assert_eq!(admit(&mut full, name, MIB), BudgetVerdict::Stub);
    }
    full.listed();
    assert_eq!(named_in(&budget, "dns").len(), 51);
    assert!(!full.has_to_be_listed());
    unnamed.iter().for_each(|name| full.remove(&named(name)));
    assert_eq!(budget.not_kept("dns"), BTreeSet::from(["configmaps".to_owned()]));
    drop(other);
    assert!(budget.not_kept("dns").is_empty());
}

#[test]
fn k23_an_object_that_left_while_no_watch_was_open_is_not_named_any_more() {
    let budget = Arc::new(Budget::of(0, READ_WHEN_NEEDED));
    let mut share = share(&budget, 1);
    for name in ["gone", "stays"] {
        assert!(!share.admit(&named(name), MIB, false));
        assert_eq!(share.admit_stub(&named(name), MIB, None), BudgetVerdict::Nothing);
    }
    share.list();
    assert_eq!(named_in(&budget, "dns").len(), 2, "the list is not complete");
    share.admit_stub(&named("stays"), MIB, None);
    share.listed();
    assert_eq!(named_in(&budget, "dns"), ["services stays"]);
    drop(share);
    assert!(budget.not_kept("dns").is_empty(), "its kind is gone");
}

#[test]
fn k23_a_list_is_due_when_an_object_fits_that_did_not() {
    let budget = Arc::new(Budget::of(48 * MIB, READ_WHEN_NEEDED));
    let (mut full, mut victim) = (share(&budget, 1), share(&budget, 2));
    (0..39).for_each(|n| assert_eq!(admit(&mut full, &format!("m{n}"), MIB), BudgetVerdict::Whole));
    assert_eq!(admit(&mut victim, "large", 3 * MIB), BudgetVerdict::Stub);
    assert!(!victim.has_to_be_listed() && !full.has_to_be_listed());
    full.remove(&named("m0"));
    assert!(!victim.has_to_be_listed(), "2 MiB are free");
    full.remove(&named("m1"));
    assert!(victim.has_to_be_listed() && !full.has_to_be_listed(), "it has all of its own");
    victim.list();
    assert_eq!(admit(&mut victim, "large", 3 * MIB), BudgetVerdict::Whole);
    victim.listed();
    assert!(!victim.has_to_be_listed() && budget.not_kept("dns").is_empty());
    // What cannot be read may be read later.
    victim.pass_over("dns");
    (2..4).for_each(|n| full.remove(&named(&format!("m{n}"))));
    assert!(victim.has_to_be_listed());
}

#[test]
fn k23_a_list_is_due_when_a_stub_fits_that_did_not() {
    let budget = Arc::new(Budget::of(8 * STUB, READ_WHEN_NEEDED));
    let mut full = share(&budget, 1);
    let verdicts: Vec<_> = (0..3).map(|n| admit(&mut full, &format!("m{n}"), MIB)).collect();
    assert_eq!(verdicts, [BudgetVerdict::Stub, BudgetVerdict::Stub, BudgetVerdict::Nothing]);
    assert!(!full.has_to_be_listed());
    full.remove(&named("m0"));
    assert!(full.has_to_be_listed());
    // Where objects have no stubs, none can.
    let budget = Arc::new(Budget::without_stubs(8 * STUB, READ_WHEN_NEEDED));
    let mut share = share(&budget, 1);
    assert_eq!(admit(&mut share, "m0", 8 * STUB), BudgetVerdict::Whole, "nothing is reserved");
    assert!(!share.admit(&named("m1"), STUB, false));
    share.admit_stub(&named("m1"), STUB, None);
    assert!(!share.has_to_be_listed());
}
