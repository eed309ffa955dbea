//! The upstreams of a data plane that reads an API server, where resolv.conf names them (FW3).

use super::*;

/// A change is in use within this.
const WITHIN: Duration = Duration::from_secs(5);

#[test]
fn fw3_the_servers_of_another_resolv_conf_are_in_use_within_five_seconds() {
    let folder = Folder::new();
    let path = folder.0.join("resolv.conf");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write("nameserver 10.0.0.2\n");
    let mut sink =
        sink_with(Setup { resolv_conf: path.clone(), ..Setup::reporting_to(Arc::default()) });
    adopt(&mut sink, &json!({"format": 1}));
    let (state, status) = (sink.ingest.writer.state(), Arc::clone(&sink.ingest.status.shared));
    let servers = || -> Vec<String> {
        let published = state.published.load();
        published.upstreams.servers().iter().map(|server| server.address.to_string()).collect()
    };
    assert_eq!(servers(), ["10.0.0.2:53"]);
    let mut now = Instant::now();
    // More than once, and each time it is looked at again.
    for (text, wanted) in [
        ("nameserver 10.0.0.3\n", vec!["10.0.0.3:53"]),
        ("nameserver 127.0.0.53\nnameserver 10.0.0.4\n", vec!["10.0.0.4:53"]),
    ] {
        write(text);
        now += WITHIN;
        sink.tick(now);
        assert_eq!(servers(), wanted);
    }
    let publications = status.read().publications;
    sink.tick(now + WITHIN);
    assert_eq!(status.read().publications, publications, "it is the same file");
    sink.report();
    let warnings = status.read().warnings.join("\n");
    assert!(warnings.contains("nameserver 127.0.0.53"), "{warnings}");
}
