//! A place for a query where no connection has one by itself (L16): names without a reply must not take the places of others.

use std::cmp::Reverse;

use super::connection::{MAX_QUERIES, Place};
use super::{Connections, now};

impl Connections {
    /// A place on the connection with the fewest queries without a reply, the latest of several. One that is silent may be
    /// dead: it is used if `silent` says so, and where the others have many more.
    pub(super) fn place_in_crowd(
        &self,
        silent: bool,
        query: impl Fn(u16) -> Vec<u8>,
    ) -> Option<Place> {
        let now = now();
        let mut open = self.open().clone();
        open.retain(|connection| silent || !connection.is_silent(now));
        open.sort_by_cached_key(|connection| {
            let silence = if connection.is_silent(now) { 2 * MAX_QUERIES } else { 0 };
            (connection.in_progress() + silence, Reverse(connection.number))
        });
        open.iter().find_map(|connection| connection.place_in_crowd(&query, now))
    }
}
