//! The body of one response on its way to the client, with the faults that hit it on the way: those in force when it
//! starts, and those that a test adds while it runs.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use tokio::sync::{Notify, mpsc, watch};

use super::Fault;
use super::rules::{Rule, Rules, Seen};

/// A throttled body moves in this many steps a second.
const STEPS_PER_S: usize = 10;

type Out = mpsc::Sender<Result<Frame<Bytes>, std::io::Error>>;

/// The response a body belongs to.
pub(super) struct Stream {
    pub(super) request: Seen,
    pub(super) rules: Arc<Rules>,
    pub(super) reset: Arc<Notify>,
}

/// Starts passing a body on; returns the client's end of it.
pub(super) fn relay(body: Body, stream: Stream) -> BoxBody<Bytes, std::io::Error> {
    // One chunk: what the client does not read, the API server cannot send.
    let (out, mut frames) = mpsc::channel(1);
    tokio::spawn(run(body, out, stream));
    BoxBody::new(StreamBody::new(futures::stream::poll_fn(move |context| {
        frames.poll_recv(context)
    })))
}

async fn run(mut body: Body, out: Out, stream: Stream) {
    let mut changes = stream.rules.changes();
    let mut past = Past::default();
    loop {
        changes.mark_unchanged();
        let rule = stream.next_rule(&mut past);
        match rule.map(|rule| rule.fault) {
            Some(Fault::Reset) => {
                stream.reset.notify_one();
                // Ending the body here would end the response in order.
                return out.closed().await;
            }
            Some(Fault::End) => return,
            Some(Fault::Event(event)) => {
                let line = Bytes::from(format!("{event}\n"));
                if out.send(Ok(Frame::data(line))).await.is_err() {
                    return;
                }
                continue;
            }
            Some(Fault::Hang) => {
                if !changed(&mut changes, &out).await {
                    return;
                }
                continue;
            }
            Some(
                Fault::Answer { .. }
                | Fault::Overload { .. }
                | Fault::LoseRequest
                | Fault::LoseReply,
            )
            | None => {}
            Some(Fault::Truncate) => {
                if let Some(chunk) = next_chunk(&mut body, &out).await {
                    let _ = out.send(Ok(Frame::data(chunk.slice(..chunk.len() / 2)))).await;
                }
                return;
            }
            Some(Fault::Throttle { bytes_per_s }) => {
                match next_chunk(&mut body, &out).await {
                    Some(chunk) => trickle(chunk, bytes_per_s, &out).await,
                    None => return,
                }
                continue;
            }
        }
        let chunk = tokio::select! {
            _ = changes.changed() => continue,
            chunk = next_chunk(&mut body, &out) => chunk,
        };
        let Some(chunk) = chunk else { return };
        if out.send(Ok(Frame::data(chunk))).await.is_err() {
            return;
        }
    }
}

/// What a stream has been through already.
#[derive(Default)]
struct Past {
    /// The newest rule that put an event in; rules after it are new.
    events: Option<u64>,
    /// The rule that stops this stream or slows it down.
    lasting: Option<Rule>,
}

impl Stream {
    /// The rule for the next chunk. Events happen once per stream; a hang or a throttle lasts until it is healed.
    fn next_rule(&self, past: &mut Past) -> Option<Rule> {
        if let Some(rule) = &past.lasting {
            if self.rules.in_force(rule.id) {
                return Some(rule.clone());
            }
            past.lasting = None;
        }
        let rule = self.rules.take(&self.request, |rule| match rule.fault {
            Fault::Event(_) => past.events.is_none_or(|last| rule.id > last),
            Fault::Answer { .. }
            | Fault::Overload { .. }
            | Fault::LoseRequest
            | Fault::LoseReply => false,
            Fault::Hang | Fault::Reset | Fault::End | Fault::Truncate | Fault::Throttle { .. } => {
                true
            }
        })?;
        match rule.fault {
            Fault::Event(_) => past.events = Some(rule.id),
            Fault::Hang | Fault::Throttle { .. } => past.lasting = Some(rule.clone()),
            Fault::Answer { .. }
            | Fault::Overload { .. }
            | Fault::LoseRequest
            | Fault::LoseReply
            | Fault::Reset
            | Fault::End
            | Fault::Truncate => {}
        }
        Some(rule)
    }
}

/// False when the client has gone.
async fn changed(changes: &mut watch::Receiver<()>, out: &Out) -> bool {
    tokio::select! {
        _ = changes.changed() => true,
        () = out.closed() => false,
    }
}

/// None at the end of the body, and when the client has gone. A failing API server ends it too: HTTP/1.1 chunks and
/// Content-Length show the client which of the two it was.
async fn next_chunk(body: &mut Body, out: &Out) -> Option<Bytes> {
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = out.closed() => return None,
        };
        match frame?.map(Frame::into_data) {
            Ok(Ok(chunk)) => return Some(chunk),
            // Trailers; Kubernetes sends none.
            Ok(Err(_)) => {}
            Err(error) => {
                let _ = out.send(Err(std::io::Error::other(error))).await;
                return None;
            }
        }
    }
}

async fn trickle(mut chunk: Bytes, bytes_per_s: usize, out: &Out) {
    let step = (bytes_per_s / STEPS_PER_S).max(1);
    while !chunk.is_empty() {
        let piece = chunk.split_to(step.min(chunk.len()));
        if out.send(Ok(Frame::data(piece))).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1) / STEPS_PER_S as u32).await;
    }
}
