//! What the sources of each package must not say, line by line.

use std::env;

use super::{files, quoted, read, rust_files, table, tests};

/// More lines than this need a reason in docs/layout.md.
const LONG: usize = 400;

/// The longest name of a test that fits into one line of a report.
const LONGEST_TEST_NAME: usize = 80;

/// What the core's `lib.rs` says, so that the compiler and clippy keep these out: sockets, files, clocks, threads and
/// locks, unsafe code, and panics.
const WALLS_OF_THE_CORE: [&str; 6] = [
    "#![forbid(unsafe_code)]",
    "cfg_attr(not(test), no_std)",
    "clippy::unwrap_used",
    "clippy::expect_used",
    "clippy::panic,",
    "clippy::unreachable",
];

/// Files besides `source/` that may read a file, and why.
const MAY_READ_FILES: [&str; 3] = [
    // The state folder (E40).
    "dataplane/src/snapshot",
    // The name servers of resolv.conf (FW3).
    "dataplane/src/forward/resolv_conf.rs",
    // The host name, where no environment variable has the pod's.
    "dataplane/src/identity.rs",
];

/// Files that may write to the API server, and the calls that they use; all go through `runtime/write.rs`, which checks
/// the lease.
const MAY_WRITE: [&str; 10] = [
    // A POST to data planes, which begins their count; to the API server it writes nothing.
    "operator/src/plugin/top.rs",
    // Sets a lost pod not ready.
    "operator/src/lost_pods/take_out.rs",
    "operator/src/apply.rs",
    "operator/src/apply/send.rs",
    "operator/src/apply/service.rs",
    "operator/src/runtime/lease.rs",
    // Asks which user we are; this request has the form of a write.
    "operator/src/runtime/lease/owner.rs",
    "operator/src/report.rs",
    "operator/src/report/events.rs",
    // Repeats a patch of these that was refused for the managed fields of its object, within its time limit.
    "operator/src/runtime/mend.rs",
];

/// Files besides `desired/` that may build an object, and why.
const MAY_BUILD: [&str; 4] = [
    // The lease is the operator's own.
    "operator/src/runtime/lease.rs",
    // The few fields that are kept of what was read; it is never written.
    "operator/src/observe/pods_to_ask.rs",
    // What `render` assumes of a cluster that it does not read.
    "operator/src/offline/assumed.rs",
    // Tests only.
    "operator/src/fixtures.rs",
];

/// Words of comments, messages and pages that readers of English as a second language read twice, and what says the same.
const HARD_WORDS: [(&str, &str); 45] = [
    ("told", "reported, known"),
    ("nobody", "no client, no one"),
    ("whoever", "who"),
    ("anew", "again"),
    ("thereof", "of it"),
    ("lest", "so that not"),
    ("goes on", "continues"),
    ("held up", "delayed"),
    ("what lacks", "what is missing"),
    ("is to be", "must be"),
    ("are to be", "must be"),
    ("so many", "this many, or the number"),
    ("so long", "this long, or the time"),
    ("somebody", "a user, a client, another controller"),
    ("no part of", "not in"),
    ("as ever", "still, as usual"),
    ("what it was", "its last state"),
    ("be it", "also if"),
    ("whatever", "any, or also if"),
    ("hangs on", "depends on"),
    ("hence", "so"),
    ("thus", "so"),
    ("whence", "from where"),
    ("for want of", "for lack of"),
    ("in the place of", "instead of"),
    ("for ever", "forever, or without end"),
    ("only then", "after that"),
    ("all the same", "still, in any case, or also"),
    ("by then", "at that time, or within this time"),
    ("goes with", "is deleted with, or belongs to"),
    ("stands for", "means, matches or replaces"),
    ("stand for", "mean, match or replace"),
    ("in the making", "while it is written"),
    ("answer no longer", "no longer answer"),
    ("answers no longer", "no longer answers"),
    ("as it stands", "as a whole, or as it is"),
    ("in vain", "without a result"),
    ("of no use", "unusable"),
    ("but for", "except, or except for"),
    ("that is none", "that is not one, or that is invalid"),
    ("which is none", "which is not one"),
    ("which are none", "which are not such"),
    ("is none of", "is not in, or is not one of"),
    ("are none of", "are not in, or are not"),
    ("who has none", "a client without one"),
];

/// The code of a line: what is before a comment.
fn code(line: &str) -> &str {
    let comment =
        line.match_indices("//").find(|(at, _)| line[..*at].matches('"').count().is_multiple_of(2));
    comment.map_or(line, |(at, _)| &line[..at])
}

/// The lines of a file that are part of the program: no comments, and not the tests at its end.
pub(super) fn program(path: &str) -> Vec<(usize, String)> {
    let text = read(path);
    let lines: Vec<&str> = text.lines().collect();
    let is_end = |at: usize| {
        let next = lines.get(at + 1).unwrap_or(&"");
        lines[at] == "#[cfg(test)]" && next.starts_with("mod ") && next.ends_with('{')
    };
    let end = (0..lines.len()).find(|at| is_end(*at)).unwrap_or(lines.len());
    (0..end).map(|at| (at + 1, code(lines[at]).to_owned())).collect()
}

/// Fails for every line of these files that says one of these words.
pub(super) fn nowhere(paths: impl IntoIterator<Item = String>, words: &[&str], why: &str) {
    let mut found = Vec::new();
    let is_test = |path: &String| {
        path.contains("/tests/") || ["tests.rs", "testing.rs"].iter().any(|end| path.ends_with(end))
    };
    for path in paths.into_iter().filter(|path| !is_test(path)) {
        for (number, line) in program(&path) {
            if words.iter().any(|word| line.contains(word)) {
                found.push(format!("{path}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{why}:\n{}", found.join("\n"));
}

#[test]
fn the_compiler_keeps_io_clocks_locks_and_panics_out_of_the_core() {
    let lib = read("dataplane/core/src/lib.rs");
    for wall in WALLS_OF_THE_CORE {
        assert!(lib.contains(wall), "dataplane/core/src/lib.rs does not say {wall}");
    }
    // Steps are counted for each thread, in tests only.
    let modules =
        rust_files("dataplane/core/src/").into_iter().filter(|path| !path.ends_with("/steps.rs"));
    let exceptions = ["extern crate std", "allow(clippy::unwrap", "allow(clippy::expect_used"];
    nowhere(modules, &exceptions, "no exception from the walls of the core");
}

#[test]
fn only_source_names_kube_in_the_data_plane() {
    let others = rust_files("dataplane/src/").into_iter().filter(|path| !is_source(path));
    nowhere(others, &["kube::", "use kube", "k8s_openapi"], "only source/ names kube");
}

#[test]
fn only_source_and_three_more_name_files_in_the_data_plane() {
    let others = rust_files("dataplane/src/")
        .into_iter()
        .filter(|path| !is_source(path) && !MAY_READ_FILES.iter().any(|may| path.starts_with(may)));
    let words = ["std::fs", "tokio::fs", "fs::", "File::", "bounded_file"];
    nowhere(others, &words, "only source/ names files");
    for may in MAY_READ_FILES {
        let needs_it = rust_files(may).iter().any(|path| {
            let text = read(path);
            text.contains("fs::") || text.contains("bounded_file")
        });
        assert!(needs_it, "{may} names no file: it needs no exception");
    }
}

#[test]
fn no_file_is_read_without_a_bound_on_its_size() {
    let programs = ["crds/src/", "crds/process/src/", "dataplane/src/", "operator/src/"];
    let files = programs.iter().flat_map(|folder| rust_files(folder)).collect::<Vec<_>>();
    let is_test = |path: &String| path.contains("/tests/") || path.contains("/tests.rs");
    let files = files.into_iter().filter(|path| !is_test(path));
    let words = ["fs::read(", "fs::read_to_string("];
    nowhere(files, &words, "process::bounded_file reads a file up to a named limit");
}

#[test]
fn c9_ca6_nothing_that_is_forwarded_ages_by_the_wall_clock() {
    // A chain may lead to a name of ours, whose SOA has the time of day in its serial.
    let forwarding = rust_files("dataplane/src/forward/")
        .into_iter()
        .filter(|path| path != "dataplane/src/forward/chain.rs")
        .chain(["dataplane/src/forward.rs".to_owned()]);
    nowhere(forwarding, &["SystemTime", "UNIX_EPOCH"], "a monotonic clock ages replies");
}

fn is_source(path: &str) -> bool {
    path.starts_with("dataplane/src/source/") || path == "dataplane/src/source.rs"
}

#[test]
fn only_apply_the_lease_the_status_events_and_lost_pods_write_to_the_api_server() {
    let words =
        ["PatchParams", "PostParams", "DeleteParams", "Recorder", "Method::P", "Request::p"];
    let others =
        rust_files("operator/src/").into_iter().filter(|path| !MAY_WRITE.contains(&path.as_str()));
    nowhere(others, &words, "this does not write to the API server");
    for may in MAY_WRITE {
        let text = read(may);
        assert!(words.iter().any(|word| text.contains(word)), "{may} writes nothing");
    }
}

#[test]
fn no_object_is_built_outside_desired() {
    let is_desired = |path: &String| path.starts_with("operator/src/desired");
    let others = rust_files("operator/src/")
        .into_iter()
        .filter(|path| !is_desired(path) && !MAY_BUILD.contains(&path.as_str()));
    let parts = [
        "PodSpec {",
        "DeploymentSpec {",
        "ServiceSpec {",
        "PolicyRule {",
        "Container {",
        "ObjectMeta {",
    ];
    nowhere(others, &parts, "built in desired/");
}

#[test]
fn deciding_reads_no_clock_and_asks_no_server() {
    let deciding = ["decide", "desired", "report/status", "report/changes"];
    let pure = rust_files("operator/src/").into_iter().filter(|path| {
        let path = path.trim_start_matches("operator/src/");
        deciding
            .iter()
            .any(|name| path == format!("{name}.rs") || path.starts_with(&format!("{name}/")))
    });
    let clocks = ["Instant::now", "Timestamp::now", "SystemTime"];
    // As a type: a field of the spec ends with the word, too.
    let clients = ["Client,", "Client;", "Client}", "Client)", "Client>", "Client::", "Client {"];
    let words = [&clocks[..], &clients, &[".await", "std::fs", "Api<"]].concat();
    nowhere(pure, &words, "a decision is given what it needs");
}

#[test]
fn p6_only_the_sockets_have_unsafe() {
    for path in rust_files("").iter().filter(|path| !path.starts_with("dataplane/udp/")) {
        for (number, line) in program(path) {
            if line.trim() == "#![forbid(unsafe_code)]" {
                continue;
            }
            // Not what is between quotes.
            let mut words = line.split('"').step_by(2).flat_map(|code| {
                code.split(|character: char| !(character.is_alphanumeric() || character == '_'))
            });
            let word = words.find(|word| ["unsafe", "unsafe_code"].contains(word));
            assert!(word.is_none(), "{path}:{number}: {}", line.trim());
        }
    }
    let linux = read("dataplane/udp/src/linux.rs");
    assert!(linux.contains("unsafe {"), "none at all: this test looks in the wrong place");
}

#[test]
fn every_file_opens_with_why_it_exists() {
    for path in rust_files("") {
        let text = read(&path);
        let first = text.lines().find(|line| !line.is_empty() && !line.starts_with("#!["));
        assert!(first.is_some_and(|line| line.starts_with("//! ")), "{path}: {first:?}");
    }
}

#[test]
fn nothing_is_left_to_do_in_the_code() {
    let words = [concat!("to", "do!("), concat!("unimplement", "ed!("), concat!("TO", "DO")];
    nowhere(rust_files(""), &words, "write it, or an issue");
}

#[test]
fn long_files_are_few_and_each_has_a_reason() {
    let rows = table("docs/layout.md", "## Long files");
    let explained: Vec<&str> = rows.iter().flat_map(|row| quoted(&row[0])).collect();
    for path in rust_files("") {
        let lines = read(&path).lines().count();
        let is_explained = explained.contains(&path.as_str());
        assert!(
            lines <= LONG || is_explained,
            "{path} has {lines} lines: split it, or say why not"
        );
    }
    for path in explained {
        read(path);
    }
}

#[test]
fn no_file_names_a_folder_of_somebodys_machine() {
    let mut folders: Vec<String> = ["/home/", "/Users/"].map(str::to_owned).to_vec();
    // Short ones, such as `/` or `/src`, are words of other meanings too.
    let own = [super::root().to_str().map(str::to_owned), env::var("HOME").ok()];
    folders.extend(own.into_iter().flatten().filter(|path| path.len() > 6));
    let is_text = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        [".rs", ".toml", ".md", ".yaml", ".txt", ".mk", ".sh"].iter().any(|end| name.ends_with(end))
            || ["Makefile", "Dockerfile", "build", "run"].contains(&name)
    };
    let this = "tests/it/architecture/sources.rs";
    for path in files().into_iter().filter(is_text).filter(|path| path != this) {
        // One of our own folders has such a name.
        let text = read(&path).replace("src/http_port/home/", "");
        for folder in &folders {
            assert!(!text.contains(folder.as_str()), "{path} names {folder}");
        }
    }
}

#[test]
fn names_of_tests_have_at_most_80_letters() {
    let long: Vec<String> =
        tests().into_iter().filter(|name| name.len() > LONGEST_TEST_NAME).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn names_of_tests_are_in_plain_words() {
    let hard_word = |name: &String| {
        let words = format!(" {} ", name.replace('_', " "));
        let hard = HARD_WORDS.iter().find(|(word, _)| words.contains(&format!(" {word} ")));
        hard.map(|(word, plain)| (*word, *plain))
    };
    let hard: Vec<_> =
        tests().into_iter().filter_map(|name| hard_word(&name).map(|word| (name, word))).collect();
    assert!(hard.is_empty(), "{hard:#?}");
}

#[test]
fn comments_and_pages_are_in_plain_words() {
    let is_text = |path: &String| {
        !path.starts_with("tests/golden/")
            && [".rs", ".md", ".yaml", ".txt", ".tpl"].iter().any(|end| path.ends_with(end))
            && path != "tests/it/architecture/sources.rs"
    };
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let mut found = Vec::new();
    for path in files().into_iter().filter(is_text) {
        for (number, line) in read(&path).lines().enumerate() {
            let line = line.to_lowercase();
            for (word, plain) in HARD_WORDS {
                let stands_alone = |at: usize| {
                    !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
                };
                if line.match_indices(word).any(|(at, _)| stands_alone(at)) {
                    found.push(format!("{path}:{}: \"{word}\": write {plain}", number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
