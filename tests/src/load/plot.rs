//! Pictures of runs as SVG (pure): latency by load, processor time by server, memory by size.

use plotters::prelude::*;

use super::curves::{self, Axes, Corner, Curve, FONT, Painted, SIZE, TITLE, colour};
use super::runs::{Run, Via, select, spread};
use super::schedule::Pace;
use super::servers::Peer;

/// The share of a place on the axis that the bars of a server take.
const BARS: f64 = 0.8;

/// The bars of a server; nothing where it was not measured.
type Bars = Vec<Option<f64>>;

/// p99 of a trace over UDP by offered rate, one line a server, both axes logarithmic. Nothing where fewer than two rates
/// were measured.
///
/// # Errors
/// None: all writes go to memory.
pub fn latency(runs: &[Run], trace: &str) -> anyhow::Result<Option<String>> {
    let rates = rates(runs, trace);
    if rates.len() < 2 {
        return Ok(None);
    }
    let lines: Vec<(Peer, Vec<(f64, f64)>)> = Peer::ALL
        .into_iter()
        .map(|peer| {
            let point = |rate: &u32| {
                let runs = select(runs, peer, trace, Via::Udp, Pace::Rate(*rate));
                let p99 = spread(&runs, |run| run.outcome.latency_us(0.99))?;
                Some((f64::from(*rate), p99.median))
            };
            (peer, rates.iter().filter_map(point).collect())
        })
        .filter(|(_, points): &(Peer, Vec<_>)| !points.is_empty())
        .collect();
    let curves: Vec<Curve> = lines
        .into_iter()
        .map(|(peer, points)| Curve { peer, what: "", points, is_thin: peer != Peer::Ours })
        .collect();
    let caption = format!("p99 of an answer by load ({trace}, UDP)");
    curves::draw(
        Axes {
            caption: &caption,
            x: "questions a second",
            y: "microseconds",
            legend: Corner::UpperLeft,
        },
        &curves,
    )
}

/// Memory of each server by the size of the cluster. Nothing where fewer than two sizes were measured.
///
/// # Errors
/// It is only written to memory, so none.
pub fn memory_by_scale(sizes: &[(usize, Vec<(Peer, f64)>)]) -> anyhow::Result<Option<String>> {
    let of = |peer: Peer| {
        let points = sizes.iter().filter_map(move |(services, memory)| {
            let (_, mib) = memory.iter().find(|(known, _)| *known == peer)?;
            Some((*services as f64, *mib))
        });
        Curve { peer, what: "", points: points.collect(), is_thin: peer != Peer::Ours }
    };
    let curves = Peer::ALL.map(of);
    curves::draw(
        Axes {
            caption: "memory by size of the cluster",
            x: "Services",
            y: "MiB",
            legend: Corner::UpperLeft,
        },
        &curves,
    )
}

/// Processor time for an answer, one bar for each server and trace, and `-` where a server was not asked a trace. Nothing
/// where nothing was measured so.
///
/// # Errors
/// None: all writes go to memory.
pub fn processor(runs: &[Run], traces: &[&str], pace: Pace) -> anyhow::Result<Option<String>> {
    let bar = |peer: Peer, trace: &&str| {
        let runs = select(runs, peer, trace, Via::Udp, pace);
        spread(&runs, Run::processor_us).map(|spread| spread.median)
    };
    let bars: Vec<(Peer, Bars)> = Peer::ALL
        .into_iter()
        .map(|peer| (peer, traces.iter().map(|trace| bar(peer, trace)).collect()))
        .filter(|(_, bars): &(Peer, Bars)| bars.iter().any(Option::is_some))
        .collect();
    let caption = format!("processor time of one answer ({}, {})", traces.join(", "), pace.text());
    by_server(&bars, &caption, "microseconds")
}

/// Memory of each server.
///
/// # Errors
/// None: all writes go to memory.
pub fn memory(mib: &[(Peer, f64)], services: usize) -> anyhow::Result<Option<String>> {
    let bars: Vec<(Peer, Bars)> = mib.iter().map(|(peer, mib)| (*peer, vec![Some(*mib)])).collect();
    by_server(&bars, &format!("memory with {services} Services"), "MiB")
}

/// Groups of bars, a group for each server; the bars of a group become lighter from the first to the last.
fn by_server(bars: &[(Peer, Bars)], caption: &str, unit: &str) -> anyhow::Result<Option<String>> {
    let highest =
        bars.iter().flat_map(|(_, bars)| bars.iter().flatten()).copied().fold(0.0, f64::max);
    if highest <= 0.0 {
        return Ok(None);
    }
    let mut svg = String::new();
    let paint = |svg: &mut String| -> Painted {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(caption, TITLE)
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(64)
            .build_cartesian_2d(-0.5..bars.len() as f64 - 0.5, 0.0..highest * 1.15)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .y_desc(unit)
            .label_style(FONT)
            .draw()?;
        for (place, (peer, bars)) in bars.iter().enumerate() {
            let width = BARS / bars.len() as f64;
            for (number, height) in bars.iter().enumerate() {
                let left = place as f64 - BARS / 2.0 + number as f64 * width;
                let shade = 1.0 - number as f64 / bars.len() as f64 * 0.6;
                let top = height.unwrap_or(0.0);
                let corners = [(left, 0.0), (left + width * 0.92, top)];
                let style = colour(*peer).mix(shade).filled();
                chart.draw_series([Rectangle::new(corners, style)])?;
                let text = match height {
                    None => "-".to_owned(),
                    Some(height) if *height < 10.0 => format!("{height:.1}"),
                    Some(height) => format!("{height:.0}"),
                };
                chart.draw_series([Text::new(text, (left, top + highest * 0.05), FONT)])?;
            }
            // In two lines by turns: a long name is wider than the bars of its server.
            let line = if place % 2 == 0 { 0.02 } else { 0.06 };
            let below = (place as f64 - BARS / 2.0, -highest * line);
            chart.plotting_area().draw(&Text::new(peer.name(), below, FONT))?;
        }
        area.present()
    };
    paint(&mut svg)?;
    Ok(Some(svg))
}

/// The rates at which a trace was asked, in order.
fn rates(runs: &[Run], trace: &str) -> Vec<u32> {
    let rates = runs.iter().filter(|run| run.trace == trace && run.via == Via::Udp);
    let mut rates: Vec<u32> = rates
        .filter_map(|run| match run.pace {
            Pace::Rate(per_s) => Some(per_s),
            Pace::Window(_) => None,
        })
        .collect();
    rates.sort_unstable();
    rates.dedup();
    rates
}

#[cfg(test)]
mod tests {
    use super::super::runs::tests::run;
    use super::*;

    fn runs() -> Vec<Run> {
        [1_000, 10_000, 100_000]
            .into_iter()
            .flat_map(|rate| {
                let pace = Pace::Rate(rate);
                [run(Peer::Ours, pace, 0, 5), run(Peer::CoreDns, pace, 1, 20)]
            })
            .collect()
    }

    #[test]
    fn a_picture_names_every_server_that_was_measured_and_no_other() {
        let latency = latency(&runs(), "hit").expect("memory").expect("three rates");
        let processor = processor(&runs(), &["hit", "mix"], Pace::Rate(10_000));
        let processor = processor.expect("memory").expect("two servers");
        assert!(processor.contains("\n-\n"), "no server was asked mix");
        assert_eq!(processor.matches("\n0.0\n").count(), 1, "at the axis");
        for svg in [latency, processor] {
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert!(svg.contains("ClusterDNS") && svg.contains("CoreDNS") && !svg.contains("Knot"));
        }
    }

    #[test]
    fn nothing_measured_is_no_picture() {
        assert_eq!(latency(&runs(), "mix").expect("memory"), None);
        assert_eq!(latency(&runs()[..2], "hit").expect("memory"), None, "one rate");
        assert_eq!(processor(&[], &["hit"], Pace::Window(1)).expect("memory"), None);
        assert_eq!(memory(&[], 10).expect("memory"), None);
        let one_size = [(10, vec![(Peer::Ours, 1.0)])];
        assert_eq!(memory_by_scale(&one_size).expect("memory"), None);
    }

    #[test]
    fn memory_by_scale_has_a_line_for_each_server_of_two_sizes() {
        let sizes = [
            (1_000, vec![(Peer::Ours, 20.0), (Peer::Nsd, 9.0)]),
            (10_000, vec![(Peer::Ours, 90.0)]),
        ];
        let svg = memory_by_scale(&sizes).expect("memory").expect("two sizes");
        assert!(svg.contains("ClusterDNS") && !svg.contains("NSD"));
    }
}
