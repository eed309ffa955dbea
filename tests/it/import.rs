//! `import` on configurations in the shape that vendors ship them: the ClusterDNS and the report of each folder of
//! `golden/import` (`UPDATE_EXPECT=1` writes them). For every input the result passes `check` and nothing panics.

mod asked;
mod beside;
mod bounds;
mod differences;
mod extra_parts;
mod files;
mod first;
mod fronts;
mod losses;
mod refusals;
mod size;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use operator::args::{Args, Command, Import};
use operator::import::imported;
use operator::offline::Severity;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tests::scratch::Scratch;

use crate::desired::is_golden;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/import")
}

/// The flags as the program reads them; names of files in `folder` are files there.
fn flags(folder: &Path, words: &str) -> Import {
    let words = words.split_whitespace().map(|word| match folder.join(word) {
        path if !word.starts_with('-') && path.is_file() => path.display().to_string(),
        _ => word.to_owned(),
    });
    let program = ["clusterdns-operator".to_owned(), "import".to_owned()];
    match Args::try_parse_from(program.into_iter().chain(words)).map(|args| args.command) {
        Ok(Command::Import(import)) => import,
        other => panic!("{other:?}"),
    }
}

/// What it prints: outcome, ClusterDNS, and report or reason.
fn printed(folder: &Path, words: &str) -> (Severity, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let outcome = imported(&flags(folder, words), &mut out, &mut err).unwrap();
    let text =
        |bytes| String::from_utf8(bytes).unwrap().replace(&format!("{}/", folder.display()), "");
    (outcome, text(out), text(err))
}

/// What `check` says of it.
fn passes_check(text: &str) -> Result<(), String> {
    let (dns, unknown) = crds::manifest::read(text, "imported").map_err(|it| it.to_string())?;
    assert!(unknown.paths.is_empty(), "{unknown:?}\n{text}");
    crds::check_resource(&dns).map(|_| ()).map_err(|it| it.to_string())
}

#[test]
fn o1_what_vendors_ship_becomes_a_cluster_dns_that_passes_check() {
    let mut count = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(words) = fs::read_to_string(folder.join("flags.txt")) else { continue };
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let (outcome, dns, report) = printed(&folder, &words);
        assert_eq!(outcome, Severity::Fine, "{name}: {report}");
        passes_check(&dns).unwrap_or_else(|why| panic!("{name}: {why}\n{dns}"));
        is_golden(&format!("import/{name}/dns.yaml"), &dns);
        is_golden(&format!("import/{name}/report.txt"), &report);
        count += 1;
    }
    assert!(count >= 9, "fixtures went missing");
}

/// Lines of a configuration with their numbers: all of a Corefile, those of the keys of ConfigMaps in a manifest.
fn configured(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    if !text.contains("kind: ConfigMap") {
        return lines.collect();
    }
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut data = None;
    lines
        .filter(|(_, line)| {
            data = data.filter(|data| line.is_empty() || indent(line) > *data);
            let is_inside = data.is_some();
            if line.trim() == "data:" {
                data = Some(indent(line));
            }
            // The text of a key begins below it.
            is_inside && !line.trim_end().ends_with(['|', '-'])
        })
        .collect()
}

#[test]
fn nothing_that_is_written_is_missing_from_the_report() {
    let mut manifests = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let folder = entry.unwrap().path();
        let Ok(words) = fs::read_to_string(folder.join("flags.txt")) else { continue };
        let (_, _, report) = printed(&folder, &words);
        let is_source = |word: &&str| *word == "Corefile" || word.ends_with(".yaml");
        for file in words.split_whitespace().filter(is_source) {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            manifests += usize::from(file.ends_with(".yaml"));
            for (number, line) in configured(&text) {
                // A definition is reported where it is imported, as an import is, and braces say nothing.
                let word = line.trim();
                let is_silent = word.starts_with(['#', '}', '(']) || word.is_empty();
                let found = report.contains(&format!("{file}:{number}: "));
                assert!(
                    found || is_silent || word.starts_with("import "),
                    "{}: line {number}: {line}",
                    folder.join(file).display(),
                );
            }
        }
    }
    assert!(manifests >= 6, "{manifests} manifests");
}

#[test]
fn programs_read_the_cluster_dns_and_the_report_as_json() {
    let folder = folder().join("kubeadm");
    let scratch = Scratch::new("import").unwrap();
    let report = scratch.path().join("report.json");
    let words = format!("--corefile Corefile -o json --report {}", report.display());
    let (outcome, dns, err) = printed(&folder, &words);
    assert_eq!((outcome, err.as_str()), (Severity::Fine, ""));
    let dns: serde_json::Value = serde_json::from_str(&dns).unwrap();
    assert_eq!(dns["spec"]["ttlSeconds"], 30);
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    let first = &report["lines"][0];
    assert_eq!((&first["line"], &first["outcome"]), (&1.into(), &"kept".into()), "{first}");
}

#[test]
fn without_its_report_no_cluster_dns_is_printed() {
    let folder = folder().join("kubeadm");
    let (outcome, dns, why) = printed(&folder, "--corefile Corefile --report /dev/null/none");
    assert_eq!((outcome, dns.as_str()), (Severity::Unreadable, ""));
    assert!(why.contains("cannot be written") && why.contains("no ClusterDNS"), "{why}");
}

/// Lines of the console in a page that are of a report must be of this one.
#[test]
fn the_report_on_the_page_is_that_of_a_fixture() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/switching.md");
    let page = fs::read_to_string(page).unwrap();
    let report = fs::read_to_string(folder().join("aks/report.txt")).unwrap();
    let is_of_report =
        |line: &&str| line.starts_with("coredns.yaml:") || line.ends_with(" not possible");
    let shown: Vec<&str> = page.lines().filter(is_of_report).collect();
    assert!(shown.len() >= 3, "{shown:?}");
    for line in shown {
        assert!(report.lines().any(|it| it == line), "{line}");
    }
}

#[test]
fn what_cannot_be_read_is_no_refusal() {
    let scratch = Scratch::new("import").unwrap();
    let (outcome, _, why) = printed(scratch.path(), "--corefile absent");
    assert_eq!(outcome, Severity::Unreadable);
    assert!(why.contains("absent: cannot be read"), "{why}");
    scratch.write("large", "a".repeat((1 << 20) + 1)).unwrap();
    assert!(printed(scratch.path(), "--corefile large").2.contains("larger than"));
    scratch.write("other.yaml", "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n").unwrap();
    let (outcome, _, why) = printed(scratch.path(), "--corefile other.yaml");
    assert_eq!(outcome, Severity::Wrong);
    assert!(why.contains("neither a Corefile"), "{why}");
    scratch.write("plain", ". {\n  forward . 10.0.0.2\n}\n").unwrap();
    let (outcome, _, why) = printed(scratch.path(), "--kube-dns-config plain");
    assert_eq!(outcome, Severity::Unreadable);
    assert!(why.contains("plain: neither a manifest nor the JSON"), "{why}");
}

#[test]
fn no_control_character_of_a_corefile_reaches_the_terminal() {
    let scratch = Scratch::new("import").unwrap();
    scratch.write("Corefile", ". {\n  \u{1b}[31m\u{7} b\n  forward . \u{1b}x\n}\n").unwrap();
    let (_, _, why) = printed(scratch.path(), "--corefile Corefile");
    assert!(!why.contains(['\u{1b}', '\u{7}']), "{why:?}");
}

#[test]
fn rr56_pod_names_stay_as_the_old_configuration_had_them() {
    let scratch = Scratch::new("import").unwrap();
    for (line, expected) in [
        ("pods insecure", serde_json::Value::Null),
        ("pods verified", "Verified".into()),
        ("pods disabled", "Disabled".into()),
        ("", "Disabled".into()),
    ] {
        let corefile = format!(". {{\n  kubernetes cluster.local {{\n    {line}\n  }}\n}}\n");
        scratch.write("Corefile", corefile).unwrap();
        let (_, dns, _) = printed(scratch.path(), "--corefile Corefile -o json");
        let dns: serde_json::Value = serde_json::from_str(&dns).unwrap();
        assert_eq!(dns["spec"]["podRecords"], expected, "{line}");
    }
}

#[test]
fn hosts_beyond_the_bound_are_named_and_the_rest_is_kept() {
    let scratch = Scratch::new("import").unwrap();
    let count = crds::bounds::EXTRA_RECORDS + 2;
    let line = |at: usize| format!("10.{}.{}.1 h{at}.example\n", at / 256, at % 256);
    scratch.write("hosts", (0..count).map(line).collect::<String>()).unwrap();
    let (outcome, dns, report) = printed(scratch.path(), "--dnsmasq hosts");
    assert_eq!(outcome, Severity::Fine);
    passes_check(&dns).unwrap();
    let lost: Vec<&str> = report.lines().filter(|line| line.contains(": not possible: ")).collect();
    let kept = dns.matches("- name: h").count();
    assert_eq!(kept + lost.len(), count, "{lost:?}");
    assert!(kept > 1_000 && lost.len() >= 2, "{kept} hosts are kept");
    assert!(lost.iter().all(|line| line.contains("a DNS server of their own")), "{}", lost[0]);
}

#[test]
fn long_records_beyond_the_bound_are_named_and_the_rest_is_kept() {
    let scratch = Scratch::new("import").unwrap();
    let strings = vec!["t".repeat(200); 10].join(",");
    let target = format!("{}.example", vec!["a".repeat(55); 4].join("."));
    let line =
        |at: usize| format!("txt-record=t{at}.example,{strings}\ncname=c{at}.example,{target}\n");
    let count = 400;
    scratch.write("dnsmasq.conf", (0..count).map(line).collect::<String>()).unwrap();
    let (outcome, dns, report) = printed(scratch.path(), "--dnsmasq dnsmasq.conf");
    assert_eq!(outcome, Severity::Fine, "{report}");
    passes_check(&dns).unwrap();
    let lost = report.lines().filter(|line| line.contains(": not possible: ")).count();
    let kept = report.lines().filter(|line| line.contains(": spec.records: ")).count();
    assert!(kept > 100 && lost > 100 && kept + lost == 2 * count, "{kept} kept, {lost} lost");
}

/// Words that configurations are made of, so that random ones get far.
const WORDS: [&str; 60] = [
    "{",
    "}",
    "\n",
    "\n",
    "\n",
    " ",
    "\"",
    "#",
    "\\",
    "(a)",
    "import",
    "a",
    ".",
    ".:53",
    "corp.example",
    "kubernetes",
    "cluster.local",
    "in-addr.arpa",
    "pods",
    "insecure",
    "ttl",
    "30",
    "fallthrough",
    "forward",
    "/etc/resolv.conf",
    "10.0.0.1",
    "tls://1.1.1.1",
    "policy",
    "random",
    "cache",
    "success",
    "denial",
    "hosts",
    "name.example",
    "rewrite",
    "name",
    "exact",
    "suffix",
    "regex",
    "(.*)\\.a\\.b",
    "{1}.c.d",
    "template",
    "IN",
    "A",
    "ANY",
    "match",
    "answer",
    "\"{{ .Name }} 60 IN A 10.0.0.1\"",
    "acl",
    "allow",
    "block",
    "net",
    "10.0.0.0/8",
    "{$X}",
    "{%Y%}",
    "log",
    "class",
    "10.96.0.0/33",
    "ünïcode",
    "fd00::/2",
];

const OPTIONS: [&str; 24] = [
    "--server=",
    "-S",
    "/a.example/",
    "/",
    "#",
    "10.0.0.1",
    "#5353",
    "@eth0",
    "--address=",
    "--host-record=",
    "a.example,",
    "300",
    "--cname=",
    "--addn-hosts=",
    "--rev-server=",
    "10.0.0.0/8,",
    "-kc",
    " ",
    "\n",
    "no-resolv",
    "\n",
    "txt-record=",
    "srv-host=",
    "ü",
];

fn never_panics(file: &str, flag: &str, text: &str) {
    let scratch = Scratch::new("import").unwrap();
    scratch.write(file, text).unwrap();
    let (outcome, dns, _) = printed(scratch.path(), &format!("{flag} {file}"));
    if outcome == Severity::Fine {
        passes_check(&dns).unwrap_or_else(|why| panic!("{why}\n{dns}\nof\n{text}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_corefiles_never_panic_and_results_pass_check(words in vec(select(&WORDS[..]), 0..120)) {
        never_panics("Corefile", "--corefile", &words.join(" "));
    }

    #[test]
    fn random_options_never_panic_and_results_pass_check(words in vec(select(&OPTIONS[..]), 0..60)) {
        never_panics("dnsmasq", "--dnsmasq", &words.concat());
    }

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        never_panics("any", "--corefile", &text);
        never_panics("any", "--dnsmasq", &text);
        never_panics("any", "--kube-dns-config", &format!("apiVersion: v1\nkind: ConfigMap\ndata: {{stubDomains: {text:?}, Corefile: {text:?}}}\n"));
    }
}
