//! Fields that are accepted and have no effect in this version, and what happens instead. This list is the only place
//! that says so: `/config` of the data plane, the condition `Accepted`, `check` and the table of all fields
//! (`tests/it/fields.txt`) read it.
//!
//! To give a field its effect: delete its row in [`FIELDS`], and name the test that shows the effect in `tests/it/fields.txt`.

use serde::Serialize;

use crate::Config;
use crate::config::Listeners;

/// A field that a configuration uses and that has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WithoutEffect {
    /// Its path, such as `spec.stubDomains[1].policy`.
    pub field: String,
    /// What happens instead.
    pub instead: &'static str,
}

/// One row: fields of the schema that have no effect, or some of whose values have none.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Paths in the schema, list items as `[]`; each stands for everything below it, too.
    pub paths: &'static [&'static str],
    /// What happens instead.
    pub instead: &'static str,
    /// A spec that uses all of `paths`, for the tests.
    pub example: &'static str,
    /// Where a configuration uses them. A field at its default is not in use: it was not asked for.
    used: fn(&Config) -> Vec<String>,
}

/// All rows.
pub const FIELDS: &[Field] = &[Field {
    paths: &["spec.listeners.https", "spec.listeners.quic"],
    instead: "the port is opened in pods and Service, and no process listens there: connections are refused",
    example: "{listeners: {https: {certificate: {name: a}}, quic: {certificate: {name: a}}}}",
    used: |config| {
        let Listeners { tls: _, https, quic } = &config.listeners;
        let https = paths(https.is_some(), "spec.listeners.https");
        [https, paths(quic.is_some(), "spec.listeners.quic")].concat()
    },
}];

/// The fields that this configuration uses and that have no effect, in the order of [`FIELDS`].
pub fn of(config: &Config) -> Vec<WithoutEffect> {
    let of_row = |row: &Field| {
        let instead = row.instead;
        (row.used)(config).into_iter().map(move |field| WithoutEffect { field, instead })
    };
    FIELDS.iter().flat_map(of_row).collect()
}

fn paths(is_used: bool, path: &str) -> Vec<String> {
    is_used.then(|| path.to_owned()).into_iter().collect()
}
