//! Which names a cache in front of the server of the cluster leaves to that server, and to whom it gives the others: data only.

use super::values::is_at_or_below;

/// What a cache does with the names of its zones: each is left to the server behind it, or to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Front {
    pub(super) zones: Vec<(String, Next)>,
}

/// Who is asked for a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Behind,
    /// The servers as written.
    Others(String),
}

impl Front {
    /// The zone that has a name, the longest one.
    pub(super) fn of(&self, name: &str) -> Option<&Next> {
        let having = self.zones.iter().filter(|(zone, _)| is_at_or_below(name, zone));
        having.max_by_key(|(zone, _)| zone.len()).map(|(_, next)| next)
    }

    /// The zones that are left to the server behind.
    pub(super) fn left(&self) -> impl Iterator<Item = &String> {
        self.zones.iter().filter(|(_, next)| *next == Next::Behind).map(|(zone, _)| zone)
    }
}
