//! Pages that take time to write and memory to keep, such as `/metrics` and `/config`: written on a thread of their own,
//! so that probes do not wait for them, and a few at a time, so that clients that do not read cost little.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame, SizeHint};

/// Pages that are being written, or not yet read by their clients.
const MAX_PAGES: usize = 16;
/// Of these, of one client address.
const MAX_PAGES_PER_CLIENT: usize = 4;
/// Octets given to the connection at a time: a page ends with its last octets, not with its client.
const PIECE: usize = 8 << 10;

/// The pages there are, by client.
#[derive(Clone, Debug, Default)]
pub struct Pages(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// The right to one page; given back when dropped.
struct Place {
    pages: Pages,
    client: IpAddr,
}

impl Pages {
    /// Writes a page for this client, elsewhere.
    pub(super) async fn page(
        &self,
        client: IpAddr,
        kind: &'static str,
        write: impl FnOnce() -> String + Send + 'static,
    ) -> Response {
        let Some(place) = self.take(client) else {
            let why = "too many pages at once: read those you asked for, then ask again\n";
            return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
        };
        match tokio::task::spawn_blocking(write).await {
            Ok(text) => {
                let body = Body::new(Page { text: text.into(), _place: place });
                ([(header::CONTENT_TYPE, kind)], body).into_response()
            }
            Err(error) => {
                tracing::error!(%error, "a page could not be written");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }

    fn take(&self, client: IpAddr) -> Option<Place> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_client = pages.get(&client).copied().unwrap_or(0);
        if of_client >= MAX_PAGES_PER_CLIENT || pages.values().sum::<usize>() >= MAX_PAGES {
            return None;
        }
        pages.insert(client, of_client + 1);
        Some(Place { pages: self.clone(), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut pages = self.pages.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = pages.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                pages.remove(&self.client);
            }
        }
    }
}

/// A page and its place, until the last of it is given to the connection.
struct Page {
    text: Bytes,
    _place: Place,
}

impl hyper::body::Body for Page {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.text.is_empty() {
            return Poll::Ready(None);
        }
        let octets = self.text.len().min(PIECE);
        // Copied: a slice would keep the whole page.
        let piece = Bytes::copy_from_slice(&self.text.split_to(octets));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.text.len() as u64)
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
        let ok = unread.iter().filter(|page| page.status() == StatusCode::OK).count();
        assert_eq!(ok, MAX_PAGES, "in all");
        drop(unread);
        assert!(pages.0.lock().unwrap().is_empty());
    }
}
