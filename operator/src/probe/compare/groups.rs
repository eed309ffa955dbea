//! The servers of stub domains and default upstreams: which are asked for, and whether a reply shows that one of them
//! replied. A data plane says how a lookup ended by Extended DNS Errors (RFC 8914), so that a server's refusal and silence
//! are told apart.

use crds::Config;
use crds::config::Upstreams;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{Name, RecordType};

use super::judge::{Heard, Unheard, ede};
use super::questions::{Expects, Question, is_untouched};

/// Exist always, and are nobody's (RFC 2606). One is enough.
const EXTERNAL: [&str; 3] = ["example.com", "example.net", "example.org"];
/// Stub domains that are asked for of those that changed: a configuration may have 100.
const MAX_GROUPS: usize = 16;

/// Stale Answer, Not Ready, Stale NXDOMAIN Answer: what servers do now does not show.
const SAYS_NOTHING: [u16; 3] = [3, 14, 19];
/// Cached Error: its text says how the lookup failed a moment ago.
const CACHED_ERROR: u16 = 13;
/// Network Error: servers replied, none of them with an answer.
const ONLY_ERRORS: u16 = 23;
/// No Reachable Authority.
const NOBODY_REPLIED: u16 = 22;
/// Other Error: no server can be asked, or a limit was reached.
const OTHER: u16 = 0;

/// How a pod's servers behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// One gave an answer, which may be a denial.
    Answered,
    /// They reply, with SERVFAIL, REFUSED and the like.
    Errors,
    /// Nobody replies.
    Silent,
    /// It does not show.
    Unknown,
}

/// One question for every stub domain that changed, and one for the default upstreams. Nobody has asked for a name with the
/// `fresh` label before, so that servers must be asked for it.
pub(super) fn of(config: &Config, before: &Config, fresh: &str) -> Vec<Question> {
    let changed = config.stub_domains.iter().filter(|stub| !before.stub_domains.contains(stub));
    let mut questions: Vec<Question> = changed
        .take(MAX_GROUPS)
        .filter_map(|stub| {
            let is_new = !before.stub_domains.iter().any(|other| other.domain == stub.domain);
            let group = format!("stub domain {}", stub.domain);
            let apex = Name::from_ascii(format!("{}.", stub.domain)).ok()?;
            Some(question((group, is_new, true), vec![(apex, RecordType::SOA)]))
        })
        .collect();
    if config.upstreams != Upstreams::None {
        let is_new = before.upstreams == Upstreams::None;
        let is_changed = config.upstreams != before.upstreams;
        let group = ("the default upstreams".to_owned(), is_new, is_changed);
        questions.push(question(group, outside(config, fresh)));
    }
    questions
}

fn question(
    (group, is_new, is_changed): (String, bool, bool),
    asked: Vec<(Name, RecordType)>,
) -> Question {
    // What is asked differs from round to round, and what is worse must be known again in the next one.
    let what = match asked.as_slice() {
        [(name, kind)] => format!("{name} {kind}"),
        _ => group.clone(),
    };
    Question { what, asked, expects: Expects::Server { group, is_new, is_changed } }
}

/// Names of the world that no other route takes. The root is asked for where example.com may be dropped on purpose.
fn outside(config: &Config, fresh: &str) -> Vec<(Name, RecordType)> {
    let is_stub = |name: &str| {
        config.stub_domains.iter().any(|stub| crds::names::is_at_or_below(name, &stub.domain))
    };
    let free = EXTERNAL.into_iter().find(|name| !is_stub(name) && is_untouched(config, name));
    let name = free.and_then(|name| Name::from_ascii(format!("{fresh}.{name}.")).ok());
    let fresh = name.map(|name| (name, RecordType::A));
    fresh.into_iter().chain([(Name::root(), RecordType::NS)]).collect()
}

/// How the servers of a stable pod behave. Of a group that did not change only the first part counts, which asks for a name
/// that no cache knows: that the stable pod remembers the others is no fault of the canary's.
pub(super) fn way_of_stable(is_changed: bool, heard: &[Heard]) -> Way {
    let count = if is_changed { heard.len() } else { 1 };
    way(&heard[..heard.len().min(count)])
}

/// The best that any part of a question shows.
pub(super) fn way(heard: &[Heard]) -> Way {
    let ways: Vec<Way> = heard.iter().map(one).collect();
    let best = [Way::Answered, Way::Errors, Way::Unknown, Way::Silent];
    best.into_iter().find(|way| ways.contains(way)).unwrap_or(Way::Unknown)
}

fn one(heard: &Heard) -> Way {
    let reply = match heard {
        Ok(reply) => reply,
        // A data plane that gives up says so: without a reply, clients get nothing either.
        Err(Unheard::Silent(_) | Unheard::Closed(_)) => return Way::Silent,
        Err(Unheard::Unsent(_)) => return Way::Unknown,
    };
    // The first one is the data plane's own; those after it may be what a server said.
    let code = ede(reply).first().copied();
    if code.is_some_and(|code| SAYS_NOTHING.contains(&code)) || reply.metadata.authoritative {
        return Way::Unknown;
    }
    match (reply.metadata.response_code, code) {
        (ResponseCode::NoError | ResponseCode::NXDomain, _) => Way::Answered,
        (ResponseCode::ServFail, Some(ONLY_ERRORS)) => Way::Errors,
        (ResponseCode::ServFail, Some(NOBODY_REPLIED)) => Way::Silent,
        (ResponseCode::ServFail, Some(CACHED_ERROR)) if says(reply, SILENCE) => Way::Silent,
        (ResponseCode::ServFail, Some(CACHED_ERROR)) if says(reply, ERRORS) => Way::Errors,
        (ResponseCode::ServFail, Some(OTHER)) if !says(reply, LIMIT) => Way::Silent,
        // REFUSED is our own word for a client or a name without upstreams; without a code nothing is known.
        _ => Way::Unknown,
    }
}

/// Whether the text of an Extended DNS Error has these words.
fn says(reply: &Message, words: &[u8]) -> bool {
    let options = reply.edns.iter().flat_map(|edns| edns.options().as_ref());
    options.into_iter().any(|(_, option)| match option {
        EdnsOption::Unknown(_, octets) => octets.windows(words.len()).any(|window| window == words),
        _ => false,
    })
}

/// What a data plane says when it turns a question away because it has too many, so that no server was asked (N20).
const LIMIT: &[u8] = b"limit";
/// What it says of a failure a moment ago (N19), when no server replied, and when servers replied only with errors.
const SILENCE: &[u8] = b"no upstream server answered";
const ERRORS: &[u8] = b"only with errors";
