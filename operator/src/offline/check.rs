//! `check`: what is wrong with the ClusterDNS of these files, and what is legal but unwise, with file, line and field. One
//! run names everything: what cannot be read does not hide other mistakes.

use std::collections::BTreeSet;
use std::io::Write;

use crds::ClusterDNS;
use crds::config::UnknownFields;
use crds::manifest::{Found, ManifestError, Place, Places, SPEC_IS_MISSING};

use super::beside_cluster::{excluded_nodes, excluded_pods, other_domains, unused_by_kubelets};
use super::named_files::named_files;
use super::output::{Finding, Findings};
use super::warning::Warning;
use super::warnings::unwise;
use super::{Severity, cluster_dns, conflicts, is_template, kubelets, names_our_kind, text_of};
use crate::args::{self, Format};
use crate::names;
use crate::printable::plain;

/// Prints what is wrong and unwise to `out`; with `--cluster` it reads from one too.
///
/// # Errors
/// Nothing can be written there any more.
pub fn check(args: &args::CheckFlags, out: &mut dyn Write) -> std::io::Result<Severity> {
    let mut problems = Vec::new();
    let mut findings = Findings::default();
    let mut files: Vec<(String, Vec<Result<Found, ManifestError>>)> = Vec::new();
    for file in named_files(&args.file) {
        let place = file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
        let read = file.and_then(|file| {
            let (name, text) = text_of(&file)?;
            if is_template(&file, &text) {
                findings.all.extend(names_our_kind(&text).then(|| unread_template(&name)));
                return Ok((name, Vec::new()));
            }
            cluster_dns(&text, &name).map(|found| (name, found))
        });
        let (name, found) = match read {
            Ok(read) => read,
            Err(why) => {
                // A pull request shows what is in the result, not what is on standard error.
                if args.output != Format::Text {
                    findings.all.push(finding(&place, 1, "error", "", "Unreadable", &why));
                }
                problems.push(why);
                continue;
            }
        };
        findings.files += 1;
        findings.checked += found.len();
        files.push((name, found));
    }
    let asked = args.cluster.then(|| kubelets::ask_cluster(&args.which, &adopted(&files)));
    if let Some(Err(why)) = &asked {
        problems.insert(0, format!("the cluster (--cluster): {why}"));
    }
    let cluster = asked.and_then(Result::ok);
    let mut all: Vec<(String, Found)> = Vec::new();
    for (name, found) in files {
        for read in found {
            findings.all.extend(of_one(&name, &read, cluster.as_ref()));
            all.extend(read.ok().map(|found| (name.clone(), found)));
        }
    }
    findings.all.extend(of_all(&all));
    if findings.checked == 0 && problems.is_empty() {
        let message = "no ClusterDNS in these files: write apiVersion: clusterdns.dev/v1alpha1 and kind: ClusterDNS, or \
                       name other files";
        let file = args.file.first().map(|file| file.display().to_string()).unwrap_or_default();
        findings.all.push(finding(&file, 1, "error", "", "NothingChecked", message));
    }
    findings.all.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    let has_error = findings.all.iter().any(|finding| finding.severity == "error");
    let outcome = match (problems.is_empty(), has_error) {
        (false, _) => Severity::Unreadable,
        (true, true) => Severity::Wrong,
        (true, false) => Severity::Fine,
    };
    for why in &problems {
        // A file for programs must contain JSON only.
        match args.output {
            Format::Text => writeln!(out, "{}", plain(why))?,
            Format::Json | Format::Sarif => print_error(why),
        }
    }
    out.write_all(findings.written(args.output, &verdict(outcome, &findings)).as_bytes())?;
    Ok(outcome)
}

/// The Services that are adopted: their addresses are known to the cluster only.
fn adopted(files: &[(String, Vec<Result<Found, ManifestError>>)]) -> BTreeSet<(String, String)> {
    let found = files.iter().flat_map(|(_, found)| found).flatten();
    let adopts = |dns: &ClusterDNS| dns.spec.service.as_ref().is_some_and(|service| service.adopt);
    let adopting = found.map(|found| &found.resource).filter(|dns| adopts(dns));
    adopting.map(names::service).collect()
}

/// A ClusterDNS that only Helm can write out.
fn unread_template(file: &str) -> Finding {
    let message = "a template of Helm is not checked: check what it renders to, helm template CHART | clusterdns-operator \
                   check -f -";
    finding(file, 1, "warning", "", "TemplateNotChecked", message)
}

/// Printed on standard error, so that standard output has only the result.
fn print_error(why: &str) {
    let _ = writeln!(std::io::stderr(), "{}", plain(why));
}

fn verdict(outcome: Severity, findings: &Findings) -> String {
    let count = |severity: &str| findings.all.iter().filter(|it| it.severity == severity).count();
    let counted = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let unread = match outcome {
        Severity::Fine | Severity::Wrong => "",
        Severity::Unreadable => "; not everything could be read",
    };
    let (errors, warnings) = (count("error"), count("warning"));
    format!("{}, {}{unread}", counted(errors, "error"), counted(warnings, "warning"))
}

fn of_one(
    file: &str,
    read: &Result<Found, ManifestError>,
    cluster: Option<&kubelets::Said>,
) -> Vec<Finding> {
    let mut findings = errors(file, read);
    if let Ok(found) = read {
        let mut advice = unwise(&found.resource);
        if let Some(cluster) = cluster {
            let knows_better = excluded_pods(&found.resource, cluster);
            advice.retain(|it| knows_better.is_none() || it.reason != "ClientsExcludePods");
            advice.extend(knows_better);
            advice.extend(excluded_nodes(&found.resource, cluster));
            advice.extend(unused_by_kubelets(&found.resource, cluster));
            advice.extend(other_domains(&found.resource, cluster));
        }
        findings.extend(warned(file, advice, &found.places));
    } else if let Err(error) = read
        && let Some(rest) = error.rest()
    {
        let mut advice = unwise(&rest.resource);
        advice.retain(|it| !rest.is_mended(&it.field));
        findings.extend(warned(file, advice, &rest.places));
    }
    findings
}

fn warned(file: &str, advice: Vec<Warning>, places: &Places) -> impl Iterator<Item = Finding> {
    advice.into_iter().map(|it| {
        let line = line(places.of(&it.field));
        finding(file, line, "warning", &it.field, it.reason, &it.message)
    })
}

/// What only all of them conflicts show.
fn of_all(all: &[(String, Found)]) -> Vec<Finding> {
    let folder = |file: &str| file.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let resources: Vec<conflicts::Placed<'_>> =
        all.iter().map(|(file, found)| (folder(file), &found.resource)).collect();
    let at = |clash: conflicts::Clash| {
        let (file, found) = &all[clash.at];
        let line = line(found.places.of(clash.field));
        let severity = if clash.is_certain { "error" } else { "warning" };
        finding(file, line, severity, clash.field, "Conflict", &clash.message)
    };
    conflicts::clashes(&resources).into_iter().map(at).collect()
}

/// What is wrong with one ClusterDNS, read or unreadable.
pub(super) fn errors(file: &str, read: &Result<Found, ManifestError>) -> Vec<Finding> {
    let found = match read {
        Ok(found) => found,
        Err(error) => {
            let mistakes = error.mistakes().iter();
            let unreadable = |m: &crds::manifest::Mistake| {
                finding(file, line(m.place), "error", &m.field, "Unreadable", &m.message)
            };
            let mut errors: Vec<Finding> = mistakes.map(unreadable).collect();
            if let Some(rest) = error.rest() {
                let mut others = violations(file, &rest.resource, &rest.places);
                others.extend(unknown_fields(file, &rest.unknown, &rest.places));
                errors.extend(others.into_iter().filter(|found| !rest.is_mended(&found.field)));
            }
            errors.sort_by_key(|error| error.line);
            return errors;
        }
    };
    errors_of(file, found)
}

/// What is wrong with a ClusterDNS that can be read.
fn errors_of(file: &str, found: &Found) -> Vec<Finding> {
    let mut errors = unknown_fields(file, &found.unknown, &found.places);
    errors.extend(violations(file, &found.resource, &found.places));
    if !found.has_spec {
        let at = line(found.places.of("spec"));
        errors.push(finding(file, at, "error", "spec", "Missing", SPEC_IS_MISSING));
    }
    errors.sort_by_key(|error| error.line);
    errors
}

/// The same as lines for people.
pub(crate) fn wrong(file: &str, found: &Found) -> Vec<String> {
    errors_of(file, found).iter().map(Finding::line).collect()
}

fn unknown_fields(file: &str, unknown: &UnknownFields, places: &Places) -> Vec<Finding> {
    let of_one = |path: &String| {
        let message = "no such field, so it has no effect: correct its name, or leave it out";
        let path = indexed(path);
        finding(file, line(places.of(&path)), "error", &path, "UnknownField", message)
    };
    unknown.paths.iter().map(of_one).collect()
}

fn violations(file: &str, dns: &ClusterDNS, places: &Places) -> Vec<Finding> {
    let Err(violations) = crds::check_resource(dns) else { return Vec::new() };
    let at = |field: &str, reason: &str, message: &str| {
        finding(file, line(places.of(field)), "error", field, reason, message)
    };
    let listed = violations.listed().iter();
    let mut found: Vec<Finding> =
        listed.map(|v| at(&v.field, &v.reason.to_string(), &v.message)).collect();
    if violations.count() > violations.listed().len() {
        let more = format!("and {} more", violations.count() - violations.listed().len());
        found.push(at("spec", "More", &more));
    }
    found
}

fn finding(
    file: &str,
    line: usize,
    severity: &'static str,
    field: &str,
    reason: &str,
    message: &str,
) -> Finding {
    let [file, field, reason, message] = [file, field, reason, message].map(str::to_owned);
    Finding { file, line, severity, field, reason, message }
}

fn line(place: Option<Place>) -> usize {
    place.map_or(1, |place| place.line)
}

/// `spec.stubDomains.0.colour` as fields are written everywhere else.
pub(crate) fn indexed(path: &str) -> String {
    path.split('.').fold(String::new(), |mut text, part| {
        match part.parse::<usize>() {
            Ok(index) => text.push_str(&format!("[{index}]")),
            Err(_) if text.is_empty() => text.push_str(part),
            Err(_) => text.push_str(&format!(".{part}")),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::indexed;

    #[test]
    fn paths_have_one_spelling() {
        assert_eq!(indexed("spec.stubDomains.0.colour"), "spec.stubDomains[0].colour");
        assert_eq!(indexed("spec"), "spec");
    }
}
