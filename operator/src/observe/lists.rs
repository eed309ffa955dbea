//! Pages of lists, read object by object: of a page, however large, one object is held, and the controller reads one page at a
//! time, as does the lookout for lost pods. Anyone who may write in a watched namespace can fill it with objects of 1.5 MiB, and
//! at its start the operator lists every kind at once (K23).

use std::io;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::api::{ListParams, Request};
use kube::{Client, Error};
use process::items::{Items, MAX_OBJECT, NoList, Part};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::runtime::decode::{self, ReadByObject, Undecodable};

/// Pages that are read at a time. An API server that is slow to answer keeps no other list waiting: only the body counts.
const AT_A_TIME: usize = 1;
/// The answer begins within this time; an API server ends its own requests after 60 s.
pub(super) const ANSWER: Duration = Duration::from_secs(70);
/// A body continues within this time.
const SILENCE: Duration = Duration::from_secs(10);

/// Reads lists, [`AT_A_TIME`] pages at a time.
#[derive(Debug)]
pub struct Lists {
    turns: Semaphore,
}

impl Default for Lists {
    fn default() -> Lists {
        Lists { turns: Semaphore::new(AT_A_TIME) }
    }
}

/// What a page had besides its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The version that a watch can begin at.
    pub version: String,
    /// Asks for the next page; none: this was the last one.
    pub token: Option<String>,
    /// Number of objects in the page.
    pub objects: u32,
    /// Size of the page in octets.
    pub octets: usize,
    /// Objects that were passed over: they cannot be decoded, or are longer than any that an API server stores.
    pub skipped: u32,
}

/// `metadata` of a list.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    resource_version: String,
    #[serde(rename = "continue")]
    token: Option<String>,
}

impl Lists {
    /// Reads a page of the objects below this path, and gives each of them to `to` as soon as it has arrived.
    ///
    /// # Errors
    /// The API server does not answer, refuses, or breaks off; objects before that were given.
    pub async fn page<K: DeserializeOwned>(
        &self,
        client: &Client,
        path: &str,
        params: &ListParams,
        mut to: impl FnMut(K),
    ) -> kube::Result<Page> {
        let to = |read: Result<K, Undecodable>| read.into_iter().for_each(&mut to);
        self.page_of_all(client, path, params, to).await
    }

    /// The same, where objects that cannot be decoded are given too.
    ///
    /// # Errors
    /// As of [`Lists::page`].
    pub(super) async fn page_of_all<K: DeserializeOwned>(
        &self,
        client: &Client,
        path: &str,
        params: &ListParams,
        to: impl FnMut(Result<K, Undecodable>),
    ) -> kube::Result<Page> {
        let request = Request::new(path).list(params).map_err(Error::BuildRequest)?;
        self.read(client, request, to).await
    }

    /// The same of the metadata of objects alone.
    ///
    /// # Errors
    /// As of [`Lists::page`].
    pub async fn metadata_page<K: DeserializeOwned>(
        &self,
        client: &Client,
        path: &str,
        params: &ListParams,
        mut to: impl FnMut(K),
    ) -> kube::Result<Page> {
        let request = Request::new(path).list_metadata(params).map_err(Error::BuildRequest)?;
        let to = |read: Result<K, Undecodable>| read.into_iter().for_each(&mut to);
        self.read(client, request, to).await
    }

    async fn read<K: DeserializeOwned>(
        &self,
        client: &Client,
        mut request: hyper::Request<Vec<u8>>,
        mut to: impl FnMut(Result<K, Undecodable>),
    ) -> kube::Result<Page> {
        request.extensions_mut().insert(ReadByObject);
        let path = request.uri().path().to_owned();
        let body = timeout(ANSWER, client.request_stream(request)).await;
        let body = body.map_err(|_| silent(ANSWER))??;
        let mut body = std::pin::pin!(body);
        // An error would mean that the semaphore is closed, which never happens.
        let _turn = self.turns.acquire().await;
        let (mut items, mut page) = (Items::default(), Page::default());
        loop {
            let chunk = timeout(SILENCE, body.fill_buf()).await.map_err(|_| silent(SILENCE))?;
            let chunk = chunk.map_err(Error::ReadEvents)?;
            let length = chunk.len();
            if length == 0 {
                break;
            }
            page.octets += length;
            items
                .add(chunk, |part| take(part, &path, &mut page, &mut to))
                .map_err(|Unread(it)| it)?;
            AsyncBufRead::consume(body.as_mut(), length);
        }
        items.finish().map_err(|error| Unread::from(error).0)?;
        Ok(page)
    }
}

fn take<K: DeserializeOwned>(
    part: Part<'_>,
    path: &str,
    page: &mut Page,
    to: &mut impl FnMut(Result<K, Undecodable>),
) -> Result<(), Unread> {
    let unread = |error| Unread(Error::SerdeError(error));
    match part {
        Part::Metadata(text) => {
            let metadata: Metadata = serde_json::from_slice(text).map_err(unread)?;
            page.version = metadata.resource_version;
            page.token = metadata.token.filter(|token| !token.is_empty());
        }
        Part::Object(text) => {
            page.objects += 1;
            let read = decode::object(text);
            if let Err(undecodable) = &read {
                skip(path, page, undecodable);
            }
            to(read);
        }
        Part::TooLong => {
            page.objects += 1;
            skip(path, page, &format_args!("it has more than {MAX_OBJECT} octets"));
        }
    }
    Ok(())
}

/// The log has the first of each page: someone may write thousands. It does not say what to do: the object may be one that a
/// newer version of the operator reads, such as a ClusterDNS that serves.
fn skip(path: &str, page: &mut Page, why: &dyn std::fmt::Display) {
    page.skipped += 1;
    if page.skipped == 1 {
        tracing::warn!("the operator skips an object of {path}: {why}");
    }
}

/// Why a page was not read.
struct Unread(Error);

impl From<NoList> for Unread {
    fn from(error: NoList) -> Unread {
        Unread(Error::ReadEvents(io::Error::new(io::ErrorKind::InvalidData, error)))
    }
}

/// The API server said nothing for this time.
pub(super) fn silent(time: Duration) -> Error {
    let why = format!("nothing came within {} s", time.as_secs());
    Error::ReadEvents(io::Error::new(io::ErrorKind::TimedOut, why))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::Stream;
    use futures::future::join_all;
    use hyper::body::Bytes;
    use kube::Resource;
    use kube::core::DynamicObject;
    use serde_json::json;

    use super::*;
    use crate::fixtures::Lines;
    use crate::fixtures::api::{self, Reply};

    /// Of the largest objects that etcd stores, this many in each page.
    const OBJECTS: usize = 6;
    const CHUNK: usize = 64 << 10;

    /// How many bodies have begun and are not read to their end, now and at most.
    #[derive(Default)]
    struct Bodies {
        now: AtomicUsize,
        most: AtomicUsize,
    }

    /// A page of objects of 1.4 MB each, which is sent piece by piece.
    fn pieces(bodies: Arc<Bodies>) -> impl Stream<Item = Bytes> + Send {
        let filling = "x".repeat(1_400_000);
        let object =
            |n: usize| json!({"metadata": {"name": n.to_string(), "annotations": {"a": filling}}});
        let items: Vec<_> = (0..OBJECTS).map(object).collect();
        let text = json!({"metadata": {"resourceVersion": "7"}, "items": items}).to_string();
        let text = Bytes::from(text);
        let chunks = text.len().div_ceil(CHUNK);
        let pieces = (0..chunks).map(move |n| {
            if n == 1 {
                let now = bodies.now.fetch_add(1, Ordering::SeqCst) + 1;
                bodies.most.fetch_max(now, Ordering::SeqCst);
            }
            if n + 1 == chunks {
                bodies.now.fetch_sub(1, Ordering::SeqCst);
            }
            let end = text.len().min((n + 1) * CHUNK);
            text.slice(n * CHUNK..end)
        });
        // Between two pieces others may run.
        futures::StreamExt::then(futures::stream::iter(pieces), |piece| async {
            tokio::task::yield_now().await;
            piece
        })
    }

    #[tokio::test]
    async fn k23_however_many_lists_begin_at_once_one_page_is_read_at_a_time_object_by_object() {
        let bodies = Arc::new(Bodies::default());
        let served = bodies.clone();
        let client = api::client(move |_| Reply::stream(pieces(served.clone())));
        let (lists, held, most) = (Lists::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let list = async || {
            let mut objects = 0;
            let take = |object: DynamicObject| {
                most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                objects += 1;
                drop(object);
                held.fetch_sub(1, Ordering::SeqCst);
            };
            let params = ListParams::default().limit(500);
            let page = lists.page(&client, "/api/v1/services", &params, take).await.unwrap();
            assert_eq!(
                (page.version.as_str(), page.objects as usize, objects),
                ("7", OBJECTS, OBJECTS)
            );
            assert!(page.octets > OBJECTS * 1_400_000);
        };
        join_all((0..4).map(|_| list())).await;
        assert_eq!(bodies.most.load(Ordering::SeqCst), 1, "pages at a time");
        assert_eq!(most.load(Ordering::SeqCst), 1, "objects at a time");
    }

    #[tokio::test]
    async fn k23_a_log_line_of_a_skipped_object_names_its_list_and_advises_no_deletion() {
        // As a newer version of the resource has it: this operator is the older one.
        let newer = json!({"metadata": {"name": "default"}, "spec": {"managementState": "Paused"}});
        let too_long = json!({"metadata": {"name": "x".repeat(MAX_OBJECT)}});
        for (object, words) in [(newer, "/default: "), (too_long, "more than")] {
            let list = json!({"metadata": {"resourceVersion": "7"}, "items": [object]});
            let client = api::client(move |_| Reply::ok(list.clone()));
            let (lines, _guard) = Lines::of_this_thread();
            let path = crds::ClusterDNS::url_path(&(), None);
            let keep = |_: crds::ClusterDNS| panic!("it cannot be read");
            let (lists, params) = (Lists::default(), ListParams::default());
            let page = lists.page(&client, &path, &params, keep).await.unwrap();
            assert_eq!(page.skipped, 1);
            let text = lines.text();
            assert!(text.contains(&path) && text.contains(words), "{text}");
            assert!(!text.contains("delete"), "{text}");
        }
    }
}
