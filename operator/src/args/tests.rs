//! What the flags become, and which are refused at the start.

use super::*;

fn parse(flags: &[&str]) -> Result<Command, String> {
    let command = ["clusterdns-operator"];
    Args::try_parse_from(command.iter().chain(flags))
        .map(|args| args.command)
        .map_err(|error| error.to_string())
}

fn run(flags: &[&str]) -> Run {
    match parse(&[&["run"], flags].concat()) {
        Ok(Command::Run(run)) => *run,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_address_without_a_port_says_what_to_write() {
    let message = parse(&["run", "--http", "127.0.0.1"]).unwrap_err();
    assert!(message.contains("such as [::]:8080"), "{message}");
}

#[test]
fn run_needs_no_flag() {
    let run = run(&[]);
    assert_eq!(run.http, "[::]:8080".parse().unwrap());
    let expected = Settings {
        dataplane: DataPlane { image: DATAPLANE_IMAGE.to_owned(), ..DataPlane::default() },
        workload_namespaces: vec!["kube-system".to_owned()],
        ..Settings::default()
    };
    let expected = Settings { own_namespace: Some("clusterdns-system".to_owned()), ..expected };
    assert_eq!(run.settings(), expected);
}

#[test]
fn lists_are_separated_by_commas_and_an_empty_one_is_none() {
    let settings =
        run(&["--workload-namespaces", "kube-system,dns, kube-system", "--instances", "a, b"])
            .settings();
    assert_eq!(settings.workload_namespaces, ["kube-system", "dns"], "each once");
    assert_eq!(settings.instances, ["a", "b"]);
    assert!(run(&["--instances", ""]).settings().instances.is_empty());
}

#[test]
fn links_of_alerts_have_one_slash_before_their_page() {
    let runbooks = |url: &str| run(&["--runbook-base-url", url]).settings().runbooks;
    let expected = Some("https://docs.example.com/runbooks".to_owned());
    assert_eq!(runbooks("https://docs.example.com/runbooks"), expected);
    assert_eq!(runbooks("https://docs.example.com/runbooks/"), expected);
    assert_eq!((runbooks(""), run(&[]).settings().runbooks), (None, None));
}

#[test]
fn what_would_break_every_data_plane_is_refused_at_the_start() {
    for (flags, says) in [
        (["run", "--dataplane-args=--drain-seconds=1"], "--drain-seconds is set by the operator"),
        (["run", "--dataplane-args=workers"], "such as --workers=2"),
        (["run", "--dataplane-env=POD_NAME=x"], "POD_NAME is set by the operator"),
        (["run", "--dataplane-env=X"], "write NAME=VALUE"),
        (["run", "--dataplane-env=CLUSTERDNS_LISTEN=x"], "CLUSTERDNS_LISTEN is a flag"),
        (["run", "--dataplane-pull-policy=Sometimes"], "IfNotPresent"),
        (["run", "--allowed-images=registry.example/dns:1"], "without tag"),
        (["run", "--allowed-images=/"], "without tag"),
        (["run", "--runbook-base-url=docs/runbooks"], "such as https://"),
        (["run", "--runbook-base-url=https:///runbooks"], "such as https://"),
    ] {
        let message = parse(&flags).expect_err(says);
        assert!(message.contains(says), "{message}");
    }
    let settings = run(&[
        "--dataplane-args=--workers=2\n--log-level=debug",
        "--dataplane-env=A=b=c\nB=",
        "--dataplane-pull-policy=",
        "--allowed-images=",
    ])
    .settings();
    assert_eq!(settings.dataplane.args, ["--workers=2", "--log-level=debug"]);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(settings.dataplane.env, [pair("A", "b=c"), pair("B", "")]);
    assert_eq!(settings.dataplane.pull_policy, None);
    assert!(settings.allowed.images.is_empty());
}

#[test]
fn every_flag_of_run_has_an_environment_variable() {
    use clap::CommandFactory;
    let command = Args::command();
    let run = command.find_subcommand("run").expect("run");
    for argument in run.get_arguments().filter(|argument| argument.get_id() != "help") {
        let variable = format!("CLUSTERDNS_{}", argument.get_id().as_str().to_uppercase());
        assert_eq!(argument.get_env().and_then(|v| v.to_str()), Some(variable.as_str()));
    }
}

#[test]
fn offline_commands_take_many_files_and_need_one() {
    match parse(&["check", "-f", "a.yaml", "b.yaml", "-f", "-"]) {
        Ok(Command::Check(check)) => {
            assert_eq!(check.file, ["a.yaml", "b.yaml", "-"].map(PathBuf::from));
            assert!(!check.cluster, "offline unless asked");
        }
        other => panic!("{other:?}"),
    }
    assert!(parse(&["render"]).unwrap_err().contains("--file"));
    assert!(parse(&[]).unwrap_err().contains("Usage"));
}

#[test]
fn import_needs_a_source_and_its_help_has_examples() {
    assert!(parse(&["import"]).unwrap_err().contains("--corefile"));
    let help = parse(&["import", "--help"]).unwrap_err();
    assert!(help.contains("Examples:") && help.contains("Exit status:"), "{help}");
    match parse(&["import", "--corefile", "a", "b", "--env", "A=b=c", "--from-cluster"]) {
        Ok(Command::Import(import)) => {
            assert_eq!(import.corefile, ["a", "b"].map(PathBuf::from));
            assert_eq!(import.env, [("A".to_owned(), "b=c".to_owned())]);
            assert!(import.from_cluster && !import.adopt);
        }
        other => panic!("{other:?}"),
    }
}
