//! The pages of a data plane, as far as they are read here. Data planes of other versions may say more, or less.

use serde::Deserialize;
use serde_json::Value;

use super::search::Outcome;

/// The page `/explain` for one question.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answer {
    /// The type as the data plane reads it, such as `AAAA`: people may write `aaaa`, `28` or `TYPE28`.
    #[serde(rename = "type")]
    pub qtype: String,
    /// Of the configuration that runs.
    pub revision: String,
    /// Why it was decided so, as metrics name it.
    pub reason: String,
    /// Where the reply comes from; `unasked` where an upstream would have to be asked.
    pub origin: String,
    /// The rule behind the reply.
    pub rule: Option<Rule>,
    /// The names that the question leads through.
    pub steps: Vec<Step>,
    /// Such as `NXDOMAIN`.
    pub status: Option<String>,
    /// The answer section, one record a line.
    pub answer: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Rule {
    pub id: String,
    pub words: String,
}

/// One name of a chain.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Step {
    pub name: String,
    /// The zone or upstream group that the name belongs to.
    pub place: String,
    pub rules: Vec<Rule>,
    /// What hides or replaces something.
    pub notes: Vec<String>,
    /// The objects that it rests on.
    pub objects: Vec<Object>,
    /// What is known of upstreams, for a name that is not ours.
    pub upstream: Option<Upstream>,
}

/// An object behind an answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Object {
    pub kind: String,
    pub namespace: String,
    /// Its name, where it is known.
    pub name: Option<String>,
    /// The Service of a slice.
    pub service: Option<String>,
    /// Its uid, where it is known.
    pub uid: Option<String>,
}

/// What is known of the upstreams of a name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Upstream {
    pub cache: String,
    /// Seconds since the kept reply came, and for how many it is fresh.
    pub age_seconds: Option<u64>,
    pub lifetime_seconds: Option<u64>,
    /// Which server gave it.
    pub server: Option<Giver>,
}

/// The server that gave a kept reply.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Giver {
    pub server: String,
    pub transport: String,
    /// Empty over UDP and TCP.
    pub server_name: String,
}

impl Answer {
    /// Reads the page.
    ///
    /// # Errors
    /// It is not the page of a data plane.
    pub fn read(page: &Value) -> Result<Answer, String> {
        Answer::deserialize(page).map_err(|error| format!("cannot read its /explain: {error}"))
    }

    /// The records, or the status where there are none, on one line.
    pub(super) fn short(&self) -> String {
        match (&self.status, self.answer.is_empty()) {
            (None, _) if self.origin == "unasked" => "an upstream is asked".to_owned(),
            (None, _) => "no reply".to_owned(),
            (Some(status), true) => status.clone(),
            (Some(_), false) => {
                let data = self
                    .answer
                    .iter()
                    .map(|line| line.splitn(5, ' ').nth(4).unwrap_or(line).to_owned());
                data.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// The outcome for a resolver that asked for the type of the page.
    pub fn outcome(&self) -> Outcome {
        // `owner TTL class type data`; an alias alone is no record of another type.
        let is_wanted = |line: &String| line.split_whitespace().nth(3) == Some(&self.qtype);
        let is_found = match self.qtype.as_str() {
            "ANY" => !self.answer.is_empty(),
            _ => self.answer.iter().any(is_wanted),
        };
        match self.status.as_deref() {
            None if self.origin == "unasked" => Outcome::Unknown,
            Some("NOERROR") if is_found => Outcome::Found,
            Some("NOERROR") => Outcome::NoData,
            Some("NXDOMAIN") => Outcome::NxDomain,
            Some("SERVFAIL") => Outcome::ServFail,
            None | Some(_) => Outcome::Failed,
        }
    }
}

/// What the pages of one data plane say for `status`.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    pub config: ConfigPage,
    pub upstreams: UpstreamsPage,
    /// Read from `/metrics`.
    pub cache: CachePage,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigPage {
    /// Of the configuration that runs.
    pub revision: String,
    /// What it runs of a rollout, such as `stable`.
    pub role: String,
    /// Why the last configuration was refused.
    pub rejection: Option<Rejection>,
    /// Objects, or parts of them, that are not served.
    pub skipped_objects: Vec<crds::v1alpha1::SkippedObject>,
    /// How many of them there are.
    pub skipped_object_count: u64,
    /// Objects by resource.
    pub objects: serde_json::Map<String, Value>,
    /// What else a person should know.
    pub warnings: Vec<String>,
}

/// A configuration that was refused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Rejection {
    /// What is wrong with it.
    pub violations: Vec<crds::v1alpha1::Violation>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct UpstreamsPage {
    /// In the order of the configuration.
    pub groups: Vec<Group>,
    /// Problems, each with what to do.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Group {
    /// `upstreams`, or the stub domain.
    pub name: String,
    pub servers: Vec<Server>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Server {
    pub server: String,
    /// `UDP`, `TLS` and so on.
    pub transport: String,
    /// The name that it must prove to have; an address may be there with several.
    pub server_name: String,
    /// `healthy`, `failing`, `down` or `looping`.
    pub state: String,
    /// Smoothed; none before the first reply.
    pub latency_microseconds: Option<u64>,
    pub sent: u64,
    pub errors: u64,
    /// Sends without a reply in time.
    pub silent: u64,
}

/// Counters of the forward cache, from `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachePage {
    pub entries: u64,
    /// Memory of the entries, in octets.
    pub octets: u64,
    pub hits: u64,
    pub lookups: u64,
}

impl Pages {
    /// Reads three pages.
    ///
    /// # Errors
    /// One of them is not that of a data plane.
    pub fn read(config: &str, upstreams: &str, metrics: &str) -> Result<Pages, String> {
        let wrong =
            |page: &str, error: serde_json::Error| format!("cannot read its {page}: {error}");
        Ok(Pages {
            config: serde_json::from_str(config).map_err(|error| wrong("/config", error))?,
            upstreams: serde_json::from_str(upstreams)
                .map_err(|error| wrong("/upstreams", error))?,
            cache: CachePage::read(metrics),
        })
    }
}

impl CachePage {
    fn read(metrics: &str) -> CachePage {
        let mut cache = CachePage::default();
        for line in metrics.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let value = value as u64;
            match series {
                "clusterdns_cache_entries" => cache.entries = value,
                "clusterdns_cache_bytes" => cache.octets = value,
                _ if series.starts_with("clusterdns_cache_lookups_total{") => {
                    cache.lookups += value;
                    // `refresh` and `miss` ask an upstream first.
                    let answers = ["hit", "prefetch", "stale", "failed"];
                    let is_hit = answers.iter().any(|it| series.contains(&format!("\"{it}\"")));
                    cache.hits += if is_hit { value } else { 0 };
                }
                _ => {}
            }
        }
        cache
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_explanation_says_is_an_outcome() {
        for (page, expected) in [
            (
                r#"{"type": "A", "status": "NOERROR", "answer": ["a. 5 IN A 10.0.0.1"]}"#,
                Outcome::Found,
            ),
            (
                r#"{"type": "A", "status": "NOERROR", "answer": ["a. 5 IN CNAME b."]}"#,
                Outcome::NoData,
            ),
            (
                r#"{"type": "ANY", "status": "NOERROR", "answer": ["a. 5 IN CNAME b."]}"#,
                Outcome::Found,
            ),
            (r#"{"status": "NOERROR", "answer": []}"#, Outcome::NoData),
            (r#"{"status": "NXDOMAIN"}"#, Outcome::NxDomain),
            (r#"{"status": "SERVFAIL"}"#, Outcome::ServFail),
            (r#"{"status": "REFUSED"}"#, Outcome::Failed),
            (r#"{"status": null, "origin": "unasked"}"#, Outcome::Unknown),
            (r#"{"status": null, "origin": "own", "reason": "client"}"#, Outcome::Failed),
        ] {
            let page = serde_json::from_str(page).unwrap();
            assert_eq!(Answer::read(&page).unwrap().outcome(), expected, "{page}");
        }
        assert!(Answer::read(&serde_json::json!("busy")).unwrap_err().contains("/explain"));
    }

    #[test]
    fn the_cache_is_read_from_metrics_of_both_forms() {
        let page = "# TYPE clusterdns_cache_entries gauge\nclusterdns_cache_entries 7\nclusterdns_cache_bytes 900\n\
            clusterdns_cache_lookups_total{outcome=\"hit\"} 90\nclusterdns_cache_lookups_total{outcome=\"miss\"} 10\n";
        let expected = CachePage { entries: 7, octets: 900, hits: 90, lookups: 100 };
        assert_eq!(CachePage::read(page), expected);
    }
}
