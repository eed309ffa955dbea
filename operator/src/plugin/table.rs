//! Columns of text for a terminal.

/// Rows below a heading, each column as wide as its widest cell; the first row is the heading.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Rows with their heading in front.
pub(super) fn with_heading(
    heading: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> Vec<Vec<String>> {
    let heading = heading.iter().map(|it| (*it).to_owned()).collect();
    std::iter::once(heading).chain(rows).collect()
}

/// Octets as people read them.
pub(super) fn octets(octets: u64) -> String {
    match octets {
        0..1_024 => format!("{octets} B"),
        1_024..1_048_576 => format!("{:.1} KiB", octets as f64 / 1_024.0),
        _ => format!("{:.1} MiB", octets as f64 / 1_048_576.0),
    }
}
