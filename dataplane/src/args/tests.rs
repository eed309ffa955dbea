//! Command lines in, settings or messages out.

use super::*;

fn parse(flags: &[&str]) -> Result<Args, String> {
    let command = ["clusterdns-dataplane"];
    Args::try_parse_from(command.iter().chain(flags)).map_err(|error| error.to_string())
}

#[test]
fn the_defaults_are_those_of_a_server() {
    let args = parse(&[]).unwrap();
    assert_eq!(args.listeners(), ["0.0.0.0:53".parse().unwrap(), "[::]:53".parse().unwrap()]);
    assert_eq!(args.http_candidates().len(), 2);
    assert!(args.http_candidates().iter().all(|address| address.port() == 9153));
    assert!((1..=4).contains(&args.worker_count()));
    assert_eq!(args.drain_period(), Duration::from_secs(20));
    assert_eq!((args.log_format, args.log_level), (None, None));
}

#[test]
fn listeners_are_repeated_or_separated_by_commas() {
    let rows: [&[&str]; 2] = [
        &["--listen", "127.0.0.1:5300", "--listen", "[::1]:5300"],
        &["--listen", "127.0.0.1:5300,[::1]:5300"],
    ];
    for flags in rows {
        let listen = parse(flags).unwrap().listeners();
        assert_eq!(listen, ["127.0.0.1:5300".parse().unwrap(), "[::1]:5300".parse().unwrap()]);
    }
}

#[test]
fn mistakes_say_what_to_write_instead() {
    let rows: [(&[&str], &str); 13] = [
        (&["--listen", "127.0.0.1"], "add a port: 127.0.0.1:5300"),
        (&["--listen", "::1"], "add brackets and a port: [::1]:5300"),
        (&["--listen", "localhost:53"], "names such as localhost are not looked up"),
        (&["--http", "9153"], "write an IP address and a port"),
        (&["--workers", "0"], "0 is not in 1..=64"),
        (&["--drain-seconds", "-1"], "unexpected argument"),
        (&["--log-format", "xml"], "possible values: text, json"),
        (&["--manifests", "m", "--kubeconfig", "k"], "cannot be used with"),
        (&["--config-map", "dns/main", "--config", "f"], "cannot be used with"),
        (&["--config-map", "main"], "write NAMESPACE/NAME"),
        (&["--config-map", "dns/a&b"], "write NAMESPACE/NAME"),
        (&["--config-dir", "d"], "--config-map"),
        (&["--manifest", "x"], "unexpected argument '--manifest'"),
    ];
    for (flags, expected) in rows {
        let message = parse(flags).unwrap_err();
        assert!(message.contains(expected), "{flags:?}: {message}");
    }
}

#[test]
fn every_flag_but_the_table_has_an_environment_variable() {
    use clap::CommandFactory;
    for argument in Args::command().get_arguments() {
        let name = argument.get_id().as_str();
        if !matches!(name, "print_names" | "help" | "version") {
            let variable = format!("CLUSTERDNS_{}", name.to_uppercase());
            assert_eq!(argument.get_env().and_then(|v| v.to_str()), Some(variable.as_str()));
        }
    }
}

#[test]
fn help_shows_examples_and_the_program_has_its_name() {
    use clap::CommandFactory;
    let help = Args::command().render_long_help().to_string();
    assert!(help.contains("dig @127.0.0.1 -p 5300"), "{help}");
    assert_eq!(Args::command().get_name(), "clusterdns-dataplane");
}

#[test]
fn o18_log_flags_hold_only_where_no_operator_writes_the_configuration() {
    let flags = ["--log-level", "debug"];
    let alone = parse(&flags).unwrap().fixed_logging();
    assert_eq!((alone.format, alone.level), (None, Some(LogLevel::Debug)));
    let managed = parse(&[&flags[..], &["--config-map", "dns/main"]].concat()).unwrap();
    assert_eq!(managed.fixed_logging(), Fixed::default());
}

#[test]
fn rr97_the_empty_value_of_a_label_that_is_not_there_is_no_place() {
    let location = |flags: &[&str]| parse(flags).unwrap().location();
    assert_eq!(location(&["--zone=", "--region= "]), Location::default());
    let (zone, config_map) = (Some("z".into()), Some("dns/main".into()));
    let expected = Location { zone, region: None, config_map };
    assert_eq!(location(&["--zone=z", "--config-map=dns/main"]), expected);
}
