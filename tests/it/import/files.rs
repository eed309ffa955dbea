//! Files that an imported configuration names: each is read, or has a line that says why not and what to do.

use operator::offline::Severity;
use tests::scratch::Scratch;

use super::losses::imported;
use super::printed;

/// The report of a Corefile with files beside it.
fn with_files(corefile: &str, files: &[(&str, Vec<u8>)]) -> (Severity, String) {
    let scratch = Scratch::new("import").unwrap();
    scratch.write("Corefile", corefile).unwrap();
    for (name, content) in files {
        let path = scratch.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let (outcome, _, report) = printed(scratch.path(), "--corefile Corefile");
    (outcome, report)
}

#[test]
fn a_file_that_is_there_and_is_not_read_has_a_line_with_the_reason() {
    let large = || vec![b'#'; (1 << 20) + 1];
    let corefile =
        "import parts/*.conf\nimport large.conf\n. {\n forward . 8.8.8.8\n hosts names\n}\n";
    let files = [
        ("parts/a.conf", b"a.example {\n forward . 10.0.0.1\n}\n".to_vec()),
        ("parts/b.conf", b"# \xff\n".to_vec()),
        ("large.conf", large()),
        ("names", large()),
    ];
    let (outcome, report) = with_files(corefile, &files);
    assert_eq!(outcome, Severity::Fine, "{report}");
    for line in [
        "Corefile:1: not possible: import parts/*.conf: parts/b.conf: it is not UTF-8",
        "Corefile:2: not possible: import large.conf: large.conf: it is larger than 1 MiB, so nothing of it is read: split it",
        "Corefile:5: not possible: hosts names: names: it is larger than 1 MiB, so nothing of it is read: split it",
        "parts/a.conf:2: changed: forward . 10.0.0.1: spec.stubDomains: a.example",
    ] {
        assert!(report.contains(line), "{line}\n{report}");
    }
}

#[test]
fn of_a_pattern_with_too_many_files_each_that_is_not_read_is_named() {
    let names: Vec<String> = (1000..1258).map(|at| format!("{at}.conf")).collect();
    let block = |at: usize| format!("z{at}.example {{\n forward . 10.0.0.1\n}}\n").into_bytes();
    let files: Vec<(&str, Vec<u8>)> =
        names.iter().enumerate().map(|(at, name)| (name.as_str(), block(at))).collect();
    let (_, report) = with_files("import *.conf\n. {\n forward . 8.8.8.8\n}\n", &files);
    for file in ["1256.conf", "1257.conf"] {
        let line = format!(
            "import *.conf: {file}: it is not read, as 256 files of one pattern are the most: name it by itself"
        );
        assert!(report.contains(&line), "{report}");
    }
    assert!(!report.contains("1255.conf: it is not read"), "{report}");
}

#[test]
fn keys_of_a_config_map_beyond_the_files_of_one_pattern_are_named() {
    let mut map = String::from(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns}\ndata:\n  Corefile: |\n    import custom/*.server\n    . {\n      \
         forward . 8.8.8.8\n    }\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns-custom}\ndata:\n",
    );
    for at in 1000..1257 {
        let block = format!("    z{at}.example {{\n      forward . 10.0.0.1\n    }}\n");
        map.push_str(&format!("  {at}.server: |\n{block}"));
    }
    let (_, report) = imported("--corefile", &map);
    let line = "notPossible: import custom/*.server: /etc/coredns/custom/1256.server: it is not read, as 256 files";
    assert!(report.contains(line), "{report}");
}

#[test]
fn hidden_files_that_coredns_imports_are_imported() {
    let files = [(".x.conf", b"x.example {\n forward . 10.0.0.1\n}\n".to_vec())];
    let (_, report) = with_files("import *.conf\n. {\n forward . 8.8.8.8\n}\n", &files);
    assert!(report.contains(".x.conf:2: changed: forward"), "{report}");
}

/// The report of options of dnsmasq with files beside them.
fn of_dnsmasq(options: &str, files: &[(&str, &str)]) -> String {
    let scratch = Scratch::new("import").unwrap();
    scratch.write("dnsmasq.conf", options).unwrap();
    for (name, content) in files {
        let path = scratch.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    printed(scratch.path(), "--dnsmasq dnsmasq.conf").2
}

#[test]
fn the_hosts_files_of_a_folder_are_those_that_dnsmasq_reads() {
    let files = [
        ("hosts.d/a", "10.0.0.1 a.example\n"),
        ("hosts.d/b~", "10.0.0.2 b.example\n"),
        ("other", "10.0.0.3 c.example\n"),
    ];
    for option in ["hostsdir=/etc/hosts.d\n", "addn-hosts=/etc/hosts.d/\n"] {
        let report = of_dnsmasq(option, &files);
        assert!(report.contains("hosts.d/a:1: kept: 10.0.0.1 a.example"), "{report}");
        assert!(report.contains("hosts.d/b~: dnsmasq passes over"), "{report}");
        assert!(!report.contains("c.example"), "{report}");
    }
}

#[test]
fn servers_of_a_file_that_are_no_addresses_have_a_line() {
    let resolv = ("names.conf", "nameserver 10.0.0.1\nnameserver fe80::1%eth0\n");
    let report = of_dnsmasq("resolv-file=/etc/names.conf\n", &[resolv]);
    assert!(
        report.contains("names.conf:2: nameserver fe80::1%eth0: it is of one interface of a node"),
        "{report}"
    );
    let corefile = ". {\n forward . /etc/names.conf\n}\n";
    let (_, report) = with_files(corefile, &[(resolv.0, resolv.1.as_bytes().to_vec())]);
    assert!(
        report.contains("names.conf:2: nameserver fe80::1%eth0: it is of one interface of a node"),
        "{report}"
    );
}

#[test]
fn a_star_in_the_name_of_a_folder_finds_the_files_below_it() {
    let files = [("a/x.conf", b"x.example {\n forward . 10.0.0.1\n}\n".to_vec())];
    let (_, report) = with_files("import */x.conf\n. {\n forward . 8.8.8.8\n}\n", &files);
    assert!(report.contains("a/x.conf:2: changed: forward"), "{report}");
}
