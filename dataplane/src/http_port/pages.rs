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

/// Time after which a page that is not read to its end makes room for another.
const READ_WITHIN: Duration = Duration::from_secs(5);
/// Time without a read after which a page makes room for one of a client that would not hold much more.
const UNREAD_WITHIN: Duration = Duration::from_secs(1);
/// Why a client gets no page that holds as many as it may.
const OWN: &str = "too many pages at once: read those you asked for, then ask again\n";
/// Why one gets none where others hold the room.
const OTHERS: &str =
    "no room for this page: other clients have not read theirs, ask again in some seconds\n";

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
    /// When the connection took some of it last.
    taken: Mutex<Option<Instant>>,
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
        let refused = |why: &'static str| (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
        let place = match self.take(client, Instant::now()) {
            Ok(place) => place,
            Err(why) => return refused(why),
        };
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
            Ok(None) => refused(OTHERS),
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
    ///
    /// # Errors
    /// None does; why, for a person.
    fn take(&self, client: IpAddr, now: Instant) -> Result<Place, &'static str> {
        let mut pages = self.sheets();
        let own = pages.values().filter(|sheet| sheet.client == client).count();
        if own >= MAX_PAGES_PER_CLIENT {
            return Err(OWN);
        }
        if pages.len() >= MAX_PAGES {
            let number = gives_way(&pages, (client, 1), |_| 1, now).ok_or(OTHERS)?;
            if let Some(sheet) = pages.remove(&number) {
                *sheet.text() = None;
            }
        }
        let number = pages.last_key_value().map_or(0, |(last, _)| last + 1);
        let sheet = Arc::new(Sheet {
            client,
            written: OnceLock::new(),
            octets: OnceLock::new(),
            taken: Mutex::default(),
            text: Mutex::new(Some(Bytes::new())),
        });
        pages.insert(number, Arc::clone(&sheet));
        Ok(Place { pages: self.clone(), number, sheet })
    }
}

/// The page that gives way where this client would have this much more: the newest of the client that has most, if that is
/// more than this client would have; otherwise one that its client does not read, which takes less long to show where this
/// client would not have much more than the one that has most. `of` is what counts of a page.
fn gives_way(
    pages: &Sheets,
    (client, more): (IpAddr, usize),
    of: impl Fn(&Sheet) -> usize,
    now: Instant,
) -> Option<u64> {
    let mut shares: HashMap<IpAddr, usize> = HashMap::new();
    pages.values().for_each(|sheet| *shares.entry(sheet.client).or_default() += of(sheet));
    let own = shares.get(&client).copied().unwrap_or(0) + more;
    let most = shares.values().copied().max().unwrap_or(0);
    // The end of a page that counts nothing would make no room.
    let is_of_most = |sheet: &Sheet| shares.get(&sheet.client) == Some(&most) && of(sheet) > 0;
    let newest = pages.iter().rev().find(|(_, sheet)| is_of_most(sheet)).filter(|_| most > own);
    // Pages of one kind differ by some octets.
    let is_like = own <= most + most / 8;
    let is_unread = |sheet: &Sheet| {
        sheet.is_written_for(READ_WITHIN, now)
            || (is_like && sheet.is_unread_for(UNREAD_WITHIN, now))
    };
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

    /// Also where its client reads it: so slowly that others would wait for too long.
    fn is_written_for(&self, time: Duration, now: Instant) -> bool {
        self.written.get().is_some_and(|at| now.duration_since(*at) > time)
    }

    fn is_unread_for(&self, time: Duration, now: Instant) -> bool {
        let taken = *self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let at = taken.or_else(|| self.written.get().copied());
        at.is_some_and(|at| now.duration_since(at) > time)
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
        *self.0.sheet.taken.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
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
mod tests;
