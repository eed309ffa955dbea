//! `check`: what is wrong with the ClusterDNS of these files, and what is legal but unwise, one a line:
//! `file:line: error|warning: field: reason: message`.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::path::Path;

use crds::ClusterDNS;
use crds::manifest::{Found, ManifestError, Place, Places};

use super::{Outcome, cluster_dns, kubelets, text_of, unwise};
use crate::args;

/// One thing to say about a file.
pub(super) struct Finding {
    line: usize,
    severity: &'static str,
    field: String,
    reason: String,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { line, severity, field, reason, message } = self;
        // Names of fields are as somebody wrote them.
        let text = format!("{line}: {severity}: {field}: {reason}: {message}");
        f.write_str(&text.replace(|c: char| c.is_control(), "\u{fffd}"))
    }
}

/// Prints what is wrong and unwise to `out`; with `--cluster` it looks at one.
///
/// # Errors
/// Nothing can be written there any more.
pub fn check(args: &args::Check, out: &mut dyn Write) -> std::io::Result<Outcome> {
    let mut outcome = Outcome::Fine;
    let mut count = 0;
    let asked = args.cluster.then(|| kubelets::cluster_dns(&args.which));
    if let Some(Err(why)) = &asked {
        writeln!(out, "the cluster (--cluster): {why}")?;
        outcome = Outcome::Unreadable;
    }
    let kubelets = asked.and_then(Result::ok);
    for path in &args.file {
        let found = of_file(path, kubelets.as_ref());
        let (name, findings, checked) = match found {
            Ok(found) => found,
            Err(why) => {
                writeln!(out, "{why}")?;
                outcome = Outcome::Unreadable;
                continue;
            }
        };
        count += checked;
        for finding in findings {
            writeln!(out, "{name}:{finding}")?;
            outcome = outcome.max(if finding.severity == "error" {
                Outcome::Wrong
            } else {
                Outcome::Fine
            });
        }
    }
    let files = match args.file.len() {
        1 => "1 file".to_owned(),
        several => format!("{several} files"),
    };
    writeln!(out, "{count} ClusterDNS checked in {files}: {}", verdict(outcome))?;
    Ok(outcome)
}

fn verdict(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Fine => "nothing is wrong",
        Outcome::Wrong => "correct what is called an error",
        Outcome::Unreadable => "not everything could be read",
    }
}

type Checked = (String, Vec<Finding>, usize);

fn of_file(path: &Path, kubelets: Option<&BTreeSet<String>>) -> Result<Checked, String> {
    let (name, text) = text_of(path)?;
    let found = cluster_dns(&text, &name)?;
    let count = found.len();
    let findings = found.iter().flat_map(|read| findings(read, kubelets)).collect();
    Ok((name, findings, count))
}

fn findings(
    read: &Result<Found, ManifestError>,
    kubelets: Option<&BTreeSet<String>>,
) -> Vec<Finding> {
    let mut findings = errors(read);
    if let Ok(found) = read {
        let outside = kubelets.and_then(|used| unused_by_kubelets(&found.resource, used));
        let warnings = unwise(&found.resource).into_iter().chain(outside);
        let at = |w: unwise::Warning| {
            let line = line(found.places.of(w.field));
            finding(line, "warning", w.field, w.reason, &w.message)
        };
        findings.extend(warnings.map(at));
    }
    findings.sort_by_key(|finding| finding.line);
    findings
}

/// What is wrong with one ClusterDNS, read or unreadable.
pub(super) fn errors(read: &Result<Found, ManifestError>) -> Vec<Finding> {
    let found = match read {
        Ok(found) => found,
        Err(error) => {
            let mistakes = error.mistakes().iter();
            let error = |m: &crds::manifest::Mistake| {
                finding(line(m.place), "error", &m.field, "Unreadable", &m.message)
            };
            return mistakes.map(error).collect();
        }
    };
    let at = |places: &Places, field: &str, reason: &str, message: &str| {
        finding(line(places.of(field)), "error", field, reason, message)
    };
    let mut errors: Vec<Finding> = found
        .unknown
        .paths
        .iter()
        .map(|path| {
            let message = "no such field, so it has no effect: correct its name, or leave it out";
            at(&found.places, &indexed(path), "UnknownField", message)
        })
        .collect();
    if let Err(violations) = crds::check_resource(&found.resource) {
        let listed = violations.listed().iter();
        errors
            .extend(listed.map(|v| at(&found.places, &v.field, &v.reason.to_string(), &v.message)));
        if violations.count() > violations.listed().len() {
            let more = format!("and {} more", violations.count() - violations.listed().len());
            errors.push(at(&found.places, "spec", "More", &more));
        }
    }
    errors.sort_by_key(|error| error.line);
    errors
}

fn finding(
    line: usize,
    severity: &'static str,
    field: &str,
    reason: &str,
    message: &str,
) -> Finding {
    let [field, reason, message] = [field, reason, message].map(str::to_owned);
    Finding { line, severity, field, reason, message }
}

fn line(place: Option<Place>) -> usize {
    place.map_or(1, |place| place.line)
}

/// `spec.stubDomains.0.colour` as fields are written everywhere else.
fn indexed(path: &str) -> String {
    path.split('.').fold(String::new(), |mut text, part| {
        match part.parse::<usize>() {
            Ok(index) => text.push_str(&format!("[{index}]")),
            Err(_) if text.is_empty() => text.push_str(part),
            Err(_) => text.push_str(&format!(".{part}")),
        }
        text
    })
}

fn unused_by_kubelets(dns: &ClusterDNS, used: &BTreeSet<String>) -> Option<unwise::Warning> {
    let service = dns.spec.service.as_ref()?;
    let ips = service.cluster_ips.as_ref().filter(|ips| !ips.is_empty())?;
    let is_used = ips.iter().any(|ip| used.contains(ip));
    let used: Vec<&str> = used.iter().map(String::as_str).collect();
    (!is_used).then(|| unwise::Warning {
        field: "spec.service.clusterIPs",
        reason: "NotUsedByKubelets",
        message: format!(
            "kubelets of this cluster tell pods to ask {}, so nobody asks here: write that address, or set clusterDNS of the kubelets",
            used.join(" and ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::{indexed, unused_by_kubelets};

    #[test]
    fn paths_have_one_spelling() {
        assert_eq!(indexed("spec.stubDomains.0.colour"), "spec.stubDomains[0].colour");
        assert_eq!(indexed("spec"), "spec");
    }

    #[test]
    fn an_address_that_no_kubelet_hands_out_is_told() {
        let text = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {name: a}\nspec: {service: {clusterIPs: [10.96.0.10]}}";
        let (dns, _) = crds::manifest::read(text, "a").unwrap();
        let others = ["10.96.0.11".to_owned()].into();
        let warning = unused_by_kubelets(&dns, &others).expect("a warning");
        assert!(warning.message.contains("10.96.0.11"), "{}", warning.message);
        assert!(unused_by_kubelets(&dns, &["10.96.0.10".to_owned()].into()).is_none());
    }
}
