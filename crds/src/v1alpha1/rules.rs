//! The CEL rules with which the API server refuses mistakes, naming the field and what to write instead.
//!
//! `check` repeats all of them, for files and for what CEL cannot see. Each rule stays below 10 million cost units for
//! the longest lists the schema allows: chains of comparisons with literals instead of loops over lists of them (the
//! cost of a loop variable is unknown, so taken as unbounded), and no pairs over long lists.

mod names;

use kube::core::{Message, Rule};

use crate::names::RESERVED_IN_DOMAIN;
use crate::{bounds, defaults, rrtype};

pub(super) use names::{
    domain_is_not_special, owner_is_not_special, service_name_begins_with_a_letter,
    stub_domain_is_not_called_upstreams, stub_domain_is_not_special, wildcard_has_two_labels,
};

const MOVE: &str = "write a second ClusterDNS with the new value beside this one, move the clients, then delete this one";

fn rule(rule: impl Into<String>, message: impl Into<String>) -> Rule {
    Rule::new(rule).message(Message::Message(message.into()))
}

/// A rule whose message names the first offender.
fn naming_rule(rule: impl Into<String>, message: impl Into<String>) -> Rule {
    Rule::new(rule).message(Message::Expression(message.into()))
}

pub(super) fn name() -> Rule {
    let most = bounds::NAME;
    rule(
        format!("self.metadata.name.size() <= {most} && !self.metadata.name.contains('.')"),
        format!(
            "metadata.name is part of the names of what is created: use at most {most} letters, digits and hyphens"
        ),
    )
}

pub(super) fn name_is_not_reserved() -> Rule {
    let reserved = bounds::RESERVED_NAME;
    rule(
        format!("self.metadata.name != '{reserved}'"),
        format!(
            "metadata.name: what is created would be called clusterdns-{reserved}, as the operator's own: use another name, such as default"
        ),
    )
}

// --- what cannot be changed ----------------------------------------------------------------------------------------

pub(super) fn domain_is_immutable() -> Rule {
    rule(
        "self == oldSelf",
        format!("the cluster domain is in every pod's search path and cannot be changed; {MOVE}"),
    )
}

pub(super) fn service_name_is_immutable() -> Rule {
    let name = |object: &str| {
        format!("(has({object}.service) ? {object}.service.name : '{}')", defaults::SERVICE_NAME)
    };
    rule(
        format!("{} == {}", name("self"), name("oldSelf")),
        format!("the Service that clients ask cannot be changed; {MOVE}"),
    )
    .field_path(".service.name")
}

pub(super) fn service_namespace_is_immutable() -> Rule {
    let namespace = |object: &str| {
        format!(
            "(has({object}.service) ? {object}.service.__namespace__ : '{}')",
            defaults::SERVICE_NAMESPACE
        )
    };
    rule(
        format!("{} == {}", namespace("self"), namespace("oldSelf")),
        format!("the namespace of the Service cannot be changed; {MOVE}"),
    )
    .field_path(".service.namespace")
}

/// A rule of the whole resource: addresses that the Service never got (status.clusterIPs) can be corrected. Those that it has stay
/// first, in any spelling: Kubernetes adds the other family to a Service.
pub(super) fn cluster_ips_are_immutable() -> Rule {
    let written = |object: &str| format!("{object}.spec.service.clusterIPs");
    let (new, old) = (written("self"), written("oldSelf"));
    let real = "oldSelf.status.clusterIPs";
    let stays = |place: usize| {
        format!(
            "({old}.size() <= {place} || !{real}.exists(s, ip(s) == ip({old}[{place}])) || (has(self.spec.service) && \
             has({new}) && {new}.size() > {place} && isIP({new}[{place}]) && ip({new}[{place}]) == ip({old}[{place}])))"
        )
    };
    rule(
        format!(
            "!has(oldSelf.spec.service) || !has({old}) || !has(oldSelf.status) || !has({real}) || ({} && {})",
            stays(0),
            stays(1)
        ),
        format!(
            "kubelets have the clusterIPs as clusterDNS: the other family can be added behind them, but those that the \
             Service has cannot be changed; {MOVE}"
        ),
    )
    .field_path(".spec.service.clusterIPs")
}

// --- inside the cluster domain -------------------------------------------------------------------------------------

pub(super) fn hosts_in_the_cluster_domain() -> Rule {
    extra_records_in_the_cluster_domain("hosts")
}

pub(super) fn records_in_the_cluster_domain() -> Rule {
    extra_records_in_the_cluster_domain("records")
}

fn extra_records_in_the_cluster_domain(list: &str) -> Rule {
    let reserved =
        RESERVED_IN_DOMAIN.map(|label| format!("r.name == '{label}.' + self.domain")).join(" || ");
    let bad = format!(
        "(r.name == self.domain || r.name.endsWith('.' + self.domain)) && (!has(r.overrideClusterZone) || \
         !r.overrideClusterZone || r.name.startsWith('*') || r.name == self.domain || {reserved})"
    );
    // Not naming the offender: an expression that finds it among 4,096 is beyond the cost budget.
    rule(
        format!("!has(self.{list}) || !self.{list}.exists(r, {bad})"),
        "a record inside the cluster domain needs overrideClusterZone: true, and may be neither a wildcard nor one of \
         the domain's own names (the domain itself, svc, pod, dns, ns.dns, dns-version)",
    )
    .field_path(format!(".{list}"))
}

pub(super) fn stub_domains_in_the_cluster_domain() -> Rule {
    let bad = "s.domain == self.domain || s.domain.endsWith('.' + self.domain)";
    naming_rule(
        format!("!has(self.stubDomains) || !self.stubDomains.exists(s, {bad})"),
        format!(
            "self.stubDomains.filter(s, {bad})[0].domain + ': names in the cluster domain are answered here and never \
             asked elsewhere; use extra records with overrideClusterZone for single names'"
        ),
    )
    .field_path(".stubDomains")
}

// --- servers -------------------------------------------------------------------------------------------------------

pub(super) fn upstreams_are_not_ourselves() -> Rule {
    rule(
        format!("!has(self.upstreams) || !has(self.upstreams.servers) || !self.upstreams.servers.exists(u, {OURSELVES})"),
        "an upstream may not be an address of this ClusterDNS itself: questions would go in circles; write the servers \
         behind it",
    )
    .field_path(".upstreams.servers")
}

pub(super) fn stub_domains_are_not_ourselves() -> Rule {
    naming_rule(
        format!("!has(self.stubDomains) || !self.stubDomains.exists(s, s.servers.exists(u, {OURSELVES}))"),
        format!(
            "self.stubDomains.filter(s, s.servers.exists(u, {OURSELVES}))[0].domain + ': a server may not be an address \
             of this ClusterDNS itself: questions would go in circles; write the servers behind it'"
        ),
    )
    .field_path(".stubDomains")
}

/// Is the server `u` one of the addresses that are ours as far as the spec says?
const OURSELVES: &str = "isIP(u.address) && \
     ((has(self.service) && has(self.service.clusterIPs) && \
       self.service.clusterIPs.exists(c, isIP(c) && ip(c) == ip(u.address))) || \
      (has(self.serviceAddresses) && self.serviceAddresses.exists(c, isIP(c) && ip(c) == ip(u.address))))";

pub(super) fn encrypted_server_has_a_name() -> Rule {
    rule(
        "!has(self.transport) || !(self.transport in ['TLS', 'HTTPS', 'QUIC']) || has(self.tls)",
        "an encrypted transport must know whom to expect: add tls: {serverName: <the name in the server's certificate>}",
    )
    .field_path(".tls")
}

pub(super) fn clear_server_has_no_tls() -> Rule {
    rule(
        "!has(self.tls) || (has(self.transport) && self.transport in ['TLS', 'HTTPS', 'QUIC'])",
        "tls is for the transports TLS, HTTPS and QUIC: set transport to one of them, or leave tls out",
    )
    .field_path(".tls")
}

/// Numbers of types that cannot be withheld, such as TYPE2, are left to `check`.
pub(super) fn types_can_be_withheld() -> Rule {
    let names = rrtype::withholdable().collect::<Vec<_>>().join("|");
    rule(
        format!("self.all(t, t.matches('^({names}|TYPE[0-9]{{1,5}})$'))"),
        "write types in upper case, such as AAAA or HTTPS, others as TYPE and their number; NS, SOA, CNAME, DNAME, the types of \
         DNSSEC and those of questions, such as ANY, cannot be withheld, because resolvers need them",
    )
}

pub(super) fn upstreams_have_one_source() -> Rule {
    rule(
        "[has(self.servers), has(self.fromResolvConf) && self.fromResolvConf, has(self.none) && self.none]\
         .filter(chosen, chosen).size() <= 1",
        "choose one of servers, fromResolvConf and none",
    )
}

// --- addresses -----------------------------------------------------------------------------------------------------

const AN_ADDRESS: &str =
    "write IP addresses such as 10.20.0.5 or fd00:20::5: no names, no ports, no ranges";

pub(super) fn address_is_an_ip() -> Rule {
    rule("isIP(self)", AN_ADDRESS)
}

pub(super) fn address_is_reachable() -> Rule {
    rule(
        "!isIP(self) || !(ip(self).isLoopback() || (ip(self).family() == 6 && ip(self).isLinkLocalUnicast()))",
        "a loopback address is the pod itself, and fe80:: cannot be reached without the name of an interface: write the \
         address of the server on the network",
    )
}

pub(super) fn domain_is_no_address() -> Rule {
    rule("!isIP(self)", "this is an address: write a domain name such as cluster.local")
}

pub(super) fn every_address_is_an_ip() -> Rule {
    rule("self.all(a, isIP(a))", AN_ADDRESS)
}

pub(super) fn every_cidr_is_a_range() -> Rule {
    rule(
        "self.all(c, isCIDR(c) && cidr(c) == cidr(c).masked())",
        "write address ranges such as 10.96.0.0/16 or fd00:96::/112, with zeros after the prefix",
    )
}

/// What a set would give: of an atomic list the API server lets items repeat.
pub(super) fn each_once() -> Rule {
    rule("self.all(x, self.exists_one(y, y == x))", "one is written twice: leave one out")
}

pub(super) fn one_cluster_ip_per_family() -> Rule {
    rule(
        "self.size() < 2 || !isIP(self[0]) || !isIP(self[1]) || ip(self[0]).family() != ip(self[1]).family()",
        "a Service has at most one clusterIP of each family: write one IPv4 and one IPv6 address",
    )
}

// --- records -------------------------------------------------------------------------------------------------------

pub(super) fn record_has_the_content_of_its_type() -> Rule {
    rule(
        "self.type == 'A' || self.type == 'AAAA' ? has(self.addresses) : self.type in ['CNAME', 'DNAME'] ? has(self.target) : \
         self.type == 'TXT' ? has(self.strings) : has(self.services)",
        "A and AAAA records need addresses, CNAME and DNAME records a target, TXT records strings, SRV records services",
    )
}

pub(super) fn record_has_no_content_of_another_type() -> Rule {
    rule(
        "[has(self.addresses), has(self.target), has(self.strings), has(self.services)].filter(given, given).size() <= 1",
        "a record has the content of its type only: write another record of the other type",
    )
}

pub(super) fn record_addresses_are_of_its_family() -> Rule {
    rule(
        "!has(self.addresses) || (self.type == 'AAAA' ? self.addresses.all(a, ip(a).family() == 6) : \
         self.addresses.all(a, ip(a).family() == 4))",
        "A records hold IPv4 addresses and AAAA records IPv6 addresses; hosts take both",
    )
    .field_path(".addresses")
}

pub(super) fn alias_is_not_of_itself() -> Rule {
    rule(
        "!has(self.target) || (self.target != self.name && \
         (self.type != 'DNAME' || !self.target.endsWith('.' + self.name)))",
        "an alias of itself has no addresses: write the name that has them",
    )
    .field_path(".target")
}

pub(super) fn dname_is_of_names_below() -> Rule {
    rule(
        "self.type != 'DNAME' || !(self.name.startsWith('*.') || self.name == 'arpa')",
        "a DNAME record is for all names below its own, so leave out '*.'; reverse names, below arpa, follow from the \
         addresses",
    )
    .field_path(".name")
}

// --- how it runs ---------------------------------------------------------------------------------------------------

pub(super) fn listeners_have_their_own_ports() -> Rule {
    rule(
        "!has(self.tls) || !has(self.https) || self.tls.port != self.https.port",
        "DNS over TLS and DNS over HTTPS need a port each, normally 853 and 443",
    )
    .field_path(".https.port")
}

pub(super) fn port_is_free() -> Rule {
    rule(
        format!("self != {} && self != {}", defaults::DNS_PORT, defaults::HTTP_PORT),
        "ports 53 (DNS) and 9153 (metrics) are taken: use 853 for TLS and QUIC, 443 for HTTPS, or another one",
    )
}

pub(super) fn listeners_are_not_on_the_pod_port() -> Rule {
    let free = |listener: &str| {
        format!(
            "(!has(self.listeners.{listener}) || self.listeners.{listener}.port != self.service.podPort)"
        )
    };
    rule(
        format!(
            "!has(self.service) || !has(self.listeners) || ({} && {} && {})",
            free("tls"),
            free("https"),
            free("quic")
        ),
        "a listener has this port: use 53, or another one",
    )
    .field_path(".service.podPort")
}

pub(super) fn cache_memory_is_in_range() -> Rule {
    memory_is_in_range("0", "a cache has at most 64Gi; 0 is no cache")
}

pub(super) fn tcp_buffers_are_in_range() -> Rule {
    memory_is_in_range("1Mi", "TCP buffers have 1Mi-64Gi")
}

fn memory_is_in_range(least: &str, message: &str) -> Rule {
    let amount = "quantity(string(self))";
    rule(
        format!(
            "{amount}.compareTo(quantity('{least}')) >= 0 && {amount}.compareTo(quantity('{}')) <= 0",
            bounds::MEMORY_BYTES
        ),
        message,
    )
}

pub(super) fn labels_are_not_ours() -> Rule {
    rule(
        format!("self.all(key, !key.startsWith('{}/'))", crate::GROUP),
        format!("labels of {} are set by ClusterDNS itself: leave them out", crate::GROUP),
    )
}

pub(super) fn pod_port_is_free() -> Rule {
    rule(
        format!("self != {}", defaults::HTTP_PORT),
        "port 9153 is taken by metrics: use 53, or another one",
    )
}

pub(super) fn scaling_has_one_member() -> Rule {
    rule(
        "[has(self.fixed), has(self.proportional), has(self.ladder), has(self.load), has(self.perNode)]\
         .filter(chosen, chosen).size() <= 1",
        "choose one of fixed, proportional, ladder, load and perNode",
    )
}

pub(super) fn min_replicas_is_not_above_max() -> Rule {
    rule(
        format!(
            "(has(self.minReplicas) ? self.minReplicas : {}) <= (has(self.maxReplicas) ? self.maxReplicas : {})",
            defaults::MIN_REPLICAS,
            defaults::MAX_REPLICAS
        ),
        format!(
            "minReplicas (default {}) is above maxReplicas (default {}): raise maxReplicas",
            defaults::MIN_REPLICAS,
            defaults::MAX_REPLICAS
        ),
    )
    .field_path(".minReplicas")
}

pub(super) fn ladder_has_a_step() -> Rule {
    rule(
        "(has(self.coresToReplicas) && self.coresToReplicas.size() > 0) || \
         (has(self.nodesToReplicas) && self.nodesToReplicas.size() > 0)",
        "a ladder needs a step in coresToReplicas or nodesToReplicas, such as {nodes: 1, replicas: 2}",
    )
}
