//! One stream: list, then watch; after any failure the supervisor decides how to continue
//! (E20-E24). Each resource has a stream of its own: losing one does not stop the others (E33).
//! A loop of our own on kube's client instead of kube-runtime's
//! `watcher`: that one hides HTTP statuses, Retry-After and the list's version, which decide here.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::header::RETRY_AFTER;
use hyper::{Request, Response, StatusCode};
use kube::client::Body;
use process::lines::{Lines, TooLong};
use process::pages::Pages;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::client::ApiClient;
use super::decode::{self, ApiStatus, Line};
use super::heartbeat;
use super::listed::{self, Beside};
use super::pace::{LIST_AGAIN_AFTER, Pace, chance, due_after};
use super::sink::{Read, Sink};
use super::supervise::{During, Failure, Next, Supervisor};
use super::watched::{self, FIRST_PAGE, KINDS, PAGE, Watched};
use crate::source::objects::convert;

/// An answer begins within this time, and a list continues within it.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// An error body that is read for its message.
const MAX_ERROR: usize = 64 << 10;
/// Random part of the silence that ends a watch, because all watches of all pods begin when an API server starts.
const SILENCE_SPREAD: f64 = 0.2;

/// Follows one thing forever.
pub(super) struct Stream {
    pub(super) watched: Watched,
    client: Rc<ApiClient>,
    pub(super) sink: Rc<RefCell<Sink>>,
    /// Counts the heartbeats that got no answer.
    dead: watch::Receiver<u64>,
    /// Requests to list again, by [`Watched::number`], and how many of them have been followed.
    relists: watch::Receiver<[u64; KINDS]>,
    relisted: u64,
    pub(super) pages: Pages,
    pub(super) supervisor: Supervisor,
    /// The version that is held; `None` before the first complete list.
    pub(super) version: Option<String>,
    silence: Duration,
    pub(super) compare_after: Duration,
    pub(super) compare_at: Instant,
    pub(super) is_comparing: bool,
    /// When a list says what became of an object whose event was too long.
    pub(super) list_at: Option<Instant>,
    /// The version of the last list beside the watch, which may be above that of the watch. Until the watch is there, events that
    /// change an object are of its past: the list has it as it became.
    pub(super) listed_at: u64,
    /// A list in progress that is not needed.
    pub(super) beside: Option<Beside>,
    /// This stream is one, beside the watch of another.
    pub(super) is_beside: bool,
}

impl Stream {
    pub(super) fn new(
        watched: Watched,
        client: Rc<ApiClient>,
        sink: Rc<RefCell<Sink>>,
        dead: watch::Receiver<u64>,
    ) -> Stream {
        let relists = sink.borrow().relists();
        let Pace { compare_after, silence, .. } = sink.borrow().configuration.pace;
        let pages = Pages::new(FIRST_PAGE, PAGE);
        Stream {
            watched,
            client,
            sink,
            dead,
            relists,
            relisted: 0,
            pages,
            supervisor: Supervisor::default(),
            version: None,
            silence: silence.mul_f64(1.0 + SILENCE_SPREAD * chance()),
            compare_after,
            compare_at: due_after(compare_after),
            is_comparing: false,
            list_at: None,
            listed_at: 0,
            beside: None,
            is_beside: false,
        }
    }

    /// A stream of the same thing, at the same version.
    pub(super) fn another(&self) -> Stream {
        let (client, sink) = (self.client.clone(), self.sink.clone());
        let stream = Stream::new(self.watched.clone(), client, sink, self.dead.clone());
        let version = self.version.clone();
        Stream { relisted: self.relisted, pages: self.pages, version, ..stream }
    }

    /// List, watch, and so on.
    pub(super) async fn follow(mut self) {
        let mut relist = true;
        loop {
            let (failure, during) = if relist {
                match self.list().await {
                    // A fresh list is of the present cluster, so no check is needed.
                    Ok(()) => self.watch().await,
                    Err(failure) => (failure, During::List),
                }
            } else {
                match self.look().await {
                    Ok(()) => self.watch().await,
                    Err(failure) => (failure, During::Look),
                }
            };
            let next = self.supervisor.next(&failure, during, Instant::now().into_std(), chance());
            self.log_failure(&failure, next);
            relist = next.relist;
            let known = (relist && during != During::List).then_some(self.relisted);
            pause(next.after, &mut self.relists, self.watched.number(), known).await;
        }
    }

    /// Reports a failure once, until it is another one.
    pub(super) fn log_failure(&mut self, failure: &Failure, next: Next) {
        if next.after == Duration::ZERO
            && matches!(failure, Failure::End | Failure::Silence | Failure::Relist)
        {
            return;
        }
        let what = self.watched.plural();
        let text = failure.text(what);
        let is_news = self.sink.borrow().feed(&self.watched, |feed| feed.failed(text.clone()));
        if is_news {
            tracing::warn!(
                resource = what,
                relist = next.relist,
                "{text}; what is known stays in use"
            );
        } else {
            tracing::debug!(resource = what, relist = next.relist, "{text}");
        }
    }

    /// Whether a list was requested that has not begun.
    pub(super) fn is_relist_due(&self) -> bool {
        self.relisted != self.relists.borrow()[self.watched.number()]
    }

    /// Whether the next watch must not continue before a look has confirmed its version.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.supervisor.is_in_doubt()
    }

    /// The API server is at the version held or above.
    pub(super) fn is_confirmed(&mut self) {
        self.supervisor.confirmed();
    }

    /// A list that begins now answers every request for one so far.
    pub(super) fn mark_relisted(&mut self) {
        self.relisted = self.relists.borrow_and_update()[self.watched.number()];
    }

    /// Sends a request; an answer that is an error is a failure.
    pub(super) async fn send(&mut self, request: Request<Body>) -> Result<Response<Body>, Failure> {
        self.dead.mark_unchanged();
        let client = self.client.client();
        let answered = tokio::select! {
            answered = timeout(ANSWER_TIMEOUT, client.send(request)) => answered,
            () = died(&mut self.dead) => return Err(silent(heartbeat::SILENCE)),
        };
        let response = match answered {
            Err(_) => Err(silent(ANSWER_TIMEOUT)),
            Ok(Err(error)) => Err(Failure::Link(chain(&error))),
            Ok(Ok(response)) => Ok(response),
        };
        self.sink.borrow().ingest.status.requested(response.is_ok());
        if !response.as_ref().is_ok_and(|answer| answer.status() != StatusCode::UNAUTHORIZED) {
            self.client.doubt();
        }
        let response = response?;
        match response.status() {
            StatusCode::OK => Ok(response),
            code => Err(refusal(code, response).await),
        }
    }

    async fn watch(&mut self) -> (Failure, During) {
        let seconds = watched::watch_seconds(chance());
        let request = self.watched.watch(self.version.as_deref().unwrap_or_default(), seconds);
        let mut body = match self.send(request).await {
            Ok(response) => response.into_body(),
            Err(failure) => return (failure, During::Start),
        };
        let asked = Duration::from_secs(seconds.into());
        let during = During::Watch { since: Instant::now().into_std(), asked };
        let is_recovered = self.sink.borrow_mut().heard(&self.watched, 0);
        if is_recovered {
            tracing::info!(resource = self.watched.plural(), "watching again");
        }
        let mut lines = Lines::default();
        loop {
            match self.chunk(&mut body).await {
                Err(failure) => return (failure, during),
                Ok(chunk) => {
                    if let Err(failure) = self.take(&mut lines, &chunk) {
                        return (failure, during);
                    }
                }
            }
        }
    }

    /// The next chunk of a watch. A list that is due begins beside it.
    async fn chunk(&mut self, body: &mut Body) -> Result<Vec<u8>, Failure> {
        let begun = Instant::now();
        let (number, relisted) = (self.watched.number(), self.relisted);
        loop {
            let list_at = self.list_at.map_or(self.compare_at, |at| at.min(self.compare_at));
            return tokio::select! {
                frame = timeout(self.silence, body.frame()) => match frame {
                    // Not reported as a failure: where hardly anything changes, bookmarks may take longer. If something
                    // is wrong, the look before the next watch says what.
                    Err(_) => Err(Failure::Silence),
                    Ok(None) => Err(Failure::End),
                    Ok(Some(Err(error))) => Err(Failure::Link(chain(&error))),
                    Ok(Some(Ok(frame))) => Ok(frame.into_data().unwrap_or_default().to_vec()),
                },
                () = died(&mut self.dead) => {
                    // Another connection is dead; this one has just received something.
                    if begun.elapsed() < heartbeat::QUIET {
                        continue;
                    }
                    Err(silent(heartbeat::SILENCE))
                }
                () = requested(&mut self.relists, |counts| counts[number] != relisted) => Err(Failure::Relist),
                () = sleep_until(list_at), if self.beside.is_none() => {
                    self.begin_beside();
                    continue;
                }
                ended = listed::end_of(&mut self.beside) => match self.take_beside(ended) {
                    Ok(()) => continue,
                    Err(failure) => Err(failure),
                }
            };
        }
    }

    /// Gives the events of one chunk to the sink.
    fn take(&mut self, lines: &mut Lines, chunk: &[u8]) -> Result<(), Failure> {
        let received = Instant::now().into_std();
        lines.add(chunk);
        let mut events = 0;
        let mut outcome = Ok(());
        while let Some(line) = lines.next_line() {
            let read = match line {
                Ok(line) => self.event(&line, received),
                Err(TooLong) => {
                    self.pass_over();
                    Ok(true)
                }
            };
            match read {
                Ok(is_event) => events += u64::from(is_event),
                Err(failure) => {
                    outcome = Err(failure);
                    break;
                }
            }
        }
        self.sink.borrow_mut().heard(&self.watched, events);
        outcome
    }

    /// An event is too long to be read, and it is not known of which object. Who writes such objects must not keep the
    /// events of others away, so the watch continues; a list says later what has become of the object.
    fn pass_over(&mut self) {
        let is_news = self.list_at.is_none();
        if is_news {
            self.list_at = Some(due_after(LIST_AGAIN_AFTER));
        }
        self.sink.borrow_mut().skip_too_long(&self.watched, is_news);
    }

    /// One line. Returns whether it was about an object.
    fn event(&mut self, line: &str, received: std::time::Instant) -> Result<bool, Failure> {
        if line.is_empty() {
            return Ok(false);
        }
        let read: Line<'_> =
            serde_json::from_str(line).map_err(|error| Failure::Garbage(error.to_string()))?;
        let text = read.object.get();
        if read.kind == "ERROR" {
            let status: ApiStatus = serde_json::from_str(text).unwrap_or_default();
            let ApiStatus { code, message } = status;
            return Err(Failure::Status { code, message, retry_after: None });
        }
        let metadata = decode::named(text.as_bytes()).map(|named| named.metadata);
        let key = metadata.as_ref().map(convert::key);
        let version = metadata.and_then(|metadata| metadata.resource_version);
        // Versions of one resource only grow (K7): an event from before what is held is an echo.
        let (held, new) =
            (decode::version(self.version.as_deref()), decode::version(version.as_deref()));
        if new != 0 && new < held {
            return Ok(false);
        }
        let is_deleted = match &*read.kind {
            "ADDED" | "MODIFIED" => Some(false),
            "DELETED" => Some(true),
            "BOOKMARK" => None,
            other => return Err(Failure::Garbage(format!("an event of type {other:?}"))),
        };
        let mut sink = self.sink.borrow_mut();
        // There is one ConfigMap, and a deletion of it that is of the past must not be the last that is heard of it.
        let has_passed =
            new <= self.listed_at && new != 0 && matches!(self.watched, Watched::Objects(_));
        if let Some(is_deleted) = is_deleted.filter(|is_deleted| *is_deleted || !has_passed) {
            let read = Read { key, version: new, is_deleted, text, received };
            sink.receive(&self.watched, read);
        }
        sink.saw_version(&self.watched, new);
        drop(sink);
        if version.is_some() && version != self.version {
            self.version = version;
            self.supervisor.moved();
        }
        Ok(is_deleted.is_some())
    }
}

/// Waits. A list that others request meanwhile, as for a reset, begins at once: where this many requests are `known`. After
/// a list that failed none are, and it waits.
pub(super) async fn pause(
    after: Duration,
    relists: &mut watch::Receiver<[u64; KINDS]>,
    number: usize,
    known: Option<u64>,
) {
    let is_requested = |counts: &[u64; KINDS]| known.is_some_and(|known| counts[number] != known);
    tokio::select! {
        () = tokio::time::sleep(after) => {}
        () = requested(relists, is_requested) => {}
    }
}

/// Waits until lists are requested.
async fn requested(
    relists: &mut watch::Receiver<[u64; KINDS]>,
    is_requested: impl Fn(&[u64; KINDS]) -> bool,
) {
    let _ = relists.wait_for(|counts| is_requested(counts)).await;
}

/// Waits until a heartbeat gets no answer.
async fn died(dead: &mut watch::Receiver<u64>) {
    if dead.changed().await.is_err() {
        // The heartbeat has ended with the source: nothing will say so any more.
        std::future::pending::<()>().await;
    }
}

pub(super) fn silent(duration: Duration) -> Failure {
    Failure::Link(format!("nothing came from it for {} s", duration.as_secs()))
}

async fn refusal(code: StatusCode, response: Response<Body>) -> Failure {
    let seconds = response.headers().get(RETRY_AFTER);
    let seconds = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
    let body = http_body_util::Limited::new(response.into_body(), MAX_ERROR);
    let body = timeout(ANSWER_TIMEOUT, body.collect()).await;
    let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
    let status: ApiStatus = serde_json::from_slice(&body).unwrap_or_default();
    Failure::Status {
        code: code.as_u16(),
        message: status.message,
        retry_after: seconds.map(Duration::from_secs),
    }
}

/// An error and what caused it.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
