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
/// Octets of all pages that wait for their clients. One that is larger is held while no other is.
const MAX_HELD_OCTETS: usize = 32 << 20;
/// Octets given to the connection at a time: a page ends with its last octets, not with its client.
const PIECE: usize = 8 << 10;

/// Time without a read after which a page makes room for another.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// By number, in the order in which they were asked for.
type Sheets = BTreeMap<u64, Arc<Sheet>>;

/// The pages there are.
#[derive(Clone, Debug, Default)]
pub struct Pages(Arc<Mutex<Sheets>>);

/// One page that is being written or read.
#[derive(Debug)]
struct Sheet {
    client: IpAddr,
    /// Since when it waits for its client; not before it is written.
    written: OnceLock<Instant>,
    /// How many octets are kept of it until its last is read; none before it is written.
    octets: OnceLock<usize>,
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
    pub(crate) async fn page<T: Into<Vec<u8>>>(
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
            let mut text: Vec<u8> = place.sheet.is_wanted().then(write)?.into();
            // A text that grew may have twice the room that it needs.
            text.shrink_to_fit();
            place.hold(text, Instant::now()).then_some(place)
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

    fn sheets(&self) -> MutexGuard<'_, Sheets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more page of this client. If all are taken, another page may give way.
    fn take(&self, client: IpAddr, now: Instant) -> Option<Place> {
        let mut pages = self.sheets();
        let own = pages.values().filter(|sheet| sheet.client == client).count();
        if own >= MAX_PAGES_PER_CLIENT {
            return None;
        }
        if pages.len() >= MAX_PAGES {
            let number = gives_way(&pages, (client, 1), |_| 1, now)?;
            if let Some(sheet) = pages.remove(&number) {
                *sheet.text() = None;
            }
        }
        let number = pages.last_key_value().map_or(0, |(last, _)| last + 1);
        let sheet = Arc::new(Sheet {
            client,
            written: OnceLock::new(),
            octets: OnceLock::new(),
            text: Mutex::new(Some(Bytes::new())),
        });
        pages.insert(number, Arc::clone(&sheet));
        Some(Place { pages: self.clone(), number, sheet })
    }
}

/// The page that gives way where this client would have this much more: the newest of the client that has most, if that is
/// more than this client would have; otherwise one that its client does not read. `of` is what counts of a page.
fn gives_way(
    pages: &Sheets,
    (client, more): (IpAddr, usize),
    of: impl Fn(&Sheet) -> usize,
    now: Instant,
) -> Option<u64> {
    let mut shares: HashMap<IpAddr, usize> = HashMap::new();
    pages.values().for_each(|sheet| *shares.entry(sheet.client).or_default() += of(sheet));
    let own = shares.get(&client).copied().unwrap_or(0);
    let most = shares.values().copied().max().filter(|most| *most > own + more);
    // The end of a page that counts nothing would make no room.
    let is_of = |sheet: &Sheet, most| shares.get(&sheet.client) == Some(&most) && of(sheet) > 0;
    let newest = most.and_then(|most| pages.iter().rev().find(|(_, sheet)| is_of(sheet, most)));
    let is_unread =
        |sheet: &Sheet| sheet.written.get().is_some_and(|at| now.duration_since(*at) > READ_WITHIN);
    let unread = || pages.iter().find(|(_, sheet)| is_unread(sheet));
    newest.or_else(unread).map(|(number, _)| *number)
}

impl Place {
    /// Puts the text on the page; false if the page gave way meanwhile, or if there is no room for its octets, also where
    /// others give way. Then none of them does.
    fn hold(&self, text: Vec<u8>, now: Instant) -> bool {
        let mut pages = self.pages.sheets();
        if !self.sheet.is_wanted() {
            return false;
        }
        let held = |pages: &Sheets| pages.values().map(|sheet| sheet.octets()).sum::<usize>();
        let mut left = pages.clone();
        while held(&left) > 0 && held(&left) + text.len() > MAX_HELD_OCTETS {
            let client = (self.sheet.client, text.len());
            let Some(number) = gives_way(&left, client, Sheet::octets, now) else { return false };
            left.remove(&number);
        }
        let gone = pages.iter().filter(|(number, _)| !left.contains_key(number));
        gone.for_each(|(_, sheet)| *sheet.text() = None);
        *pages = left;
        self.sheet.put(text);
        true
    }
}

impl Sheet {
    fn octets(&self) -> usize {
        self.octets.get().copied().unwrap_or(0)
    }

    fn text(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self) -> bool {
        self.text().is_some()
    }

    fn put(&self, text: Vec<u8>) {
        let _ = self.octets.set(text.len());
        *self.text() = Some(text.into());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut pages = self.pages.sheets();
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
        page_of(pages, last, 20_000).await
    }

    async fn page_of(pages: &Pages, last: u8, octets: usize) -> Response {
        pages.page(client(last), "text/plain", move || "x".repeat(octets)).await
    }

    fn held(pages: &Pages) -> usize {
        pages.sheets().values().map(|sheet| sheet.text().as_ref().unwrap().len()).sum()
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
        assert!(held(&pages) <= MAX_PAGES * 20_000, "{} octets", held(&pages));
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

    /// What all servers of the largest configuration may make of a page.
    const LARGE: usize = MAX_HELD_OCTETS / 3;

    #[tokio::test]
    async fn l14_octets_of_pages_that_are_not_read_have_a_bound() {
        let pages = Pages::default();
        let mut unread = Vec::new();
        for last in 0..MAX_PAGES as u8 {
            unread.push(page_of(&pages, last, LARGE).await);
            assert!(held(&pages) <= MAX_HELD_OCTETS, "{} octets", held(&pages));
        }
        let (taken, refused) = unread.split_at(3);
        assert!(taken.iter().all(|response| response.status() == StatusCode::OK));
        let is_refused = |it: &Response| it.status() == StatusCode::SERVICE_UNAVAILABLE;
        assert!(refused.iter().all(is_refused));
        assert_eq!(text(page(&pages, 100).await).await, Some(20_000), "a small one has room");
        drop(unread);
        assert!(pages.sheets().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn l14_large_pages_give_way_to_a_client_that_holds_less_and_when_not_read() {
        let pages = Pages::default();
        let mut unread = Vec::new();
        for _ in 0..3 {
            unread.push(page_of(&pages, 1, LARGE).await);
        }
        let other = page_of(&pages, 2, LARGE).await;
        assert_eq!(text(unread.remove(2)).await, None, "the newest of the client with most");
        // Who holds two would give one up, and who holds one would not: there is no room, so none ends.
        let too_large = page_of(&pages, 3, LARGE / 10 * 19).await;
        assert_eq!(too_large.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text(unread.remove(1)).await, Some(LARGE));
        tokio::time::sleep(READ_WITHIN + Duration::from_millis(1)).await;
        let alone = page_of(&pages, 3, MAX_HELD_OCTETS + 1).await;
        assert_eq!(text(other).await, None, "not read for five seconds");
        assert_eq!(text(unread.remove(0)).await, None, "not read for five seconds");
        assert_eq!(text(alone).await, Some(MAX_HELD_OCTETS + 1), "no other page is held");
        assert!(pages.sheets().is_empty());
    }
}
