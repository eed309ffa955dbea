//! Whether a reply shows that a server of a group replied. A data plane reports how a lookup ended by Extended DNS Errors
//! (RFC 8914), so that a server's refusal and its silence differ. Pure.

use crds::between_planes::{self, ede};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;

use super::reply::{NoReply, Reply, ede_codes};

/// They do not show what servers do now.
const SAYS_NOTHING: [u16; 3] = [ede::STALE_ANSWER, ede::NOT_READY, ede::STALE_NXDOMAIN];

/// How a pod's servers behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamHealth {
    /// One gave an answer, which may be a denial.
    Answered,
    /// They reply, with SERVFAIL, REFUSED and the like.
    Errors,
    /// No server replied.
    Silent,
    /// The replies do not show it.
    Unknown,
}

/// How the servers of a stable pod behave. Where the canary has the same servers only the first part counts, which asks for
/// a name that no cache has: a stable pod may answer the others from its cache, which the canary does not have.
pub(super) fn health_of_stable(has_other_servers: bool, heard: &[Reply]) -> UpstreamHealth {
    let count = if has_other_servers { heard.len() } else { 1 };
    health(&heard[..heard.len().min(count)])
}

/// The best that any part of a question shows.
pub(super) fn health(heard: &[Reply]) -> UpstreamHealth {
    let found: Vec<UpstreamHealth> = heard.iter().map(one).collect();
    let best = [
        UpstreamHealth::Answered,
        UpstreamHealth::Errors,
        UpstreamHealth::Unknown,
        UpstreamHealth::Silent,
    ];
    best.into_iter().find(|health| found.contains(health)).unwrap_or(UpstreamHealth::Unknown)
}

fn one(heard: &Reply) -> UpstreamHealth {
    let reply = match heard {
        Ok(reply) => reply,
        // A data plane that gives up says so: without a reply, clients get nothing either.
        Err(NoReply::Silent(_) | NoReply::Closed(_)) => return UpstreamHealth::Silent,
        Err(NoReply::Unsent(_)) => return UpstreamHealth::Unknown,
    };
    // The first one is the data plane's own; those after it may be what a server said.
    let code = ede_codes(reply).first().copied();
    if code.is_some_and(|code| SAYS_NOTHING.contains(&code)) || reply.metadata.authoritative {
        return UpstreamHealth::Unknown;
    }
    match (reply.metadata.response_code, code) {
        (ResponseCode::NoError | ResponseCode::NXDomain, _) => UpstreamHealth::Answered,
        (ResponseCode::ServFail, Some(ede::ONLY_ERRORS)) => UpstreamHealth::Errors,
        (ResponseCode::ServFail, Some(ede::NO_SERVER_REPLIED)) => UpstreamHealth::Silent,
        (ResponseCode::ServFail, Some(ede::CACHED_ERROR))
            if says(reply, between_planes::SILENCE) =>
        {
            UpstreamHealth::Silent
        }
        (ResponseCode::ServFail, Some(ede::CACHED_ERROR))
            if says(reply, between_planes::ERRORS) =>
        {
            UpstreamHealth::Errors
        }
        (ResponseCode::ServFail, Some(ede::OTHER)) if !says(reply, between_planes::LIMIT) => {
            UpstreamHealth::Silent
        }
        // REFUSED is our own word for a client or a name without upstreams; without a code nothing is known.
        _ => UpstreamHealth::Unknown,
    }
}

/// Whether the text of an Extended DNS Error has these words.
fn says(reply: &Message, words: &str) -> bool {
    let options = reply.edns.iter().flat_map(|edns| edns.options().as_ref());
    options.into_iter().any(|(_, option)| match option {
        EdnsOption::Unknown(_, octets) => {
            octets.windows(words.len()).any(|window| window == words.as_bytes())
        }
        _ => false,
    })
}
