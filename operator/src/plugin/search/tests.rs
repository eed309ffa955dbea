//! Tables: a name, a resolv.conf and what each name leads to, against the names that are asked.

use super::*;

const POD: &str =
    "search shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n";

/// The names that are asked when each of these has this outcome, and all others do not exist.
fn asked(libc: Libc, conf: &str, name: &str, outcomes: &[(&str, Outcome)]) -> Vec<String> {
    let mut search = Search::new(name, &ResolvConf::read(conf), libc).unwrap();
    let mut names = Vec::new();
    while let Some(name) = search.next_name() {
        let outcome =
            outcomes.iter().find(|(of, _)| *of == name).map_or(Outcome::NxDomain, |it| it.1);
        search.saw(outcome);
        names.push(name);
    }
    names
}

const SEARCHED: [&str; 4] =
    ["cart.shop.svc.cluster.local.", "cart.svc.cluster.local.", "cart.cluster.local.", "cart."];

#[test]
fn names_that_do_not_exist_are_asked_below_every_domain_then_as_they_are() {
    for libc in [Libc::Glibc, Libc::Musl] {
        assert_eq!(asked(libc, POD, "cart", &[]), SEARCHED, "{libc:?}");
        let found = [("cart.svc.cluster.local.", Outcome::Found)];
        assert_eq!(asked(libc, POD, "cart", &found), SEARCHED[..2], "{libc:?}");
        assert_eq!(asked(libc, POD, "cart.", &[]), ["cart."], "an absolute name");
    }
}

#[test]
fn ndots_decides_which_is_first_in_glibc_and_whether_it_is_searched_in_musl() {
    let itself = "a.b.c.d.e.f.";
    let below = |domain: &str| format!("{itself}{domain}.");
    let searched = ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local"].map(below);
    let glibc = asked(Libc::Glibc, POD, "a.b.c.d.e.f", &[]);
    assert_eq!((glibc[0].as_str(), &glibc[1..]), (itself, &searched[..]));
    assert_eq!(asked(Libc::Musl, POD, "a.b.c.d.e.f", &[]), [itself]);
    // Four dots are fewer than five.
    assert_eq!(asked(Libc::Glibc, POD, "a.b.c.d.e", &[]).last().unwrap(), "a.b.c.d.e.");
    for (ndots, first) in [("0", "cart."), ("1", "cart.x."), ("99", "cart.x.")] {
        let conf = format!("search x\noptions ndots:{ndots}\n");
        assert_eq!(asked(Libc::Glibc, &conf, "cart", &[])[0], first, "ndots:{ndots}");
    }
    let dots = "a.".repeat(15) + "z";
    let conf = "search x\noptions ndots:99\n";
    assert_eq!(asked(Libc::Glibc, conf, &dots, &[])[0], format!("{dots}."), "cut to 15");
    assert_eq!(asked(Libc::Musl, conf, &dots, &[]), [format!("{dots}.")], "cut to 15");
    assert_eq!(
        asked(Libc::Glibc, "search x\n", "a.b", &[])[0],
        "a.b.",
        "ndots is 1 where none is said"
    );
}

#[test]
fn what_ends_a_search_differs_between_glibc_and_musl() {
    let first = SEARCHED[0];
    for (outcome, glibc, musl) in [
        (Outcome::Found, 1, 1),
        (Outcome::NoData, 4, 1),
        (Outcome::NxDomain, 4, 4),
        (Outcome::ServFail, 4, 1),
        // The rest of the list is passed over; the name itself is asked.
        (Outcome::Failed, 2, 1),
        (Outcome::Unknown, 4, 4),
    ] {
        for (libc, expected) in [(Libc::Glibc, glibc), (Libc::Musl, musl)] {
            let names = asked(libc, POD, "cart", &[(first, outcome)]);
            assert_eq!(names.len(), expected, "{libc:?} {outcome:?}: {names:?}");
            assert!(names.len() != 2 || names[1] == "cart.", "{names:?}");
        }
    }
    // As it is first: any failure leads to the list.
    let conf = "search x\noptions ndots:1\n";
    let names = asked(Libc::Glibc, conf, "a.b", &[("a.b.", Outcome::Failed)]);
    assert_eq!(names, ["a.b.", "a.b.x."]);
}

#[test]
fn lists_are_as_long_as_they_are_and_too_long_names_are_not_sent() {
    let domains: Vec<String> = (0..40).map(|number| format!("d{number}")).collect();
    let conf = format!("search {}\n", domains.join(" "));
    assert_eq!(asked(Libc::Glibc, &conf, "cart", &[]).len(), 41);
    let long = format!("{}d", "d23456789.".repeat(25));
    let conf = format!("search {long} x\n");
    for libc in [Libc::Glibc, Libc::Musl] {
        assert_eq!(asked(libc, &conf, "cart", &[]), ["cart.x.", "cart."], "{libc:?}");
    }
}

#[test]
fn the_root_in_the_list_and_no_tld_query_are_followed() {
    assert_eq!(asked(Libc::Glibc, "search . x\n", "cart", &[]), ["cart.", "cart.x."]);
    assert_eq!(asked(Libc::Musl, "search . x\n", "cart", &[]), ["cart.x.", "cart."]);
    let conf = "search x\noptions no-tld-query\n";
    assert_eq!(asked(Libc::Glibc, conf, "cart", &[]), ["cart.x."]);
    assert_eq!(asked(Libc::Glibc, "options no-tld-query\n", "cart", &[]), ["cart."], "no list");
}

#[test]
fn nonsense_names_are_refused_in_plain_words() {
    let long = "a.".repeat(127) + "a";
    let label = "a".repeat(64);
    for (name, says) in [
        ("", "empty"),
        (".", "empty"),
        ("a..b", "empty label"),
        (".a", "empty label"),
        ("a b", "a space"),
        (long.as_str(), "at most 253"),
        (label.as_str(), "at most 63"),
    ] {
        let error = Search::new(name, &ResolvConf::default(), Libc::Glibc).unwrap_err();
        assert!(error.contains(says), "{name}: {error}");
    }
}

/// What the program gets when each of these names has this outcome, and all others do not exist.
fn verdict(libc: Libc, conf: &str, name: &str, outcomes: &[(&str, Outcome)]) -> Outcome {
    let mut search = Search::new(name, &ResolvConf::read(conf), libc).unwrap();
    while let Some(name) = search.next_name() {
        let outcome = outcomes.iter().find(|(of, _)| *of == name);
        search.saw(outcome.map_or(Outcome::NxDomain, |it| it.1));
    }
    search.verdict()
}

#[test]
fn the_verdict_is_the_error_that_the_library_returns_not_that_of_the_last_name() {
    use Outcome::{Failed, Found, NoData, NxDomain, ServFail, Unknown};
    let first = "cart.shop.svc.cluster.local.";
    let second = "cart.svc.cluster.local.";
    let rows = [
        (vec![], NxDomain, NxDomain),
        (vec![(second, Found)], Found, Found),
        (vec![(first, NoData)], NoData, NoData),
        (vec![(first, ServFail)], ServFail, ServFail),
        (vec![(first, ServFail), (second, NoData)], NoData, ServFail),
        (vec![(first, ServFail), (second, Found)], Found, ServFail),
        (vec![(first, Failed)], NxDomain, Failed),
        (vec![(first, Unknown)], Unknown, Unknown),
        (vec![(first, Unknown), (second, Found)], Unknown, Unknown),
    ];
    for (outcomes, glibc, musl) in rows {
        assert_eq!(verdict(Libc::Glibc, POD, "cart", &outcomes), glibc, "{outcomes:?}");
        assert_eq!(verdict(Libc::Musl, POD, "cart", &outcomes), musl, "{outcomes:?}");
    }
    // Asked as it is first, because it has as many dots as ndots: an upstream decides, and the list cannot deny it.
    let ndots_2 = "search shop.svc.cluster.local\noptions ndots:2\n";
    for (itself, expected) in [(Unknown, Unknown), (ServFail, ServFail), (NoData, NoData)] {
        let outcomes = [("www.example.com.", itself)];
        assert_eq!(verdict(Libc::Glibc, ndots_2, "www.example.com", &outcomes), expected);
    }
}
