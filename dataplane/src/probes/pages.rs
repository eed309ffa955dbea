//! Pages that take time to write and memory to keep, such as `/metrics` and `/config`: written on a thread of their own,
//! so that probes do not wait for them, and a few at a time, so that clients that do not read cost little.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame, SizeHint};
use tokio::time::Instant;

/// Pages that are being written, or not yet read by their clients.
const MAX_PAGES: usize = 16;
/// Of these, of one client address.
const MAX_PAGES_PER_CLIENT: usize = 4;
/// Octets given to the connection at a time: a page ends with its last octets, not with its client.
const PIECE: usize = 8 << 10;

/// Time without a read after which a page makes room for another.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// The pages there are, in the order in which they were asked for.
#[derive(Clone, Debug, Default)]
pub struct Pages(Arc<Mutex<BTreeMap<u64, Arc<Sheet>>>>);

/// One page that is being written or read.
#[derive(Debug)]
struct Sheet {
    client: IpAddr,
    /// Since when it waits for its client; not before it is written.
    written: OnceLock<Instant>,
    /// The rest of its octets for the connection; `None` if another page took its place.
    text: Mutex<Option<Bytes>>,
}

/// The right to one page; given back when dropped.
#[derive(Debug)]
struct Place {
    pages: Pages,
    number: u64,
    sheet: Arc<Sheet>,
}

impl Pages {
    /// Writes a page for this client, elsewhere.
    pub(crate) async fn page<T: Into<Bytes>>(
        &self,
        client: IpAddr,
        kind: &'static str,
        write: impl FnOnce() -> T + Send + 'static,
    ) -> Response {
        let refused = || {
            let why = "too many pages at once: read those you asked for, then ask again\n";
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        };
        let Some(place) = self.take(client, Instant::now()) else { return refused() };
        let written = tokio::task::spawn_blocking(move || {
            // Another page may have taken its place while it waited for its turn.
            let text = place.sheet.is_wanted().then(write);
            text.is_some_and(|text| place.sheet.put(text.into())).then_some(place)
        });
        match written.await {
            Ok(Some(place)) => {
                let _ = place.sheet.written.set(Instant::now());
                ([(header::CONTENT_TYPE, kind)], Body::new(Page(place))).into_response()
            }
            Ok(None) => refused(),
            Err(error) => {
                tracing::error!(%error, "a page could not be written");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }

    /// A place for one more page of this client. If all are taken, the newest page of the client with the most pages
    /// ends, if those are more than this client would have; otherwise a page that its client does not read.
    fn take(&self, client: IpAddr, now: Instant) -> Option<Place> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shares: HashMap<IpAddr, usize> = HashMap::new();
        pages.values().for_each(|sheet| *shares.entry(sheet.client).or_default() += 1);
        let own = shares.get(&client).copied().unwrap_or(0);
        if own >= MAX_PAGES_PER_CLIENT {
            return None;
        }
        if pages.len() >= MAX_PAGES {
            let most = shares.into_values().max().filter(|most| *most > own + 1);
            let share_of = |of: IpAddr| pages.values().filter(|sheet| sheet.client == of).count();
            let newest = most.and_then(|most| {
                pages.iter().rev().find(|(_, sheet)| share_of(sheet.client) == most)
            });
            let is_unread = |sheet: &Sheet| {
                sheet.written.get().is_some_and(|at| now.duration_since(*at) > READ_WITHIN)
            };
            let unread = || pages.iter().find(|(_, sheet)| is_unread(sheet));
            let number = *newest.or_else(unread)?.0;
            if let Some(sheet) = pages.remove(&number) {
                *sheet.text() = None;
            }
        }
        let number = pages.last_key_value().map_or(0, |(last, _)| last + 1);
        let sheet = Arc::new(Sheet {
            client,
            written: OnceLock::new(),
            text: Mutex::new(Some(Bytes::new())),
        });
        pages.insert(number, Arc::clone(&sheet));
        Some(Place { pages: self.clone(), number, sheet })
    }
}

impl Sheet {
    fn text(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self) -> bool {
        self.text().is_some()
    }

    /// Puts the text on the page; false if it gave way meanwhile.
    fn put(&self, text: Bytes) -> bool {
        let mut own = self.text();
        if own.is_some() {
            *own = Some(text);
        }
        own.is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut pages = self.pages.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Its number may be that of a newer page.
        if pages.get(&self.number).is_some_and(|sheet| Arc::ptr_eq(sheet, &self.sheet)) {
            pages.remove(&self.number);
        }
    }
}

/// A page and its place, until the last of it is given to the connection.
struct Page(Place);

impl hyper::body::Body for Page {
    type Data = Bytes;
    /// Ends the connection: another page took the place, and the announced length cannot be kept.
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut text = self.0.sheet.text();
        let Some(text) = &mut *text else {
            return Poll::Ready(Some(Err(std::io::Error::other("the page gave way to another"))));
        };
        if text.is_empty() {
            return Poll::Ready(None);
        }
        let octets = text.len().min(PIECE);
        // Copied: a slice would keep the whole page.
        let piece = Bytes::copy_from_slice(&text.split_to(octets));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.sheet.text().as_ref().is_some_and(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.0.sheet.text().as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(left as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn client(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    async fn page(pages: &Pages, last: u8) -> Response {
        pages.page(client(last), "text/plain", || "x".repeat(20_000)).await
    }

    #[tokio::test]
    async fn l14_a_client_that_does_not_read_takes_its_own_pages_only() {
        let pages = Pages::default();
        let mut unread = Vec::new();
        for _ in 0..MAX_PAGES_PER_CLIENT {
            unread.push(page(&pages, 1).await);
        }
        assert_eq!(page(&pages, 1).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        let other = page(&pages, 2).await;
        assert_eq!(other.status(), StatusCode::OK);
        assert_eq!(other.into_body().collect().await.unwrap().to_bytes().len(), 20_000);
        for last in 3..20 {
            unread.push(page(&pages, last).await);
        }
        assert_eq!(pages.0.lock().unwrap().len(), MAX_PAGES, "in all");
        drop(unread);
        assert!(pages.0.lock().unwrap().is_empty());
    }

    async fn text(response: Response) -> Option<usize> {
        Some(response.into_body().collect().await.ok()?.to_bytes().len())
    }

    #[tokio::test]
    async fn l14_four_clients_that_take_every_page_do_not_keep_a_fifth_from_any() {
        let pages = Pages::default();
        let mut unread = Vec::new();
        for asked in 0..100 {
            for greedy in (1..=4).flat_map(|last| [last; MAX_PAGES_PER_CLIENT]) {
                unread.push(page(&pages, greedy).await);
            }
            let fifth = page(&pages, 5).await;
            assert_eq!(fifth.status(), StatusCode::OK, "page {asked}");
            assert_eq!(text(fifth).await, Some(20_000), "page {asked}");
        }
        let kept: usize =
            pages.0.lock().unwrap().values().map(|s| s.text().as_ref().unwrap().len()).sum();
        assert!(kept <= MAX_PAGES * 20_000, "{kept} octets");
        let mut read = 0;
        for response in unread {
            read += usize::from(text(response).await == Some(20_000));
        }
        assert!(read <= MAX_PAGES, "{read}: what gave way is not read to a false end");
        assert!(pages.0.lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn l14_pages_of_as_many_clients_as_places_give_way_when_they_are_not_read() {
        let pages = Pages::default();
        let mut unread = Vec::new();
        for last in 0..MAX_PAGES as u8 {
            unread.push(page(&pages, last).await);
        }
        assert_eq!(page(&pages, 100).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        tokio::time::sleep(READ_WITHIN + Duration::from_millis(1)).await;
        assert_eq!(text(page(&pages, 100).await).await, Some(20_000));
        assert_eq!(text(unread.remove(0)).await, None, "the oldest");
        assert_eq!(text(unread.remove(0)).await, Some(20_000));
    }
}
