//! Pictures of runs as SVG (pure): latency by load, processor time by server, memory by size.

use plotters::prelude::*;

use super::runs::{Run, Via, select, spread};
use super::schedule::Pace;
use super::servers::Peer;

const SIZE: (u32, u32) = (860, 460);
const FONT: (&str, u32) = ("sans-serif", 14);
const TITLE: (&str, u32) = ("sans-serif", 18);
/// The share of a place on the axis that the bars of a server take.
const BARS: f64 = 0.8;

type Painted = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn colour(peer: Peer) -> RGBColor {
    match peer {
        Peer::Echo => RGBColor(150, 150, 150),
        Peer::EchoPktinfo => RGBColor(195, 195, 195),
        Peer::Ours => RGBColor(200, 30, 30),
        Peer::Knot => RGBColor(30, 110, 180),
        Peer::Nsd => RGBColor(40, 150, 70),
        Peer::Dnsmasq => RGBColor(150, 90, 30),
        Peer::Unbound => RGBColor(120, 70, 160),
        Peer::CoreDns => RGBColor(230, 140, 20),
        Peer::Hickory => RGBColor(20, 150, 160),
    }
}

/// p99 of a trace over UDP by offered rate, one line a server, both axes logarithmic. Nothing where fewer than two rates
/// were measured.
///
/// # Errors
/// None: all writes go to memory.
pub fn latency(runs: &[Run], trace: &str) -> anyhow::Result<Option<String>> {
    let rates = rates(runs, trace);
    let (Some(first), Some(last)) = (rates.first(), rates.last()) else { return Ok(None) };
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
    let all = lines.iter().flat_map(|(_, points)| points.iter().map(|(_, us)| *us));
    let (low, high) = all.fold((f64::MAX, f64::MIN), |(low, high), us| (low.min(us), high.max(us)));
    let mut svg = String::new();
    let paint = |svg: &mut String| -> Painted {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(format!("p99 of an answer by load ({trace}, UDP)"), TITLE)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (f64::from(*first)..f64::from(*last)).log_scale(),
                (low * 0.8..high * 1.3).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc("questions a second")
            .y_desc("microseconds")
            .x_label_formatter(&|rate| format!("{rate:.0}"))
            .y_label_formatter(&|us| format!("{us:.0}"))
            .label_style(FONT)
            .draw()?;
        for (peer, points) in lines {
            let style = colour(peer).stroke_width(if peer == Peer::Ours { 3 } else { 2 });
            chart.draw_series(LineSeries::new(points, style))?.label(peer.name()).legend(
                move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour(peer).stroke_width(3)),
            );
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.2))
            .label_font(FONT)
            .draw()?;
        area.present()
    };
    paint(&mut svg)?;
    Ok(Some(svg))
}

/// Processor time for an answer, one bar for each server and trace. Nothing where nothing was measured so.
///
/// # Errors
/// None: all writes go to memory.
pub fn processor(runs: &[Run], traces: &[&str], pace: Pace) -> anyhow::Result<Option<String>> {
    let bar = |peer: Peer, trace: &&str| {
        let runs = select(runs, peer, trace, Via::Udp, pace);
        spread(&runs, Run::processor_us).map_or(0.0, |spread| spread.median)
    };
    let bars: Vec<(Peer, Vec<f64>)> = Peer::ALL
        .into_iter()
        .map(|peer| (peer, traces.iter().map(|trace| bar(peer, trace)).collect()))
        .filter(|(_, bars): &(Peer, Vec<f64>)| bars.iter().any(|us| *us > 0.0))
        .collect();
    let caption = format!("processor time of one answer ({}, {})", traces.join(", "), pace.text());
    by_server(&bars, &caption, "microseconds")
}

/// Memory of each server.
///
/// # Errors
/// None: all writes go to memory.
pub fn memory(mib: &[(Peer, f64)], services: usize) -> anyhow::Result<Option<String>> {
    let bars: Vec<(Peer, Vec<f64>)> = mib.iter().map(|(peer, mib)| (*peer, vec![*mib])).collect();
    by_server(&bars, &format!("memory with {services} Services"), "MiB")
}

/// Groups of bars, a group for each server; the bars of a group become lighter from the first to the last.
fn by_server(
    bars: &[(Peer, Vec<f64>)],
    caption: &str,
    unit: &str,
) -> anyhow::Result<Option<String>> {
    let highest = bars.iter().flat_map(|(_, bars)| bars.iter().copied()).fold(0.0, f64::max);
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
                let corners = [(left, 0.0), (left + width * 0.92, *height)];
                let style = colour(*peer).mix(shade).filled();
                chart.draw_series([Rectangle::new(corners, style)])?;
                let text =
                    if *height < 10.0 { format!("{height:.1}") } else { format!("{height:.0}") };
                chart.draw_series([Text::new(text, (left, height + highest * 0.05), FONT)])?;
            }
            let below = (place as f64 - BARS / 2.0, -highest * 0.02);
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
    }
}
