//! Fields that are accepted and have no effect in this version, and what happens instead. This list is the only place
//! that says so: `/config` of the data plane, the condition `Accepted`, `check` and the table of all fields
//! (`tests/it/fields.txt`) read it.
//!
//! A field that is accepted before it has an effect gets a row in [`FIELDS`]. For every other field `tests/it/fields.txt`
//! names the test that shows its effect.

use std::borrow::Cow;

use serde::Serialize;

use crate::Config;

/// A field that a configuration uses and that has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WithoutEffect {
    /// Its path, such as `spec.stubDomains[1].policy`.
    pub field: String,
    /// What happens instead, as a sentence for people.
    pub instead: Cow<'static, str>,
}

/// One row: fields of the schema that have no effect, or some of whose values have none.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Paths in the schema, list items as `[]`; each includes the fields below it.
    pub paths: &'static [&'static str],
    /// What the data plane does instead, as a sentence for people.
    pub instead: &'static str,
    /// A spec that uses all of `paths`, for the tests.
    pub example: &'static str,
    /// Where a configuration uses them. A field at its default is not in use: it was not asked for.
    used: fn(&Config) -> Vec<String>,
}

/// All rows: none in this version.
pub const FIELDS: &[Field] = &[];

/// The fields that this configuration uses and that have no effect, in the order of [`FIELDS`].
pub fn of(config: &Config) -> Vec<WithoutEffect> {
    of_rows(FIELDS, config)
}

fn of_rows(rows: &[Field], config: &Config) -> Vec<WithoutEffect> {
    let of_row = |row: &Field| {
        let instead = Cow::Borrowed(row.instead);
        (row.used)(config)
            .into_iter()
            .map(move |field| WithoutEffect { field, instead: instead.clone() })
    };
    rows.iter().flat_map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    fn ttl(config: &Config) -> Vec<String> {
        let is_in_use = config.ttl_seconds != Config::default().ttl_seconds;
        is_in_use.then(|| "spec.ttlSeconds".to_owned()).into_iter().collect()
    }

    /// A row for a field that is taken to have no effect, because [`FIELDS`] may be empty.
    const ROW: Field = Field {
        paths: &["spec.ttlSeconds"],
        instead: "every TTL is 5",
        example: "{ttlSeconds: 7}",
        used: ttl,
    };

    fn config(spec: &str) -> Config {
        check(&serde_saphyr::from_str(spec).expect(spec)).expect(spec)
    }

    /// The path without the indices of its lists.
    fn in_schema(path: &str) -> String {
        let mut parts = path.split('[');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            text + "[" + part.trim_start_matches(|c: char| c.is_ascii_digit())
        })
    }

    #[test]
    fn o18_a_field_without_effect_is_found_where_it_is_used_and_nowhere_else() {
        let expected =
            WithoutEffect { field: ROW.paths[0].to_owned(), instead: ROW.instead.into() };
        assert_eq!(of_rows(&[ROW], &config(ROW.example)), [expected]);
        assert_eq!(of_rows(&[ROW], &config("{}")), []);
    }

    #[test]
    fn o18_each_row_is_found_in_its_example_and_in_no_spec_of_defaults() {
        for row in FIELDS.iter().chain([&ROW]) {
            let found = of_rows(&[*row], &config(row.example));
            let fields: Vec<String> = found.iter().map(|it| in_schema(&it.field)).collect();
            let is_listed = |field: &String| row.paths.contains(&field.as_str());
            assert!(!fields.is_empty() && fields.iter().all(is_listed), "{fields:?} of {row:?}");
            assert!(!row.instead.is_empty() && !row.instead.ends_with('.'), "{}", row.instead);
            for spec in ["{}", "{cache: {}, logging: {}, access: {}}"] {
                assert_eq!(of_rows(&[*row], &config(spec)), [], "{spec}");
            }
        }
        assert_eq!(in_schema("spec.stubDomains[1].policy"), "spec.stubDomains[].policy");
    }
}
