//! `import` as a program: reads files or a cluster, and prints the ClusterDNS and the report.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use super::folder::{MAX_BYTES, mounted, on_disk};
use super::from_cluster::Wanted;
use super::manifests::{Object, files_beside, objects, sources};
use super::unread::{unread, with_keys};
use super::without_defaults::Ordered;
use super::{
    Files, Imported, Look, Source, Target, Text, dnsmasq, from_cluster, import, platform, service,
    size, written,
};
use crate::args;
use crate::offline::{Severity, on_streams, text_of};
use crate::printable::{json, plain};

/// `import`, on standard output and standard error.
pub fn run(args: &args::Import) -> ExitCode {
    on_streams(|out, err| imported(args, out, err))
}

/// Prints the ClusterDNS to `out`, and the report, or why there is none, to `err`.
///
/// # Errors
/// Nothing can be written there any more.
pub fn imported(
    args: &args::Import,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Severity> {
    let Gathered { sources, target } = match gathered(args) {
        Ok(gathered) => gathered,
        Err(why) => {
            writeln!(err, "{}", plain(&why))?;
            return Ok(Severity::Unreadable);
        }
    };
    let is_line = |it: &Source| {
        matches!(it, Source::Aside { .. } | Source::Size(_) | Source::Keys(_) | Source::Note { .. })
    };
    if sources.iter().all(is_line) {
        writeln!(
            err,
            "neither a Corefile nor a configuration of kube-dns or dnsmasq is in what was named"
        )?;
        return Ok(Severity::Wrong);
    }
    let made = match import(&sources, &target) {
        Ok(made) => made,
        Err(refused) => {
            writeln!(err, "{refused}")?;
            return Ok(Severity::Wrong);
        }
    };
    let (resource, report) = texts(&made, args.output);
    // First: a ClusterDNS without its report must not be taken for a finished import.
    let file = args.report.as_ref().filter(|file| **file != Path::new("-"));
    if let Some(file) = file
        && let Err(error) = std::fs::write(file, &report)
    {
        writeln!(err, "{}: cannot be written: {error}; no ClusterDNS is printed", file.display())?;
        return Ok(Severity::Unreadable);
    }
    out.write_all(resource.as_bytes())?;
    if file.is_none() {
        err.write_all(report.as_bytes())?;
    }
    Ok(Severity::Fine)
}

/// The ClusterDNS and the report in this form.
fn texts(made: &Imported, output: args::ImportFormat) -> (String, String) {
    let resource = written(&made.dns);
    match output {
        args::ImportFormat::Yaml => {
            (serde_saphyr::to_string(&Ordered(&resource)).unwrap_or_default(), made.report.text())
        }
        args::ImportFormat::Json => (json(&Ordered(&resource)), json(&made.report.json())),
    }
}

/// A Service of the cluster's own name is taken over; another one is created beside it.
fn target(args: &args::Import, found: Option<(String, String)>, replaced: Vec<String>) -> Target {
    let usual =
        (crds::defaults::SERVICE_NAMESPACE.to_owned(), crds::defaults::SERVICE_NAME.to_owned());
    let named = args.from_service.as_deref().map(from_cluster::in_full);
    let existing = found.or(named).unwrap_or(usual);
    let service = match &args.service {
        None => existing.clone(),
        Some(text) => match text.split_once('/') {
            Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
            None => (existing.0.clone(), text.clone()),
        },
    };
    Target {
        name: args.name.clone(),
        adopt: args.adopt || service == existing,
        service,
        domain: args.domain.clone(),
        replaced,
    }
}

/// The sources that the flags name.
struct Gathered {
    sources: Vec<Source>,
    /// What is made of them.
    target: Target,
}

/// Reads it, or says what cannot be read.
fn gathered(args: &args::Import) -> Result<Gathered, String> {
    let variables: BTreeMap<String, String> = args.env.iter().cloned().collect();
    let mut all: Vec<Object> = Vec::new();
    let mut plain: Vec<(PathBuf, Text)> = Vec::new();
    let mut first = None;
    for path in &args.corefile {
        let text = read(path)?;
        first.get_or_insert_with(|| text.file.clone());
        match is_manifest(&text.text) {
            true => all.extend(objects(&text)?),
            false => plain.push((path.clone(), text)),
        }
    }
    let mut keys: Vec<Source> = Vec::new();
    for path in &args.kube_dns_config {
        let text = read(path)?;
        first.get_or_insert_with(|| text.file.clone());
        match is_manifest(&text.text) {
            true => {
                all.extend(objects(&text)?.into_iter().map(|it| Object { is_named: true, ..it }))
            }
            false => keys.push(key_of_kube_dns(text)?),
        }
    }
    let mut options: Vec<(PathBuf, Text)> = Vec::new();
    for path in &args.dnsmasq {
        let text = read(path)?;
        first.get_or_insert_with(|| text.file.clone());
        match is_manifest(&text.text) {
            true => all.extend(objects(&text)?),
            false => options.push((path.clone(), text)),
        }
    }
    let wanted = Wanted { source: args.from_service.as_deref(), target: args.service.as_deref() };
    let service::Found { mut service, mut selector, mut addresses, mut lines } =
        service::of_manifests(&all, wanted)?;
    lines.extend(unread(&all));
    if args.from_cluster {
        let found = from_cluster::read(&args.which, wanted)
            .map_err(|why| format!("the cluster (--from-cluster): {why}"))?;
        all.extend(found.objects);
        addresses.extend(found.addresses);
        lines.extend(found.cut.into_iter().map(|message| Source::Note {
            place: super::Place { file: "the cluster".to_owned(), line: 1 },
            outcome: super::Outcome::NotPossible,
            what: "--from-cluster".to_owned(),
            message,
        }));
        lines.extend(found.is_local.then(|| Source::Note {
            place: super::Place { file: "the cluster".to_owned(), line: 1 },
            outcome: super::Outcome::Changed,
            what: format!("Service {}/{}", found.service.0, found.service.1),
            message: service::LOCAL.to_owned(),
        }));
        (service, selector) = (Some(found.service), found.selector);
    }
    // Before dnsmasq, as the servers of a ConfigMap are.
    keys.extend(sources(&all, &variables)?);
    let mut found = keys;
    for (path, text) in plain {
        let (variables, look) = (variables.clone(), look(&path, &all));
        found.push(Source::Corefile { text, variables, look });
    }
    // Hosts files that are named by themselves are no options.
    let (hosts, options): (Vec<_>, Vec<_>) =
        options.into_iter().partition(|(_, text)| is_hosts_file(&text.text));
    for (path, text) in options {
        found.push(Source::Dnsmasq { options: dnsmasq::written(&text), look: look(&path, &all) });
    }
    for (_, text) in hosts {
        let place = super::Place { file: text.file.clone(), line: text.line };
        let option = super::Argument { place, text: format!("--addn-hosts={}", text.file) };
        let look: Box<Look<'static>> =
            Box::new(move |_: &str| Files { found: vec![text.clone()], unread: Vec::new() });
        found.push(Source::Dnsmasq { options: vec![option], look });
    }
    found.extend(lines);
    found.extend(size::sources(&all, &selector));
    let target = target(args, service.clone(), addresses);
    let is_taken_over = service.as_ref() == Some(&target.service);
    let selector = if is_taken_over { selector } else { BTreeMap::new() };
    found.extend(platform::lines(&all, &target, &selector, first.as_deref()));
    if service.is_none() && wanted.source.or(wanted.target).is_none() {
        found.extend(first.map(service::assumed));
    }
    Ok(Gathered { sources: with_keys(&all, found), target })
}

/// Files beside the one that names them, then those of the ConfigMaps that were named as well.
fn look(path: &Path, all: &[Object]) -> Box<Look<'static>> {
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
    let beside = files_beside(all);
    Box::new(move |pattern: &str| {
        let found = on_disk(&folder, pattern);
        if found.is_none() { mounted(&beside, pattern) } else { found }
    })
}

fn read(path: &Path) -> Result<Text, String> {
    let (file, text) = text_of(path)?;
    match text.len() as u64 > MAX_BYTES {
        true => Err(format!(
            "{file}: larger than {} MiB: name the ConfigMaps of the DNS server only, and split other files",
            MAX_BYTES >> 20
        )),
        false => Ok(Text { file, line: 1, text, map: None }),
    }
}

/// A file with the value of one key of the ConfigMap: an object is `stubDomains`, a list `upstreamNameservers`.
fn key_of_kube_dns(text: Text) -> Result<Source, String> {
    let key = match serde_json::from_str(&text.text) {
        Ok(Value::Object(_)) => "stubDomains",
        Ok(Value::Array(_)) => "upstreamNameservers",
        Ok(_) | Err(_) => {
            return Err(format!(
                "{}: neither a manifest nor the JSON of stubDomains or upstreamNameservers: name the ConfigMap of kube-dns",
                text.file
            ));
        }
    };
    Ok(Source::KubeDnsConfig(BTreeMap::from([(key.to_owned(), text)])))
}

fn is_manifest(text: &str) -> bool {
    // JSON may be on one line.
    let json: Value = serde_json::from_str(text).unwrap_or_default();
    let has = |key: &str| {
        let mut lines = text.lines();
        json[key].is_string()
            || lines.any(|line| line.trim_start_matches(['"', ' ', '-']).starts_with(key))
    };
    has("kind") && has("apiVersion")
}

/// Does every line begin with an address?
fn is_hosts_file(text: &str) -> bool {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let mut firsts = lines.filter_map(|line| line.split_whitespace().next()).peekable();
    firsts.peek().is_some() && firsts.all(|first| first.parse::<std::net::IpAddr>().is_ok())
}
