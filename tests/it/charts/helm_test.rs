//! What the pod of `helm test` finds: its script runs here, with a search list and an `nslookup` of ours.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tests::scratch::Scratch;

use super::helm;
use super::values::rendered;

/// How the test ends with these values of the chart in a pod with this resolv.conf, and what it prints.
fn run(values: &str, resolv_conf: &str) -> (bool, String) {
    let objects = rendered("release", "ns", &["--set", values]);
    let pod = objects.iter().find(|object| object["kind"] == "Pod").expect("a pod");
    let script = pod["spec"]["containers"][0]["command"][2].as_str().expect("a script");
    let folder = Scratch::new("helm-test").unwrap();
    folder.write("resolv.conf", resolv_conf).unwrap();
    folder.write("nslookup", "#!/bin/sh\necho \"asked $*\"\n").unwrap();
    let nslookup = folder.path().join("nslookup");
    std::fs::set_permissions(&nslookup, std::fs::Permissions::from_mode(0o755)).unwrap();
    let own = folder.path().join("resolv.conf").display().to_string();
    let script = script.replace("/etc/resolv.conf", &own);
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let shell = Command::new("/bin/sh").args(["-ec", &script]).env("PATH", path).output();
    let output = shell.expect("a shell");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

const PODS_SEARCH: &str = "nameserver 10.96.0.10\nsearch ns.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n";

#[test]
fn helm_test_fails_with_words_where_pods_search_another_domain() {
    if helm().is_none() {
        return;
    }
    let asked = |domain: &str| format!("asked kubernetes.default.svc.{domain}.");
    let (is_fine, said) = run("clusterDNS.create=true", PODS_SEARCH);
    assert!(is_fine && said.contains(&asked("cluster.local")), "{said}");

    let other = "clusterDNS.create=true,clusterDNS.spec.domain=corp.example";
    let (is_fine, said) = run(other, PODS_SEARCH);
    assert!(!is_fine && !said.contains("asked"), "{said}");
    for words in [
        "search names in: ns.svc.cluster.local svc",
        "svc.corp.example: else short names",
        "clusterDomain of the kubelets",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let (is_fine, said) = run(other, "search ns.svc.corp.example svc.corp.example corp.example");
    assert!(is_fine && said.contains(&asked("corp.example")), "{said}");

    // A trial is asked at its own address, and names that a person wrote are asked as they are.
    let (is_fine, said) = run(&format!("{other},test.server=10.96.0.77"), PODS_SEARCH);
    assert!(is_fine && said.contains("corp.example. 10.96.0.77"), "{said}");
    let (is_fine, said) =
        run(&format!("{other},test.names={{db.data.svc.corp.example}}"), PODS_SEARCH);
    assert!(is_fine && said.contains("asked db.data.svc.corp.example."), "{said}");
}
