//! What `check` found, as text for people, as JSON for programs, and as SARIF 2.1.0 for the annotations of pull requests.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Format;
use crate::printable::{self, plain_value};

/// Where the format of SARIF is described, as its files name it.
const SARIF_SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// One thing to say about a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Path as it was given.
    pub file: String,
    /// Line in the file, counted from 1.
    pub line: usize,
    /// `error` or `warning`.
    pub severity: &'static str,
    /// The field; empty where it is about the whole file.
    pub field: String,
    /// Kind of the finding in CamelCase, for programs.
    pub reason: String,
    /// What is wrong, and what to write.
    pub message: String,
}

impl Finding {
    /// As one line for people: file:line: severity: field: reason: message.
    pub(super) fn line(&self) -> String {
        let Finding { file, line, severity, field, reason, message } = self;
        let rest = match field.is_empty() {
            true => format!("{severity}: {reason}: {message}"),
            false => format!("{severity}: {field}: {reason}: {message}"),
        };
        // Users write the names of files and fields, control characters included.
        plain_value(&format!("{file}:{line}: {rest}"))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// In the order of files and lines.
    pub all: Vec<Finding>,
    /// Number of ClusterDNS that were checked.
    pub checked: usize,
    /// Number of files that were read.
    pub files: usize,
}

impl Findings {
    /// The whole of it in this form; `verdict` is its last line as text.
    pub(super) fn written(&self, format: Format, verdict: &str) -> String {
        match format {
            Format::Text => self.text(verdict),
            Format::Json => printable::json(&self.json()),
            Format::Sarif => printable::json(&self.sarif()),
        }
    }

    fn text(&self, verdict: &str) -> String {
        let mut text = String::new();
        for finding in &self.all {
            let _ = writeln!(text, "{}", finding.line());
        }
        let files = match self.files {
            1 => "1 file".to_owned(),
            several => format!("{several} files"),
        };
        let _ = writeln!(text, "{} ClusterDNS checked in {files}: {verdict}", self.checked);
        text
    }

    fn json(&self) -> Value {
        json!({"checked": self.checked, "files": self.files, "findings": self.all})
    }

    fn sarif(&self) -> Value {
        let mut reasons: Vec<&str> = self.all.iter().map(|it| it.reason.as_str()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        let rules: Vec<Value> = reasons.iter().map(|reason| json!({"id": reason})).collect();
        let results: Vec<Value> = self.all.iter().map(result).collect();
        json!({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [{
            "tool": {"driver": {"name": "clusterdns-operator check", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "results": results}]})
    }
}

fn result(finding: &Finding) -> Value {
    let Finding { file, line, severity, field, reason, message } = finding;
    let text = match field.is_empty() {
        true => message.clone(),
        false => format!("{field}: {message}"),
    };
    json!({"ruleId": reason, "level": severity, "message": {"text": text}, "locations": [{"physicalLocation": {
        "artifactLocation": {"uri": file.replace(' ', "%20")}, "region": {"startLine": (*line).max(1)}}}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Findings {
        let finding = Finding {
            file: "a dns.yaml".into(),
            line: 7,
            severity: "error",
            field: "spec.domain".into(),
            reason: "InvalidName".into(),
            message: "write a name".into(),
        };
        Findings { all: vec![finding], checked: 1, files: 1 }
    }

    #[test]
    fn a_terminal_obeys_no_form_of_the_names_of_files_and_fields() {
        let hostile = "a\u{1b}]0;X\u{7}\n::error::x\u{202e}\u{9b}.yaml";
        let mut findings = findings();
        (findings.all[0].file, findings.all[0].field) = (hostile.into(), hostile.into());
        let text = findings.written(Format::Text, "no");
        assert_eq!(text.lines().count(), 2, "{text:?}");
        for format in [Format::Text, Format::Json, Format::Sarif] {
            let text = findings.written(format, "no");
            assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}']), "{text:?}");
        }
    }

    #[test]
    fn each_form_has_file_line_field_reason_and_message() {
        let text = findings().written(Format::Text, "no");
        assert_eq!(
            text,
            "a dns.yaml:7: error: spec.domain: InvalidName: write a name\n1 ClusterDNS checked in 1 file: no\n"
        );
        let json: Value = serde_json::from_str(&findings().written(Format::Json, "no")).unwrap();
        assert_eq!(json["findings"][0]["line"], 7);
        let sarif: Value = serde_json::from_str(&findings().written(Format::Sarif, "no")).unwrap();
        let result = &sarif["runs"][0]["results"][0];
        assert_eq!((&result["ruleId"], &result["level"]), (&json!("InvalidName"), &json!("error")));
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "a%20dns.yaml");
        assert_eq!(place["region"]["startLine"], 7);
        assert_eq!(sarif["runs"][0]["tool"]["driver"]["rules"][0]["id"], "InvalidName");
    }
}
