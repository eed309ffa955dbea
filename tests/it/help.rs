//! `--help` of each program and each of its commands ends with an example; and the flags of the data plane, release by
//! release, which an operator of another release writes (`spec.image`, and while an upgrade is in progress).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::CommandFactory;
use operator::desired::FLAGS;

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

/// `golden/flags/VERSION.txt`: the flags of the data plane of each release.
fn lists() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/flags")
}

#[test]
fn the_flags_of_the_data_plane_of_this_version_are_committed() {
    let mut command = dataplane::args::Args::command();
    command.build();
    let flags: BTreeSet<String> =
        command.get_arguments().filter_map(|it| Some(format!("--{}\n", it.get_long()?))).collect();
    let flags: String = flags.into_iter().collect();
    let list = lists().join(format!("{}.txt", env!("CARGO_PKG_VERSION")));
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&list, &flags).expect("written");
    }
    assert_eq!(fs::read_to_string(&list).unwrap_or_default(), flags, "{list:?}");
}

/// A data plane that is given a flag that it does not know does not start.
#[test]
fn the_data_plane_of_every_release_knows_each_flag_that_the_operator_writes() {
    let mut versions = 0;
    for entry in fs::read_dir(lists()).expect("a folder") {
        let list = entry.expect("readable").path();
        let known = fs::read_to_string(&list).expect("text");
        for flag in FLAGS {
            assert!(known.lines().any(|known| known == flag), "{list:?} has no {flag}");
        }
        versions += 1;
    }
    assert!(versions > 0, "no release has a list");
}
