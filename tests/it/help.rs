//! `--help` of each program and each of its commands ends with an example; and the flags of the data plane, release by
//! release, which an operator of another release writes (`spec.image`, and while an upgrade is in progress), and those of the
//! operator, which the chart of an older release writes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use clap::CommandFactory;
use operator::desired::FLAGS;
use tests::kubelet::program;
use tests::scratch::Scratch;

#[test]
fn the_help_of_every_command_has_an_example() {
    let programs = [
        dataplane::args::Args::command(),
        operator::args::Args::command(),
        operator::plugin::Args::command(),
    ];
    let mut count = 0;
    for mut program in programs {
        program.build();
        let name = program.get_name().to_owned();
        let others = program.get_subcommands().filter(|it| it.get_name() != "help").cloned();
        for mut command in others.chain([program.clone()]).collect::<Vec<_>>() {
            let help = command.render_long_help().to_string();
            let (_, examples) = help.split_once("\nExample").unwrap_or_default();
            let call = name.replace("kubectl-", "kubectl ");
            assert!(
                examples.contains(&name) || examples.contains(&call),
                "{name} {}: no example in\n{help}",
                command.get_name()
            );
            count += 1;
        }
    }
    assert_eq!(count, 13, "programs and their commands");
}

/// A terminal wraps a longer line, and a command that is copied from there has a line break in it.
#[test]
fn the_examples_of_every_command_fit_a_terminal_of_80_columns() {
    let programs = [
        dataplane::args::Args::command(),
        operator::args::Args::command(),
        operator::plugin::Args::command(),
    ];
    for mut program in programs {
        program.build();
        for command in program.get_subcommands().chain([&program]) {
            let examples =
                command.get_after_help().into_iter().chain(command.get_after_long_help());
            let text = examples.map(ToString::to_string).collect::<Vec<_>>().join("\n");
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
                // A shell takes brackets for a pattern.
                assert!(!line.contains(" ["), "{}: quote it: {line}", command.get_name());
            }
        }
    }
}

/// What `--kubeconfig` says of its default: without a kubeconfig the service account of the pod is used.
#[test]
fn commands_that_read_a_cluster_use_the_service_account_of_their_pod() {
    if Path::new("/var/run/secrets/kubernetes.io/serviceaccount").exists() {
        return;
    }
    let home = Scratch::new("home").unwrap();
    home.write("dns.yaml", "").unwrap();
    for words in [
        &["compare", "--with", "a", "--against", "b"][..],
        &["import", "--from-cluster"],
        &["check", "--cluster", "--file", "dns.yaml"],
    ] {
        let output = Command::new(program("clusterdns-operator"))
            .args(words)
            .current_dir(home.path())
            .env_clear()
            .env("HOME", home.path())
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", "1")
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        // The address is known, and the files of the account are missing here.
        let says = ["a pod with a service account", "in-cluster: (failed to read "];
        assert!(says.iter().all(|it| text.contains(it)), "{words:?}: {text}");
    }
}

/// The commands of ours that a page shows, in a block of code or in a line, each as its words.
fn commands(page: &str) -> Vec<Vec<String>> {
    const PROGRAMS: [&str; 3] =
        ["clusterdns-operator ", "clusterdns-dataplane ", "kubectl clusterdns "];
    let mut found = Vec::new();
    for piece in page.lines().flat_map(|line| line.split(['`', '|', '>', '#', ';', '(', ')', '\\']))
    {
        let Some(at) = PROGRAMS.iter().find_map(|program| piece.find(program)) else { continue };
        let command = piece[at..].trim().replace("kubectl clusterdns", "kubectl-clusterdns");
        // What a shell would change, and where a person writes what is meant, is not read.
        let is_shell = command.contains(['"', '\'', '$', '[', '…']);
        // The data plane has flags only; a title may have its version.
        let is_call = !command.starts_with("clusterdns-dataplane ") || command.contains(" -");
        if !is_shell && is_call && command.contains(' ') {
            found.push(command.split_whitespace().map(str::to_owned).collect());
        }
    }
    found
}

#[test]
fn every_command_of_ours_in_the_pages_is_one_that_its_program_takes() {
    use clap::error::ErrorKind::{DisplayHelp, MissingRequiredArgument, MissingSubcommand};
    let mut count = 0;
    for page in pages() {
        for words in commands(&fs::read_to_string(&page).expect("a page")) {
            let mut program = match words[0].as_str() {
                "clusterdns-operator" => operator::args::Args::command(),
                "clusterdns-dataplane" => dataplane::args::Args::command(),
                _ => operator::plugin::Args::command(),
            };
            let Err(error) = program.try_get_matches_from_mut(&words) else {
                count += 1;
                continue;
            };
            // A sentence may only name a command.
            let is_name = words.len() == 2;
            match error.kind() {
                DisplayHelp => {}
                MissingRequiredArgument | MissingSubcommand if is_name => {}
                _ => panic!("{}: {}: {error}", page.display(), words.join(" ")),
            }
        }
    }
    assert!(count >= 12, "{count} commands");
}

/// kdig 3.2.6 ends with a segmentation fault if flags of TLS come behind `+quic`.
#[test]
fn pages_give_kdig_its_transport_behind_the_flags_of_tls() {
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for line in text.lines().filter(|line| line.starts_with("kdig ") && line.contains(" +tls-"))
        {
            let last = line.rfind(" +tls-");
            for transport in [" +quic", " +https"] {
                let at = line.find(transport);
                assert!(at.is_none() || at > last, "{}: {line}", page.display());
            }
            count += 1;
        }
    }
    assert!(count >= 3, "{count} commands");
}

/// README, the pages below docs, and the page of the chart.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let below = |folder: &str| {
        let entries = fs::read_dir(root.join(folder)).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let mut pages = [below("docs"), below("docs/runbooks")].concat();
    pages.retain(|path| path.extension().is_some_and(|end| end == "md"));
    pages.extend(["README.md", "charts/clusterdns/README.md"].map(|page| root.join(page)));
    pages
}

/// `golden/flags/VERSION.txt`: the flags of the data plane of each release; `VERSION.chart.txt`: those of the operator that its
/// chart writes.
fn lists() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/flags")
}

/// Whether a version has a tag, so that its list is what others have.
fn is_released(version: &str) -> bool {
    let tag = format!("refs/tags/v{version}");
    let mut git = Command::new("git");
    git.current_dir(env!("CARGO_MANIFEST_DIR")).args(["rev-parse", "--quiet", "--verify", &tag]);
    git.output().is_ok_and(|git| git.status.success())
}

/// Writes the list of a version, unless that is released: a data plane of a release gets no other flags later.
fn update(list: &Path, flags: &str, is_released: bool) {
    if !is_released {
        fs::write(list, flags).expect("written");
    }
}

#[test]
fn the_flags_of_the_data_plane_of_this_version_are_committed() {
    let mut command = dataplane::args::Args::command();
    command.build();
    let flags: BTreeSet<String> =
        command.get_arguments().filter_map(|it| Some(format!("--{}\n", it.get_long()?))).collect();
    is_committed(&flags, "txt");
}

/// With all values of `golden/chart`.
#[test]
fn the_flags_that_the_chart_of_this_version_writes_are_committed() {
    let mut flags = BTreeSet::new();
    for entry in fs::read_dir(lists().join("../chart")).expect("a folder") {
        let rendered = entry.expect("readable").path();
        let text = fs::read_to_string(&rendered).expect("text");
        let values = fs::read_to_string(rendered.with_extension("values.yaml")).unwrap_or_default();
        let items = text.lines().filter_map(|line| line.trim_start().strip_prefix("- "));
        let items = items.map(|item| item.trim_matches('"')).filter(|item| item.starts_with("--"));
        // Those of `extraArgs` are written by a person.
        for flag in items.filter(|item| !values.contains(item)) {
            let name = flag.split('=').next().unwrap_or_default();
            flags.insert(format!("{name}\n"));
        }
    }
    assert!(flags.len() > 10, "{flags:?}");
    is_committed(&flags, "chart.txt");
}

/// The list of this version, which is written where that is asked for.
fn is_committed(flags: &BTreeSet<String>, kind: &str) {
    let flags: String = flags.iter().map(String::as_str).collect();
    let version = env!("CARGO_PKG_VERSION");
    let list = lists().join(format!("{version}.{kind}"));
    if env::var_os("UPDATE_EXPECT").is_some() {
        update(&list, &flags, is_released(version));
    }
    let committed = fs::read_to_string(&list).unwrap_or_default();
    let how = if is_released(version) {
        "it is released: set the next version in Cargo.toml for another flag"
    } else {
        "UPDATE_EXPECT=1 cargo test -p tests --test it help:: writes it"
    };
    assert_eq!(committed, flags, "{list:?}; {how}");
}

#[test]
fn the_list_of_a_released_version_is_not_written_again() {
    let folder = Scratch::new("flags").expect("a folder");
    let list = folder.path().join("1.2.3.txt");
    update(&list, "--old\n", false);
    update(&list, "--new\n", true);
    assert_eq!(fs::read_to_string(&list).expect("text"), "--old\n");
    assert!(!is_released("0.0.0-never"));
}

/// A data plane that is given a flag that it does not know does not start.
#[test]
fn the_data_plane_of_every_release_knows_each_flag_that_the_operator_writes() {
    let of_data_planes = |name: &str| !name.ends_with(".chart.txt");
    for (list, known) in committed(of_data_planes) {
        for flag in FLAGS {
            assert!(known.lines().any(|known| known == flag), "{list} has no {flag}");
        }
    }
}

/// An operator that is given a flag that it does not know does not start: the chart may be older than its programs.
#[test]
fn the_operator_knows_each_flag_that_the_chart_of_every_release_writes() {
    let mut command = operator::args::Args::command();
    command.build();
    let run = command.find_subcommand("run").expect("a command");
    let known: Vec<String> =
        run.get_arguments().filter_map(|it| Some(format!("--{}", it.get_long()?))).collect();
    for (list, written) in committed(|name| name.ends_with(".chart.txt")) {
        for flag in written.lines() {
            assert!(known.iter().any(|known| known == flag), "{flag} of {list} is no flag");
        }
    }
}

/// The name and the text of each list that this is true for.
fn committed(is_wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(lists()).expect("a folder") {
        let list = entry.expect("readable");
        let name = list.file_name().to_string_lossy().into_owned();
        if is_wanted(&name) {
            found.push((name, fs::read_to_string(list.path()).expect("text")));
        }
    }
    assert!(!found.is_empty(), "no release has a list");
    found
}
