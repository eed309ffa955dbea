//! Where the alerts of a release lead: to the runbook pages of its version, wherever that is published.

use std::fs;
use std::process::Command;

use super::Tree;
use crate::architecture::root;
use crate::charts::helm;

/// What an alert of a release links to is where that release is published.
#[test]
fn alerts_of_a_release_link_to_the_pages_of_its_version() {
    let Some(helm) = helm() else { return };
    let tree = Tree::new();
    for folder in ["charts/clusterdns", "charts/manifests", "tests/tools"] {
        let to = tree.path().join(folder);
        fs::create_dir_all(to.parent().expect("a folder")).expect("can be made");
        let _ = fs::remove_dir_all(&to);
        let copied = Command::new("cp").arg("-R").arg(root().join(folder)).arg(&to).status();
        assert!(copied.expect("coreutils").success());
    }
    let github = "https://forge.example.com/dns/clusterdns/blob/v1.2.3/docs/runbooks";
    let own = "https://docs.example.com/runbooks";
    let server = ("GITHUB_SERVER_URL", "https://forge.example.com");
    let repository = ("GITHUB_REPOSITORY", "dns/clusterdns");
    for (variables, link) in [
        (&[server, repository][..], Some(github)),
        (&[("RUNBOOKS_URL", "https://docs.example.com/runbooks/"), repository], Some(own)),
        (&[], None),
    ] {
        let out = tree.path().join("target/release-1.2.3");
        let _ = fs::remove_dir_all(&out);
        let output = Command::new("sh")
            .current_dir(tree.path())
            .args([".ci/release", "chart", "1.2.3"])
            .env_remove("RUNBOOKS_URL")
            .env_remove("GITHUB_SERVER_URL")
            .env_remove("GITHUB_REPOSITORY")
            .envs(variables.iter().copied())
            .output()
            .expect("a shell");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let plain = fs::read_to_string(out.join("manifests/operator.yaml")).expect("plain YAML");
        let flag = link.map(|link| format!("        - \"--runbook-base-url={link}\"\n"));
        match &flag {
            Some(flag) => assert!(plain.contains(flag), "{plain}"),
            None => assert!(!plain.contains("runbook"), "{plain}"),
        }
        let version = env!("CARGO_PKG_VERSION");
        let chart = out.join(format!("chart/clusterdns-{version}.tgz"));
        let output = Command::new(&helm)
            .args(["template", "x"])
            .arg(chart)
            .args(["--set", "metrics.prometheusRule=true"])
            .output();
        let rendered = String::from_utf8(output.expect("helm").stdout).expect("text");
        let of_alert = link.map(|link| format!("runbook_url: {link}/ClusterDNSNotReady.md"));
        match of_alert {
            Some(of_alert) => assert!(rendered.contains(&of_alert), "{rendered}"),
            None => assert!(!rendered.contains("runbook_url"), "{rendered}"),
        }
        assert!(flag.is_none_or(|flag| rendered.contains(&flag)), "{rendered}");
        assert!(rendered.contains("runbook: docs/runbooks/ClusterDNSNotReady.md"), "{rendered}");
    }
}
