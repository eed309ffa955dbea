//! The program over a folder with the system calls of docs/seccomp.json and no others (S9): it works, and one that is
//! refused too costs what needs it and no more.

use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use crate::descriptors::connect_all;
use crate::harness::{Answer, Folder, Process, address, wait_for};
use crate::{CART, cluster_dns, denying_upstream, service};

const PROFILE: &str = include_str!("../../../docs/seccomp.json");
/// What is refused: the call returns EPERM.
const EPERM: u32 = 1;

/// The system calls of the profile that this architecture has.
fn allowed() -> Vec<String> {
    let profile: Value = serde_json::from_str(PROFILE).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let names = profile["syscalls"][0]["names"].as_array().unwrap();
    let names = names.iter().map(|name| name.as_str().unwrap().to_owned());
    names.filter(|name| filter(&[name.as_str()]).is_ok()).collect()
}

/// A filter that lets these calls pass, and refuses all others.
fn filter(calls: &[&str]) -> Result<seccompiler::BpfProgram, seccompiler::Error> {
    let calls: Vec<Value> = calls.iter().map(|call| json!({"syscall": call})).collect();
    let filter = json!({"all": {
        "mismatch_action": {"errno": EPERM}, "match_action": "allow", "filter": calls,
    }});
    let arch = std::env::consts::ARCH.try_into().expect("a known architecture");
    let mut programs = seccompiler::compile_from_json(filter.to_string().as_bytes(), arch)?;
    Ok(programs.remove("all").expect("it was compiled"))
}

/// Starts the program with the system calls of the profile but these. The filter is that of a thread of its own and of
/// what this starts, so the test can do as it likes.
fn start(folder: &Folder, without: &[&str]) -> Process {
    let calls = allowed();
    let calls: Vec<&str> =
        calls.iter().map(String::as_str).filter(|call| !without.contains(call)).collect();
    let filter = filter(&calls).expect("all of them are known");
    thread::scope(|scope| {
        let starts = scope.spawn(|| {
            seccompiler::apply_filter(&filter).expect("any process may give up rights");
            Process::start(&folder.0, &[])
        });
        starts.join().unwrap()
    })
}

fn folder() -> Folder {
    let (folder, port) = (Folder::new(), denying_upstream());
    folder.write("a.yaml", &service("cart", "10.96.0.1"));
    let servers = format!("servers: [{{address: 127.0.0.1, port: {port}}}]");
    folder.write("dns.yaml", &cluster_dns(&format!("{{upstreams: {{{servers}}}}}")));
    folder
}

/// Answers of ours and of others, pages, and changes.
fn works(process: &Process, folder: &Folder) {
    assert_eq!(process.ask(CART), address("10.96.0.1"));
    assert_eq!(process.ask("www.example.org"), Answer::NxDomain);
    for path in ["/livez", "/readyz", "/metrics", "/config", "/upstreams", "/top"] {
        assert_eq!(process.get(path).0, 200, "{path}");
    }
    folder.write("a.yaml", &service("cart", "10.96.0.2"));
    process.wait_for_answer(CART, address("10.96.0.2"));
}

#[test]
fn s9_the_program_works_with_the_system_calls_of_its_profile_only() {
    let folder = folder();
    let mut process = start(&folder, &[]);
    works(&process, &folder);
    process.signal("TERM");
    assert_eq!(process.wait().code(), Some(0));
    let log = process.log();
    assert!(!log.contains("not permitted"), "{log}");
}

#[test]
fn s9_a_system_call_that_is_refused_costs_what_needs_it_and_no_more() {
    let folder = folder();
    let process =
        start(&folder, &["inotify_init1", "sched_getaffinity", "sched_setattr", "prlimit64"]);
    process.wait_for_log("no events from the file system");
    works(&process, &folder);
}

/// Where the process may neither read nor raise its limit, it still keeps descriptors for all but clients (WR44).
#[test]
fn s9_a_limit_of_descriptors_that_cannot_be_raised_counts_as_it_is() {
    let folder = folder();
    let process = start(&folder, &["prlimit64"]);
    process.wait_for_log("the limit on open descriptors stays as it is");
    // From outside: the shell could not set it either.
    let pid = process.child.id().to_string();
    let set = Command::new("prlimit").args(["--pid", &pid, "--nofile=256:256"]).status();
    assert!(set.unwrap().success(), "util-linux is there");
    // The limits of connections are worked out with each configuration.
    folder.write("dns.yaml", &cluster_dns("{logging: {level: Debug}}"));
    wait_for("the configuration", || {
        (process.config()["document"]["logging"]["level"] == "Debug").then_some(())
    });
    let open = connect_all(&process, 2, 160);
    assert_eq!(process.get("/readyz").0, 200);
    assert_eq!(process.metric("clusterdns_tcp_accept_failed_total"), 0.0);
    let open_now = || process.metric("clusterdns_tcp_connections");
    wait_for("half of the descriptors", || (open_now() <= 128.0).then_some(()));
    drop(open);
}
