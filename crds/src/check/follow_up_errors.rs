//! Ignores follow-up errors: a list with one unreadable address is not reported as empty or too short.

use super::violations::{Violation, Violations};

/// The violations that the rules found, without those in fields that could not be read. `kept_records` has the place
/// in the spec of each record that was read.
pub(super) fn without_follow_up_errors(
    found: Violations,
    unread: &Violations,
    kept_records: &[usize],
) -> Violations {
    // Not all unreadable fields are listed, so any field may be one of them.
    if unread.count() > unread.listed().len() {
        return Violations::default();
    }
    let gaps: Vec<&str> = unread.listed().iter().map(|violation| gap(&violation.field)).collect();
    let is_in_a_gap = |field: &str| gaps.iter().any(|gap| is_at_or_below(field, gap));
    let placed = found
        .map(|violation| Violation { field: placed(&violation.field, kept_records), ..violation });
    placed.retain(|violation| !is_in_a_gap(&violation.field))
}

/// Where something may be missing when this field could not be read: of an entry of a list, the list.
fn gap(field: &str) -> &str {
    match field.rfind('[') {
        Some(list) if field.ends_with(']') => &field[..list],
        // A field of a server: without it the server is left out.
        Some(list) if field[..list].ends_with(".servers") => &field[..list],
        Some(_) | None => field,
    }
}

fn is_at_or_below(field: &str, path: &str) -> bool {
    field.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The field of a record by its place in the spec: those that could not be read are not among the records.
fn placed(field: &str, kept_records: &[usize]) -> String {
    let of_record = field.strip_prefix("spec.records[").and_then(|rest| rest.split_once(']'));
    let place = of_record.and_then(|(index, rest)| {
        let place = kept_records.get(index.parse::<usize>().ok()?)?;
        Some(format!("spec.records[{place}]{rest}"))
    });
    place.unwrap_or_else(|| field.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_leaves_a_gap_in_its_list_and_a_field_where_it_is() {
        for (field, expected) in [
            ("spec.hosts[0].addresses[1]", "spec.hosts[0].addresses"),
            ("spec.stubDomains[2].servers[0].address", "spec.stubDomains[2].servers"),
            ("spec.reverseCIDRs[3]", "spec.reverseCIDRs"),
            ("spec.records[1].target", "spec.records[1].target"),
            ("spec.upstreams", "spec.upstreams"),
        ] {
            assert_eq!(gap(field), expected);
        }
        assert_eq!(placed("spec.records[1].name", &[0, 2]), "spec.records[2].name");
        assert_eq!(placed("spec.hosts[1].name", &[0, 2]), "spec.hosts[1].name");
    }
}
