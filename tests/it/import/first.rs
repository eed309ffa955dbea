//! What CoreDNS never reads, because a rule or line before it has the name, and what says nothing new: none of it makes a record
//! that answers.

use super::losses::imported;

fn names(spec: &serde_json::Value, list: &str) -> Vec<String> {
    let all = spec[list].as_array().into_iter().flatten();
    all.filter_map(|it| it["name"].as_str().map(str::to_owned)).collect()
}

#[test]
fn rr82_hosts_that_a_rewrite_hides_are_not_made() {
    let corefile = |option: &str| {
        format!(
            ".:53 {{\n kubernetes cluster.local\n rewrite name regex (.*)\\.internal\\.example\\.com internal.example.com\n hosts {{\n \
             10.0.0.1 a.internal.example.com\n 10.0.0.2 internal.example.com\n {option}\n fallthrough\n }}\n forward . 10.0.0.9\n}}\n"
        )
    };
    let (spec, report) = imported("--corefile", &corefile("no_reverse"));
    assert_eq!(names(&spec, "hosts"), ["internal.example.com"], "{report}");
    assert_eq!(names(&spec, "records"), ["*.internal.example.com"], "{report}");
    let line = "5 notNeeded: 10.0.0.1 a.internal.example.com: a.internal.example.com: the rule rewrite name regex ";
    assert!(report.contains(line), "{report}");
    let (_, report) = imported("--corefile", &corefile("reload 5s"));
    let line = "5 notPossible: 10.0.0.1 a.internal.example.com: ";
    assert!(report.contains(line) && report.contains("except for its reverse name"), "{report}");
    // A rule leaves the name that it makes of all others as it is.
    let same = ".:53 {\n kubernetes cluster.local\n rewrite name regex (.*)\\.b\\.example to.b.example\n hosts {\n 10.0.0.1 to.b.example \
                x.b.example\n no_reverse\n fallthrough\n }\n forward . 10.0.0.9\n}\n";
    assert_eq!(names(&imported("--corefile", same).0, "hosts"), ["to.b.example"]);
    // A rule of another server block has no name of this one.
    let apart = ".:53 {\n hosts {\n 10.0.0.1 a.b.example\n fallthrough\n }\n forward . 10.0.0.9\n}\n\
                 c.example:53 {\n rewrite name regex (.*)\\.b\\.example b.example\n forward . 10.0.0.9\n}\n";
    assert_eq!(names(&imported("--corefile", apart).0, "hosts"), ["a.b.example"]);
}

#[test]
fn rr82_a_rule_behind_a_wildcard_rule_that_has_its_name_is_not_made() {
    let rules = |first: &str, second: &str| {
        let corefile = format!(
            ".:53 {{\n kubernetes cluster.local\n rewrite {first}\n rewrite {second}\n forward . 10.0.0.9\n}}\n"
        );
        let (spec, report) = imported("--corefile", &corefile);
        (names(&spec, "records"), report)
    };
    let wildcard = "name regex (.*)\\.b\\.example b.example";
    let exact = "name exact a.b.example c.example";
    let below = "name suffix .x.b.example .c.example";
    for (second, what) in [(exact, "a.b.example"), (below, "*.x.b.example")] {
        let (made, report) = rules(wildcard, second);
        assert_eq!(made, ["*.b.example"], "{report}");
        let line = format!(
            "4 notNeeded: rewrite {second}: CoreDNS takes the first rule that has a name, which is rewrite {wildcard} for {what}"
        );
        assert!(report.contains(&line), "{report}");
    }
    let (made, report) = rules(exact, wildcard);
    assert_eq!(made, ["a.b.example", "*.b.example"], "{report}");
}

#[test]
fn rr82_a_template_behind_a_rewrite_that_has_its_names_is_not_made() {
    let corefile = ".:53 {\n kubernetes cluster.local\n template IN A {\n match ^a\\.b\\.example\\.$\n answer \"{{ .Name }} 60 IN A \
                    10.0.0.1\"\n }\n rewrite name regex (.*)\\.b\\.example b.example\n forward . 10.0.0.9\n}\n";
    let (spec, report) = imported("--corefile", corefile);
    assert!(names(&spec, "hosts").is_empty(), "{report}");
    assert!(
        report.contains("5 notNeeded: template: answer ") && report.contains("has it first"),
        "{report}"
    );
}

#[test]
fn a_star_in_a_name_of_a_rewrite_makes_no_wildcard() {
    for rule in [
        "name *.a.example b.example",
        "name exact *.a.example b.example",
        "name suffix *.a.example .b.example",
    ] {
        let corefile = format!(
            ".:53 {{\n kubernetes cluster.local\n rewrite {rule}\n forward . 10.0.0.9\n}}\n"
        );
        let (spec, report) = imported("--corefile", &corefile);
        assert!(spec["records"].is_null(), "{spec}");
        let line =
            format!("3 notNeeded: rewrite {rule}: CoreDNS compares the star as it is written");
        assert!(report.contains(&line), "{report}");
    }
}

#[test]
fn answers_of_a_template_are_read_in_any_case_and_with_their_type() {
    for (asked, answer) in [
        ("IN A", "{{ .Name }} 60 in {{ .Type }} 10.0.0.1"),
        ("IN A", "{{ .Name }} 60 {{ .Class }} a 10.0.0.1"),
        ("ANY A", "{{ .Name }} in 60 A 10.0.0.1"),
    ] {
        let corefile = format!(
            ".:53 {{\n kubernetes cluster.local\n template {asked} {{\n match ^api\\.a\\.example\\.$\n answer \"{answer}\"\n }}\n}}\n"
        );
        let (spec, report) = imported("--corefile", &corefile);
        assert_eq!(spec["hosts"][0]["addresses"][0], "10.0.0.1", "{answer}: {report}");
        assert_eq!(spec["hosts"][0]["ttlSeconds"], 60, "{answer}: {report}");
    }
    let noerror = ".:53 {\n kubernetes cluster.local\n template IN A {\n match ^api\\.a\\.example\\.$\n answer \"{{ .Name }} 60 IN A \
                   10.0.0.1\"\n rcode noerror\n }\n}\n";
    let (_, report) = imported("--corefile", noerror);
    assert!(report.contains(" notNeeded: template: rcode noerror: "), "{report}");
    let any = ".:53 {\n kubernetes cluster.local\n template IN ANY {\n match ^api\\.a\\.example\\.$\n answer \"{{ .Name }} 60 IN \
               {{ .Type }} 10.0.0.1\"\n }\n}\n";
    assert!(imported("--corefile", any).0["hosts"].is_null());
}

#[test]
fn rr81_a_template_that_empties_other_types_of_names_with_records_is_not_needed() {
    let corefile = |asked: &str, rcode: &str, hosts: &str| {
        format!(
            ".:53 {{\n kubernetes cluster.local\n template IN {asked} a.example {{\n rcode {rcode}\n }}\n template IN A a.example {{\n \
             answer \"{{{{ .Name }}}} 60 IN A 10.0.0.1\"\n }}\n hosts {{\n {hosts}\n fallthrough\n }}\n forward . 10.0.0.9\n}}\n"
        )
    };
    let line = |asked, rcode, hosts| {
        let (_, report) = imported("--corefile", &corefile(asked, rcode, hosts));
        report.lines().find(|it| it.starts_with("3 ")).unwrap_or_default().to_owned()
    };
    let begins =
        |found: &str, outcome: &str| found.starts_with(&format!("3 {outcome}: template IN "));
    let none = "10.0.0.7 other.example";
    assert!(begins(&line("AAAA", "NOERROR", none), "notNeeded"));
    assert!(begins(&line("HTTPS", "NOERROR", none), "notNeeded"));
    assert!(begins(&line("AAAA", "NXDOMAIN", none), "changed"));
    // CoreDNS reads both cases, and takes the last of several.
    assert!(begins(&line("AAAA", "noerror", none), "notNeeded"));
    assert!(begins(&line("AAAA", "nxdomain", none), "changed"));
    assert!(begins(&line("AAAA", "NOERROR\n rcode NXDOMAIN", none), "changed"));
    // The line hosts has data of that type, or CoreDNS fails.
    assert!(!begins(&line("AAAA", "NOERROR", "fd00::1 a.example"), "notNeeded"));
    assert!(!begins(&line("AAAA", "SERVFAIL", none), "notNeeded"));
    // Names without records are for the upstreams.
    let alone = corefile("AAAA", "NOERROR", none)
        .replace("A a.example {\n answer", "A b.example {\n answer");
    let (_, report) = imported("--corefile", &alone);
    assert!(!report.contains("3 notNeeded"), "{report}");
}

#[test]
fn an_address_with_a_zone_is_a_host_as_coredns_cuts_the_zone_off() {
    let corefile = ".:53 {\n kubernetes cluster.local\n hosts {\n fd00::7%1 d.example.com\n fallthrough\n }\n forward . 10.0.0.9\n}\n";
    let (spec, report) = imported("--corefile", corefile);
    assert_eq!(names(&spec, "hosts"), ["d.example.com"], "{report}");
    assert_eq!(spec["hosts"][0]["addresses"][0], "fd00::7", "{report}");
    assert!(report.contains("4 kept: fd00::7%1 d.example.com: "), "{report}");
}
