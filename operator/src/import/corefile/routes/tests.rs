//! Which forward has a name, and which rule changes one.

use super::*;

/// `forward WORDS`, with one option.
fn forward(words: &str, option: &str) -> Directive {
    let of = |text: &str, body: Vec<Directive>| {
        let mut words = text.split(' ').map(str::to_owned);
        Directive {
            place: Default::default(),
            name: words.next().unwrap(),
            args: words.collect(),
            has_braces: !body.is_empty(),
            has_brace_behind: false,
            body,
        }
    };
    let body = Some(option).filter(|option| !option.is_empty());
    of(&format!("forward {words}"), body.map(|option| of(option, Vec::new())).into_iter().collect())
}

#[test]
fn o1_the_first_forward_that_has_a_name_decides() {
    let lines = [
        forward("lab.example 10.0.0.1", ""),
        forward(". 10.0.0.2", "except out.example in.half.example"),
        forward("dead.example 10.0.0.3", ""),
        forward("out.example 10.0.0.4", ""),
        forward("half.example 10.0.0.5", ""),
        forward("a.lab.example 10.0.0.6", ""),
    ];
    for (name, server) in [
        ("a.lab.example", "10.0.0.1"),
        ("www.example", "10.0.0.2"),
        ("a.dead.example", "10.0.0.2"),
        ("out.example", "10.0.0.4"),
        ("half.example", "10.0.0.2"),
        ("in.half.example", "10.0.0.5"),
    ] {
        assert_eq!(forward_of(&lines, name).unwrap().args[1], server, "{name}");
    }
    for (at, domain, left) in [
        (0, "lab.example", &["lab.example"][..]),
        (1, "", &[""]),
        (2, "dead.example", &[]),
        (3, "out.example", &["out.example"]),
        (4, "half.example", &["in.half.example"]),
        (5, "a.lab.example", &[]),
    ] {
        let (found, above) = left_of(domain, &lines[at], &lines, |_| true);
        assert_eq!(found, left, "{domain}");
        assert_eq!(above.is_some(), left != [domain], "{domain}");
    }
    let older: Vec<Directive> =
        lines.iter().cloned().map(|it| Directive { name: "proxy".to_owned(), ..it }).collect();
    assert_eq!(left_of("dead.example", &older[2], &older, |_| true).0, ["dead.example"]);
}

#[test]
fn o1_lines_that_except_names_of_each_other_cost_what_is_spent() {
    let many = |zone: &str| vec![zone; 1000].join(" ");
    let lines = [
        forward(". 10.0.0.1", &format!("except {}", many("a"))),
        forward(". 10.0.0.2", &format!("except {}", many("b.a"))),
        forward(". 10.0.0.3", &format!("except {}", many("c.b.a"))),
        forward(". 10.0.0.4", ""),
    ];
    let left = |most: usize| {
        let mut spent = 0;
        let spend = |tries| {
            spent += tries;
            spent < most
        };
        (left_of("", &lines[3], &lines, spend).0, spent)
    };
    let (found, spent) = left(1_000_000);
    assert_eq!(found, ["c.b.a"], "each is left once");
    assert!(spent < 10_000, "{spent}");
    assert!(left(1_000).1 < 3_000, "it ends");
}

#[test]
fn o1_a_rule_changes_its_owner_or_the_names_below_it() {
    let (line, mut led) = (forward(".", ""), Led::default());
    let name = Some("x.example");
    for (owner, to) in [("a.example", name), ("*.b.example", name), ("c.example", None)] {
        led.add(owner, to, &line, &[]);
    }
    let count = |name: &str, is_suffix: bool| led.of(name, is_suffix).len();
    for (name, of_name, of_suffix) in [
        ("a.example", 1, 0),
        ("x.a.example", 0, 0),
        ("b.example", 0, 1),
        ("x.b.example", 1, 1),
        ("x.y.c.example", 1, 1),
        ("example", 0, 3),
        ("d.example", 0, 0),
    ] {
        assert_eq!((count(name, false), count(name, true)), (of_name, of_suffix), "{name}");
    }
}

#[test]
fn o1_a_name_comes_to_the_server_block_with_the_longest_zone() {
    let zones = [vec![String::new()], vec!["corp.example".to_owned()], vec![String::new()]];
    let lines =
        [[forward(". 10.0.0.1", "")], [forward(". 10.0.0.2", "")], [forward(". 10.0.0.3", "")]];
    let blocks: Vec<Served<'_>> =
        zones.iter().zip(&lines).map(|(zones, directives)| Served { zones, directives }).collect();
    let server = |name: &str| block_of(&blocks, name).unwrap().directives[0].args[1].clone();
    assert_eq!(server("a.corp.example"), "10.0.0.2");
    assert_eq!(server("example"), "10.0.0.1", "the first of two");
    assert!(block_of(&blocks[1..2], "example").is_none());
}

#[test]
fn o1_the_first_rule_that_has_all_names_of_an_owner_decides() {
    let lines: Vec<Directive> = (0..4).map(|_| forward(". 10.0.0.1", "")).collect();
    let beside = [forward(". 10.0.0.2", "")];
    let mut led = Led::default();
    led.add("*.b.example", Some("same.b.example"), &lines[0], &lines);
    led.add("a.b.example", Some("x.example"), &lines[1], &lines);
    led.add("c.example", None, &lines[2], &lines);
    led.add("c.example", Some("x.example"), &lines[3], &lines);
    for (owner, line) in [
        ("a.b.example", Some(0)),
        ("*.x.b.example", Some(0)),
        ("b.example", None),
        ("same.b.example", None),
        ("*.example", None),
        ("x.c.example", Some(2)),
        ("*.c.example", Some(2)),
        ("c.example", Some(3)),
    ] {
        let found = led.first_of(owner, &lines).map(|it| it.line);
        let expected = line.map(|at: usize| &lines[at]);
        assert!(found.map(std::ptr::from_ref) == expected.map(std::ptr::from_ref), "{owner}");
        assert!(led.first_of(owner, &beside).is_none(), "of another server block: {owner}");
    }
}
