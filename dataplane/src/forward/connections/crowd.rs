//! A place for a query where no connection has one by itself (L16): names without a reply must not take the places of others.

use std::cmp::Reverse;

use super::connection::{MAX_QUERIES, Place};
use super::{Connections, now};

/// Stalled connections until no other one is made because all of them are silent.
const MAX_SILENT: usize = 16;

impl Connections {
    /// A place on the connection with the fewest queries without a reply, the latest of several. One that is silent may be
    /// dead: it is used if `silent` says so, and where the others have many more.
    pub(super) fn place_in_crowd(
        &self,
        silent: bool,
        query: impl Fn(u16) -> Vec<u8>,
    ) -> Option<Place> {
        let (mut open, now) = (self.open().clone(), now());
        open.retain(|connection| silent || !connection.is_silent(now));
        open.sort_by_cached_key(|connection| {
            let silence = if connection.is_silent(now) { 2 * MAX_QUERIES } else { 0 };
            (connection.in_progress() + silence, Reverse(connection.number))
        });
        open.iter().find_map(|connection| connection.place_in_crowd(&query, now))
    }

    /// The same where as many are stalled as there may be: others must not be stalled, too. Of those that are silent, the one whose
    /// latest reply is the least old is used: the others can be closed when no lookup waits on them.
    pub(super) fn place_among_stalled(&self, query: impl Fn(u16) -> Vec<u8>) -> Option<Place> {
        let stalled = || {
            let (mut open, now) = (self.open().clone(), now());
            open.retain(|connection| !connection.has_streams() && connection.is_stalled(now));
            (open.len() >= self.max_stalled(now)).then_some((open, now))
        };
        stalled()?;
        self.close_finished();
        let (mut open, now) = stalled()?;
        if open.len() < MAX_SILENT && open.iter().all(|connection| connection.is_silent(now)) {
            // All of them may be dead, as after a failure on the way.
            return None;
        }
        open.sort_by_cached_key(|it| {
            let silent_since = it.silent_since().filter(|_| it.is_silent(now));
            let queries = if silent_since.is_some() { 0 } else { it.in_progress() };
            (silent_since.is_some(), Reverse(silent_since), queries, Reverse(it.number))
        });
        open.iter().find_map(|connection| connection.place_in_crowd(&query, now))
    }
}
