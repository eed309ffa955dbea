//! Pictures with a line for each server (pure); both axes are logarithmic.

use plotters::prelude::*;

use super::servers::Peer;

pub(super) const SIZE: (u32, u32) = (860, 460);
pub(super) const FONT: (&str, u32) = ("sans-serif", 14);
pub(super) const TITLE: (&str, u32) = ("sans-serif", 18);
/// How far the picture reaches beyond the lowest and the highest point.
const BELOW: f64 = 0.8;
const ABOVE: f64 = 1.3;
/// A thin line is one of two of the same server.
const THIN: u32 = 1;
const WIDE: u32 = 3;

pub(super) type Painted = Result<(), DrawingAreaErrorKind<std::io::Error>>;

pub(super) fn colour(peer: Peer) -> RGBColor {
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

/// One line of a picture.
#[derive(Clone, Debug)]
pub struct Curve {
    pub peer: Peer,
    /// What the line shows of the server, such as `under load`; empty where that is clear.
    pub what: &'static str,
    /// All greater than nothing.
    pub points: Vec<(f64, f64)>,
    pub is_thin: bool,
}

/// What the axes mean.
#[derive(Clone, Copy, Debug)]
pub struct Axes<'a> {
    pub caption: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    /// Where no line is expected: the names of the servers are there.
    pub legend: Corner,
}

/// A corner of a picture.
#[derive(Clone, Copy, Debug)]
pub enum Corner {
    UpperLeft,
    UpperRight,
}

/// Nothing where no line has two points.
///
/// # Errors
/// It is only written to memory, so none.
pub fn draw(axes: Axes<'_>, curves: &[Curve]) -> anyhow::Result<Option<String>> {
    let curves: Vec<&Curve> = curves.iter().filter(|curve| curve.points.len() > 1).collect();
    let all = curves.iter().flat_map(|curve| curve.points.iter().copied());
    let Some((x, y)) = all.fold(None, |ends, (x, y)| match ends {
        None => Some(((x, x), (y, y))),
        Some((of_x, of_y)) => Some((grown(of_x, x), grown(of_y, y))),
    }) else {
        return Ok(None);
    };
    let mut svg = String::new();
    let paint = |svg: &mut String| -> Painted {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(axes.caption, TITLE)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (x.0 * BELOW..x.1 * ABOVE).log_scale(),
                (y.0 * BELOW..y.1 * ABOVE).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc(axes.x)
            .y_desc(axes.y)
            .x_label_formatter(&short)
            .y_label_formatter(&short)
            .label_style(FONT)
            .draw()?;
        for curve in curves {
            let (peer, width) = (curve.peer, if curve.is_thin { THIN } else { WIDE });
            let label = match curve.what {
                "" => peer.name().to_owned(),
                what => format!("{}, {what}", peer.name()),
            };
            let style = colour(peer).stroke_width(width);
            let line = LineSeries::new(curve.points.iter().copied(), style);
            chart.draw_series(line)?.label(label).legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 18, y)], colour(peer).stroke_width(width))
            });
        }
        chart
            .configure_series_labels()
            .position(match axes.legend {
                Corner::UpperLeft => SeriesLabelPosition::UpperLeft,
                Corner::UpperRight => SeriesLabelPosition::UpperRight,
            })
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.2))
            .label_font(FONT)
            .draw()?;
        area.present()
    };
    paint(&mut svg)?;
    Ok(Some(svg))
}

fn grown((low, high): (f64, f64), with: f64) -> (f64, f64) {
    (low.min(with), high.max(with))
}

/// As few digits as tell numbers of an axis apart.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "plotters calls it so")]
fn short(number: &f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: Axes<'_> =
        Axes { caption: "a title", x: "ms", y: "share", legend: Corner::UpperRight };

    fn curve(peer: Peer, what: &'static str, points: &[(f64, f64)]) -> Curve {
        Curve { peer, what, points: points.to_vec(), is_thin: !what.is_empty() }
    }

    #[test]
    fn every_line_with_two_points_is_drawn_and_named() {
        let two = [(0.5, 0.9), (20.0, 0.01)];
        let curves = [
            curve(Peer::Ours, "idle", &two),
            curve(Peer::CoreDns, "", &two),
            curve(Peer::Knot, "", &two[..1]),
        ];
        let svg = draw(AXES, &curves).expect("memory").expect("two lines");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(
            svg.contains("ClusterDNS, idle") && svg.contains("CoreDNS") && !svg.contains("Knot")
        );
        assert!(svg.contains("a title"));
    }

    #[test]
    fn no_points_are_no_picture() {
        assert_eq!(draw(AXES, &[]).expect("memory"), None);
        assert_eq!(draw(AXES, &[curve(Peer::Ours, "", &[(1.0, 1.0)])]).expect("memory"), None);
    }

    #[test]
    fn numbers_of_an_axis_have_no_needless_digits() {
        let texts = [0.001, 0.5, 1.0, 10.0, 20_000.0].map(|number| short(&number));
        assert_eq!(texts, ["0.001", "0.5", "1", "10", "20000"]);
    }
}
