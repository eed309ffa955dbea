//! What the importer keeps and what does something else here, by default or always: no line says "kept" of the second.

use std::collections::BTreeSet;

use super::losses::imported;
use crate::architecture::read;

#[test]
fn expired_answers_that_coredns_does_not_serve_are_named() {
    let of = |body: &str| {
        imported(
            "--corefile",
            &format!(".:53 {{\n kubernetes cluster.local\n forward . 8.8.8.8\n {body}\n}}\n"),
        )
        .1
    };
    let report = of("cache 30");
    assert!(
        report.contains("4 changed: cache 30: ") && report.contains("with serve_stale only"),
        "{report}"
    );
    let with = of("cache 30 {\n serve_stale\n }");
    let line = with.lines().find(|line| line.starts_with("4 ")).unwrap_or_default();
    assert!(!line.contains("serve_stale"), "{with}");
    let without = of("errors");
    assert!(
        without.contains("3 changed: forward . 8.8.8.8: ") && without.contains("with cache only"),
        "{without}"
    );
}

/// Directives and options that do something else here, with the words that say what.
#[test]
fn what_differs_by_default_is_changed_and_the_report_says_how() {
    let corefile = ".:53 {\n kubernetes cluster.local {\n namespaces a\n labels a=b\n }\n forward . 8.8.8.8 {\n max_concurrent 77\n }\n \
                    cache 30 {\n success 5000\n denial 2000 15\n prefetch 10 1m 10%\n serve_stale 2h verify\n }\n prometheus :9153\n \
                    log\n dnstap tcp://10.0.0.9:6000\n hosts {\n 10.0.0.8 x.example\n fallthrough x.example\n }\n}\n";
    let (_, report) = imported("--corefile", corefile);
    for (line, words) in [
        (3, "hidden in reverse too"),
        (4, "CoreDNS wants these labels at EndpointSlices"),
        (7, "SERVFAIL, not REFUSED"),
        (9, "a TTL below 5 s is not raised"),
        (9, "in octets (spec.cache.memory)"),
        (9, "failures are remembered for 1 to 5 s"),
        (10, "for answers and denials together"),
        (11, "for answers and denials together"),
        (12, "these numbers have no setting"),
        (13, "after 1.8 s without a reply"),
        (15, "go_* and a few others have no counterpart"),
        (16, "in another form"),
        (17, "which CoreDNS sends with full only"),
        (20, "outside of the zones"),
    ] {
        let found = report
            .lines()
            .find(|it| it.starts_with(&format!("{line} changed: ")) && it.contains(words));
        assert!(found.is_some(), "{line}: {words}\n{report}");
    }
    let bare = ".:53 {\n forward . 8.8.8.8\n cache\n}\n";
    let (_, report) = imported("--corefile", bare);
    for words in [
        "2 changed: forward . 8.8.8.8: spec.upstreams.servers; at most 2048 questions are in progress",
        "3 changed: cache: what upstreams answer is cached",
        "in CoreDNS 1800 s",
        "with prefetch only",
        "with serve_stale only",
    ] {
        assert!(report.contains(words), "{words}\n{report}");
    }
}

#[test]
fn options_of_dnsmasq_that_do_something_else_here_are_changed() {
    let options = "no-resolv\nserver=10.0.0.1\nserver=10.0.0.2\nno-negcache\nmax-ttl=60\nlog-queries\nstop-dns-rebind\n\
                   dns-forward-max=77\nhost-record=a.example,10.0.0.9\ncname=b.example,a.example\nedns-packet-max=4096\n";
    let (_, report) = imported("--dnsmasq", options);
    for (line, words) in [
        (1, "without cache-size dnsmasq keeps 150 names"),
        (1, "asked for again before they expire"),
        (2, "a random one of these servers"),
        (4, "share one lookup"),
        (5, "upstreams are asked again"),
        (6, "in another form"),
        (7, "answers of stub domains stay"),
        (8, "SERVFAIL"),
        (9, "in dnsmasq 0 s"),
        (10, "in dnsmasq 0 s"),
        (11, "upstreams may send 1232"),
    ] {
        let found = report
            .lines()
            .find(|it| it.starts_with(&format!("{line} changed: ")) && it.contains(words));
        assert!(found.is_some(), "{line}: {words}\n{report}");
    }
    let (_, report) = imported("--dnsmasq", "server=10.0.0.1\ncache-size=500\n");
    assert!(
        report.contains("2 changed: --cache-size=500: spec.cache.entries: 500, of which"),
        "{report}"
    );
    assert!(report.contains("in octets too"), "{report}");
}

/// Options that are one field here, in both orders: the field of `spec.cache`, its value, and what the report says of each.
#[test]
fn options_of_dnsmasq_for_one_field_agree_with_the_report_in_any_order() {
    let (most, denials) = ("maxTTLSeconds", "maxNegativeTTLSeconds");
    for (options, field, value, says) in [
        (["max-ttl=0", "max-ttl=0"], most, None, ["notNeeded", "notNeeded"]),
        (["max-ttl=0", "max-cache-ttl=0"], most, None, ["notNeeded", "notNeeded"]),
        (["max-ttl=0", "max-cache-ttl=60"], most, Some(60), ["notNeeded", "changed"]),
        (["max-ttl=60", "max-cache-ttl=0"], most, Some(60), ["changed", "notNeeded"]),
        (["max-ttl=60", "max-cache-ttl=600"], most, Some(60), ["changed", "notNeeded"]),
        (["max-ttl=600", "max-cache-ttl=60"], most, Some(60), ["notNeeded", "changed"]),
        (["max-ttl=60", "max-cache-ttl=60"], most, Some(60), ["changed", "changed"]),
        (["neg-ttl=0", "neg-ttl=0"], denials, None, ["notNeeded", "notNeeded"]),
        (["no-negcache", "neg-ttl=600"], denials, Some(0), ["changed", "notNeeded"]),
        (["no-negcache", "neg-ttl=0"], denials, Some(0), ["changed", "notNeeded"]),
    ] {
        for order in [[0, 1], [1, 0]] {
            let written = order.map(|at| options[at]);
            let text = format!("server=10.0.0.1\n{}\n{}\n", written[0], written[1]);
            let (spec, report) = imported("--dnsmasq", &text);
            let found = &spec["cache"][field];
            assert_eq!(found.as_u64(), value, "{written:?}: {spec}");
            for (line, at) in [2, 3].into_iter().zip(order) {
                let begin = format!("{line} {}: --{}: ", says[at], options[at]);
                let said = report.lines().find(|it| it.starts_with(&begin));
                let said = said.unwrap_or_else(|| panic!("{begin}\n{report}"));
                let names_it = value.is_some_and(|it| said.contains(&format!("{field}: {it}")));
                assert_eq!(names_it, says[at] == "changed", "{said}");
            }
        }
    }
}

/// The longest times of dnsmasq are for denials too, for which there is a field of its own here.
#[test]
fn the_longest_times_of_dnsmasq_are_for_denials_too() {
    for (options, answers, denials) in [
        (&["max-cache-ttl=10"][..], 10, 10),
        (&["max-ttl=10"], 10, 10),
        (&["max-ttl=600"], 600, 30),
        (&["max-cache-ttl=10", "neg-ttl=5"], 10, 5),
        (&["max-cache-ttl=10", "neg-ttl=600"], 10, 10),
        (&["max-cache-ttl=60", "neg-ttl=600"], 60, 60),
        (&["max-cache-ttl=10", "no-negcache"], 10, 0),
    ] {
        for order in [options.to_vec(), options.iter().rev().copied().collect()] {
            let (spec, report) =
                imported("--dnsmasq", &format!("server=10.0.0.1\n{}\n", order.join("\n")));
            let cache = &spec["cache"];
            let found = (cache["maxTTLSeconds"].as_u64(), cache["maxNegativeTTLSeconds"].as_u64());
            // What is the default is not written.
            let written = (denials != 30).then_some(denials);
            assert_eq!(found, (Some(answers), written), "{order:?}: {report}");
        }
    }
}

/// Of several the last one counts, and no line says that another one does.
#[test]
fn of_an_option_of_dnsmasq_that_is_there_twice_the_last_counts() {
    for (option, field) in [
        ("cache-size", "/cache/entries"),
        ("max-ttl", "/cache/maxTTLSeconds"),
        ("max-cache-ttl", "/cache/maxTTLSeconds"),
        ("neg-ttl", "/cache/maxNegativeTTLSeconds"),
        ("use-stale-cache", "/cache/staleSeconds"),
        ("edns-packet-max", "/limits/udpPayloadBytes"),
        ("dns-forward-max", "/upstreams/limits/inFlight"),
    ] {
        for (first, last) in [(700, 800), (800, 700)] {
            let text = format!("server=10.0.0.1\n{option}={first}\n{option}={last}\n");
            let (spec, report) = imported("--dnsmasq", &text);
            assert_eq!(spec.pointer(field).and_then(|it| it.as_u64()), Some(last), "{spec}");
            let line = format!(
                "2 notNeeded: --{option}={first}: another {option}, of {last}, takes its place"
            );
            assert!(report.contains(&line), "{option}: {report}");
            assert!(report.contains(&format!("3 changed: --{option}={last}: ")), "{report}");
        }
    }
}

/// A newcomer decides by that page. Each directive of the table of the importer is tried: those that it has a word for.
#[test]
fn every_directive_that_is_not_possible_is_on_the_page_of_comparison() {
    let table = read("operator/src/import/corefile/others.rs");
    let is_word =
        |it: &&str| it.len() > 1 && it.bytes().all(|o| o.is_ascii_alphanumeric() || o == b'_');
    let words: BTreeSet<&str> =
        table.split('"').skip(1).step_by(2).filter(is_word).filter(|it| *it != "view").collect();
    let lines = words.iter().map(|word| match *word {
        "autopath" => " autopath @kubernetes\n".to_owned(),
        "root" => " root /\n".to_owned(),
        "tls" => " tls tls.crt tls.key\n".to_owned(),
        word => format!(" {word}\n"),
    });
    let corefile = ".:53 {\n kubernetes cluster.local\n forward . 8.8.8.8\n".to_owned();
    let corefile = lines.fold(corefile, |text, line| text + &line) + "}\n";
    let (_, report) = imported("--corefile", &corefile);
    let page = read("docs/comparison.md");
    let (_, page) = page.split_once("\n## What it does not do\n").expect("a section");
    // It takes its whole server block with it.
    assert!(page.contains("`view`"), "view is not on the page");
    let mut count = 0;
    for line in report.lines().filter(|line| !line.contains("does not know this directive")) {
        let Some((_, rest)) = line.split_once(" notPossible: ") else { continue };
        let name = rest.split([':', ' ']).next().unwrap_or_default();
        assert!(page.contains(&format!("`{name}`")), "{name} is not on the page");
        count += 1;
    }
    assert!(count > 30, "{count} directives: {report}");
}
