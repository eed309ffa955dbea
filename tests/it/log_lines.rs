//! Log lines of the operator: a program that reads JSON gets nothing else, from the first line on.

use std::process::Command;

use serde_json::Value;
use tests::kubelet::program;

#[test]
fn from_the_first_line_on_the_log_of_the_operator_is_json_where_that_is_asked_for() {
    let run = |arguments: &[&str], variable: Option<&str>| {
        let mut command = Command::new(program("clusterdns-operator"));
        command.args(arguments).env_remove("CLUSTERDNS_LOG_FORMAT").env_remove("KUBECONFIG");
        let output = command.envs(variable.map(|it| ("CLUSTERDNS_LOG_FORMAT", it))).output();
        let output = output.expect("the operator runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let nowhere = "--kubeconfig=/nowhere";
    for (flags, variable, code, says) in [
        (&["run", "--log-format", "json", "--nonsense"][..], None, 2, "--nonsense"),
        (&["run", "--http=127.0.0.1", "--log-format=json"], None, 2, "such as [::]:8080"),
        (&["run", "--dataplane-args=--listen=x"], Some("json"), 2, "set by the operator"),
        (&["run", "--log-format=json", nowhere], None, 1, "/nowhere"),
        (&["run", nowhere], Some("json"), 1, "/nowhere"),
    ] {
        let (ended, log) = run(flags, variable);
        assert_eq!(ended, Some(code), "{flags:?}: {log}");
        let read = |line: &str| {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {log}"))
        };
        let lines: Vec<Value> = log.lines().map(read).collect();
        let last = lines.last().unwrap_or_else(|| panic!("{flags:?}: no line"));
        assert_eq!(last["level"], "ERROR", "{log}");
        assert!(last["message"].as_str().is_some_and(|it| it.contains(says)), "{log}");
    }
    // People read the rest: without the flag, and what commands for people say.
    for (flags, variable) in
        [(&["run", "--nonsense"][..], None), (&["check", "--nonsense"], Some("json"))]
    {
        let (_, text) = run(flags, variable);
        assert!(text.contains("Usage:"), "{flags:?}: {text}");
    }
}
