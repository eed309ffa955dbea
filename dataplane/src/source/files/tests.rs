//! A folder whose data plane takes its upstreams from resolv.conf, and a resolv.conf that changes (FW3).
//! Reasons that end though the file of their object does not change.

use std::fs;
use std::time::{Duration, Instant};

use super::*;
use crate::snapshot::tests::Folder;

/// Generous: only a failure takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder without a ClusterDNS: its upstreams are those of resolv.conf, which is elsewhere.
struct Disk {
    manifests: Folder,
    elsewhere: Folder,
}

impl Disk {
    fn new() -> Disk {
        let disk = Disk { manifests: Folder::new(), elsewhere: Folder::new() };
        disk.write("nameserver 10.0.0.2\n");
        disk
    }

    fn resolv_conf(&self) -> PathBuf {
        self.elsewhere.0.join("resolv.conf")
    }

    fn write(&self, text: &str) {
        fs::write(self.resolv_conf(), text).unwrap();
    }

    fn open(&self) -> Files {
        self.opened().unwrap()
    }

    fn opened(&self) -> anyhow::Result<Files> {
        let resolv_conf = self.resolv_conf();
        let setup = Setup { resolv_conf, ..Setup::reporting_to(Arc::default()) };
        Files::open(&self.manifests.0, setup)
    }
}

/// The servers that serving threads ask.
fn servers(state: &State) -> Vec<String> {
    let published = state.published.load();
    published.upstreams.servers().iter().map(|server| server.address.to_string()).collect()
}

#[test]
fn fw3_a_folder_takes_the_servers_of_a_resolv_conf_that_changed() {
    let disk = Disk::new();
    let mut files = disk.open();
    let (state, status) = (files.state(), Arc::clone(&files.status));
    let publications = || status.read().publications;
    let before = publications();
    files.refresh_resolv_conf();
    assert_eq!(servers(&state), ["10.0.0.2:53"]);
    assert_eq!(publications(), before, "it is the same file");
    disk.write("nameserver 10.0.0.3\nnameserver 127.0.0.53\nnameserver 10.0.0.4\n");
    files.refresh_resolv_conf();
    assert_eq!(servers(&state), ["10.0.0.3:53", "10.0.0.4:53"]);
    let warnings = status.read().warnings.join("\n");
    assert!(warnings.contains("nameserver 127.0.0.53"), "{warnings}");
}

#[test]
fn fw3_the_thread_that_follows_a_folder_looks_at_resolv_conf_too() {
    let disk = Disk::new();
    let files = disk.open();
    let state = files.state();
    let _watch = files.watch().unwrap();
    disk.write("nameserver 10.0.0.3\n");
    // An event wakes the thread: the test does not wait until it looks without one.
    fs::write(disk.manifests.0.join("a.yaml"), "").unwrap();
    let started = Instant::now();
    while servers(&state) != ["10.0.0.3:53"] {
        assert!(started.elapsed() < PATIENCE, "{:?}", servers(&state));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A slice of `db` with these numbers of names, all at one address.
fn slice_of_names(name: &str, numbers: std::ops::Range<usize>) -> String {
    let mut text = format!(
        "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: db}}}}
addressType: IPv4
endpoints:
"
    );
    for number in numbers {
        text.push_str(&format!(
            "- {{addresses: [10.0.0.7], hostname: h-{number}, conditions: {{ready: true}}}}\n"
        ));
    }
    text
}

#[test]
fn e15_a_reason_that_another_object_ended_is_not_shown_after_a_tick() {
    let disk = Disk::new();
    fs::write(disk.manifests.0.join("many.yaml"), slice_of_names("many", 0..64)).unwrap();
    fs::write(disk.manifests.0.join("one.yaml"), slice_of_names("one", 64..65)).unwrap();
    let mut files = disk.open();
    let status = Arc::clone(&files.status);
    let skipped = || status.read().skipped.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    assert_eq!(skipped(), ["one"], "65 names of one address");
    files.tick();
    assert_eq!(skipped(), ["one"]);
    fs::remove_file(disk.manifests.0.join("many.yaml")).unwrap();
    files.refresh();
    files.tick();
    assert_eq!(skipped(), Vec::<String>::new());
}

const HEAD: &str = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\n";

#[test]
fn a_cluster_dns_that_loses_its_spec_leaves_the_configuration_in_use() {
    let stubs = "stubDomains:\n- {domain: corp.example, servers: [{address: 10.0.0.1}]}\n";
    let indented = stubs.replace("\n-", "\n  -").replacen("stub", "  stub", 1);
    let head = format!("{HEAD}metadata: {{name: default}}\n");
    for half in ["", "spec:\n", &format!("spec:\n{stubs}")] {
        let disk = Disk::new();
        let write = |text: &str| fs::write(disk.manifests.0.join("dns.yaml"), text).unwrap();
        write(&format!("{head}spec:\n{indented}"));
        let mut files = disk.open();
        let revision = files.status.read().running.revision.clone();
        let configs = files.configs();
        write(&format!("{head}{half}"));
        files.refresh();
        assert_eq!(files.status.read().running.revision, revision, "{half:?}");
        assert_eq!(configs.borrow().stub_domains.len(), 1, "{half:?}");
        let rejection = files.status.read().rejection.clone().expect("a rejection");
        assert_eq!(rejection.violations[0].field, "spec", "{half:?}");
        assert!(rejection.violations[0].message.contains("write spec: {}"), "{rejection:?}");
        write(&format!("{head}spec: {{}}\n"));
        files.refresh();
        assert_eq!(files.status.read().rejection, None);
        assert_eq!(configs.borrow().stub_domains.len(), 0, "meant so");
        write(&format!("{head}{half}"));
        let why = disk.opened().err().map(|why| format!("{why:#}")).unwrap_or_default();
        assert!(why.contains("spec: is missing or empty"), "{half:?}: {why}");
    }
}

#[test]
fn a_cluster_dns_that_was_refused_is_not_the_one_in_use() {
    let dns = |name: &str, spec: &str| format!("{HEAD}metadata: {{name: {name}}}\nspec: {spec}\n");
    let host = |address: &str| format!("{{hosts: [{{name: a.example, addresses: [{address}]}}]}}");
    let disk = Disk::new();
    let write = |file: &str, text: &str| fs::write(disk.manifests.0.join(file), text).unwrap();
    write("dns.yaml", &dns("default", &host("10.20.0.5")));
    let mut files = disk.open();
    let refused = "{stubDomains: [{domain: cluster.local, servers: [{address: 10.0.0.1}]}]}";
    write("dns.yaml", &dns("zother", refused));
    files.refresh();
    assert!(files.status.read().rejection.is_some());
    write("dns2.yaml", &dns("default", &host("10.20.0.99")));
    files.refresh();
    let running = files.status.read().running.clone();
    assert_eq!(running.origin, "ClusterDNS \"default\" in dns2.yaml");
    assert_eq!(running.document["hosts"][0]["addresses"][0], "10.20.0.99");
    assert_eq!(files.status.read().rejection, None);
    let warnings = files.status.read().warnings.join("\n");
    assert!(warnings.contains("\"default\" in dns2.yaml is used"), "{warnings}");
    assert!(warnings.contains("\"zother\" in dns.yaml is not"), "{warnings}");
}

#[test]
fn a_folder_whose_cluster_dns_has_a_misspelled_head_is_refused() {
    let spec = "metadata: {name: main}\nspec: {stubDomains: [{domain: corp.example, servers: [{address: 10.0.0.1}]}]}\n";
    for head in [
        "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDns\n",
        "apiVersion: clusterdns.dev/v1alpha1\nkind: DNS\n",
        "kind: ClusterDNS\n",
        "apiVersion: v1alpha1\nkind: ClusterDNS\n",
        "apiVersion: v1alpha1\nkind: clusterdns\nbroken: [\n",
    ] {
        let disk = Disk::new();
        fs::write(disk.manifests.0.join("dns.yaml"), format!("{head}{spec}")).unwrap();
        let why = disk.opened().err().map(|why| format!("{why:#}"));
        assert!(why.as_ref().is_some_and(|why| why.contains("dns.yaml")), "{head}: {why:?}");
    }
}
