//! Until something is served: command lines that cannot work, and what answers meanwhile.

use std::net::{TcpListener, UdpSocket};

use super::harness::{Folder, Process, log_until, run};
use super::namespaces::in_namespaces;
use super::{cluster_dns, service, serving};

#[test]
fn what_cannot_work_fails_at_once_and_says_what_to_do() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let broken = Folder::new();
    broken.write("dns.yaml", "kind: ClusterDNS\n  spec: [\n");
    let refused = Folder::new();
    refused.write("dns.yaml", &cluster_dns("{ttlSeconds: soon}"));
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = tcp.local_addr().unwrap().to_string();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken_udp = udp.local_addr().unwrap().to_string();
    let [good, broken, refused] = [&folder, &broken, &refused].map(|f| f.0.to_str().unwrap());
    let free = "127.0.0.1:0";
    let rows: [(&[&str], &str); 13] = [
        (&["--kubeconfig", "/no/such/file"], "cannot use the kubeconfig /no/such/file"),
        (&[], "--manifests DIR serves a folder"),
        (&["--manifests", "/no/such/folder"], "cannot read the folder /no/such/folder"),
        (&["--manifests", good, "--listen", "localhost:53"], "names such as localhost"),
        (&["--manifests", good, "--workers", "many"], "invalid value 'many'"),
        (&["--manifests", good, "--listen", &taken, "--http", free], &taken),
        (&["--manifests", good, "--listen", &taken_udp, "--http", free], &taken_udp),
        (&["--manifests", good, "--listen", free, "--http", &taken], "choose another with --http"),
        (
            &["--manifests", good, "--listen", "127.0.0.1:9,127.0.0.1:9"],
            "--listen 127.0.0.1:9 and --listen 127.0.0.1:9 overlap",
        ),
        (
            &["--manifests", good, "--listen", "0.0.0.0:9", "--listen", "127.0.0.1:9"],
            "--listen 0.0.0.0:9 and --listen 127.0.0.1:9 overlap",
        ),
        (
            &["--manifests", good, "--listen", "127.0.0.1:9", "--http", "127.0.0.1:9"],
            "--http 127.0.0.1:9 and --listen 127.0.0.1:9 overlap",
        ),
        (&["--manifests", broken, "--listen", free, "--http", free], "dns.yaml: line 2"),
        (
            &["--manifests", refused, "--listen", free, "--http", free],
            "line 4: spec.ttlSeconds: expected a whole number from 0 to 3600, found \"soon\"",
        ),
    ];
    for (flags, expected) in rows {
        let output = run(flags);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{flags:?} must not succeed");
        assert!(message.contains(expected), "{flags:?}: {message}");
        let errors = message.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(errors.count(), 1, "one clear message: {message}");
    }
}

#[test]
fn a_taken_port_is_reported_before_the_manifests_are_read() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = tcp.local_addr().unwrap().to_string();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken_udp = udp.local_addr().unwrap().to_string();
    let free = "127.0.0.1:0";
    for (listen, http) in [(taken.as_str(), free), (&taken_udp, free), (free, &taken)] {
        let folder = folder.0.to_str().unwrap();
        let more = ["--listen", listen, "--http", http, "--log-level", "debug"];
        let output = run(&[&["--manifests", folder], &more[..]].concat());
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && log.contains("cannot listen"), "{log}");
        assert!(!log.contains("reading manifests"), "{log}");
    }
}

/// The machine without IPv6 is a network namespace of its own, where the kernel lets us have one.
#[test]
fn a_listening_family_that_is_missing_is_no_error() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let script =
        "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && ip link set lo up && exec \"$@\"";
    let Some(namespace) = in_namespaces("-rn", script) else { return };
    let folder = folder.0.to_str().unwrap();
    // The log is read as text: without a flag it has the form of the configuration.
    let flags = ["--manifests", folder, "--http", "127.0.0.1:0", "--log-format", "text"];
    let both = [&flags[..], &["--listen", "127.0.0.1:0", "--listen", "[::1]:0"]].concat();
    let log = log_until(&namespace, &both, "answering");
    assert!(
        log.contains("this machine does not have the address family") && log.contains("[::1]"),
        "{log}"
    );
    assert!(log.contains("addresses=[127.0.0.1:"), "{log}");
    let only = [&flags[..], &["--listen", "[::1]:0"]].concat();
    let log = log_until(&namespace, &only, "error: ");
    assert!(log.contains("choose an address of the other with --listen"), "{log}");
}

#[test]
fn livez_answers_while_manifests_are_read() {
    let folder = Folder::new();
    // Long enough to read that the probes come first, on any machine.
    let many: String = (0..100_000).map(|n| service(&format!("s{n}"), "10.96.0.1")).collect();
    folder.write("a.yaml", &many);
    let process = Process::start_reading(&folder.0);
    assert_eq!(process.get("/livez"), (200, "ok\n".to_owned()));
    let (status, why) = process.get("/readyz");
    assert_eq!(status, 503);
    assert!(why.contains("no complete list of services has been read yet"), "{why}");
    for page in ["/metrics", "/config"] {
        assert_eq!(process.get(page).0, 503, "{page}");
    }
    assert!(!process.log().contains("manifests read"), "{}", process.log());
}

#[test]
fn version_and_help_are_printed() {
    let version = String::from_utf8(run(&["--version"]).stdout).unwrap();
    assert_eq!(version, format!("clusterdns-dataplane {}\n", env!("CARGO_PKG_VERSION")));
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    assert!(help.contains("--drain-seconds") && help.contains("Examples:"), "{help}");
}

#[test]
fn a_signal_while_manifests_are_read_ends_the_process_at_once() {
    let folder = Folder::new();
    // Long enough to read that the signal comes first, on any machine.
    let many: String = (0..100_000).map(|n| service(&format!("s{n}"), "10.96.0.1")).collect();
    folder.write("a.yaml", &many);
    for signal in ["INT", "TERM"] {
        let mut process = Process::start_reading(&folder.0);
        process.signal(signal);
        assert_eq!(process.wait().code(), Some(0), "{signal}");
        assert!(!process.log().contains("manifests read"), "{}", process.log());
    }
}

/// The machine says another size of its large pages in a mount namespace of its own, where the kernel lets us have one.
#[test]
fn large_pages_of_more_than_2_mib_are_refused() {
    let of_2_mib = "size=$(mktemp) && echo 2097152 > $size && \
        mount --bind $size /sys/kernel/mm/transparent_hugepage/hpage_pmd_size && rm $size && exec \"$@\"";
    let of_32_mib = "size=$(mktemp) && echo 33554432 > $size && \
        mount --bind $size /sys/kernel/mm/transparent_hugepage/hpage_pmd_size && rm $size && exec \"$@\"";
    let folder = Folder::new();
    for (script, may_have_them) in [(of_2_mib, 1), (of_32_mib, 0)] {
        let Some(by) = in_namespaces("-rm", script) else { return };
        let process = Process::start_by(&by, &folder.0, &[]);
        assert_eq!(process.in_status("THP_enabled:"), may_have_them, "{script}");
    }
}

/// In a process with threads the system call that makes the table grow waits for some 20 ms, on the thread that answers.
#[test]
fn fw53_there_is_room_for_descriptors_before_there_are_threads() {
    const ROOM: u64 = 16_384;
    let (_folder, process) = serving();
    let limit = dataplane_udp::raise_descriptor_limit().unwrap();
    let size = process.in_status("FDSize:");
    assert!(size >= limit.min(ROOM), "{size} of {limit}");
}

/// The first process of a container loses a signal that it neither catches nor holds back. Here one waits from before the start.
#[test]
fn a_signal_before_signals_are_caught_ends_the_process() {
    let folder = Folder::new();
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let script = "kill -TERM $$; exec \"$0\" \"$@\"";
    let waits = ["timeout", "-sKILL", "60", "env", "--block-signal=TERM", "sh", "-c", script];
    let flags = ["--manifests", folder.0.to_str().unwrap(), "--http", "127.0.0.1:0"];
    let more = ["--listen", "127.0.0.1:0", "--log-format", "text"];
    let log =
        log_until(&waits, &[&flags[..], &more].concat(), "asked to end before anything was served");
    assert!(!log.contains("answering"), "{log}");
}

#[test]
fn signals_are_held_back_before_there_are_threads_and_come_later() {
    let (_folder, mut process) = serving();
    let first = process.in_status_as_text("SigBlk:");
    let held_back = u64::from_str_radix(&first, 16).unwrap();
    // SIGINT is 2, SIGTERM 15: the first thread started all others so.
    assert_eq!(held_back & (1 << 1 | 1 << 14), 1 << 1 | 1 << 14, "{first}");
    process.signal("INT");
    assert_eq!(process.wait().code(), Some(0));
}
