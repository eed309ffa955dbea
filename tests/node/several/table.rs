//! What every scenario lost, as a table for docs/availability.md.

use tests::node::steady::{Miss, Tallies, Tally};

/// A row for each scenario and DNS server.
#[derive(Debug, Default)]
pub(super) struct Table(Vec<String>);

/// What all clients of one DNS server saw in one scenario.
#[derive(Debug)]
pub(super) struct Seen<'t> {
    pub(super) tallies: &'t [Tallies],
    /// When it happened, in seconds since 1970.
    pub(super) since: f64,
}

impl Seen<'_> {
    fn udp(&self) -> impl Iterator<Item = &Tally> {
        self.tallies.iter().map(|it| &it.udp)
    }

    pub(super) fn asked(&self) -> usize {
        self.udp().map(|it| it.asked).sum()
    }

    /// Without a reply to the first try.
    pub(super) fn first(&self) -> usize {
        self.udp().map(|it| it.first.len()).sum()
    }

    /// Without a reply to the second try either, over UDP and over TCP.
    pub(super) fn lost(&self) -> usize {
        self.tallies.iter().map(|it| it.udp.lost.len() + it.tcp.lost.len()).sum()
    }

    /// When the last query without a reply to the first try was asked, in seconds after it happened.
    pub(super) fn last_loss(&self) -> Option<f64> {
        let misses = self.udp().flat_map(|it| &it.first).map(|Miss { at, .. }| at - self.since);
        misses.fold(None, |last, at| Some(last.map_or(at, |last: f64| last.max(at))))
    }

    /// The longest time until a reply, in milliseconds, of queries asked this long after it happened, or later.
    pub(super) fn longest_after(&self, seconds: f64) -> u64 {
        let longest = self.udp().map(|it| it.longest_since(self.since + seconds + 1.0));
        longest.max().unwrap_or(0)
    }
}

impl Table {
    pub(super) fn add(
        &mut self,
        scenario: &str,
        server: &str,
        seen: &Seen<'_>,
        note: &str,
    ) -> String {
        let last = seen.last_loss().map_or("-".to_owned(), |at| format!("{at:.1} s"));
        let row = format!(
            "| {scenario} | {server} | {} | {} | {} | {last} | {} ms | {note} |",
            seen.asked(),
            seen.first(),
            seen.lost(),
            seen.longest_after(-1.0),
        );
        self.0.push(row.clone());
        row
    }

    pub(super) fn markdown(&self) -> String {
        let head = "| What happens | DNS | Questions over UDP | Lost on the first try | After the second | Last loss after | Slowest reply | |\n\
                    |---|---|---|---|---|---|---|---|";
        format!("{head}\n{}", self.0.join("\n"))
    }
}
