//! What came of each test, as the table of docs/conformance.md.

use std::path::Path;

use super::suite::{Outcome, Outcomes};

const PAGE: &str = "../docs/conformance.md";
const HEAD: &str = "| Test | ClusterDNS | CoreDNS |\n|---|---|---|\n";
/// What a test says that asks for what only a cloud has.
const OF_A_CLOUD: &str = "Only supported for providers";

/// The outcomes of ClusterDNS, and the table of both.
pub(super) struct Page<'o> {
    ours: &'o Outcomes,
    table: String,
}

impl Page<'_> {
    pub(super) fn of<'o>(ours: &'o Outcomes, coredns: &Outcomes) -> Page<'o> {
        let mut names: Vec<&String> = ours.keys().chain(coredns.keys()).collect();
        names.sort();
        names.dedup();
        let row = |name: &String| {
            format!("| {name} | {} | {} |\n", cell(ours.get(name)), cell(coredns.get(name)))
        };
        let rows: String = names.into_iter().map(row).collect();
        Page { ours, table: format!("{HEAD}{rows}") }
    }

    pub(super) fn table(&self) -> &str {
        &self.table
    }

    /// # Panics
    /// One failed, or did not run for another reason than that it is bound to a cloud.
    pub(super) fn all_of_ours_passed(&self) {
        for (name, outcome) in self.ours {
            match outcome {
                Outcome::Passed => {}
                Outcome::Skipped(why) => {
                    assert!(why.contains(OF_A_CLOUD), "{name} did not run: {why}");
                }
                Outcome::Failed(why) => panic!("{name} failed: {why}"),
            }
        }
    }

    /// The page has this table. `UPDATE_EXPECT=1` writes it there.
    ///
    /// # Panics
    /// It has another one.
    pub(super) fn is_published(&self) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
        let page = std::fs::read_to_string(&path).expect("the page");
        let (before, rest) = page.split_once(HEAD).expect("its table");
        let after = rest.find("\n\n").map_or("", |end| &rest[end + 1..]);
        let wanted = format!("{before}{}{after}", self.table);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, wanted).expect("the page can be written");
            return;
        }
        assert!(page == wanted, "docs/conformance.md has another table; UPDATE_EXPECT=1 writes it");
    }
}

fn cell(outcome: Option<&Outcome>) -> String {
    match outcome {
        None => "-".to_owned(),
        Some(Outcome::Passed) => "passed".to_owned(),
        Some(Outcome::Failed(_)) => "failed".to_owned(),
        Some(Outcome::Skipped(why)) => format!("not run: {}", one_line(why)),
    }
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().replace('|', "\\|")
}
