//! The contract is in `docs/dns.md` and `docs/guarantees.md`: every id that the code or a test cites is there, and
//! every id there is in the name of a test, asked by a golden example, or listed as open.

use std::collections::BTreeSet;

use super::{files, read, table, tests};

/// The rules, and the table of those that no test covers.
const RULES: &str = "docs/dns.md";
const RULES_OPEN: &str = "## 10. Rules that no test covers yet";
/// The promises, and the table of those that are not kept in full.
const PROMISES: &str = "docs/guarantees.md";
const PROMISES_OPEN: &str = "## Open";
/// Families of ids that explain decisions; nothing has to cite them.
const EXPLANATIONS: [&str; 2] = ["DF", "Q"];
/// All families of ids. `IPV6` ends in a digit too and is none.
const FAMILIES: [&str; 21] = [
    "A", "RR", "N", "WR", "FW", "CA", "E", "G", "DF", "Q", "W", "R", "F", "C", "T", "L", "K", "O",
    "D", "S", "P",
];

/// `wr42` or `WR42` as `WR42`, if it is an id.
fn id(word: &str) -> Option<String> {
    let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_id = (1..=3).contains(&(word.len() - letters.len()))
        && FAMILIES.contains(&letters.to_uppercase().as_str());
    is_id.then(|| word.to_uppercase())
}

fn family(id: &str) -> &str {
    id.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// The ids that a page gives an anchor.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for anchor in read(page).split("<a id=\"").skip(1) {
        let name = anchor.split('"').next().unwrap();
        let id = id(name).unwrap_or_else(|| panic!("{page}: the anchor {name} is no id"));
        assert!(found.insert(id), "{page} has the anchor {name} twice");
    }
    assert!(!found.is_empty(), "{page} has no ids");
    found
}

/// The ids in the first cells of a table of open ones, each with a reason beside it.
fn open(page: &str, heading: &str) -> BTreeSet<String> {
    let known = anchors(page);
    let mut found = BTreeSet::new();
    for row in table(page, heading) {
        assert!(!row[1].is_empty(), "{page}: why is {} open?", row[0]);
        for name in row[0].split(", ") {
            let id = id(name).unwrap_or_else(|| panic!("{page}: {name} is no id"));
            assert!(known.contains(&id), "{page} lists {id} as open and does not define it");
            assert!(found.insert(id), "{page} lists {name} as open twice");
        }
    }
    found
}

/// The ids in a text. A range such as `FW27-FW29` cites both ends and what is between them.
fn cited_in(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found: Vec<String> = Vec::new();
    let mut before = 0;
    for (at, word) in text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).map(|word| {
        let at = word.as_ptr() as usize - text.as_ptr() as usize;
        (at, word)
    }) {
        // An id in running text is in capitals; a lower-case one is a name of something else.
        let Some(id) = id(word).filter(|id| id == word) else { continue };
        let is_range = at > 0 && text[before..at] == *"-" && !found.is_empty();
        if let Some(first) = found.last().filter(|_| is_range).cloned()
            && family(&first) == family(&id)
        {
            let number = |id: &str| id[family(id).len()..].parse::<u32>().unwrap();
            found.extend((number(&first) + 1..number(&id)).map(|n| format!("{}{n}", family(&id))));
        }
        found.push(id);
        before = at + word.len();
    }
    found
}

/// The ids that the name of a test begins with, as in `f1_f2_wrong_replies_are_counted`.
fn ids_of(test: &str) -> impl Iterator<Item = String> {
    test.split('_').map_while(id)
}

/// Every citation with its file: the names of tests, comments in code, and the questions of scenarios.
fn citations() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for test in tests() {
        found.extend(ids_of(&test).map(|id| (format!("test {test}"), id)));
    }
    for path in files() {
        let is_code = path.ends_with(".rs");
        let is_scenario = path.starts_with("tests/") && path.ends_with(".txt");
        let is_table = path.starts_with("crds/tests/") && path.ends_with(".yaml");
        if !is_code && !is_scenario && !is_table {
            continue;
        }
        for line in read(&path).lines() {
            let text = match is_code {
                true => line.split_once("//").map_or("", |(_, comment)| comment),
                false => line,
            };
            found.extend(cited_in(text).into_iter().map(|id| (path.clone(), id)));
        }
    }
    assert!(found.len() > 899, "only {} citations were found", found.len());
    found
}

/// The ids that a run compares something for: those in the names of tests, and those in the scenarios and tables that tests read.
/// A comment is none: it may stay where its assertion was removed.
fn kept_by_tests() -> BTreeSet<String> {
    let is_run = |path: &str| path.starts_with("test ") || !path.ends_with(".rs");
    citations().into_iter().filter(|(path, _)| is_run(path)).map(|(_, id)| id).collect()
}

/// Comments of a file, each with the number of its first line; lines that follow each other are one comment.
fn comments(path: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (place, line) in read(path).lines().enumerate() {
        match line.trim().strip_prefix("//") {
            Some(more) => match found.last_mut().filter(|_| is_open) {
                Some((_, text)) => *text += more,
                None => found.push((place + 1, more.to_owned())),
            },
            None => {
                found.extend(line.split_once(" // ").map(|(_, more)| (place + 1, more.to_owned())))
            }
        }
        is_open = line.trim().starts_with("//");
    }
    found
}

#[test]
fn a_comment_with_ids_has_words_too() {
    let is_source = |word: &str| {
        id(&word.to_lowercase()).is_some()
            || word.starts_with('§')
            || word.starts_with("docs/")
            || word.parse::<u32>().is_ok()
            || ["and", "to", "note", "RFC"].contains(&word)
    };
    let mut bare = Vec::new();
    for path in files().into_iter().filter(|path| path.ends_with(".rs")) {
        for (line, text) in comments(&path) {
            let words: Vec<&str> = text
                .split_whitespace()
                .map(|word| word.trim_matches(|c: char| ".,;:()/!-".contains(c)))
                .filter(|word| !word.is_empty())
                .collect();
            let cites =
                words.iter().any(|word| is_source(word) && !word.chars().all(char::is_alphabetic));
            if cites && words.iter().all(|word| is_source(word)) {
                bare.push(format!("{path}:{line}: {}", text.trim()));
            }
        }
    }
    assert!(bare.is_empty(), "{bare:#?}");
}

#[test]
fn every_id_that_is_cited_is_in_the_contract() {
    let known = &anchors(RULES) | &anchors(PROMISES);
    let unknown: BTreeSet<(String, String)> =
        citations().into_iter().filter(|(_, id)| !known.contains(id)).collect();
    assert!(unknown.is_empty(), "neither {RULES} nor {PROMISES} defines: {unknown:#?}");
}

#[test]
fn every_rule_has_a_test_or_is_asked_or_open() {
    let kept = kept_by_tests();
    let mut covered = kept.clone();
    // A golden example that is asked covers the rules that its last column names.
    for line in read(RULES).lines().filter(|line| line.starts_with("| <a id=\"g")) {
        let ids = cited_in(line);
        if kept.contains(&ids[0]) {
            let rules = line.trim_end_matches(" |").rsplit('|').next().unwrap();
            covered.extend(cited_in(rules));
        }
    }
    let open = open(RULES, RULES_OPEN);
    let missing: Vec<String> = anchors(RULES)
        .into_iter()
        .filter(|id| !EXPLANATIONS.contains(&family(id)))
        .filter(|id| !covered.contains(id) && !open.contains(id))
        .collect();
    assert!(
        missing.is_empty(),
        "no test is named after these, no golden example asks for them, and they are not open: {missing:?}"
    );
}

/// Who looks up a code that `dig` shows finds it.
#[test]
fn codes_of_extended_errors_are_on_the_page() {
    let text = read(RULES);
    let listed = text.lines().find(|line| line.starts_with("EDE codes: ")).unwrap();
    let numbers: BTreeSet<&str> =
        listed.split("**").skip(1).step_by(2).flat_map(|cell| cell.split(" / ")).collect();
    let source = read("dataplane/core/src/wire/ede.rs");
    let given = source.lines().filter(|line| line.contains("const "));
    let given: Vec<&str> =
        given.filter_map(|line| Some(line.split_once("= ")?.1.trim_end_matches(';'))).collect();
    assert!(given.len() > 8, "{given:?}");
    let missing: Vec<&&str> = given.iter().filter(|number| !numbers.contains(**number)).collect();
    assert!(missing.is_empty(), "{missing:?} of {numbers:?}");
}

#[test]
fn every_promise_has_a_test_or_is_open() {
    let kept: BTreeSet<String> = tests().iter().flat_map(|test| ids_of(test)).collect();
    let open = open(PROMISES, PROMISES_OPEN);
    let missing: Vec<String> = anchors(PROMISES)
        .into_iter()
        .filter(|id| !kept.contains(id) && !open.contains(id))
        .collect();
    assert!(missing.is_empty(), "no test is named after these and they are not open: {missing:?}");
}

#[test]
fn a_range_of_ids_cites_each_of_them() {
    assert_eq!(cited_in("FW27-FW29, N5; IPV6 and a1"), ["FW27", "FW28", "FW29", "N5"]);
}
