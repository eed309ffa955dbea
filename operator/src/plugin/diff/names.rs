//! Names whose answers an edit changes, and those answers, as far as the configuration says them (pure). Answers from
//! Kubernetes and upstreams are not in the configuration, so a setting about them gets one row for all its names.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crds::Config;
use crds::config::{
    self, CaBundle, Group, GroupOptions, RecordData, Server, ServerTls, Transport, Upstreams,
};
use serde::Serialize;
use serde_json::Value;

use crate::names::reverse;

/// A label that represents any label below a wildcard.
const ANY: &str = "any";

/// A change of the answers for one name, or for all names of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NameChange {
    /// The name, or which names.
    pub name: String,
    /// The type; empty where all types are meant.
    #[serde(rename = "type")]
    pub qtype: String,
    /// What the configuration says of it; none where it says nothing.
    pub before: Option<String>,
    /// What the edited configuration would say of it.
    pub after: Option<String>,
    /// The name to ask for what is answered today; none where no single name can be asked.
    #[serde(skip)]
    pub asked: Option<String>,
    /// What a data plane answers today.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub today: Option<String>,
}

/// What differs between two configurations.
pub(super) fn names(before: &Config, after: &Config) -> Vec<NameChange> {
    let mut changes = rrsets_that_differ(before, after);
    changes.extend(routes_that_differ(before, after));
    changes.extend(zone_wide(before, after));
    changes
}

fn rrsets_that_differ(before: &Config, after: &Config) -> Vec<NameChange> {
    let (old, new) = (rrsets(before), rrsets(after));
    let mut keys: Vec<&(String, String)> = old.keys().chain(new.keys()).collect();
    keys.sort();
    keys.dedup();
    let differ = keys.into_iter().filter(|key| old.get(key) != new.get(key));
    differ
        .map(|key| NameChange {
            name: key.0.clone(),
            qtype: key.1.clone(),
            before: old.get(key).cloned(),
            after: new.get(key).cloned(),
            asked: Some(key.0.replacen('*', ANY, 1)),
            today: None,
        })
        .collect()
}

/// Every RRset that is written, with TTL and content; the PTRs that follow from it.
fn rrsets(config: &Config) -> BTreeMap<(String, String), String> {
    let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut add = |name: &str, qtype: &str, text: String| {
        found.entry((name.to_owned(), qtype.to_owned())).or_default().push(text);
    };
    for host in &config.hosts {
        let flag = overrides(host.override_cluster_zone);
        for address in &host.addresses {
            add(
                &host.name,
                address_type(*address),
                format!("{address} (TTL {}{flag})", host.ttl_seconds),
            );
            if host.reverse && !host.name.starts_with('*') {
                add(&reverse(*address), "PTR", host.name.clone());
            }
        }
    }
    for record in &config.records {
        let flag = overrides(record.override_cluster_zone);
        let ttl = format!(" (TTL {}{flag})", record.ttl_seconds);
        let name = &record.name;
        let mut addresses: Vec<IpAddr> = Vec::new();
        match &record.data {
            RecordData::A(all) => addresses.extend(all.iter().map(|it| IpAddr::V4(*it))),
            RecordData::Aaaa(all) => addresses.extend(all.iter().map(|it| IpAddr::V6(*it))),
            RecordData::Cname(target) => add(name, "CNAME", format!("{target}{ttl}")),
            RecordData::Dname(target) => add(name, "DNAME", format!("{target}{ttl}")),
            RecordData::Txt(texts) => add(name, "TXT", format!("{texts:?}{ttl}")),
            RecordData::Srv(targets) => {
                for it in targets {
                    let text =
                        format!("{} {} {} {}{ttl}", it.priority, it.weight, it.port, it.target);
                    add(name, "SRV", text);
                }
            }
        }
        for address in addresses {
            add(name, address_type(address), format!("{address}{ttl}"));
            if record.reverse && !name.starts_with('*') {
                add(&reverse(address), "PTR", name.clone());
            }
        }
    }
    found.into_iter().map(|(key, texts)| (key, texts.join(", "))).collect()
}

fn overrides(flag: bool) -> &'static str {
    if flag { ", in place of what Kubernetes says" } else { "" }
}

fn address_type(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "A" } else { "AAAA" }
}

/// Stub domains and default upstreams.
fn routes_that_differ(before: &Config, after: &Config) -> Vec<NameChange> {
    let of = |config: &Config| -> BTreeMap<String, Group> {
        config.stub_domains.iter().map(|stub| (stub.domain.clone(), stub.group.clone())).collect()
    };
    let (old, new) = (of(before), of(after));
    let mut domains: Vec<&String> = old.keys().chain(new.keys()).collect();
    domains.sort();
    domains.dedup();
    let differ = domains.into_iter().filter(|domain| old.get(*domain) != new.get(*domain));
    let mut changes: Vec<NameChange> = differ
        .map(|domain| {
            let text = |group: Option<&Group>| group.map(servers);
            about(&format!("{domain} and below"), text(old.get(domain)), text(new.get(domain)))
        })
        .collect();
    if before.upstreams != after.upstreams {
        let text = |upstreams: &Upstreams| match upstreams {
            Upstreams::FromResolvConf(group) => {
                format!("asked of the servers in resolv.conf of the pod{}", options(group))
            }
            Upstreams::Servers(group) => servers(group),
            Upstreams::None => "REFUSED".to_owned(),
        };
        changes.push(about(
            "all other names",
            Some(text(&before.upstreams)),
            Some(text(&after.upstreams)),
        ));
    }
    changes
}

fn servers(group: &Group) -> String {
    let servers: Vec<String> = group.servers.iter().map(server).collect();
    format!("asked of {}{}", servers.join(", "), options(&group.options))
}

/// The address, and how and by which name it is asked where that is not the usual way: all that an edit can change.
fn server(server: &Server) -> String {
    let Server { ip, port, transport, tls } = server;
    let address = match (ip, port) {
        (ip, 53) => ip.to_string(),
        (IpAddr::V6(ip), port) => format!("[{ip}]:{port}"),
        (ip, port) => format!("{ip}:{port}"),
    };
    let transport = match transport {
        Transport::Udp => return address,
        Transport::Tcp | Transport::Tls | Transport::Https | Transport::Quic => value(transport),
    };
    let Some(ServerTls { server_name, ca_bundle }) = tls else {
        return format!("{address} over {transport}");
    };
    let authorities = match ca_bundle {
        None => String::new(),
        Some(CaBundle::ConfigMap { name, key }) => format!(" (authorities {name}/{key})"),
        // Long texts, which people tell apart by a hash.
        Some(CaBundle::Pem(text)) => format!(" (authorities #{})", config::revision_of(text)),
    };
    format!("{address} over {transport} as {server_name}{authorities}")
}

fn options(options: &GroupOptions) -> String {
    let options = serde_json::to_value(options).unwrap_or_default();
    match options.as_object().is_none_or(serde_json::Map::is_empty) {
        true => String::new(),
        false => format!(" with {options}"),
    }
}

/// A setting that concerns many names.
fn zone_wide(before: &Config, after: &Config) -> Vec<NameChange> {
    let rows = [
        ("all names", value(&before.domain), value(&after.domain)),
        ("TTL of all names of Kubernetes", value(&before.ttl_seconds), value(&after.ttl_seconds)),
        ("names of pods", value(&before.pod_records), value(&after.pod_records)),
        (
            "names of endpoints without a hostname",
            value(&before.endpoint_names),
            value(&after.endpoint_names),
        ),
        (
            "Services without ready endpoints do not exist",
            value(&before.hide_empty_services),
            value(&after.hide_empty_services),
        ),
        ("which namespaces and Services exist", value(&before.exposure), value(&after.exposure)),
        (
            "reverse names that are denied where nothing is known",
            value(&before.reverse_cidrs),
            value(&after.reverse_cidrs),
        ),
        ("names of federations", value(&before.federations), value(&after.federations)),
        ("clients that are answered", value(&before.access), value(&after.access)),
    ];
    let differ = rows.into_iter().filter(|(_, old, new)| old != new);
    differ.map(|(what, old, new)| about(what, Some(old), Some(new))).collect()
}

fn about(name: &str, before: Option<String>, after: Option<String>) -> NameChange {
    let name = name.to_owned();
    NameChange { name, qtype: String::new(), before, after, asked: None, today: None }
}

/// A setting as it is written; the default of a section is empty.
fn value(setting: &impl Serialize) -> String {
    match serde_json::to_value(setting).unwrap_or_default() {
        Value::String(text) => text,
        Value::Object(fields) if fields.is_empty() => "default".to_owned(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(spec: Value) -> Config {
        let dns = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS", "metadata": {"name": "x"}, "spec": spec});
        crds::check_resource(&serde_json::from_value(dns).unwrap()).unwrap()
    }

    fn lines(before: Value, after: Value) -> Vec<String> {
        let row = |it: NameChange| {
            let text = |value: Option<String>| value.unwrap_or("-".to_owned());
            format!("{} {} | {} | {}", it.name, it.qtype, text(it.before), text(it.after))
        };
        names(&config(before), &config(after)).into_iter().map(row).collect()
    }

    #[test]
    fn hosts_give_names_of_both_directions() {
        let before = json!({"hosts": [{"name": "a.example", "addresses": ["192.0.2.1"]}]});
        let after = json!({"hosts": [{"name": "a.example", "addresses": ["192.0.2.9"]},
            {"name": "*.b.example", "addresses": ["2001:db8::1"], "ttlSeconds": 9}]});
        assert_eq!(
            lines(before, after),
            [
                "*.b.example AAAA | - | 2001:db8::1 (TTL 9)",
                "1.2.0.192.in-addr.arpa PTR | a.example | -",
                "9.2.0.192.in-addr.arpa PTR | - | a.example",
                "a.example A | 192.0.2.1 (TTL 30) | 192.0.2.9 (TTL 30)",
            ]
        );
        let wildcard = names(
            &Config::default(),
            &config(json!({"hosts": [{"name": "*.b.example", "addresses": ["192.0.2.1"]}]})),
        );
        assert_eq!(wildcard[0].asked.as_deref(), Some("any.b.example"));
    }

    #[test]
    fn no_edit_of_a_group_has_a_row_that_says_the_same_twice() {
        let tls = |name: &str, authorities: &str| {
            let tls = json!({"serverName": name, "caBundle": {"name": authorities}});
            json!({"servers": [{"address": "192.0.2.1", "port": 853, "transport": "TLS", "tls": tls}]})
        };
        let plain = |edit: Value| {
            let mut server = json!({"address": "192.0.2.1", "port": 853});
            server.as_object_mut().unwrap().extend(edit.as_object().unwrap().clone());
            json!({"servers": [server]})
        };
        let udp = || plain(json!({}));
        let with = |mut group: Value, field: &str, option: Value| {
            group[field] = option;
            group
        };
        let of_node = || json!({"fromResolvConf": true});
        for (before, after) in [
            (udp(), plain(json!({"transport": "TCP"}))),
            (udp(), tls("one.example", "ca")),
            (tls("one.example", "ca"), tls("two.example", "ca")),
            (tls("one.example", "ca"), tls("one.example", "others")),
            (udp(), with(udp(), "policy", "RoundRobin".into())),
            (udp(), with(udp(), "limits", json!({"inFlight": 9}))),
            (of_node(), with(of_node(), "policy", "RoundRobin".into())),
        ] {
            let upstreams = [&before, &after].map(|group| json!({"upstreams": group}));
            let of_stub = |group: &Value| {
                let mut stub = group.clone();
                stub["domain"] = "corp.example".into();
                json!({"stubDomains": [stub]})
            };
            let stubs = [&before, &after].map(of_stub);
            let is_group = before.get("servers").is_some();
            for [before, after] in
                [Some(upstreams), is_group.then_some(stubs)].into_iter().flatten()
            {
                let rows = names(&config(before.clone()), &config(after.clone()));
                assert_eq!(rows.len(), 1, "{before} {after}");
                assert_ne!(rows[0].before, rows[0].after, "{before} {after}");
            }
        }
        let rows =
            lines(json!({"upstreams": udp()}), json!({"upstreams": tls("one.example", "ca")}));
        let row = "all other names  | asked of 192.0.2.1:853 | asked of 192.0.2.1:853 over TLS as one.example (authorities ca/ca.crt)";
        assert_eq!(rows, [row]);
    }

    #[test]
    fn routes_and_settings_of_the_zone_are_one_row_each() {
        let before = json!({"stubDomains": [{"domain": "corp.example", "servers": [{"address": "10.20.0.53"}]}]});
        let after = json!({"ttlSeconds": 30, "upstreams": {"none": true}, "access": {"clients": ["10.0.0.0/8"]},
            "stubDomains": [{"domain": "corp.example", "servers": [{"address": "10.20.0.53"}, {"address": "10.20.0.54"}]}]});
        assert_eq!(
            lines(before, after),
            [
                "corp.example and below  | asked of 10.20.0.53 | asked of 10.20.0.53, 10.20.0.54",
                "all other names  | asked of the servers in resolv.conf of the pod | REFUSED",
                "TTL of all names of Kubernetes  | 5 | 30",
                "clients that are answered  | default | {\"clients\":[\"10.0.0.0/8\"]}",
            ]
        );
    }
}
