//! The events of one watch, line by line. kube decodes each with its object, and one that cannot be decoded ends its
//! watch, which then begins again before the same event.

use std::borrow::Cow;
use std::io;
use std::pin::Pin;

use futures::{AsyncBufRead, AsyncBufReadExt};
use hyper::header::{ACCEPT_ENCODING, HeaderValue};
use kube::api::{Request, WatchParams};
use kube::core::Status;
use kube::{Client, Error};
use process::lines::{Lines, TooLong};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::runtime::decode::{self, ReadByObject, Undecodable};

/// Errors below an error that are looked at.
const MAX_CAUSES: usize = 16;

/// What a watch says.
pub(super) enum Sent<K> {
    Kept(K),
    Deleted(K),
    /// An object was created, changed or deleted that cannot be read.
    Undecodable(Undecodable),
    /// The same, and it is not known of which object: the event is too long.
    TooLong,
    /// The version that was reached, without an event.
    Reached(String),
    Failed(Box<Status>),
}

#[derive(Deserialize)]
struct Line<'l> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'l, str>,
    #[serde(borrow)]
    object: &'l RawValue,
}

/// What was not read yet of a watch.
pub(super) struct Events {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
    lines: Lines,
}

/// Begins a watch.
///
/// # Errors
/// The API server does not answer, or refuses.
pub(super) async fn watch(
    client: &Client,
    path: &str,
    params: &WatchParams,
    version: &str,
) -> kube::Result<Events> {
    let mut request = Request::new(path).watch(params, version).map_err(Error::BuildRequest)?;
    // Kubernetes 1.37 compresses each event by itself, which no layer of this client reads.
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    request.extensions_mut().insert(ReadByObject);
    let body = client.request_stream(request).await?;
    Ok(Events { body: Box::pin(body), lines: Lines::default() })
}

impl Events {
    /// The next one; none at the end of the watch.
    ///
    /// # Errors
    /// The watch breaks, or sends what is no event.
    pub(super) async fn next<K: DeserializeOwned>(&mut self) -> kube::Result<Option<Sent<K>>> {
        loop {
            while let Some(line) = self.lines.next_line() {
                match line {
                    Ok(line) if line.trim().is_empty() => {}
                    Ok(line) => return read(&line).map(Some).map_err(Error::SerdeError),
                    Err(TooLong) => return Ok(Some(Sent::TooLong)),
                }
            }
            let chunk = match self.body.fill_buf().await {
                Ok(chunk) => chunk,
                Err(error) if is_end(&error) => return Ok(None),
                Err(error) => return Err(Error::ReadEvents(error)),
            };
            if chunk.is_empty() {
                return Ok(None);
            }
            let length = chunk.len();
            self.lines.add(chunk);
            self.body.as_mut().consume(length);
        }
    }
}

/// A watch that was cut off, or that nothing came from, ends like one that ended in order.
fn is_end(error: &io::Error) -> bool {
    let mut at: Option<&(dyn std::error::Error + 'static)> = Some(error);
    for _ in 0..MAX_CAUSES {
        let Some(cause) = at else { return false };
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::TimedOut))
            || cause.to_string().contains("unexpected EOF during chunk")
        {
            return true;
        }
        at = cause.source();
    }
    false
}

fn read<K: DeserializeOwned>(line: &str) -> serde_json::Result<Sent<K>> {
    let Line { kind, object } = serde_json::from_str(line)?;
    let text = object.get();
    let object = |make: fn(K) -> Sent<K>| match decode::object(text.as_bytes()) {
        Ok(object) => make(object),
        Err(undecodable) => Sent::Undecodable(undecodable),
    };
    match &*kind {
        "ADDED" | "MODIFIED" => Ok(object(Sent::Kept)),
        "DELETED" => Ok(object(Sent::Deleted)),
        "BOOKMARK" => Ok(Sent::Reached(decode::version(text)?)),
        _ => Ok(Sent::Failed(Box::new(serde_json::from_str(text)?))),
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use kube::core::DynamicObject;

    use super::*;

    /// What a line says, in a few words.
    fn said(line: &str) -> String {
        match read::<DynamicObject>(line) {
            Ok(Sent::Kept(object)) => format!("kept {}", object.name_any()),
            Ok(Sent::Deleted(object)) => format!("deleted {}", object.name_any()),
            Ok(Sent::Undecodable(it)) => format!("cannot read {}", it.metadata.name),
            Ok(Sent::TooLong) => unreachable!("a line that was read"),
            Ok(Sent::Reached(version)) => format!("at {version}"),
            Ok(Sent::Failed(status)) => format!("failed {}", status.code),
            Err(_) => "no event".to_owned(),
        }
    }

    #[test]
    fn k23_an_event_whose_object_cannot_be_read_ends_no_watch() {
        let deep = format!("{}{{}}{}", r#"{"f:a":"#.repeat(150), "}".repeat(150));
        let hostile = format!(
            r#"{{"type":"ADDED","object":{{"metadata":{{"name":"a","managedFields":[{{"fieldsV1":{deep}}}]}}}}}}"#
        );
        let no_text = [
            br#"{"type":"MODIFIED","object":{"metadata":{"name":"a","managedFields":[{"fieldsV1":{"f:"#,
            &[0xff][..],
            br#"":{}}}]}}}"#,
        ]
        .concat();
        let mut lines = Lines::default();
        lines.add(&[&no_text[..], b"\n"].concat());
        assert_eq!(said(&lines.next_line().unwrap().unwrap()), "kept a");
        let cases = [
            (hostile.as_str(), "kept a"),
            (r#"{"object":{"metadata":{"name":"a"}},"type":"DELETED"}"#, "deleted a"),
            (
                r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","labels":7}}}"#,
                "cannot read ",
            ),
            (
                r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","generation":"x"}}}"#,
                "cannot read a",
            ),
            (r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}"#, "at 7"),
            (r#"{"type":"ERROR","object":{"code":410,"message":"gone"}}"#, "failed 410"),
            (r#"{"kind":"Status"}"#, "no event"),
        ];
        for (line, expected) in cases {
            assert_eq!(said(line), expected, "{line}");
        }
    }
}
