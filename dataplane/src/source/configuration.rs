//! A ClusterDNS object of a folder to the configuration that runs, by the same check as everywhere.

use crds::config::ConfigError;
use crds::{ClusterDNS, Config};
use serde_json::Value;

use super::documents::Configuration;
use super::report::{Rejection, Running, Violation};

/// The version of the resource that is read.
const API_VERSION: &str = "clusterdns.dev/v1alpha1";
/// Unknown fields that are listed.
const MAX_UNKNOWN: usize = 32;
/// What runs when the folder has no ClusterDNS.
const DEFAULTS: &str = "defaults: the folder has no ClusterDNS";

/// A configuration that passed.
#[derive(Debug)]
pub struct Checked {
    /// To run.
    pub config: Config,
    /// To tell.
    pub running: Running,
}

/// Checks a ClusterDNS and names the file it is in; none means the defaults.
///
/// # Errors
/// Every violation, by field.
pub fn of(found: Option<&(Configuration, String)>) -> Result<Checked, Rejection> {
    let Some((configuration, path)) = found else {
        return Ok(checked(Config::default(), DEFAULTS.to_owned(), Vec::new()));
    };
    let origin = format!("ClusterDNS {:?} in {path}", configuration.name);
    let mut unknown_fields = Vec::new();
    match config(&configuration.object, &mut unknown_fields) {
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

/// Where a configuration should be there is none.
pub fn missing(origin: String, message: String) -> Rejection {
    Rejection { origin, violations: vec![violation("", "Missing", message)] }
}

/// A configuration that passed the check and cannot be used all the same.
pub fn unusable(origin: String, error: String) -> Rejection {
    let violation = Violation { field: "spec".into(), reason: "Unusable".into(), message: error };
    Rejection { origin, violations: vec![violation] }
}

/// A rejection for a terminal: one line per violation.
pub fn text(rejection: &Rejection) -> String {
    let mut text = format!("{}:", rejection.origin);
    for violation in &rejection.violations {
        text.push_str(&format!("\n  {}: {}", violation.field, violation.message));
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
    };
    Checked { config, running }
}

fn config(object: &Value, unknown: &mut Vec<String>) -> Result<Config, Vec<Violation>> {
    let version = object["apiVersion"].as_str().unwrap_or("");
    if version != API_VERSION {
        let message =
            format!("{version:?} is not a version this program reads: write {API_VERSION}");
        return Err(vec![violation("apiVersion", "Invalid", message)]);
    }
    let dns = resource(object, unknown)?;
    crds::check_resource(&dns).map_err(|violations| {
        let listed = violations.listed().iter();
        listed.map(|v| violation(&v.field, &v.reason.to_string(), v.message.clone())).collect()
    })
}

/// The object as its type, with the field of the first mistake; fields nobody knows are listed,
/// because a misspelled section would otherwise be silently absent.
fn resource(object: &Value, unknown: &mut Vec<String>) -> Result<ClusterDNS, Vec<Violation>> {
    // The type has the two as constants; an absent spec is an empty one, as every field has a default.
    let mut fields = object.as_object().cloned().unwrap_or_default();
    fields.retain(|key, value| !matches!(key.as_str(), "apiVersion" | "kind") && !value.is_null());
    fields.entry("spec").or_insert_with(|| Value::Object(serde_json::Map::new()));
    let mut track = serde_path_to_error::Track::new();
    let reader = serde_path_to_error::Deserializer::new(Value::Object(fields), &mut track);
    let read = serde_ignored::deserialize(reader, |path| {
        if unknown.len() < MAX_UNKNOWN {
            unknown.push(path.to_string());
        }
    });
    read.map_err(|error: serde_json::Error| {
        vec![violation(&track.path().to_string(), "Malformed", error.to_string())]
    })
}

fn violation(field: &str, reason: &str, message: String) -> Violation {
    Violation { field: field.to_owned(), reason: reason.to_owned(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_yaml(text: &str) -> Result<Checked, Rejection> {
        let object: Value = serde_saphyr::from_str(text).expect(text);
        of(Some(&(Configuration { name: "main".into(), object }, "dns.yaml".into())))
    }

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
        for spec in ["{}", "null"] {
            assert_eq!(of_yaml(&with_spec(spec)).unwrap().config.domain, "cluster.local", "{spec}");
        }
    }

    #[test]
    fn what_is_written_runs_and_unknown_fields_are_listed() {
        let checked = of_yaml(&with_spec("{ttlSeconds: 9, stubDomain: []}")).unwrap();
        assert_eq!(checked.config.ttl_seconds, 9);
        assert_eq!(checked.running.unknown_fields, ["spec.stubDomain"]);
        assert_eq!(checked.running.document["ttlSeconds"], 9);
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
            (with_spec("{}").replace("v1alpha1", "v2"), "apiVersion"),
            (with_spec("{}").replace("name: main", "name: UPPER"), "metadata.name"),
        ];
        for (text, field) in rows {
            let rejection = of_yaml(&text).unwrap_err();
            assert_eq!(rejection.violations[0].field, field, "{rejection:?}");
            assert_eq!(rejection.origin, "ClusterDNS \"main\" in dns.yaml");
        }
    }
}
