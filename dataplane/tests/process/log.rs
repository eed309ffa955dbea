//! Standard error: no serving thread waits for its reader, and names cannot forge it.

use super::harness::{Folder, Process, address, log_until, wait_for};
use super::{CART, service};

#[test]
fn e15_of_many_malformed_objects_the_log_names_twenty_once_and_config_the_rest() {
    let folder = Folder::new();
    let text: String = (0..150).map(|n| service(&format!("bad{n:03}"), "nowhere")).collect();
    folder.write("a.yaml", &text);
    let process = Process::start(&folder.0, &[]);
    let listed = process.config()["skippedObjects"].clone();
    let mut named: Vec<_> =
        listed.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect();
    named.sort();
    let all: Vec<String> = (0..150).map(|n| format!("bad{n:03}")).collect();
    assert_eq!(named, all, "each once");
    // The folder is read again, with one more object: what was named before is not named again.
    folder.write("b.yaml", &service("late", "nowhere"));
    process.wait_for_log("shop/late");
    let log = process.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("not served in full")).collect();
    assert_eq!(lines.len(), 21, "{log}");
    assert_eq!(log.matches("and 130 more: see /config").count(), 1, "{log}");
    let times =
        |name: &String| lines.iter().filter(|line| line.contains(&format!("/{name}:"))).count();
    assert!(all.iter().all(|name| times(name) <= 1), "{log}");
}

#[test]
fn a_log_pipe_that_is_full_stops_nothing() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let (mut process, pipe) = Process::start_blocking(&folder.0);
    // Twenty lines an update, each of other objects: twice what the pipe holds.
    let long = "x".repeat(200);
    for round in 0..20 {
        let bad = |n| service(&format!("bad{round}-{n:02}"), &format!("nowhere{long}"));
        let text: String = (0..20).map(bad).collect();
        folder.write("b.yaml", &text);
        wait_for("the mistakes to be logged", || {
            let first = process.config()["skippedObjects"][0]["name"].clone();
            (first == format!("bad{round}-00")).then_some(())
        });
    }
    assert_eq!(process.metric("clusterdns_log_lines_lost_total"), 0.0, "they fit in the queue");
    folder.write("a.yaml", &service("cart", "10.96.0.2"));
    process.wait_for_answer(CART, address("10.96.0.2"));
    process.signal("INT");
    assert_eq!(process.wait().code(), Some(0));
    drop(pipe);
}

#[test]
fn a_log_that_is_not_read_any_more_stops_nothing() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let mut process = Process::start_unread(&folder.0);
    folder.write("a.yaml", "kind: Service\n  metadata: [\n");
    wait_for("the mistake to be logged", || {
        (process.metric("clusterdns_unusable_files") == 1.0).then_some(())
    });
    folder.write("a.yaml", &service("cart", "10.96.0.2"));
    process.wait_for_answer(CART, address("10.96.0.2"));
    process.signal("INT");
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn s13_names_cannot_forge_log_lines() {
    let folder = Folder::new();
    let evil = "{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{\"name\":\"a\\r\\n\\u001b[31mready\",\"namespace\":\"x\"},\"spec\":{\"clusterIP\":\"nowhere\"}}";
    folder.write("a.json", evil);
    let folder = folder.0.to_str().unwrap();
    let any = "127.0.0.1:0";
    for (format, expected) in [
        ("text", r#"ready: clusterIP "nowhere" is not an IP address"#),
        ("json", r#"ready: clusterIP \"nowhere\" is not an IP address"#),
    ] {
        let flags = ["--manifests", folder, "--http", any, "--listen", any, "--log-format", format];
        let log = log_until(&[], &flags, "is not an IP address");
        assert!(log.contains(expected), "{log}");
        assert!(!log.contains('\u{1b}') && !log.contains('\r'), "{log:?}");
        assert!(!log.lines().any(|line| line.starts_with("ready")), "{log:?}");
    }
}

#[test]
fn o18_form_and_level_of_log_lines_follow_the_configuration_without_a_restart() {
    let folder = Folder::new();
    let configure = |logging: &str| {
        folder.write("dns.yaml", &super::cluster_dns(&format!("{{logging: {logging}}}")));
    };
    configure("{format: JSON, level: Info}");
    let process = Process::start_without_log_flags(&folder.0);
    let configured = |field: &str, value: &str| {
        wait_for("the configuration", || {
            (process.config()["document"]["logging"][field] == value).then_some(())
        });
    };
    let line_about = |object: &str| {
        process.wait_for_log(object);
        let log = process.log();
        log.lines().find(|line| line.contains(object)).unwrap().to_owned()
    };
    // From the configuration on all lines have its form, those of the start too.
    for text in ["configuration in use", "manifests read", "answering"] {
        let line = line_about(text);
        assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok(), "{line}");
    }
    configure("{level: Error}");
    configured("level", "Error");
    folder.write("a.yaml", &service("unsaid", "nowhere"));
    wait_for("the object to be skipped", || {
        (process.config()["skippedObjectCount"] == 1).then_some(())
    });
    configure("{level: Debug, format: Text}");
    configured("level", "Debug");
    folder.write("a.yaml", &service("as-text", "nowhere"));
    let line = line_about("as-text");
    assert!(line.contains(" WARN ") && !line.starts_with('{'), "{line}");
    assert!(!process.log().contains("unsaid"), "a warning below the level: {}", process.log());
    configure("{level: Warn}");
    configured("level", "Warn");
    folder.write("a.yaml", &service("as-json", "nowhere"));
    let line: serde_json::Value = serde_json::from_str(&line_about("as-json")).unwrap();
    assert_eq!(line["level"], "WARN");
}

#[test]
fn o18_config_lists_fields_without_effect_and_there_are_none_in_this_version() {
    let folder = Folder::new();
    folder.write("dns.yaml", &super::cluster_dns("{ttlSeconds: 7}"));
    let process = Process::start(&folder.0, &[]);
    assert_eq!(process.config()["withoutEffect"], serde_json::json!([]));
}

#[test]
fn from_the_first_line_on_the_log_has_the_form_that_is_asked_for() {
    let folder = Folder::new();
    let path = folder.0.to_str().unwrap();
    let any = "127.0.0.1:0";
    let is_json = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
    // The lines before the manifests are read are debug lines, so they are asked for.
    let flags = ["--manifests", path, "--http", any, "--listen", any, "--log-level", "debug"];
    for (format, form) in [("JSON", true), ("Text", false)] {
        folder
            .write("dns.yaml", &super::cluster_dns(&format!("{{logging: {{format: {format}}}}}")));
        let log = log_until(&[], &flags, "answering");
        assert!(log.contains("reading manifests"), "{log}");
        let others: Vec<&str> = log.lines().filter(|line| is_json(line) != form).collect();
        assert!(others.is_empty(), "{format}: {others:#?}");
    }
    // A process that ends at once says why in the form of the flag. The last one has right flags.
    for (flags, code, says) in [
        (&["--log-format", "json", "--nonsense"][..], 2, "--nonsense"),
        (&["--workers=0", "--log-format=json"], 2, "0 is not in 1..=64"),
        (&["--log-format=json", "--listen", "127.0.0.1"], 2, "add a port"),
        (
            &["--log-format=json", "--manifests", "/nowhere", "--http", any, "--listen", any],
            1,
            "/nowhere",
        ),
    ] {
        let output = super::harness::run(flags);
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {log}");
        assert!(log.lines().all(is_json) && log.lines().count() > 0, "{flags:?}: {log}");
        let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        assert_eq!(last["level"], "ERROR", "{log}");
        assert!(last["message"].as_str().is_some_and(|it| it.contains(says)), "{log}");
    }
    // Without it, and for help, people read text.
    let output = super::harness::run(&["--nonsense"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("Usage:"));
    let output = super::harness::run(&["--log-format=json", "--help"]);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("Usage:"));
}
