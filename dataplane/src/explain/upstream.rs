//! What is known of a name that is not ours: what the cache has for it, which server gave that, and the servers that
//! would be asked. It asks none of them.

use dataplane_core::{Forward, Freshness};
use serde::Serialize;

use super::Scene;
use crate::forward::{Cached, GroupView, Held, ServerView};
use crate::origin::Origin;

/// What is known of the upstreams of a question.
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
    /// The next name, if the kept reply is only the beginning of a chain.
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

/// What is known of a name that is not ours: octets of the reply in the buffer, where it comes from, and the upstreams.
pub(super) fn forwarded(
    scene: &Scene<'_>,
    forward: &Forward<'_>,
    buffer: &mut [u8],
) -> (Option<usize>, &'static str, Upstream) {
    let upstreams = &scene.published.upstreams;
    let (cached, entry) = scene.forwarder.explain(upstreams, forward, buffer);
    let mut leads_to = None;
    let (octets, origin, cache) = match cached {
        Cached::Reply { octets, origin: Origin::Stale, .. } => (
            Some(octets),
            "stale",
            "an expired reply, served at once: an upstream was asked a moment ago (CA41)",
        ),
        Cached::Reply { octets, refresh: true, .. } => {
            (Some(octets), "cache", "a fresh reply; an upstream is asked for the next one (CA30)")
        }
        Cached::Reply { octets, .. } if entry.is_some_and(|entry| entry.lifetime_s > 0) => {
            (Some(octets), "cache", "a fresh reply (CA2)")
        }
        Cached::Reply { octets, .. } => {
            (Some(octets), "cache", "a failure that is remembered for up to 5 s (CA20)")
        }
        Cached::Ask(Some(Held { relayed, .. })) if relayed.is_partial() => {
            leads_to = relayed.unresolved_target().map(|target| target.to_string());
            (None, "unasked", "the beginning of a chain, whose end is looked up on its own (FW42)")
        }
        Cached::Ask(Some(Held { relayed, .. })) => {
            let octets = relayed.write(&forward.head, Freshness::Stale, 0, buffer);
            (
                Some(octets),
                "stale",
                "an expired reply: an upstream is asked first, and this is the answer if none comes within 1.8 s (CA40)",
            )
        }
        Cached::Ask(None) => (None, "unasked", "nothing: an upstream is asked"),
    };
    let group = upstreams.group_view(forward.group, scene.now);
    let server = entry.and_then(|entry| {
        let ServerView { server, transport, server_name, .. } =
            group.as_ref()?.servers.get(entry.server?.place())?;
        Some(Giver {
            server: server.clone(),
            transport: transport.clone(),
            server_name: server_name.clone(),
        })
    });
    let entry = entry.filter(|_| origin != "unasked");
    let upstream = Upstream {
        cache,
        age_seconds: entry.map(|entry| entry.age_s),
        lifetime_seconds: entry.map(|entry| entry.lifetime_s),
        server,
        leads_to,
        group,
    };
    (octets, origin, upstream)
}
