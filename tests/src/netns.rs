//! A network namespace of a test's own: addresses, ports, routes and sysctls that no other test and no program of the
//! machine sees, also without root where the system allows user namespaces.
//!
//! A thread cannot be moved there from safe code, so the test binary runs itself once more, for exactly this test,
//! below `unshare`. Everything the test starts is then inside, and gone when it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::control_plane::programs::{not_allowed, not_installed, not_run};

/// Names the test that the binary was run again for.
const INSIDE: &str = "CLUSTERDNS_TEST_NETNS";
/// The address that pods have of this machine, as of a node: what a test itself serves to them listens here.
pub const NODE_ADDRESS: &str = "192.0.2.1";
/// The Service `kubernetes`: the API server of the test, on its own port.
pub const API_SERVER_ADDRESS: &str = "10.96.0.1";
/// The beginning of a line that is printed also when the test passes.
pub const MEASURED: &str = "MEASURED";
/// Threads of the test's runtime: tests ask over blocking sockets while what they started must continue.
const RUNTIME_THREADS: usize = 4;

/// Before the test: a private /run, so that named namespaces are private too, loopback up, and forwarding between pods.
const SETUP: &str = r#"set -eu
mount -t tmpfs tmpfs /run
mkdir /run/netns
ip link set lo up
ip address add 10.96.0.1/32 dev lo
ip address add 192.0.2.1/32 dev lo
echo 1 >/proc/sys/net/ipv4/ip_forward
[ ! -e /proc/sys/net/ipv6/conf/all/forwarding ] || echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
exec "$@"
"#;

/// Runs this test inside a network namespace of its own:
///
/// ```ignore
/// #[test]
/// fn a_pod_answers() {
///     inside(async || { ... });
/// }
/// ```
///
/// The runtime has several threads, so blocking calls are allowed. The closure must be written in the test function
/// itself: its name is the test's.
///
/// # Panics
/// With the output of the test, when it fails inside. Where namespaces are impossible the test says that it did not
/// run; with CI set, that is a panic.
pub fn inside<F: AsyncFnOnce()>(test: F) {
    let name = test_of::<F>();
    if std::env::var(INSIDE).is_ok_and(|inside| inside == name) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(RUNTIME_THREADS)
            .enable_all()
            .build()
            .expect("a runtime");
        return runtime.block_on(test());
    }
    match &*UNSHARE {
        Ok(unshare) => run_again(unshare, &name),
        Err(reason) => not_run(&format!("network namespaces, which are impossible here: {reason}")),
    }
}

/// Adds an address to this namespace, for something that the test itself serves.
///
/// # Panics
/// Outside of [`inside`]: the machine's own addresses are not ours to change.
pub fn add_address(address: IpAddr) {
    assert!(
        std::env::var_os(INSIDE).is_some(),
        "addresses are added in a test's own namespace only"
    );
    let length = if address.is_ipv4() { 32 } else { 128 };
    let mut arguments = vec!["address".into(), "add".into(), format!("{address}/{length}")];
    arguments.extend(["dev".to_owned(), "lo".to_owned()]);
    if address.is_ipv6() {
        arguments.push("nodad".into());
    }
    ip(&arguments).unwrap_or_else(|error| panic!("{error:#}"));
}

/// Runs `ip` with these arguments; its standard error is the error.
///
/// # Errors
/// `ip` is not installed, or refuses them.
pub fn ip<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    let words: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
    anyhow::ensure!(
        output.status.success(),
        "ip {}: {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Runs these commands of nft, such as rules that drop packets; its standard error is the error.
///
/// # Errors
/// nft is not installed, or refuses them.
///
/// # Panics
/// Outside of [`inside`]: the machine's own packets are not ours to drop.
pub fn nft(commands: &str) -> anyhow::Result<()> {
    assert!(
        std::env::var_os(INSIDE).is_some(),
        "packets are dropped in a test's own namespace only"
    );
    let output = Command::new("nft").arg(commands).output()?;
    anyhow::ensure!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The same, and whether it was possible. Where it is not, the test says that it does not run.
///
/// # Panics
/// Where `nft` is missing on a machine that should have it.
pub fn has_nft(commands: &str) -> bool {
    match nft(commands) {
        Ok(()) => return true,
        Err(error) if error.is::<std::io::Error>() => not_installed("nft"),
        Err(error) => not_allowed(&format!("rules of nftables ({error})")),
    }
    false
}

/// Whether every user id exists here. Without root there is one only, and programs cannot run as another.
pub(crate) fn has_all_users() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let count = map.split_whitespace().nth(2).and_then(|count| count.parse::<u64>().ok());
    count.is_some_and(|count| count > u64::from(u16::MAX))
}

/// `module::test`, as the test runner names it, of a closure inside that test.
fn test_of<F>() -> String {
    let path = std::any::type_name::<F>();
    let path = path.split("::{{closure}}").next().unwrap_or(path);
    let (_crate, name) = path.split_once("::").expect("a closure inside a test");
    name.to_owned()
}

/// How to get a namespace on this machine: as root, or as root of a user namespace. `Err` says what is in the way.
static UNSHARE: LazyLock<Result<Vec<String>, String>> = LazyLock::new(|| {
    let mut reason = String::new();
    for flags in [&["--net", "--mount"][..], &["--user", "--map-root-user", "--net", "--mount"]] {
        let unshare: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let tried = command(&unshare).args(["true"]).output();
        match tried {
            Ok(output) if output.status.success() => return Ok(unshare),
            Ok(output) => reason = String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => return Err(format!("unshare (of util-linux): {error}")),
        }
    }
    Err(format!("{reason} (`unshare` of util-linux and `ip` of iproute2 are used)"))
});

fn command(unshare: &[String]) -> Command {
    let mut command = Command::new("unshare");
    command.args(unshare).args(["sh", "-c", SETUP, "sh"]);
    // Where `ip` is, where PATH does not contain it.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

fn run_again(unshare: &[String], name: &str) {
    let binary = std::env::current_exe().expect("the test binary");
    let mut child = command(unshare)
        .arg(binary)
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .env(INSIDE, name)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare ran before");
    let errors = child.stderr.take().map(|errors| std::thread::spawn(|| relayed(errors)));
    let mut said = child.stdout.take().map(relayed).unwrap_or_default();
    let status = child.wait().expect("a child can be waited for");
    said.push_str(&errors.and_then(|errors| errors.join().ok()).unwrap_or_default());
    assert!(status.success(), "{name} failed in its network namespace:\n{said}");
    assert!(said.contains("1 passed"), "the binary knows no test {name}:\n{said}");
}

/// All output of the test. Lines that a passing test prints for people are printed at once.
fn relayed(from: impl Read) -> String {
    let mut said = String::new();
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line);
        if text.starts_with("NOT RUN") || text.starts_with(MEASURED) {
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
        said.push_str(&text);
        line.clear();
    }
    said
}
