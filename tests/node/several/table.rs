//! What every scenario lost, as a table for docs/availability.md.

use std::collections::BTreeMap;

use tests::node::steady::{Miss, Slowest, Tallies, Tally};

/// Losses this far apart, in seconds, are of different reasons.
const APART: f64 = 0.3;

/// Longer than anything that was not lost on the first try takes.
const SLOW_MS: u64 = 1_000;

/// A row for each scenario and DNS server.
#[derive(Debug, Default)]
pub(super) struct Table(Vec<String>);

/// What all clients of one DNS server saw in one scenario.
#[derive(Debug)]
pub(super) struct Seen<'t> {
    pub(super) tallies: &'t [Tallies],
    /// When it happened, on the clock of the clients.
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

    /// When the last query without a reply to the first try was due, in seconds after it happened.
    pub(super) fn last_loss(&self) -> Option<f64> {
        self.misses().last().map(|(at, _)| *at)
    }

    /// Queries without a reply to the first try, in the order in which they were due, in seconds after it happened.
    fn misses(&self) -> Vec<(f64, &str)> {
        let misses = self.udp().flat_map(|it| &it.first);
        let mut misses: Vec<(f64, &str)> =
            misses.map(|Miss { at, why }| (at - self.since, why.as_str())).collect();
        misses.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        misses
    }

    /// When queries got no reply to the first try, and why.
    pub(super) fn gaps(&self) -> Vec<String> {
        let misses = self.misses();
        let gaps = misses.chunk_by(|(before, _), (at, _)| at - before < APART);
        let said = gaps.map(|gap| {
            let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
            gap.iter().for_each(|(_, why)| *reasons.entry(*why).or_default() += 1);
            let reasons: Vec<String> =
                reasons.iter().map(|(why, count)| format!("{count} x {why}")).collect();
            format!("{:.2} to {:.2} s: {}", gap[0].0, gap[gap.len() - 1].0, reasons.join(", "))
        });
        said.collect()
    }

    /// The longest time until a reply, in milliseconds, of queries over UDP that were due after it happened.
    fn slowest_reply(&self) -> u64 {
        self.udp().map(|it| it.longest_since(self.since)).max().unwrap_or(0)
    }

    /// From when on no query took a second or longer, in seconds after it happened; exact to a tenth of a second.
    pub(super) fn quick_from(&self) -> f64 {
        self.quick_over(self.tallies.iter().flat_map(|it| [&it.udp, &it.tcp]))
    }

    /// The same of queries over UDP alone.
    pub(super) fn quick_over_udp_from(&self) -> f64 {
        self.quick_over(self.udp())
    }

    fn quick_over<'t>(&self, tallies: impl Iterator<Item = &'t Tally>) -> f64 {
        let last = tallies.filter_map(|it| it.slow_until(SLOW_MS)).max_by(f64::total_cmp);
        last.map_or(0.0, |last| (last - self.since).max(0.0))
    }

    /// The slowest query that was due this many seconds after it happened, or later; over UDP and over TCP, with a socket of
    /// its own.
    pub(super) fn slowest_after(&self, seconds: f64) -> Slowest {
        let all = self.tallies.iter().flat_map(|it| [&it.udp, &it.tcp]);
        Slowest::since(self.since + seconds, all)
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
            seen.slowest_reply(),
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
