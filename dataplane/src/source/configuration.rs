//! A ClusterDNS object of a folder to the configuration that runs, by the same check as everywhere.

use crds::Config;
use crds::document::ConfigError;
use serde_json::Value;

use super::objects::documents::UncheckedConfiguration;
use crate::status::{Rejection, Running, Violation};

/// The origin that is reported when the folder has no ClusterDNS.
const DEFAULTS: &str = "defaults: the folder has no ClusterDNS";

#[derive(Debug)]
pub struct Checked {
    pub config: Config,
    /// What is reported of it.
    pub running: Running,
}

/// Checks a ClusterDNS and names the file it is in; none means the defaults.
///
/// # Errors
/// Every violation, by field.
pub fn of(found: Option<&(UncheckedConfiguration, String)>) -> Result<Checked, Rejection> {
    let Some((configuration, path)) = found else {
        return Ok(checked(Config::default(), DEFAULTS.to_owned(), Vec::new()));
    };
    let origin = format!("ClusterDNS {:?} in {path}", configuration.name);
    let mut unknown_fields = Vec::new();
    match config(configuration, &mut unknown_fields) {
        Ok(config) => Ok(checked(config, origin, unknown_fields)),
        Err(violations) => Err(Rejection { origin, violations }),
    }
}

/// The configuration in use without any that was written.
pub fn defaults(origin: &str) -> Checked {
    checked(Config::default(), origin.to_owned(), Vec::new())
}

/// Reads what an operator wrote: a checked configuration, not a ClusterDNS.
///
/// # Errors
/// Why it cannot be run, by field where that is known.
pub fn of_document(text: &str, origin: String) -> Result<Checked, Rejection> {
    let error = match Config::from_json(text) {
        Ok((config, unknown)) => return Ok(checked(config, origin, unknown.paths)),
        Err(error) => error,
    };
    let violations = match &error {
        ConfigError::Invalid(violations) => {
            let listed = violations.listed().iter();
            listed.map(|v| violation(&v.field, &v.reason.to_string(), v.message.clone())).collect()
        }
        // Not about one field.
        _ => vec![violation("", "Malformed", error.to_string())],
    };
    Err(Rejection { origin, violations })
}

/// One that was kept on disk, checked already.
pub fn stored(config: Config, origin: String) -> Checked {
    checked(config, origin, Vec::new())
}

/// A configuration is expected, and there is none.
pub fn missing(origin: String, message: String) -> Rejection {
    Rejection { origin, violations: vec![violation("", "Missing", message)] }
}

/// A configuration that passed the check but cannot be used.
pub fn unusable(origin: String, error: String) -> Rejection {
    Rejection { origin, violations: vec![violation("spec", "Unusable", error)] }
}

/// A rejection for a terminal: one line per violation.
pub fn text(rejection: &Rejection) -> String {
    let mut text = format!("{}:", rejection.origin);
    for violation in &rejection.violations {
        let line = violation.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        text.push_str(&format!("\n  {line}{}: {}", violation.field, violation.message));
    }
    text
}

fn checked(config: Config, origin: String, unknown_fields: Vec<String>) -> Checked {
    let running = Running {
        revision: config.revision(),
        format: config.format,
        origin,
        document: serde_json::from_str(&config.to_json()).unwrap_or(Value::Null),
        unknown_fields,
        without_effect: crds::without_effect::of(&config),
    };
    Checked { config, running }
}

fn config(
    found: &UncheckedConfiguration,
    unknown: &mut Vec<String>,
) -> Result<Config, Vec<Violation>> {
    let line = |field: &str| found.places.of(field).map(|place| place.line);
    let mut object = found.object.clone();
    // No setting. In an export of a newer cluster it has fields that are not known here.
    object.as_object_mut().and_then(|fields| fields.remove("status"));
    let (dns, ignored) = crds::manifest::read_value(object).map_err(|error| {
        let mistakes = error.mistakes().iter();
        mistakes
            .map(|m| Violation {
                line: line(&m.field),
                ..violation(&m.field, "Malformed", m.message.clone())
            })
            .collect::<Vec<_>>()
    })?;
    if found.object["spec"].is_null() {
        let message = crds::manifest::SPEC_IS_MISSING.to_owned();
        return Err(vec![Violation {
            line: line("spec"),
            ..violation("spec", "Missing", message)
        }]);
    }
    *unknown = ignored.paths;
    crds::check_local(&dns).map_err(|violations| {
        let at = |v: &crds::check::Violation| Violation {
            line: line(&v.field),
            ..violation(&v.field, &v.reason.to_string(), v.message.clone())
        };
        violations.listed().iter().map(at).collect()
    })
}

fn violation(field: &str, reason: &str, message: String) -> Violation {
    Violation { field: field.to_owned(), reason: reason.to_owned(), message, line: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_yaml(text: &str) -> Result<Checked, Rejection> {
        let object: Value = serde_saphyr::from_str(text).expect(text);
        let places = crds::manifest::places(text).pop().unwrap_or_default();
        of(Some(&(
            UncheckedConfiguration { name: "main".into(), object, places },
            "dns.yaml".into(),
        )))
    }

    const API_VERSION: &str = "clusterdns.dev/v1alpha1";

    fn with_spec(spec: &str) -> String {
        format!(
            "{{apiVersion: {API_VERSION}, kind: ClusterDNS, metadata: {{name: main}}, spec: {spec}}}"
        )
    }

    #[test]
    fn no_cluster_dns_means_the_defaults() {
        let checked = of(None).unwrap();
        assert_eq!(checked.config, Config::default());
        assert_eq!(checked.running.origin, DEFAULTS);
        assert_eq!(checked.running.revision, Config::default().revision());
    }

    #[test]
    fn an_empty_spec_is_a_complete_one() {
        assert_eq!(of_yaml(&with_spec("{}")).unwrap().config.domain, "cluster.local");
    }

    #[test]
    fn what_is_written_runs_and_unknown_fields_are_listed() {
        let checked = of_yaml(&with_spec("{ttlSeconds: 9, stubDomain: []}")).unwrap();
        assert_eq!(checked.config.ttl_seconds, 9);
        assert_eq!(checked.running.unknown_fields, ["spec.stubDomain"]);
        assert_eq!(checked.running.document["ttlSeconds"], 9);
    }

    #[test]
    fn the_status_of_an_export_is_passed_over() {
        for status in ["{fromTheFuture: 1}", "{conditions: soon}", "7"] {
            let text = with_spec("{ttlSeconds: 9}")
                .replace(", spec:", &format!(", status: {status}, spec:"));
            let checked = of_yaml(&text).unwrap();
            assert_eq!(checked.config.ttl_seconds, 9, "{status}");
            assert!(checked.running.unknown_fields.is_empty(), "{status}");
        }
    }

    #[test]
    fn what_is_refused_names_the_field_and_the_file() {
        let rows = [
            (with_spec("{ttlSeconds: soon}"), "spec.ttlSeconds"),
            (with_spec("{ttlSeconds: 4000}"), "spec.ttlSeconds"),
            (
                with_spec(
                    "{stubDomains: [{domain: svc.cluster.local, servers: [{address: 10.0.0.1}]}]}",
                ),
                "spec.stubDomains[0].domain",
            ),
            (with_spec("null"), "spec"),
            (with_spec("{}").replace(", spec: {}", ""), "spec"),
            (with_spec("{}").replace("v1alpha1", "v2"), "apiVersion"),
            (with_spec("{}").replace("name: main", "name: UPPER"), "metadata.name"),
        ];
        for (text, field) in rows {
            let rejection = of_yaml(&text).unwrap_err();
            assert_eq!(rejection.violations[0].field, field, "{rejection:?}");
            assert_eq!(rejection.violations[0].line, Some(1), "{rejection:?}");
            assert_eq!(rejection.origin, "ClusterDNS \"main\" in dns.yaml");
        }
    }
}
