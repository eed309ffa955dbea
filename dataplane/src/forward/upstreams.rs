//! The upstream groups of one configuration: which servers may be asked, over which transport, and which were
//! refused.

mod askable;
mod standing;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crds::config::{self, Config, GroupOptions, Policy};
use crds::names::DEFAULT_GROUP;
use dataplane_core::{Discard, LookupKey, Name, OwnRanges, ServerCounters, TtlCaps, Unusable};

use super::cache;
use super::connections::Client;
use super::registry::{Registry, Route, RouteId, RouteState, Taking};
use super::resolv_conf::ResolvConf;
use super::server::Server;
use super::server_identity::ServerIdentity;
use crate::taps::Taps;
use askable::Askable;

/// Port of DNS, for the servers of resolv.conf.
const DNS_PORT: u16 = 53;
const NS: u16 = 2;
const SOA: u16 = 6;

/// The upstream groups of one configuration; the default has none.
#[derive(Debug)]
pub struct Upstreams {
    /// Group 0 is that of the default upstreams, `i + 1` that of stub domain `i`.
    groups: Vec<Option<Arc<Group>>>,
    servers: Vec<Arc<Server>>,
    counters: Vec<Arc<ServerCounters>>,
    pub(super) registry: Arc<Registry>,
    problems: Vec<String>,
    resolv_conf: Option<ResolvConf>,
    cache: cache::CacheLimits,
    pub(super) max_in_flight: usize,
    pub(super) max_in_flight_per_client: usize,
    /// Places that each group could have if all were full, with one such share left over (FW52). None where there is one group: no
    /// other needs what it leaves.
    pub(super) even_share: Option<usize>,
}

/// The servers of one route.
#[derive(Debug)]
pub(super) struct Group {
    /// `upstreams`, or the stub domain.
    pub(super) name: String,
    /// Those that can be asked, in configured order.
    pub(super) servers: Vec<Arc<Server>>,
    /// Which of them are not ourselves, found at the first lookup.
    askable: Askable,
    pub(super) policy: Policy,
    /// Questions are sent in random upper and lower case (0x20, FW14).
    pub(super) randomise_case: bool,
    pub(super) max_in_flight: usize,
    pub(super) caps: TtlCaps,
    /// The question of a probe for servers of this group (FW27).
    pub(super) probe: LookupKey,
    state: Arc<RouteState>,
}

impl Group {
    /// Its servers, each with the name that distinguishes it from others at its address.
    pub(super) fn named_servers(&self) -> impl Iterator<Item = (&Arc<Server>, String)> {
        self.servers.iter().map(|server| (server, server.shown_name.clone()))
    }

    /// Names the content of this group.
    pub(super) fn route(&self) -> RouteId {
        self.state.id
    }

    /// Queries of clients in progress.
    pub(super) fn in_flight(&self) -> &Arc<AtomicUsize> {
        &self.state.in_flight
    }

    /// Counts this lookup; the number decides with which server a policy that takes turns begins.
    pub(super) fn next_turn(&self) -> usize {
        self.state.lookups.fetch_add(1, Ordering::Relaxed)
    }

    /// How often one of its servers came back while none was up (FW29).
    pub(super) fn recoveries(&self) -> u64 {
        self.state.recoveries.load(Ordering::Relaxed)
    }

    /// Whether no server of it is up. This is noted, so that the next look sees when a server comes back.
    pub(super) fn is_down(&self) -> bool {
        let is_down = self.servers.iter().all(|server| !server.is_up());
        if self.state.was_down.swap(is_down, Ordering::Relaxed) && !is_down {
            self.state.recoveries.fetch_add(1, Ordering::Relaxed);
        }
        is_down
    }
}

impl Default for Upstreams {
    fn default() -> Upstreams {
        let config = Config { upstreams: config::Upstreams::None, ..Config::default() };
        Upstreams::of(&config, Path::new(""))
    }
}

impl Upstreams {
    /// The groups of the first configuration; `resolv_conf` is read only if the configuration says so (FW3).
    pub fn of(config: &Config, resolv_conf: &Path) -> Upstreams {
        Upstreams::with(Arc::default(), config, resolv_conf, &ResolvConf::default())
    }

    /// The groups of the next configuration; state and counters of servers are kept, and those of groups that stay the same.
    pub fn next(&self, config: &Config, resolv_conf: &Path) -> Upstreams {
        let before = self.resolv_conf.clone().unwrap_or_default();
        Upstreams::with(Arc::clone(&self.registry), config, resolv_conf, &before)
    }

    fn with(
        registry: Arc<Registry>,
        config: &Config,
        resolv_conf: &Path,
        before: &ResolvConf,
    ) -> Upstreams {
        let mut problems = Vec::new();
        let mut taking = registry.take();
        let mut file = None;
        let default = match &config.upstreams {
            config::Upstreams::FromResolvConf(options) => {
                let read = file.insert(before.reread(resolv_conf));
                problems.extend(read.problems.iter().cloned());
                let servers: Vec<config::Server> =
                    read.servers.iter().map(|ip| plain(*ip)).collect();
                Some((servers, options))
            }
            config::Upstreams::Servers(group) => Some((group.servers.clone(), &group.options)),
            config::Upstreams::None => None,
        };
        let default = default.map(|(servers, options)| {
            Reading { config, problems: &mut problems, taking: &mut taking }.group(
                DEFAULT_GROUP,
                &servers,
                options,
                LookupKey::new(Name::ROOT, NS, false, false),
            )
        });
        let mut groups = vec![default.map(Arc::new)];
        for stub in &config.stub_domains {
            let (servers, options) = (&stub.group.servers, &stub.group.options);
            // A name that cannot be read is refused with the settings; nothing is asked meanwhile.
            let name = Name::from_text(&stub.domain).unwrap_or(Name::ROOT);
            let group = Reading { config, problems: &mut problems, taking: &mut taking }.group(
                &stub.domain,
                servers,
                options,
                LookupKey::new(name, SOA, false, false),
            );
            groups.push(Some(Arc::new(group)));
        }
        let limits = &config.limits;
        let defaults = groups[0].as_ref().map_or(&[][..], |group| &group.servers);
        let max_in_flight = limits.in_flight as usize;
        let count = groups.iter().flatten().count();
        registry.common.keep_port(config.listeners.quic.as_ref().map(|quic| quic.port));
        let servers = taking.replace(ports(limits.upstream_ports), max_in_flight, defaults);
        let mut counters: Vec<Arc<ServerCounters>> = Vec::with_capacity(servers.len());
        for server in &servers {
            if counters.iter().all(|known| known.address != server.address()) {
                counters.push(Arc::clone(&server.of_address.shown));
            }
        }
        Upstreams {
            groups,
            servers,
            counters,
            registry,
            problems,
            resolv_conf: file,
            cache: cache::CacheLimits::of(&config.cache),
            max_in_flight,
            even_share: (count > 1).then(|| max_in_flight / (count + 1)),
            max_in_flight_per_client: limits.in_flight_per_client as usize,
        }
    }

    /// Who wants to see single queries.
    pub fn taps(&self) -> &Arc<Taps> {
        &self.registry.common.taps
    }

    /// Each address once, default group first, then stub domains as written (A55).
    pub fn servers(&self) -> &[Arc<ServerCounters>] {
        &self.counters
    }

    /// Everything known of each server.
    pub(super) fn known(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// Servers that are not used and settings that have no effect: what, why, and what to write.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The content of resolv.conf, if it is used. It is read again at least every 5 s (FW3); if it differs then, new
    /// `Upstreams` are made.
    pub fn resolv_conf(&self) -> Option<&ResolvConf> {
        self.resolv_conf.as_ref()
    }

    /// Messages from upstreams that were not the reply waited for (FW13).
    pub fn discarded(&self, reason: Discard) -> u64 {
        self.registry.common.discarded(reason)
    }

    /// Replies to queries of clients that were no answer, though their Rcode was no error (FW21).
    pub fn unusable_replies(&self, reason: Unusable) -> u64 {
        self.registry.common.unusable_replies(reason)
    }

    /// Tasks that carry queries of servers and probe them, and panicked.
    pub fn panics(&self) -> u64 {
        self.registry.common.panics()
    }

    /// The bounds of the cache.
    pub fn cache(&self) -> &cache::CacheLimits {
        &self.cache
    }

    pub(super) fn group(&self, number: usize) -> Option<&Arc<Group>> {
        self.groups.get(number)?.as_ref()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.groups.iter().flatten()
    }

    /// Whether private addresses are removed from what this group replies (FW43).
    pub(super) fn removes_private_addresses(&self, group: usize) -> bool {
        self.group(group).is_some_and(|group| group.caps.no_private_addresses)
    }

    /// Names the content of a group: entries of a cache and lookups in progress under this number stay right when
    /// anything else is edited (CA1).
    pub fn route(&self, group: usize) -> Option<RouteId> {
        self.group(group).map(|group| group.route())
    }

    /// How often a server of a group came back while none was up: failures that were remembered before do not count
    /// any more (FW29).
    pub fn recoveries(&self, group: usize) -> u64 {
        self.group(group).map_or(0, |group| group.recoveries())
    }
}

/// Reads the groups of one configuration.
struct Reading<'a, 'r> {
    config: &'a Config,
    problems: &'a mut Vec<String>,
    taking: &'a mut Taking<'r>,
}

impl Reading<'_, '_> {
    fn group(
        &mut self,
        name: &str,
        servers: &[config::Server],
        options: &GroupOptions,
        probe: LookupKey,
    ) -> Group {
        let stub_domain = format!("stub domain {name}");
        let place = if name == DEFAULT_GROUP { name } else { &stub_domain };
        let mut usable: Vec<(ServerIdentity, Option<Client>)> = Vec::with_capacity(servers.len());
        for server in servers {
            // One that is written twice is one server: it has one place in the order, and one row in metrics.
            if let Some((identity, client)) = self.usable(place, server)
                && usable.iter().all(|(other, _)| *other != identity)
            {
                usable.push((identity, client));
            }
        }
        // The core answers what is withheld (FW45), so it never comes here.
        let GroupOptions { policy, case_randomisation, limits, cache, withheld_types: _ } = options;
        let of_group =
            |whole_s: u32| cache.max_ttl_seconds.map_or(whole_s, |own_s| own_s.min(whole_s));
        let is_protected = name == DEFAULT_GROUP && self.config.access.rebind_protection;
        // Without protection an edit of these does not empty the cache (CA1).
        let own_ranges = if is_protected { self.config.reverse_cidrs.as_slice() } else { &[] };
        let caps = TtlCaps {
            max_s: of_group(self.config.cache.max_ttl_seconds),
            max_negative_s: of_group(self.config.cache.max_negative_ttl_seconds),
            // Stub domains are exempt: private names are what they are for (FW43).
            no_private_addresses: is_protected,
            own_ranges: OwnRanges::of(own_ranges),
            // A name that cannot be read is refused with the settings.
            own_zone: Name::from_text(&self.config.domain).ok(),
            relays_own_zone: name != DEFAULT_GROUP,
        };
        let identities = usable.iter().map(|(identity, _)| identity.clone()).collect();
        let randomise_case = *case_randomisation;
        let content = Route {
            name: name.to_owned(),
            servers: identities,
            randomise_case,
            caps: caps.clone(),
        };
        Group {
            name: name.to_owned(),
            servers: usable
                .into_iter()
                .map(|(identity, client)| {
                    self.taking.server(identity, client, limits.in_flight as usize)
                })
                .collect(),
            askable: Askable::default(),
            policy: *policy,
            randomise_case,
            max_in_flight: limits.in_flight as usize,
            caps,
            probe,
            state: self.taking.route(content),
        }
    }

    /// `None` if we cannot ask it over the transport that it needs (FW2: never in clear text instead).
    fn usable(
        &mut self,
        place: &str,
        server: &config::Server,
    ) -> Option<(ServerIdentity, Option<Client>)> {
        let config::Server { ip, port, transport, tls } = server;
        let address = SocketAddr::new(*ip, *port);
        let identity = ServerIdentity { address, transport: *transport, tls: tls.clone() };
        match Client::new(&identity) {
            Ok(client) => Some((identity, client)),
            Err(why) => {
                self.problems.push(format!(
                    "{place}: server {address}: {why}; the server is not asked, because it must never be asked in \
                     clear text instead"
                ));
                None
            }
        }
    }
}

/// `upstreamPorts`, but at most a quarter of the descriptors (FW10): N20 comes before EMFILE. Half of them are for connections of
/// clients (WR44).
fn ports(configured: u32) -> usize {
    let quarter = dataplane_udp::most_descriptors() / 4;
    (configured as usize).min(usize::try_from(quarter).unwrap_or(usize::MAX))
}

fn plain(ip: IpAddr) -> config::Server {
    config::Server { ip, port: DNS_PORT, transport: config::Transport::Udp, tls: None }
}

#[cfg(test)]
mod tests;
