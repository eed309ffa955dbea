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

/// Lines about pods that were not asked; where the same is said of several, one line.
pub(super) fn not_asked(all: &[String]) -> String {
    let mut groups: Vec<(String, &str, usize)> = Vec::new();
    for why in all {
        let same = why.replace(name_in(why), "");
        match groups.iter_mut().find(|(it, ..)| *it == same) {
            Some((.., more)) => *more += 1,
            None => groups.push((same, why, 0)),
        }
    }
    let line = |(_, why, more): (String, &str, usize)| match more {
        0 => format!("not asked  {why}\n"),
        1 => format!("not asked  {why} (the same for 1 more pod)\n"),
        more => format!("not asked  {why} (the same for {more} more pods)\n"),
    };
    groups.into_iter().map(line).collect()
}

/// The name of the pod, with which a reason begins.
fn name_in(why: &str) -> &str {
    let pod = why.strip_prefix("pod ").unwrap_or(why);
    let pod = pod.split([' ', ':']).next().unwrap_or_default();
    pod.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::not_asked;

    #[test]
    fn what_is_said_of_several_pods_is_one_line() {
        let forbidden = |pod: &str| {
            format!("pod dns/{pod} cannot be reached: you need a right: pods {pod:?} is forbidden")
        };
        let beyond =
            (50..300).map(|number| format!("dns-{number}: only the first 50 pods are asked"));
        let mut all =
            vec![forbidden("dns-1"), "pod dns/dns-2: no answer".to_owned(), forbidden("dns-10")];
        all.extend(beyond);
        let text = not_asked(&all);
        let expected = [
            "not asked  pod dns/dns-1 cannot be reached: you need a right: pods \"dns-1\" is forbidden (the same for 1 more pod)",
            "not asked  pod dns/dns-2: no answer",
            "not asked  dns-50: only the first 50 pods are asked (the same for 249 more pods)",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
