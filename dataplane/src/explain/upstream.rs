//! What is known of a name that is not ours: what the cache has for it, which server gave that, and the servers that
//! would be asked. It asks none of them.

use dataplane_core::Freshness;
use serde::Serialize;

use super::Scene;
use crate::forward::cache::Found;
use crate::forward::{GroupView, KeptPart, ServerView};

/// What is known of the upstreams of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Upstream {
    pub cache: &'static str,
    /// Seconds since the kept reply came.
    pub age_seconds: Option<u64>,
    /// For how many seconds it is fresh.
    pub lifetime_seconds: Option<u32>,
    /// Which server of the group gave the kept reply; none where nothing or a failure is kept.
    pub server: Option<Giver>,
    /// The next name, if the kept reply is only a part of a chain.
    pub leads_to: Option<String>,
    /// The group that is asked, and its servers as they are now; none where there is no such group.
    pub group: Option<GroupView>,
}

/// The server that gave a reply, as [`GroupView::servers`] name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Giver {
    pub server: String,
    /// `UDP`, `TCP`, `TLS`, `HTTPS` or `QUIC`.
    pub transport: String,
    /// As in [`GroupView::servers`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_name: String,
}

impl Upstream {
    pub(super) fn of(scene: &Scene<'_>, part: &KeptPart) -> Upstream {
        let group = scene.published.upstreams.group_view(part.group, scene.now);
        let server = part.entry.and_then(|entry| {
            let ServerView { server, transport, server_name, .. } =
                group.as_ref()?.servers.get(entry.server?.place())?;
            Some(Giver {
                server: server.clone(),
                transport: transport.clone(),
                server_name: server_name.clone(),
            })
        });
        Upstream {
            cache: state(&part.found),
            age_seconds: part.entry.map(|entry| entry.age_s),
            lifetime_seconds: part.entry.map(|entry| entry.lifetime_s),
            server,
            leads_to: part.leads_to.as_ref().map(ToString::to_string),
            group,
        }
    }
}

fn state(found: &Found) -> &'static str {
    match found {
        Found::Nothing => "nothing: an upstream is asked",
        Found::Failed { .. } => "a failure that is remembered for up to 5 s (CA20)",
        Found::Reply { freshness: Freshness::Fresh { .. }, refresh: false, .. } => {
            "a fresh reply (CA2)"
        }
        Found::Reply { freshness: Freshness::Fresh { .. }, refresh: true, .. } => {
            "a fresh reply; an upstream is asked for the next one (CA30)"
        }
        Found::Reply { freshness: Freshness::Stale, refresh: false, .. } => {
            "an expired reply, served at once: an upstream was asked a moment ago (CA41)"
        }
        Found::Reply { freshness: Freshness::Stale, refresh: true, .. } => {
            "an expired reply: an upstream is asked first, and this is the answer if none comes within 1.8 s (CA40)"
        }
    }
}
