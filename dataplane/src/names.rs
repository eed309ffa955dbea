//! The table that `--print-names` shows: names made from the objects, answers given by the same
//! `respond` that answers clients, so the table cannot say anything else than `dig`.

mod ask;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use crds::Config;
use crds::config::{Group, Upstreams};
use dataplane_core::{Object, Protocol};
use dataplane_udp::reachable;

use crate::forward::ResolvConf;
use crate::state::State;
use ask::{Answer, Ask};

/// Rows that are printed: a screen or two.
const MAX_ROWS: usize = 60;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    name: String,
    kind: &'static str,
    value: String,
}

/// Which names to ask for, in the order of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    name: String,
    kinds: &'static [&'static str],
}

/// The table, and what to try.
pub fn page(
    state: &State,
    config: &Config,
    objects: impl Iterator<Item = Object>,
    addresses: &[SocketAddr],
    http: Option<SocketAddr>,
) -> String {
    let questions = questions(config, objects);
    let ask = Ask::new(state);
    let mut rows = Vec::new();
    for question in &questions {
        rows.extend(question.kinds.iter().flat_map(|kind| answered(&ask, &question.name, kind)));
    }
    rows.dedup();
    let more = rows.len().saturating_sub(MAX_ROWS);
    let tries = tries(&rows, addresses, http);
    rows.truncate(MAX_ROWS);
    let mut text = table(&rows, more);
    text.push_str(&elsewhere(config, state.published.load().upstreams.resolv_conf()));
    text.push_str(&tries);
    text
}

/// The answer to one question as rows; none if there is no such name or type.
fn answered(ask: &Ask<'_>, name: &str, kind: &str) -> Vec<Row> {
    let of_name = |answer: &Answer| answer.owner == name;
    let answers = ask.question(name, kind).into_iter().filter(of_name);
    answers.map(|Answer { kind, value, .. }| Row { name: name.to_owned(), kind, value }).collect()
}

fn questions(config: &Config, objects: impl Iterator<Item = Object>) -> Vec<Question> {
    let zone = &config.domain;
    let mut names = BTreeSet::new();
    let mut services = BTreeSet::new();
    for object in objects {
        match &object {
            Object::Service(service) => {
                let (namespace, name) = (&service.key.namespace, &service.key.name);
                let base = format!("{name}.{namespace}.svc.{zone}");
                for port in service.ports.iter().filter(|port| !port.name.is_empty()) {
                    let protocol = match port.protocol {
                        Protocol::Tcp => "tcp",
                        Protocol::Udp => "udp",
                        Protocol::Sctp => "sctp",
                    };
                    services.insert(format!("_{}._{protocol}.{base}", port.name));
                }
                names.insert((namespace.clone(), name.clone(), 0, base));
            }
            Object::Slice(slice) => {
                let (namespace, name) = (&slice.key.namespace, &slice.service);
                let hostnames = slice.endpoints.iter().filter_map(|e| e.hostname.as_deref());
                for hostname in hostnames {
                    let full = format!("{hostname}.{name}.{namespace}.svc.{zone}");
                    names.insert((namespace.clone(), name.clone(), 1, full));
                }
            }
            Object::Namespace(_) | Object::Pod(_) => {}
        }
    }
    let ask = |kinds| move |name| Question { name, kinds };
    // CNAME on its own, as the target of an alias is often asked elsewhere.
    let addressed = names.into_iter().map(|(.., name)| name).map(ask(&["A", "AAAA", "CNAME"]));
    let located = services.into_iter().map(ask(&["SRV"]));
    let hosts = config.hosts.iter().map(|host| host.name.clone()).map(ask(&["A", "AAAA"]));
    let records = config.records.iter().map(|record| record.name.clone());
    let records = records.map(ask(&["A", "AAAA", "CNAME", "DNAME", "TXT", "SRV"]));
    addressed.chain(located).chain(hosts).chain(records).collect()
}

fn table(rows: &[Row], more: usize) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max("NAME".len());
    let mut text = format!("\n{:width$}  {:5}  ANSWER\n", "NAME", "TYPE");
    for row in rows {
        let _ = writeln!(text, "{:width$}  {:5}  {}", row.name, row.kind, row.value);
    }
    if more > 0 {
        let _ = writeln!(text, "... and {more} more");
    }
    text
}

/// The names that are asked elsewhere, with their servers; `file` is what resolv.conf names, where it is asked.
fn elsewhere(config: &Config, file: Option<&ResolvConf>) -> String {
    let address = |ip: IpAddr, port| SocketAddr::new(ip, port).to_string();
    let servers = |group: &Group| {
        let servers = group.servers.iter().map(|server| address(server.ip, server.port));
        servers.collect::<Vec<_>>().join(", ")
    };
    let mut text = String::from("\nAsked elsewhere:\n");
    for stub in &config.stub_domains {
        let _ = writeln!(text, "  {} and all below: {}", stub.domain, servers(&stub.group));
    }
    let rest = match &config.upstreams {
        Upstreams::FromResolvConf(_) => {
            let named = file.map_or(&[][..], |file| &file.servers);
            match named.is_empty() {
                true => without_servers(file),
                false => named.iter().map(|ip| address(*ip, 53)).collect::<Vec<_>>().join(", "),
            }
        }
        Upstreams::Servers(group) => servers(group),
        Upstreams::None => "no upstream, it is refused".to_owned(),
    };
    let _ = writeln!(text, "  everything else: {rest}");
    text
}

/// Why resolv.conf names no server that can be asked, and what to do.
fn without_servers(file: Option<&ResolvConf>) -> String {
    let problems = file.into_iter().flat_map(|file| &file.problems);
    problems.fold("no server, it gets SERVFAIL".to_owned(), |text, why| text + "\n    " + why)
}

/// Three lines to try: an address, a located service, and the last name of the table. And where to ask why.
fn tries(rows: &[Row], addresses: &[SocketAddr], http: Option<SocketAddr>) -> String {
    let Some(address) = addresses.first() else { return String::new() };
    let (ip, port) = (reachable(*address).ip(), address.port());
    let first = |kind: &str| rows.iter().find(|row| row.kind == kind);
    let mut chosen: Vec<&Row> =
        [first("A"), first("SRV"), rows.last()].into_iter().flatten().collect();
    chosen.dedup();
    let mut text = match chosen.is_empty() {
        true => String::from("\nNo manifest gives a name yet: write one with a Service.\n"),
        false => String::from("\nTry:\n"),
    };
    for row in &chosen {
        let _ = writeln!(text, "  dig @{ip} -p {port} {} {}", row.name, row.kind);
    }
    if let Some(row) = chosen.first() {
        let _ = writeln!(
            text,
            "Without dig (apt install bind9-dnsutils): nslookup -port={port} {} {ip}",
            row.name
        );
    }
    if let Some(http) = http {
        let page = reachable(http);
        let _ = writeln!(text, "Why is an answer as it is? http://{page}/ explains it.");
    }
    text.push_str("Change a manifest and ask again: it is live within a second. Ctrl-C ends.\n");
    text
}

#[cfg(test)]
mod tests;
