//! The list of fields without effect: each row is found in a spec that uses it, and in no other.

use std::collections::BTreeSet;

use crds::without_effect::{self, FIELDS};
use crds::{Config, check};

fn config(spec: &str) -> Config {
    let spec = serde_saphyr::from_str(spec).expect(spec);
    check(&spec).unwrap_or_else(|violations| panic!("{violations}"))
}

/// A path with the indices of its lists left out.
fn in_schema(path: &str) -> String {
    let mut parts = path.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + "[" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

#[test]
fn o18_each_field_without_effect_is_found_in_a_spec_that_uses_it() {
    for row in FIELDS {
        let found = without_effect::of(&config(row.example));
        let own: BTreeSet<String> = found
            .iter()
            .filter(|it| it.instead == row.instead)
            .map(|it| in_schema(&it.field))
            .collect();
        let listed: BTreeSet<String> = row.paths.iter().map(|path| (*path).to_owned()).collect();
        assert!(
            !own.is_empty() && own.is_subset(&listed),
            "{own:?} of {listed:?}: {}",
            row.example
        );
        assert!(!row.instead.is_empty() && !row.instead.ends_with('.'), "{}", row.instead);
    }
}

#[test]
fn o18_a_spec_of_defaults_uses_no_field_without_effect() {
    assert_eq!(without_effect::of(&config("{}")), []);
    assert_eq!(without_effect::of(&config("{cache: {}, logging: {}, access: {}}")), []);
}
