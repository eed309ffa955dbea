//! The upstream groups of one configuration: who may be asked, over what, and what was refused.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crds::config::{self, Config, GroupOptions, Policy, Server};
use dataplane_core::{ServerCounters, TtlCaps};
use tokio::sync::Semaphore;

use super::down::{Down, Failing};
use super::resolv_conf::ResolvConf;

/// Port of DNS, for the servers of resolv.conf.
const DNS_PORT: u16 = 53;
/// What the group of the default upstreams is called.
const DEFAULT_GROUP: &str = "upstreams";

/// Servers no longer configured whose counts are kept.
const MAX_FORMER: usize = 256;

/// The upstream groups of one configuration; the default has none.
#[derive(Debug)]
pub struct Upstreams {
    /// Group 0 is that of the default upstreams, `i + 1` that of stub domain `i`.
    groups: Vec<Option<Group>>,
    /// Shared with earlier configurations: lookups that those began still count.
    servers: Vec<Arc<ServerCounters>>,
    /// One for each of `servers`.
    failing: Vec<Arc<Failing>>,
    /// Servers of earlier configurations, in case they come back; the newest first.
    former: Vec<Arc<ServerCounters>>,
    problems: Vec<String>,
    resolv_conf: Option<ResolvConf>,
    pub(super) max_in_flight: usize,
    pub(super) max_in_flight_per_client: usize,
    /// Sockets towards upstreams (`upstreamPorts`, FW10).
    pub(super) sockets: Semaphore,
}

/// The servers of one route.
#[derive(Debug)]
pub(super) struct Group {
    /// `upstreams`, or the stub domain.
    name: String,
    /// Those that can be asked, in configured order.
    pub(super) members: Vec<Member>,
    /// Of these the ones that are not ourselves, found at the first lookup.
    askable: OnceLock<Vec<Member>>,
    pub(super) policy: Policy,
    /// Lookups so far, for `roundRobin`.
    pub(super) lookups: AtomicUsize,
    pub(super) in_flight: Arc<AtomicUsize>,
    pub(super) max_in_flight: usize,
    pub(super) caps: TtlCaps,
}

/// A server in a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Its place among [`Upstreams::servers`].
    pub(super) server: usize,
    pub(super) transport: Transport,
}

/// What we can ask over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

impl Group {
    /// The members that `is_other` says are not ourselves; looked at once.
    pub(super) fn askable(&self, is_other: impl Fn(&Member) -> bool) -> &[Member] {
        self.askable.get_or_init(|| self.members.iter().filter(|m| is_other(m)).copied().collect())
    }
}

impl Default for Upstreams {
    fn default() -> Upstreams {
        let config = Config { upstreams: config::Upstreams::None, ..Config::default() };
        Upstreams::of(&config, Path::new(""))
    }
}

impl Upstreams {
    /// Builds the groups; `resolv_conf` is read only if the configuration says so (FW3).
    pub fn of(config: &Config, resolv_conf: &Path) -> Upstreams {
        let limits = &config.limits;
        let mut upstreams = Upstreams {
            groups: Vec::with_capacity(1 + config.stub_domains.len()),
            servers: Vec::new(),
            failing: Vec::new(),
            former: Vec::new(),
            problems: Vec::new(),
            resolv_conf: None,
            max_in_flight: limits.in_flight as usize,
            max_in_flight_per_client: limits.in_flight_per_client as usize,
            sockets: Semaphore::new(ports(limits.upstream_ports)),
        };
        let default = match &config.upstreams {
            config::Upstreams::FromResolvConf(options) => {
                let file = ResolvConf::read(resolv_conf);
                upstreams.problems.extend(file.problems.iter().cloned());
                let servers: Vec<Server> = file.servers.iter().map(|ip| plain(*ip)).collect();
                upstreams.resolv_conf = Some(file);
                Some(upstreams.group_of(DEFAULT_GROUP, &servers, options, config))
            }
            config::Upstreams::Servers(group) => {
                Some(upstreams.group_of(DEFAULT_GROUP, &group.servers, &group.options, config))
            }
            config::Upstreams::None => None,
        };
        upstreams.groups.push(default);
        for stub in &config.stub_domains {
            let (servers, options) = (&stub.group.servers, &stub.group.options);
            let group = upstreams.group_of(&stub.domain, servers, options, config);
            upstreams.groups.push(Some(group));
        }
        upstreams
    }

    /// Goes on counting for the servers of earlier configurations: `servers.bind.` counts since the process started
    /// (§2.4).
    pub fn continuing(mut self, earlier: &Upstreams) -> Upstreams {
        for (server, failing) in self.servers.iter_mut().zip(&mut self.failing) {
            let is_same = |s: &&Arc<ServerCounters>| s.address == server.address;
            if let Some(place) = earlier.servers.iter().position(|s| is_same(&s)) {
                *failing = Arc::clone(&earlier.failing[place]);
            }
            if let Some(same) = earlier.servers.iter().chain(&earlier.former).find(is_same) {
                *server = Arc::clone(same);
            }
        }
        let is_gone = |former: &&Arc<ServerCounters>| {
            self.servers.iter().all(|server| server.address != former.address)
        };
        let gone = earlier.servers.iter().chain(&earlier.former).filter(is_gone);
        self.former = gone.take(MAX_FORMER).cloned().collect();
        self
    }

    /// Each server once, default group first, then stub domains as written (A55).
    pub fn servers(&self) -> &[Arc<ServerCounters>] {
        &self.servers
    }

    /// Servers that are not used and settings that have no effect: what, why, and what to write.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// What was read of resolv.conf, if it is used: read again (at least every 5 s, FW3) and
    /// found different, it means new `Upstreams`.
    pub fn resolv_conf(&self) -> Option<&ResolvConf> {
        self.resolv_conf.as_ref()
    }

    pub(super) fn failing(&self, member: Member) -> &Failing {
        &self.failing[member.server]
    }

    /// Servers that have failed every attempt for at least a minute, in each group that they are in; at most `most`.
    pub fn down(&self, now: Instant, most: usize) -> Vec<Down> {
        let members = self
            .groups
            .iter()
            .flatten()
            .flat_map(|group| group.members.iter().map(move |member| (&group.name, *member)));
        let down = members.filter_map(|(group, member)| {
            let seconds = self.failing(member).down_for(now)?.as_secs();
            let server = self.servers[member.server].address.to_string();
            Some(Down { group: group.clone(), server, seconds })
        });
        down.take(most).collect()
    }

    pub(super) fn group(&self, number: usize) -> Option<&Group> {
        self.groups.get(number)?.as_ref()
    }

    fn group_of(
        &mut self,
        name: &str,
        servers: &[Server],
        options: &GroupOptions,
        config: &Config,
    ) -> Group {
        let stub_domain = format!("stub domain {name}");
        let place = if name == DEFAULT_GROUP { name } else { &stub_domain };
        let GroupOptions { policy, case_randomisation, limits, cache } = options;
        if *case_randomisation {
            self.problems.push(format!(
                "{place}: caseRandomisation is not yet supported and has no effect; source ports \
                 and ids are random all the same"
            ));
        }
        let members = servers.iter().filter_map(|server| self.member(place, server)).collect();
        let max_s = config.cache.max_ttl_seconds;
        Group {
            name: name.to_owned(),
            members,
            askable: OnceLock::new(),
            policy: *policy,
            lookups: AtomicUsize::new(0),
            in_flight: Arc::default(),
            max_in_flight: limits.in_flight as usize,
            caps: TtlCaps {
                max_s: cache.max_ttl_seconds.map_or(max_s, |own| own.min(max_s)),
                max_negative_s: config.cache.max_negative_ttl_seconds,
            },
        }
    }

    /// Registers a server; `None` if we cannot ask it the way it must be asked (FW2: never in clear
    /// text instead).
    fn member(&mut self, place: &str, server: &Server) -> Option<Member> {
        let address = SocketAddr::new(server.ip, server.port);
        let known = self.servers.iter().position(|counters| counters.address == address);
        let index = known.unwrap_or_else(|| {
            let (sent, failed) = (AtomicU64::new(0), AtomicU64::new(0));
            self.servers.push(Arc::new(ServerCounters { address, sent, failed }));
            self.failing.push(Arc::default());
            self.servers.len() - 1
        });
        let protocol = match server.transport {
            config::Transport::Udp => {
                return Some(Member { server: index, transport: Transport::Udp });
            }
            config::Transport::Tcp => {
                return Some(Member { server: index, transport: Transport::Tcp });
            }
            config::Transport::Tls => "TLS",
            config::Transport::Https => "HTTPS",
            config::Transport::Quic => "QUIC",
        };
        self.problems.push(format!(
            "{place}: server {address}: transport {protocol} is not yet supported, and the server \
             is not asked, because it must never be asked in clear text instead; write transport \
             UDP or TCP if clear text is acceptable"
        ));
        None
    }
}

/// `upstreamPorts`, but at most a quarter of the descriptors (FW10): N20 comes before EMFILE.
fn ports(configured: u32) -> usize {
    let configured = configured as usize;
    // Where the system does not tell, nothing is known that is less.
    let descriptors = dataplane_udp::raise_descriptor_limit().unwrap_or(u64::MAX);
    configured.min(usize::try_from(descriptors / 4).unwrap_or(usize::MAX))
}

fn plain(ip: IpAddr) -> Server {
    Server { ip, port: DNS_PORT, transport: config::Transport::Udp, tls: None }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crds::config::{Group as GroupConfig, GroupCache, ServerTls, StubDomain};

    fn server(text: &str, transport: config::Transport) -> Server {
        let address: SocketAddr = text.parse().unwrap();
        let tls = transport
            .is_encrypted()
            .then(|| ServerTls { server_name: "dns.example".into(), ca_bundle: None });
        Server { ip: address.ip(), port: address.port(), transport, tls }
    }

    fn group(servers: &[Server]) -> GroupConfig {
        GroupConfig { servers: servers.to_vec(), options: GroupOptions::default() }
    }

    #[test]
    fn a55_servers_are_listed_once_default_group_first() {
        let udp = |text| server(text, config::Transport::Udp);
        let stub = |domain: &str, servers: &[Server]| StubDomain {
            domain: domain.into(),
            group: group(servers),
        };
        let config = Config {
            upstreams: config::Upstreams::Servers(group(&[udp("10.0.0.2:53"), udp("10.0.0.3:53")])),
            stub_domains: vec![
                stub("corp.example", &[udp("10.20.0.53:53")]),
                stub("lab.corp.example", &[udp("10.20.0.53:53"), udp("10.20.0.53:5353")]),
            ],
            ..Config::default()
        };
        let upstreams = Upstreams::of(&config, Path::new(""));
        let listed: Vec<_> = upstreams.servers().iter().map(|s| s.address.to_string()).collect();
        assert_eq!(listed, ["10.0.0.2:53", "10.0.0.3:53", "10.20.0.53:53", "10.20.0.53:5353"]);
        assert_eq!(upstreams.group(2).unwrap().members[0].server, 2);
        assert!(upstreams.group(3).is_none() && upstreams.problems().is_empty());

        upstreams.servers()[2].sent.store(7, Ordering::Relaxed);
        let long = std::time::Duration::from_secs(60);
        let now = Instant::now();
        (0..3).for_each(|minute| upstreams.failing[2].failed(now + long * minute));
        let down = |group: &str| Down {
            group: group.into(),
            server: "10.20.0.53:53".into(),
            seconds: 120,
        };
        let both = [down("corp.example"), down("lab.corp.example")];
        assert_eq!(upstreams.down(now + 2 * long, 9), both);
        assert_eq!(upstreams.down(now + 2 * long, 1), both[..1]);

        let less = Config { upstreams: config::Upstreams::None, ..config.clone() };
        let next = Upstreams::of(&less, Path::new("")).continuing(&upstreams);
        assert!(next.group(0).is_none());
        assert_eq!(next.down(now + 2 * long, 9), both);
        let sent = |of: &Upstreams| -> Vec<u64> {
            of.servers().iter().map(|server| server.sent.load(Ordering::Relaxed)).collect()
        };
        assert_eq!(sent(&next), [7, 0]);
        // A lookup that the one before had begun.
        upstreams.servers()[2].sent.store(8, Ordering::Relaxed);
        assert_eq!(sent(&next), [8, 0]);
        upstreams.servers()[0].sent.store(3, Ordering::Relaxed);
        let last = Upstreams::of(&config, Path::new("")).continuing(&next);
        assert_eq!(sent(&last), [3, 0, 8, 0], "those that come back go on");
    }

    #[test]
    fn a55_so_many_former_servers_are_remembered_the_newest_first() {
        let of = |last: u16| {
            let servers = [server(&format!("10.0.0.1:{last}"), config::Transport::Udp)];
            let upstreams = config::Upstreams::Servers(group(&servers));
            Upstreams::of(&Config { upstreams, ..Config::default() }, Path::new(""))
        };
        let all = (1..400).fold(of(0), |earlier, port| of(port).continuing(&earlier));
        let ports: Vec<u16> = all.former.iter().map(|server| server.address.port()).collect();
        assert_eq!(ports, (399 - MAX_FORMER as u16..399).rev().collect::<Vec<_>>());
    }

    #[test]
    fn fw10_upstream_ports_are_at_most_a_quarter_of_the_descriptors() {
        let quarter = dataplane_udp::raise_descriptor_limit().unwrap() / 4;
        for (configured, expected) in [(1, 1), (u32::MAX, quarter.min(u32::MAX.into()))] {
            let mut config = Config::default();
            config.limits.upstream_ports = configured;
            let upstreams = Upstreams::of(&config, Path::new(""));
            assert_eq!(upstreams.sockets.available_permits() as u64, expected);
        }
    }

    #[test]
    fn fw2_encrypted_servers_are_refused_by_name_and_never_asked_in_clear_text() {
        let transports =
            [config::Transport::Tls, config::Transport::Https, config::Transport::Quic];
        let servers = transports.map(|transport| server("192.0.2.1:853", transport));
        let config =
            Config { upstreams: config::Upstreams::Servers(group(&servers)), ..Config::default() };
        let upstreams = Upstreams::of(&config, Path::new(""));
        assert!(upstreams.group(0).unwrap().members.is_empty());
        assert_eq!(upstreams.problems().len(), 3);
        assert!(upstreams.problems()[0].contains("192.0.2.1:853: transport TLS is not yet"));
    }

    #[test]
    fn fw44_a_group_may_only_lower_the_cap_of_ttls() {
        for (own, cap) in [(None, 3600), (Some(60), 60), (Some(90_000), 3600)] {
            let cache = GroupCache { max_ttl_seconds: own };
            let options = GroupOptions { cache, ..GroupOptions::default() };
            let config = Config {
                upstreams: config::Upstreams::Servers(GroupConfig { servers: Vec::new(), options }),
                ..Config::default()
            };
            let upstreams = Upstreams::of(&config, Path::new(""));
            assert_eq!(upstreams.group(0).unwrap().caps.max_s, cap);
        }
    }
}
