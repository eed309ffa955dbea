//! The pages: what they name exists, and what exists is named.

use std::collections::{BTreeMap, BTreeSet};
use std::{env, fs};

use super::{files, quoted, read, root, rust_files, table, tests};

/// The rows of the guarantees: a letter, and how many there are.
const FAMILIES: [(char, u32); 10] = [
    ('W', 12),
    ('R', 19),
    ('F', 22),
    ('C', 10),
    ('T', 10),
    ('L', 11),
    ('K', 21),
    ('O', 15),
    ('D', 7),
    ('S', 13),
];

/// Folders of which every module has a line of its own in the layout.
const TOLD_FILE_BY_FILE: [&str; 4] =
    ["crds/src", "dataplane/src", "dataplane/core/src", "dataplane/udp/src"];

/// The rows that a test's name begins with, as in `f1_f2_wrong_replies_are_counted`.
fn rows_of(test: &str) -> Vec<String> {
    // Rules of the contract (`wr42_t3_...`) may stand among them.
    let is_id = |word: &&str| {
        let letters = word.trim_end_matches(|c: char| c.is_ascii_digit());
        letters.len() < word.len() && (1..=2).contains(&letters.len())
    };
    test.split('_').take_while(is_id).map(str::to_uppercase).collect()
}

fn is_row(word: &str) -> bool {
    let number = word.get(1..).and_then(|number| number.parse().ok()).unwrap_or(0);
    let letter = word.chars().next();
    FAMILIES.iter().any(|(family, last)| letter == Some(*family) && (1..=*last).contains(&number))
}

/// The two tables of the guarantees as they should be: from the names of the tests, and from what the page calls open.
/// A row is built when tests are named after it and nothing of it is open.
fn guarantees(open: &[Vec<String>], tests: &BTreeSet<String>) -> (String, String) {
    let mut kept: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for test in tests {
        for id in rows_of(test).into_iter().filter(|id| is_row(id)) {
            kept.entry(id).or_default().push(test);
        }
    }
    let by = |id: &str| {
        let names = kept.get(id).into_iter().flatten().map(|test| format!("`{test}`"));
        names.collect::<Vec<_>>().join(", ")
    };
    let mut is_open = BTreeSet::new();
    let mut open_rows =
        String::from("| Rows | Kept so far by | What is missing |\n|---|---|---|\n");
    for row in open {
        let (ids, missing) = (row[0].split(", "), &row[2]);
        let (begun, untouched): (Vec<&str>, Vec<&str>) = ids.partition(|id| !by(id).is_empty());
        if !untouched.is_empty() {
            open_rows += &format!("| {} | | {missing} |\n", untouched.join(", "));
        }
        for id in &begun {
            open_rows += &format!("| {id} | {} | {missing} |\n", by(id));
        }
        for id in begun.into_iter().chain(untouched) {
            assert!(is_row(id), "{id} is no row of the guarantees");
            assert!(is_open.insert(id), "{id} is open twice");
        }
    }
    let mut built_rows = String::from("| Row | Kept by |\n|---|---|\n");
    for (family, last) in FAMILIES {
        for id in (1..=last).map(|number| format!("{family}{number}")) {
            if !is_open.contains(id.as_str()) {
                assert!(!by(&id).is_empty(), "{id} has no test and is not among the open rows");
                built_rows += &format!("| {id} | {} |\n", by(&id));
            }
        }
    }
    (built_rows, open_rows)
}

#[test]
fn every_row_of_the_guarantees_is_built_or_open() {
    const PAGE: &str = "ARCHITECTURE.md";
    let mut page = read(PAGE);
    let (built, open) = guarantees(&table(PAGE, "### Open"), &tests());
    for (heading, rows) in [("\n### Built\n", built), ("\n### Open\n", open)] {
        let after = page.find(heading).unwrap() + heading.len();
        let begin = after + page[after..].find("\n|").unwrap() + 1;
        let end = begin + page[begin..].find("\n\n").unwrap() + 1;
        page.replace_range(begin..end, &rows);
    }
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(root().join(PAGE), &page).expect("the page is writable");
    }
    assert!(
        page == read(PAGE),
        "{PAGE} names other tests than there are: UPDATE_EXPECT=1 cargo test -p tests --test it guarantees, and \
         take rows that are complete out of the open ones"
    );
}

#[test]
fn every_invariant_and_every_comparison_names_the_tests_that_keep_it() {
    let (tests, files) = (tests(), files());
    let is_kept = |name: &str| {
        let answers = format!("tests/scenarios/{name}/answers.txt");
        tests.contains(name) || files.contains(&answers)
    };
    for (page, heading) in
        [("ARCHITECTURE.md", "## Invariants"), ("README.md", "## Beside CoreDNS and kube-dns")]
    {
        for row in table(page, heading) {
            let named = quoted(row.last().unwrap());
            assert!(!named.is_empty(), "{page}: what keeps \"{}\"?", row[0]);
            for name in named {
                assert!(is_kept(name), "{page}: neither a test nor a scenario is called `{name}`");
            }
        }
    }
}

#[test]
fn every_limit_is_a_named_constant() {
    for row in table("ARCHITECTURE.md", "## Limits") {
        let named = quoted(&row[2]);
        assert!(!named.is_empty(), "\"{}\" has no name", row[0]);
        for place in named {
            let (path, constant) = place.split_once("::").expect("path::CONSTANT");
            assert!(
                read(path).contains(&format!("const {constant}: ")),
                "{path} has no constant {constant}"
            );
        }
    }
}

#[test]
fn the_layout_is_the_tree() {
    let told: BTreeSet<String> = table("ARCHITECTURE.md", "## Layout")
        .iter()
        .flat_map(|row| quoted(&row[0]).into_iter().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    for path in &told {
        assert!(root().join(path).exists(), "the layout names {path}, which is not there");
    }
    // A module's children are told with it.
    for folder in TOLD_FILE_BY_FILE {
        for path in rust_files(&format!("{folder}/")) {
            let inside = path.strip_prefix(folder).unwrap().trim_start_matches('/');
            let module = inside.split('/').next().unwrap().trim_end_matches(".rs");
            let line = match module {
                "bin" => format!("{folder}/{inside}"),
                module => format!("{folder}/{module}.rs"),
            };
            assert!(told.contains(&line), "the layout does not say what {line} is for");
        }
    }
}

#[test]
fn what_the_readme_links_to_exists() {
    for page in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"] {
        for link in read(page).split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap();
            let is_elsewhere = target.contains("://") || target.is_empty();
            assert!(is_elsewhere || root().join(target).exists(), "{page} links to {target}");
        }
    }
}
