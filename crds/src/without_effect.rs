//! Fields that are accepted and have no effect in this version, and what happens instead. This list is the only place
//! that says so: `/config` of the data plane, the condition `Accepted`, `check` and the table of all fields
//! (`tests/it/fields.txt`) read it.
//!
//! To give a field its effect: delete its row in [`FIELDS`] (or its transport in [`TRANSPORTS_NOT_ASKED`]), and name the
//! test that shows the effect in `tests/it/fields.txt`.

use serde::Serialize;

use crate::Config;
use crate::config::{Listeners, Logging, Server, Transport, Upstreams};

/// Transports over which this version asks no server.
pub const TRANSPORTS_NOT_ASKED: &[Transport] = &[Transport::Tls, Transport::Https, Transport::Quic];

/// A field that a configuration uses and that has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WithoutEffect {
    /// Its path, such as `spec.stubDomains[1].policy`.
    pub field: String,
    /// What happens instead.
    pub instead: &'static str,
}

/// One row: fields of the schema that have no effect, or some of whose values have none.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Paths in the schema, list items as `[]`; each stands for everything below it, too.
    pub paths: &'static [&'static str],
    /// What happens instead.
    pub instead: &'static str,
    /// A spec that uses all of `paths`, for the tests.
    pub example: &'static str,
    /// Where a configuration uses them. A field at its default is not in use: nobody asked for it.
    used: fn(&Config) -> Vec<String>,
}

/// All rows.
pub const FIELDS: &[Field] = &[
    Field {
        paths: &[
            "spec.upstreams.servers[].transport",
            "spec.upstreams.servers[].tls",
            "spec.stubDomains[].servers[].transport",
            "spec.stubDomains[].servers[].tls",
        ],
        instead: "this server is never asked, not in clear text either: the other servers of its group are asked, and \
                  without any the answer is SERVFAIL",
        example: "{upstreams: {servers: [{address: 10.0.0.1, transport: TLS, tls: {serverName: a.example}}]}, stubDomains: \
                   [{domain: a.example, servers: [{address: 10.0.0.1, transport: TLS, tls: {serverName: a.example}}]}]}",
        used: servers_not_asked,
    },
    Field {
        paths: &["spec.listeners.https"],
        instead: "the port is opened in pods and Service, and no process listens there: connections are refused",
        example: "{listeners: {https: {certificate: {name: a}}}}",
        used: |config| {
            let Listeners { tls: _, https } = &config.listeners;
            paths(https.is_some(), "spec.listeners.https")
        },
    },
    Field {
        paths: &["spec.logging.queries"],
        instead: "no query is logged; the metric clusterdns_queries_total counts them by reason",
        example: "{logging: {queries: All}}",
        used: |config| logging(config, "queries", |logging| logging.queries),
    },
];

/// The fields that this configuration uses and that have no effect, in the order of [`FIELDS`].
pub fn of(config: &Config) -> Vec<WithoutEffect> {
    let of_row = |row: &Field| {
        let instead = row.instead;
        (row.used)(config).into_iter().map(move |field| WithoutEffect { field, instead })
    };
    FIELDS.iter().flat_map(of_row).collect()
}

/// Groups of which no server can be asked, so that every question to them is answered SERVFAIL: `spec.upstreams`, or
/// `spec.stubDomains[1]`.
pub fn groups_never_asked(config: &Config) -> Vec<String> {
    let is_never_asked = |group: &Group<'_>| {
        !group.servers.is_empty() && group.servers.iter().all(|server| !is_asked(server))
    };
    groups(config).into_iter().filter(is_never_asked).map(|group| group.path).collect()
}

/// Does this version ask servers over the transport of this one?
pub fn is_asked(server: &Server) -> bool {
    !TRANSPORTS_NOT_ASKED.contains(&server.transport)
}

fn paths(is_used: bool, path: &str) -> Vec<String> {
    is_used.then(|| path.to_owned()).into_iter().collect()
}

fn logging<T: PartialEq>(config: &Config, field: &str, read: fn(&Logging) -> T) -> Vec<String> {
    paths(read(&config.logging) != read(&Logging::default()), &format!("spec.logging.{field}"))
}

/// The servers of one route, and where they are written.
struct Group<'a> {
    path: String,
    servers: &'a [Server],
}

fn groups(config: &Config) -> Vec<Group<'_>> {
    let default = match &config.upstreams {
        Upstreams::FromResolvConf(_) | Upstreams::None => None,
        Upstreams::Servers(group) => Some(&group.servers[..]),
    };
    let default = default.map(|servers| Group { path: "spec.upstreams".to_owned(), servers });
    let stub_domains = config.stub_domains.iter().enumerate().map(|(index, stub)| Group {
        path: format!("spec.stubDomains[{index}]"),
        servers: &stub.group.servers,
    });
    default.into_iter().chain(stub_domains).collect()
}

fn servers_not_asked(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    for group in groups(config) {
        for (index, server) in group.servers.iter().enumerate().filter(|(_, s)| !is_asked(s)) {
            let server_path = format!("{}.servers[{index}]", group.path);
            found.push(format!("{server_path}.transport"));
            if server.tls.is_some() {
                found.push(format!("{server_path}.tls"));
            }
        }
    }
    found
}
