//! The faults that the test asked for, and the requests that the proxy got: the only state that the two share.

use std::collections::VecDeque;
use std::sync::Mutex;

use hyper::{Method, Uri};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Fault, Link};

/// Requests remembered for the test; a test that makes more sees the newest.
const SEEN_LIMIT: usize = 100_000;

/// Which requests a fault or a count is about.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    path: String,
    part: Option<String>,
    watch: Option<bool>,
    query: Option<String>,
    writes: bool,
    except: Vec<String>,
}

impl Requests {
    pub fn all() -> Requests {
        Requests::default()
    }

    /// Those whose path starts so, such as `/api/v1/services`.
    pub fn to(path: &str) -> Requests {
        Requests { path: path.to_owned(), ..Requests::default() }
    }

    /// Only those whose path contains this, such as the name of an object.
    pub fn naming(self, part: &str) -> Requests {
        Requests { part: Some(part.to_owned()), ..self }
    }

    /// Only watches.
    pub fn watches(self) -> Requests {
        Requests { watch: Some(true), ..self }
    }

    /// Only what is no watch: lists and single objects. A list of one object, which asks for the version of the API server
    /// (K22), is none.
    pub fn lists(self) -> Requests {
        Requests { watch: Some(false), ..self }
    }

    /// Only those whose query contains this text, such as `continue=`.
    pub fn with(self, query: &str) -> Requests {
        Requests { query: Some(query.to_owned()), ..self }
    }

    /// Only what changes something.
    pub fn writes(self) -> Requests {
        Requests { writes: true, ..self }
    }

    /// Only those whose path does not start so.
    pub fn except(mut self, path: &str) -> Requests {
        self.except.push(path.to_owned());
        self
    }

    fn match_seen(&self, seen: &Seen) -> bool {
        seen.path.starts_with(&self.path)
            && self.watch.is_none_or(|watch| watch == seen.is_watch() && (watch || !seen.is_look()))
            && (!self.writes || seen.method != "GET")
            && self.part.as_ref().is_none_or(|part| seen.path.contains(part.as_str()))
            && self.except.iter().all(|path| !seen.path.starts_with(path.as_str()))
            && self.query.as_ref().is_none_or(|query| seen.query.contains(query.as_str()))
    }
}

/// One request that reached the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `GET`, `POST` and so on.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query as sent, percent-encoded; empty without one.
    pub query: String,
}

impl Seen {
    pub(crate) fn of(method: &Method, uri: &Uri) -> Seen {
        Seen {
            method: method.to_string(),
            path: uri.path().to_owned(),
            query: uri.query().unwrap_or_default().to_owned(),
        }
    }

    /// The value of a query parameter, as sent.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Whether it asks for a watch.
    pub fn is_watch(&self) -> bool {
        matches!(self.parameter("watch"), Some("true" | "1"))
    }

    /// Whether it lists one object, which asks at what version the API server is (K22).
    pub fn is_look(&self) -> bool {
        self.parameter("limit") == Some("1") && self.parameter("continue").is_none()
    }
}

/// One request that the API server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub request: Seen,
    pub status: u16,
}

/// A fault in force. By its id a stream knows which ones it has been through.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) id: u64,
    pub(super) fault: Fault,
    requests: Requests,
    times_left: Option<usize>,
    /// Matching requests until it acts; the last of them is the first that it acts on.
    to_come: usize,
}

#[derive(Debug, Default)]
struct State {
    /// In the order in which they were added.
    rules: Vec<Rule>,
    next_id: u64,
    seen: VecDeque<Seen>,
    answered: VecDeque<Answered>,
    lost: VecDeque<Seen>,
}

/// Shared by the test and every connection.
#[derive(Debug)]
pub(super) struct Rules {
    state: Mutex<State>,
    /// Wakes those that wait for a change: open streams, hung requests.
    changes: watch::Sender<()>,
    link: watch::Sender<Link>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            state: Mutex::default(),
            changes: watch::Sender::new(()),
            link: watch::Sender::new(Link::Up),
        }
    }
}

impl Rules {
    pub(super) fn set_link(&self, link: Link) {
        self.link.send_replace(link);
    }

    pub(super) fn add(&self, requests: Requests, fault: Fault, times_left: Option<usize>) {
        self.add_after(0, requests, fault, times_left);
    }

    pub(super) fn add_after(
        &self,
        to_come: usize,
        requests: Requests,
        fault: Fault,
        times_left: Option<usize>,
    ) {
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        state.rules.push(Rule { id, fault, requests, times_left, to_come });
        drop(state);
        self.changes.send_replace(());
    }

    pub(super) fn heal(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.lost.clear();
        drop(state);
        self.changes.send_replace(());
        self.set_link(Link::Up);
    }

    pub(super) fn seen(&self, requests: &Requests) -> Vec<Seen> {
        self.state().seen.iter().filter(|seen| requests.match_seen(seen)).cloned().collect()
    }

    pub(super) fn count(&self, requests: &Requests) -> usize {
        self.state().seen.iter().filter(|seen| requests.match_seen(seen)).count()
    }

    pub(super) fn record(&self, seen: Seen) {
        let mut state = self.state();
        if state.seen.len() == SEEN_LIMIT {
            state.seen.pop_front();
        }
        for rule in state.rules.iter_mut().filter(|rule| rule.requests.match_seen(&seen)) {
            rule.to_come = rule.to_come.saturating_sub(1);
        }
        state.seen.push_back(seen);
    }

    pub(super) fn record_answer(&self, request: Seen, status: u16) {
        let mut state = self.state();
        if state.answered.len() == SEEN_LIMIT {
            state.answered.pop_front();
        }
        state.answered.push_back(Answered { request, status });
    }

    pub(super) fn answered(&self, requests: &Requests) -> Vec<Answered> {
        let matches = |answered: &&Answered| requests.match_seen(&answered.request);
        self.state().answered.iter().filter(matches).cloned().collect()
    }

    pub(super) fn lose(&self, request: Seen) {
        let mut state = self.state();
        if state.lost.len() == SEEN_LIMIT {
            state.lost.pop_front();
        }
        state.lost.push_back(request);
    }

    pub(super) fn lost(&self, requests: &Requests) -> usize {
        self.state().lost.iter().filter(|lost| requests.match_seen(lost)).count()
    }

    /// The newest rule about this request that `fits`, used up by one.
    pub(super) fn take(&self, request: &Seen, fits: impl Fn(&Rule) -> bool) -> Option<Rule> {
        let mut state = self.state();
        let matching = |rule: &&mut Rule| {
            rule.requests.match_seen(request)
                && rule.to_come == 0
                && rule.times_left != Some(0)
                && fits(rule)
        };
        let rule = state.rules.iter_mut().rev().find(matching)?;
        if let Some(times) = &mut rule.times_left {
            *times -= 1;
        }
        Some(rule.clone())
    }

    /// Whether a rule, used up or not, has not been healed yet.
    pub(super) fn in_force(&self, id: u64) -> bool {
        self.state().rules.iter().any(|rule| rule.id == id)
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(super) fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding this lock")
    }
}

/// What an API server says with an error status.
pub(crate) fn status_object(code: u16, message: &str) -> Value {
    let reason = match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    };
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    })
}
