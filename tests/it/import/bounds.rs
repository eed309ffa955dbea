//! Configurations that are made to take memory or time: each is refused with a reason, or has a line that says what is not
//! read.

use std::fmt::Write as _;

use operator::offline::Severity;
use tests::scratch::Scratch;

use super::printed;

/// What the import of these files says: the first is named, with these flags behind it.
fn of(flag: &str, files: &[(&str, &str)], more: &str) -> (Severity, String) {
    let scratch = Scratch::new("import").unwrap();
    for (name, content) in files {
        scratch.write(name, content).unwrap();
    }
    let (outcome, _, said) = printed(scratch.path(), &format!("{flag} {} {more}", files[0].0));
    (outcome, said)
}

#[test]
fn a_corefile_cannot_grow_without_end_by_variables_and_imports() {
    let value = "x".repeat(1 << 20);
    let doubled = format!(". {{\n log {}\n}}\n", "{$A}".repeat(20));
    let once = "y".repeat(900_000);
    let imports = "import a\n".repeat(20);
    let imported = format!("(a) {{\n log {once}\n}}\n. {{\n{imports}}}\n");
    for (corefile, more) in [(doubled, format!("--env A={value}")), (imported, String::new())] {
        let (outcome, said) = of("--corefile", &[("Corefile", &corefile)], &more);
        assert_eq!(outcome, Severity::Wrong);
        assert!(said.contains("more than 16 MiB with its imports and environment variables"));
    }
}

#[test]
fn zones_are_bounded_because_each_is_held_against_each_name() {
    let keys: String = (1..=8).map(|port| format!("0.0.0.0/0:{port} ")).collect();
    let many: String = (0..2_001).map(|number| format!("z{number}. ")).collect();
    let template = format!(
        ". {{\n template IN A {many} {{\n answer \"{{{{ .Name }}}} A 10.0.0.1\"\n }}\n}}\n"
    );
    for (corefile, says) in [
        (format!("{keys} {{\n log\n}}\n"), "more than 2000 zones in all server blocks"),
        (format!("{many} {{\n log\n}}\n"), "more than 2000 zones in all server blocks"),
        (template, "more than 2000 zones or words on one line"),
    ] {
        let (outcome, said) = of("--corefile", &[("Corefile", &corefile)], "");
        assert_eq!(outcome, Severity::Wrong, "{says}");
        assert!(said.contains(says), "{says}");
    }
    // Lines of hosts have names, however many.
    let hosts = format!(". {{\n hosts {{\n 10.0.0.1 {many}\n }}\n forward . 10.0.0.2\n}}\n");
    assert_eq!(of("--corefile", &[("Corefile", &hosts)], "").0, Severity::Fine);
}

#[test]
fn an_option_of_dnsmasq_does_not_give_every_name_every_address() {
    let mut address = "address=".to_owned();
    (0..200).for_each(|number| _ = write!(address, "/d{number}.example"));
    let ips: Vec<String> = (0..60).map(|number| format!("10.0.0.{number}")).collect();
    let names: String = (0..200).map(|number| format!("h{number},")).collect();
    let options =
        format!("{address}/{0}\nhost-record={names}{0}\nserver=10.0.0.1\n", ips.join(","));
    let (outcome, said) = of("--dnsmasq", &[("dnsmasq.conf", &options)], "");
    assert_eq!(outcome, Severity::Fine);
    let why = "it gives 200 names 60 addresses each, and 10000 pairs are read of one option";
    assert_eq!(said.matches(why).count(), 2, "{said}");
}

#[test]
fn a_config_map_that_is_mounted_a_thousand_times_is_not_held_as_often() {
    let filling = "z".repeat(600_000);
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  Corefile: |\n    . {{\n    }}\n  a: {filling}\n---\n"
    );
    let pod = |mounts: usize| {
        let mut pod =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  volumes:\n  - name: v\n    \
            configMap: {name: c}\n  containers:\n  - name: coredns\n    volumeMounts:\n"
                .to_owned();
        (0..mounts).for_each(|at| _ = writeln!(pod, "    - {{name: v, mountPath: /m{at}}}"));
        format!("{map}{pod}")
    };
    for (mounts, says) in [
        (500, "the containers have more than 256 MiB of ConfigMaps"),
        (1_001, "more than 1000 containers, volumes or mounts"),
    ] {
        let (outcome, said) = of("--corefile", &[("all.yaml", &pod(mounts))], "");
        assert_eq!(outcome, Severity::Unreadable, "{says}");
        assert!(said.contains(says), "{says}");
    }
}

#[test]
fn keys_of_config_maps_on_one_line_have_a_line_each() {
    let map = |name: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"k":"x"}}}}"#
        )
    };
    let (first, second) = (map("a"), map("b"));
    let list =
        format!("{{\n\"apiVersion\":\"v1\",\n\"kind\":\"List\",\"items\":[{first},{second}]}}\n");
    let corefile = ". {\n forward . 10.0.0.1\n}\n";
    let files = [("Corefile", corefile), ("maps.json", list.as_str())];
    let (_, said) = of("--corefile", &files, "maps.json");
    for line in [
        "ConfigMap a k: nothing that was read names this key",
        "ConfigMap b k: nothing that was read",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
}
