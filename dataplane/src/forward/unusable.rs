//! Servers that are unusable, because they are down, answer with errors only or lead back to us, and groups without a server:
//! `/config` shows them, and the operator reports them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::names::DEFAULT_GROUP;
use serde::Serialize;

use super::plan::Standing;
use super::server::{LOOP_REMEDY, Server};
use super::upstreams::{Group, Upstreams};
use super::view::transport;

/// Why a group of the resource has no server: each of them is named in the log, with its reason.
const NO_USABLE_SERVER: &str = "none of its servers can be asked over the transport that it needs: correct tls, or name other servers";

/// What a person should do about a server that answers with errors only (FW28).
const ERRORS_REMEDY: &str = "it answers with errors only: check that it allows queries from pods, and the servers that it asks itself";

/// A server that is unusable, as `/config` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Down {
    /// `upstreams`, or a stub domain.
    pub group: String,
    pub server: String,
    /// An address may be in a group with several transports.
    pub transport: String,
    /// An address may be in a group with several names; empty over UDP and TCP.
    #[serde(rename = "serverName", skip_serializing_if = "String::is_empty")]
    pub server_name: String,
    /// Servers that its group has.
    #[serde(rename = "groupServers")]
    pub group_servers: usize,
    /// Seconds since its state changed.
    pub seconds: u64,
    /// What a person should do; absent where time may mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
}

/// A group that names no server which can be asked, as `/config` shows it: its names get SERVFAIL (N16).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WithoutServers {
    /// `upstreams`, or a stub domain.
    pub group: String,
    /// What is wrong, and what a person should do.
    pub why: String,
}

impl Upstreams {
    /// Servers that are down, in each group that they are in; at most `most`.
    pub fn down(&self, now: Instant, most: usize) -> Vec<Down> {
        let is_down = |_: &Group, _: usize, server: &Arc<Server>| {
            let since = server.down_since()?;
            let latest = server.seen(now).connections.latest;
            let remedy = latest.and_then(|(_, failure)| failure.reason.advice());
            Some((now.saturating_duration_since(since), remedy))
        };
        self.unusable(most, is_down)
    }

    /// Servers that answer with errors only (FW28), in each group to whose queries they do; at most `most`. What leads back to us
    /// is not asked.
    pub fn failing(&self, now: Instant, most: usize) -> Vec<Down> {
        self.unusable(most, |group, member, server| {
            let seen = server.seen(now);
            let (standing, time) = group.standing(member, &seen, now);
            let is_failing =
                standing == Standing::Avoided && group.looping_for(member, &seen, now).is_none();
            Some((time.filter(|_| is_failing)?, Some(ERRORS_REMEDY)))
        })
    }

    /// Servers that lead back to us and are not asked (A34, FW50), in each group that they are in; at most `most`.
    pub fn looping(&self, now: Instant, most: usize) -> Vec<Down> {
        self.unusable(most, |group, member, server| {
            Some((group.looping_for(member, &server.seen(now), now)?, Some(LOOP_REMEDY)))
        })
    }

    /// Servers for which this says for how long, and what to do about it.
    fn unusable(
        &self,
        most: usize,
        since: impl Fn(&Group, usize, &Arc<Server>) -> Option<(Duration, Option<&'static str>)>,
    ) -> Vec<Down> {
        let members = self.groups().flat_map(|group| {
            let servers = group.named_servers().enumerate();
            servers.map(move |(member, (server, name))| (group, member, server, name))
        });
        let found = members.filter_map(|(group, member, server, server_name)| {
            let (since, remedy) = since(group, member, server)?;
            Some(Down {
                group: group.name.clone(),
                server: server.address().to_string(),
                transport: transport(server),
                server_name,
                group_servers: group.servers.len(),
                seconds: since.as_secs(),
                remedy,
            })
        });
        found.take(most).collect()
    }

    /// Groups that name no server which can be asked; at most `most`.
    pub fn without_servers(&self, most: usize) -> Vec<WithoutServers> {
        let empty = self.groups().filter(|group| group.servers.is_empty());
        let of = |group: &Arc<Group>| {
            let group = group.name.clone();
            // The last problem of the file says what to do.
            let of_file = self.resolv_conf().and_then(|file| file.problems.last());
            let why = match of_file.filter(|_| group == DEFAULT_GROUP) {
                Some(problem) => problem.clone(),
                None => NO_USABLE_SERVER.to_owned(),
            };
            WithoutServers { group, why }
        };
        empty.take(most).map(of).collect()
    }
}
