//! The name servers of resolv.conf (FW3): all of them, up to 15; `search` and `options` are ignored.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use process::bounded_file;

/// Servers of a group (A34).
const MAX_SERVERS: usize = 15;
/// What a line of a name server begins with.
const KEYWORD: &str = "nameserver";
/// Octets that are read: no real file comes near it.
const MAX_BYTES: u64 = 64 << 10;

/// The file of this machine or pod, and the one in which systemd-resolved names the servers that it asks. While that runs, the
/// first names only its own loopback address. Kubelets of such a machine read the second too; a pod does not have it.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// Where systemd-resolved answers.
const RESOLVED: [&str; 2] = ["127.0.0.53", "127.0.0.54"];

/// The part of resolv.conf that we use. If two are equal, the file did not change in a way that matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvConf {
    /// At most 15, in the order of the file.
    pub servers: Vec<IpAddr>,
    /// What was skipped and why, and what to do about it.
    pub problems: Vec<String>,
}

impl ResolvConf {
    /// The file that is read: the one of systemd-resolved only where the usual one names that alone.
    pub fn of_this_machine() -> PathBuf {
        file_with_servers(FILES.map(Path::new)).to_owned()
    }

    /// Reads the file; one that cannot be read has no servers, and a problem that says so.
    pub fn read(path: &Path) -> ResolvConf {
        match bounded_file::read(path, MAX_BYTES) {
            Ok(text) => ResolvConf::parse(&text, path),
            Err(error) => {
                let why = match error.kind() {
                    ErrorKind::NotFound => "does not exist".to_owned(),
                    _ => format!("cannot be read ({error})"),
                };
                let problem = format!(
                    "{} {why}: names outside the cluster cannot be resolved; write servers \
                     under upstreams instead",
                    path.display()
                );
                ResolvConf { servers: Vec::new(), problems: vec![problem] }
            }
        }
    }

    /// Reads the file again. One that names no server any more leaves the servers that are used, with a problem that
    /// says so: the file may be between two writes, and clients need names outside of the cluster.
    pub fn reread(&self, path: &Path) -> ResolvConf {
        let mut read = ResolvConf::read(path);
        if read.servers.is_empty() && !self.servers.is_empty() {
            read.servers.clone_from(&self.servers);
            read.problems.push(format!(
                "{}: the name servers that it named before are still used",
                path.display()
            ));
        }
        read
    }

    fn parse(text: &[u8], path: &Path) -> ResolvConf {
        let mut found = ResolvConf::default();
        let lines: Vec<&[u8]> = text.split(|octet| *octet == b'\n').map(without_zone).collect();
        // Lines with errors are left out by the parser. Those of other keywords do not matter here.
        let is_nameserver = |number: usize| {
            let line = lines.get(number).copied().unwrap_or_default();
            line.trim_ascii_start().starts_with(KEYWORD.as_bytes())
        };
        let (file, errors) = resolv_conf::Config::parse_with_errors(&lines.join(&b'\n'));
        let of_addresses = errors.iter().filter_map(|error| match error {
            resolv_conf::ParseError::InvalidIp(line, _) if is_nameserver(*line) => Some(line + 1),
            _ => None,
        });
        found.problems.extend(of_addresses.take(MAX_SERVERS).map(|line| {
            format!("{}: line {line} names no IP address, and is left out", path.display())
        }));
        for server in file.nameservers {
            let address = IpAddr::from(server);
            let reason = if address.to_canonical().is_loopback() || address.is_unspecified() {
                "it is an address of this machine or pod itself, not of a name server"
            } else if is_of_one_link(address) {
                "addresses of one link cannot be used"
            } else if found.servers.contains(&address) {
                continue;
            } else if found.servers.len() == MAX_SERVERS {
                "15 name servers are used and no more"
            } else {
                found.servers.push(address);
                continue;
            };
            found.problems.push(format!("{}: nameserver {address}: {reason}", path.display()));
        }
        if found.servers.is_empty() {
            found.problems.push(format!(
                "{} has no usable nameserver: names outside the cluster cannot be resolved; \
                 write servers under upstreams instead",
                path.display()
            ));
        }
        found
    }
}

/// The other file where the usual one names no server but systemd-resolved, else the usual one. The other may name servers
/// later: a laptop that starts before its network.
fn file_with_servers([usual, other]: [&Path; 2]) -> &Path {
    let is_of_resolved = ResolvConf::read(usual).servers.is_empty()
        && bounded_file::read(usual, MAX_BYTES).is_ok_and(|text| {
            let lines = text.split(|octet| *octet == b'\n').map(<[u8]>::trim_ascii);
            let stubs = RESOLVED.map(|address| format!("{KEYWORD} {address}").into_bytes());
            lines.into_iter().any(|line| stubs.iter().any(|stub| line == stub))
        });
    if is_of_resolved && other.exists() { other } else { usual }
}

/// A line without the zone of an IPv6 address, as `%eth0`. It means nothing where the address is one of the network, an address of
/// one link cannot be used with it either, and the parser refuses zones such as `%br-lan`.
fn without_zone(line: &[u8]) -> &[u8] {
    let before = line.iter().position(|octet| *octet == b'%').and_then(|at| line.get(..at));
    let is_address = |text: &str| {
        let word = text.trim().strip_prefix(KEYWORD);
        word.is_some_and(|word| word.trim_start().parse::<Ipv6Addr>().is_ok())
    };
    let is_zone = |before: &&[u8]| str::from_utf8(before).is_ok_and(is_address);
    before.filter(is_zone).unwrap_or(line)
}

/// `fe80::/10` (RFC 4291 §2.5.6): without its link nothing can be sent to it, and in a pod the link is another one.
fn is_of_one_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Vec<String>, usize) {
        let found = ResolvConf::parse(text.as_bytes(), Path::new("resolv.conf"));
        (found.servers.iter().map(IpAddr::to_string).collect(), found.problems.len())
    }

    #[test]
    fn fw3_every_nameserver_line_counts_and_nothing_else() {
        let text = "search a.example\nnameserver 10.0.0.2\n# nameserver 10.9.9.9\n\
                    nameserver fd00::2\noptions ndots:5 nonsense:x\nnameserver 10.0.0.4\n\
                    nameserver 10.0.0.5\nnameserver 10.0.0.2\n";
        assert_eq!(
            parse(text),
            (["10.0.0.2", "fd00::2", "10.0.0.4", "10.0.0.5"].map(String::from).into(), 0)
        );
    }

    #[test]
    fn fw3_loopback_is_skipped_and_reported() {
        let text = "nameserver 127.0.0.53\nnameserver ::1\nnameserver 10.0.0.2\n";
        assert_eq!(parse(text), (vec!["10.0.0.2".into()], 2));
        assert_eq!(parse("nameserver 127.0.0.53\n"), (vec![], 2));
        assert_eq!(parse(""), (vec![], 1));
    }

    #[test]
    fn fw3_an_address_of_one_link_is_skipped_and_reported() {
        let text = "nameserver fe80::1%eth0\nnameserver fe80::2\nnameserver 10.0.0.2\n";
        assert_eq!(parse(text), (vec!["10.0.0.2".into()], 2));
    }

    #[test]
    fn fw3_the_zone_of_an_address_of_the_network_is_left_out() {
        for zone in ["%ens3", "%br-lan", "%eth0.100", "%2", "%", "%ens3 # 50 %", "%ens3\r"] {
            let text = format!("nameserver 2001:db8::53{zone}\n");
            assert_eq!(parse(&text), (vec!["2001:db8::53".into()], 0), "{text:?}");
        }
        let text =
            "nameserver fd00::53%eth0\n nameserver\tfd00::53%eth1\nnameserver fd00::54 # 5 %\n";
        assert_eq!(parse(text), (["fd00::53", "fd00::54"].map(String::from).into(), 0));
        let text = "nameserver fe80::1%br-lan\nnameserver ::1%lo\nnameserver 10.0.0.1%eth0\n";
        let found = ResolvConf::parse(text.as_bytes(), Path::new("resolv.conf"));
        assert!(found.servers.is_empty(), "{:?}", found.servers);
        let said = |words: &str| found.problems.iter().any(|problem| problem.contains(words));
        for words in [
            "fe80::1: addresses of one link",
            "::1: it is an address of this machine",
            "line 3 names no IP address",
        ] {
            assert!(said(words), "{words}: {:?}", found.problems);
        }
    }

    #[test]
    fn fw3_a_line_without_an_address_is_left_out_and_reported() {
        let text = "sortlist no-address\nnameserver 10.0.0.256\nnameserver 10.0.0.2\n";
        assert_eq!(parse(text), (vec!["10.0.0.2".into()], 1));
        let found = ResolvConf::parse(text.as_bytes(), Path::new("resolv.conf"));
        assert!(found.problems[0].contains("line 2 names no IP address"), "{:?}", found.problems);
    }

    #[test]
    fn fw3_a_file_without_servers_leaves_those_that_are_used() {
        let path = std::env::temp_dir().join(format!("resolv.conf-{}", std::process::id()));
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("nameserver 10.0.0.2\n");
        let first = ResolvConf::default().reread(&path);
        assert_eq!((first.servers.len(), first.problems.len()), (1, 0));
        for text in ["", "nameserver 127.0.0.53\n"] {
            write(text);
            let kept = first.reread(&path);
            assert_eq!(kept.servers, first.servers, "{text:?}");
            assert!(kept.problems.last().unwrap().ends_with("still used"), "{:?}", kept.problems);
            assert_eq!(kept.reread(&path), kept, "nothing new the next time");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(first.reread(&path).servers, first.servers);
        assert!(ResolvConf::default().reread(&path).servers.is_empty());
    }

    #[test]
    fn fw3_a_file_that_is_too_large_is_not_read_in_part() {
        let path = std::env::temp_dir().join(format!("large-resolv.conf-{}", std::process::id()));
        let fill = "#".repeat(MAX_BYTES as usize);
        std::fs::write(&path, format!("nameserver 10.0.0.2\n{fill}\nnameserver 10.0.0.3\n"))
            .unwrap();
        let found = ResolvConf::read(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(found.servers.is_empty(), "{:?}", found.servers);
        let problem = &found.problems[0];
        for words in ["it has 65577 octets, and at most 65536", "write servers under upstreams"] {
            assert!(problem.contains(words), "{words}: {problem}");
        }
    }

    #[test]
    fn fw3_a_file_that_names_only_systemd_resolved_gives_way_to_that_of_its_servers() {
        let file = |name: &str| {
            std::env::temp_dir().join(format!("{name}-resolv.conf-{}", std::process::id()))
        };
        let (usual, other) = (file("usual"), file("resolved"));
        let chosen = || file_with_servers([&usual, &other]).to_owned();
        let (stub, real) = ("nameserver 127.0.0.53\n", "nameserver 10.0.0.2\n");
        std::fs::write(&usual, stub).unwrap();
        assert_eq!(chosen(), usual, "as in a pod: there is no other file");
        let both = format!("{stub}{real}");
        for (text, of_other, expected) in [
            (stub, real, &other),
            // Its network comes later.
            (stub, "", &other),
            (real, real, &usual),
            (&*both, real, &usual),
            // Another program of this machine.
            ("nameserver 127.0.0.1\n", real, &usual),
            ("", real, &usual),
        ] {
            std::fs::write(&usual, text).unwrap();
            std::fs::write(&other, of_other).unwrap();
            assert_eq!(&chosen(), expected, "{text:?} {of_other:?}");
        }
        std::fs::remove_file(&usual).unwrap();
        std::fs::remove_file(&other).unwrap();
    }

    #[test]
    fn fw3_fifteen_servers_and_no_more() {
        let text: String = (1..=20).map(|i| format!("nameserver 10.0.0.{i}\n")).collect();
        let (servers, problems) = parse(&text);
        assert_eq!((servers.len(), problems), (15, 5));
    }

    #[test]
    fn a_missing_file_is_a_problem_and_not_a_failure() {
        let found = ResolvConf::read(Path::new("/nonexistent/resolv.conf"));
        assert!(found.servers.is_empty());
        assert!(found.problems[0].starts_with("/nonexistent/resolv.conf does not exist"));
    }
}
