//! `--help` of each program and each of its commands ends with an example.

use clap::CommandFactory;

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
