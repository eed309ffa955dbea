//! Runs as a page (pure): Markdown tables for people, and the place in a page of docs where they are put.

use std::fmt::Write;

use super::runs::{Run, Via, ratio, select, spread};
use super::schedule::Pace;
use super::servers::Peer;

/// Between these two lines of a page everything is written by the program.
pub const BEGIN: &str = "<!-- load: begin -->";
/// See [`BEGIN`].
pub const END: &str = "<!-- load: end -->";

/// What of runs a table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Processor time in microseconds, median and spread, and its ratio to the echo.
    Processor,
    /// p50 and p99 in microseconds.
    Latency,
    /// Answers a second, in thousands.
    Throughput,
}

/// A table: a line for each server, a column for each kind of run.
#[derive(Clone, Debug)]
pub struct Table<'t> {
    pub figure: Figure,
    pub via: Via,
    /// Its columns: trace and pace.
    pub columns: &'t [(&'t str, Pace)],
}

/// As Markdown; servers without any such run have no line. Empty where there are none at all.
pub fn table(runs: &[Run], wanted: &Table<'_>) -> String {
    let mut lines = String::new();
    for peer in Peer::ALL {
        let of =
            |who: Peer, (trace, pace): (&str, Pace)| select(runs, who, trace, wanted.via, pace);
        if wanted.columns.iter().all(|column| of(peer, *column).is_empty()) {
            continue;
        }
        let name =
            if peer == Peer::Ours { format!("**{}**", peer.name()) } else { peer.name().into() };
        write!(lines, "| {name} |").expect("a string takes everything");
        for column in wanted.columns {
            let cell = cell(&of(peer, *column), &of(Peer::Echo, *column), wanted.figure);
            write!(lines, " {cell} |").expect("a string takes everything");
        }
        lines.push('\n');
    }
    if lines.is_empty() {
        return lines;
    }
    let one_pace = wanted.columns.iter().all(|column| column.1 == wanted.columns[0].1);
    let one_trace = wanted.columns.iter().all(|column| column.0 == wanted.columns[0].0);
    let heads = wanted.columns.iter().map(|(trace, pace)| match (one_pace, one_trace) {
        (true, _) => (*trace).to_owned(),
        (false, true) => pace.text(),
        (false, false) => format!("{trace}, {}", pace.text()),
    });
    let heads: Vec<String> = heads.collect();
    format!("| Server | {} |\n|---|{}\n{lines}", heads.join(" | "), "---|".repeat(heads.len()))
}

fn cell(runs: &[&Run], echo: &[&Run], figure: Figure) -> String {
    if runs.is_empty() {
        return "-".into();
    }
    let mut text = match figure {
        Figure::Processor => {
            let spread = spread(runs, Run::processor_us).map(|spread| spread.text(2));
            let ratio = ratio(runs, echo).map(|ratio| format!("; {:.2} x", ratio.median));
            format!("{}{}", spread.unwrap_or_default(), ratio.unwrap_or_default())
        }
        Figure::Latency => {
            let at = |share: f64| {
                let spread = spread(runs, |run| run.outcome.latency_us(share));
                spread.map_or_else(String::new, |spread| format!("{:.0}", spread.median))
            };
            format!("{} / {}", at(0.5), at(0.99))
        }
        Figure::Throughput => {
            let spread = spread(runs, |run| run.outcome.answered_per_s() / 1e3);
            spread.map_or_else(String::new, |spread| spread.text(0))
        }
    };
    let all = |is: fn(&&Run) -> bool| runs.iter().all(is);
    if figure == Figure::Throughput && all(|run| run.is_generator_bound())
        || figure == Figure::Latency && all(|run| run.is_generator_bound())
    {
        text.push_str(" †");
    }
    if figure != Figure::Throughput && runs.iter().any(|run| run.is_overloaded()) {
        text.push_str(" ‡");
    }
    text
}

/// What is wrong with the runs: wrong answers, loss, runs that the generator limited.
pub fn remarks(runs: &[Run]) -> String {
    let mut text = String::new();
    for peer in Peer::ALL.into_iter().filter(|peer| !matches!(peer, Peer::Echo | Peer::EchoPktinfo))
    {
        let mut seen: Vec<&str> = Vec::new();
        for run in runs.iter().filter(|run| run.peer == peer) {
            if seen.contains(&run.trace.as_str()) {
                continue;
            }
            seen.push(&run.trace);
            let same = runs.iter().filter(|other| other.peer == peer && other.trace == run.trace);
            let (wrong, answered) = same.fold((0, 0), |(wrong, answered), run| {
                (wrong + run.outcome.wrong, answered + run.outcome.answered)
            });
            if wrong > 0 {
                let share = wrong as f64 * 100.0 / answered.max(1) as f64;
                let (name, trace) = (peer.name(), &run.trace);
                writeln!(
                    text,
                    "- {name} answered {share:.3} % of `{trace}` otherwise than expected."
                )
                .expect("a string takes everything");
            }
        }
    }
    for run in runs.iter().filter(|run| run.is_overloaded()) {
        let share = run.outcome.lost as f64 * 100.0 / run.outcome.sent.max(1) as f64;
        let (name, pace) = (run.peer.name(), run.pace.text());
        writeln!(
            text,
            "- {name} lost {share:.1} % of `{}` at {pace} (run {}).",
            run.trace, run.pass
        )
        .expect("a string takes everything");
    }
    text
}

/// The page with this text between [`BEGIN`] and [`END`].
///
/// # Errors
/// The page does not have both lines, in this order.
pub fn put_into(page: &str, text: &str) -> Result<String, String> {
    let (before, rest) = page.split_once(BEGIN).ok_or(format!("the page has no line {BEGIN}"))?;
    let (_, after) = rest.split_once(END).ok_or(format!("the page has no line {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::super::runs::tests::run;
    use super::*;

    const RATE: Pace = Pace::Rate(20_000);

    fn wanted(figure: Figure) -> Table<'static> {
        Table { figure, via: Via::Udp, columns: &[("hit", RATE)] }
    }

    #[test]
    fn a_table_has_a_line_for_each_server_that_ran_and_ratios_to_the_echo() {
        let runs = [
            run(Peer::Echo, RATE, 0, 4),
            run(Peer::Ours, RATE, 1, 5),
            run(Peer::Ours, RATE, 2, 6),
            run(Peer::Echo, RATE, 3, 4),
        ];
        let text = table(&runs, &wanted(Figure::Processor));
        let lines = "| Server | hit |\n|---|---|\n| echo | 4.00; 1.00 x |\n\
                     | **ClusterDNS** | 5.50 (5.00-6.00); 1.38 x |\n";
        assert_eq!(text, lines);
        let text = table(&runs, &wanted(Figure::Latency));
        assert!(text.ends_with("| **ClusterDNS** | 55 / 55 |\n"), "{text}");
        let two = [("hit", RATE), ("mix", RATE)];
        let text = table(&runs, &Table { columns: &two, ..wanted(Figure::Processor) });
        assert!(text.starts_with("| Server | hit | mix |"), "{text}");
        assert!(text.contains("| echo | 4.00; 1.00 x | - |"), "{text}");
        assert_eq!(table(&[], &wanted(Figure::Processor)), "");
    }

    #[test]
    fn bounds_loss_and_wrong_answers_are_shown() {
        let mut bound = run(Peer::Knot, RATE, 0, 5);
        bound.outcome.late = 999;
        let text = table(&[bound], &wanted(Figure::Latency));
        assert!(text.ends_with("| Knot | 50 / 50 † |\n"), "{text}");
        let mut bad = run(Peer::Knot, RATE, 0, 5);
        (bad.outcome.lost, bad.outcome.wrong) = (100, 10);
        let text = table(std::slice::from_ref(&bad), &wanted(Figure::Latency));
        assert!(text.ends_with("| Knot | 50 / 50 ‡ |\n"), "{text}");
        let lines = "- Knot answered 1.000 % of `hit` otherwise than expected.\n\
                     - Knot lost 10.0 % of `hit` at 20,000 q/s (run 0).\n";
        assert_eq!(remarks(&[bad]), lines);
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let expected = format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n");
        assert_eq!(put_into(&page, "new\n").as_deref(), Ok(expected.as_str()));
        assert_eq!(put_into(&expected, "new").as_deref(), Ok(expected.as_str()));
        assert!(put_into("nothing", "new").is_err());
    }
}
