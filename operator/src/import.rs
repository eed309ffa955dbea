//! `import`: what another DNS server was configured with, as a ClusterDNS and a report of every line. The flow is here:
//! sources are parsed, the cluster domain is found, each source is converted into one draft, and the draft is checked.
//! Reading files and clusters is in `command`, `folder` and `from_cluster`; everything else is pure.

mod report;
pub(crate) mod literals;
mod values;
mod front;
mod draft;
mod per_node;
mod without_defaults;
mod hosts_file;
mod selector;
mod corefile;
mod federations;
mod kube_dns;
mod sidecar;
mod dnsmasq;
mod manifests;
mod folder;
mod from_cluster;
mod service;
mod platform;
mod node_local;
mod size;
mod unread;
mod command;

use std::collections::BTreeMap;

use crds::ClusterDNS;
use crds::v1alpha1::Upstreams;

use crate::printable::plain_value;

pub use command::{imported, run};
use draft::Draft;
use front::{Front, Next};
pub use report::{Line, Outcome, Place, Report};
pub use without_defaults::{section_defaults, written};

/// Finds the files that a configuration names, by a path or a pattern of one.
pub type Look<'a> = dyn Fn(&str) -> Files + 'a;

/// What a path or a pattern leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    pub found: Vec<Text>,
    /// Why files that are there were not read, one sentence each.
    pub unread: Vec<String>,
}

impl Files {
    /// Nothing has this name.
    fn is_none(&self) -> bool {
        self.found.is_empty() && self.unread.is_empty()
    }
}

/// The text of a file, or of a key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// Name of the file, as messages show it.
    pub file: String,
    /// The line of that file on which the text begins, from 1.
    pub line: usize,
    pub text: String,
    /// The name and the key of its ConfigMap, where it is of one.
    pub map: Option<(String, String)>,
}

impl Text {
    /// Where it begins.
    fn place(&self) -> Place {
        Place { file: self.file.clone(), line: self.line }
    }
}

/// One word of a command line, and where it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    pub place: Place,
    pub text: String,
}

/// One thing that another server was configured with.
pub enum Source {
    /// A Corefile, the environment of the process that reads it, and the files beside it.
    Corefile {
        text: Text,
        /// Environment variables of the server, for `{$NAME}`.
        variables: BTreeMap<String, String>,
        /// The files that it may name.
        look: Box<Look<'static>>,
    },
    /// The keys of the ConfigMap kube-dns.
    KubeDnsConfig(BTreeMap<String, Text>),
    /// The arguments of the container kubedns.
    KubeDnsArguments(Vec<Argument>),
    /// The arguments of dnsmasq, one option each, and the files beside it.
    Dnsmasq {
        /// The options, with the two hyphens in front.
        options: Vec<Argument>,
        /// The files that they may name.
        look: Box<Look<'static>>,
    },
    /// The arguments of the sidecar of kube-dns.
    Sidecar {
        /// The container.
        name: String,
        /// Its words.
        arguments: Vec<Argument>,
    },
    /// A container whose arguments have no counterpart in a ClusterDNS: its name and why.
    Aside {
        name: String,
        arguments: Vec<Argument>,
        /// Why it is not needed.
        why: &'static str,
    },
    /// How many pods the other server had, after the sources that say the same.
    Size(size::Size),
    /// The keys of all ConfigMaps, after the sources that take them.
    Keys(unread::Keys),
    /// An object of which nothing but a line of the report is made.
    Note { place: Place, outcome: Outcome, what: String, message: String },
}

/// The name, Service and domain of the ClusterDNS that is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub name: String,
    /// The namespace and name of the Service that clients ask.
    pub service: (String, String),
    /// That Service exists and is taken over.
    pub adopt: bool,
    /// The cluster domain; without it the sources say which.
    pub domain: Option<String>,
    /// The addresses of the Services that lead to the other server: what asks there asks the server that is replaced.
    pub replaced: Vec<String>,
}

/// What became of the sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The ClusterDNS; it passes `check`.
    pub dns: ClusterDNS,
    /// What became of each line.
    pub report: Report,
}

/// Why nothing can be made of the sources.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{}: {}", plain_value(&.place.file), .place.line, plain_value(.message))]
pub struct Refused {
    pub place: Place,
    /// Why, and what to write.
    pub message: String,
}

impl Refused {
    fn at(place: &Place, message: impl Into<String>) -> Refused {
        Refused { place: place.clone(), message: message.into() }
    }
}

/// The directives of a Corefile whose words are checked as CoreDNS checks them, by name.
pub fn checked_directives() -> impl Iterator<Item = &'static str> {
    corefile::checked()
}

/// Makes one ClusterDNS of all sources.
///
/// # Errors
/// The first line that the other server would refuse itself, or why the result is no ClusterDNS.
pub fn import(sources: &[Source], target: &Target) -> Result<Imported, Refused> {
    let parsed = sources.iter().map(parsed).collect::<Result<Vec<_>, _>>()?;
    let mut domains = sources.iter().zip(&parsed).filter_map(domain);
    let domain = target.domain.clone().or_else(|| domains.next());
    let is_known = domain.is_some();
    let mut draft = Draft::new(domain, target);
    let (order, front) = in_front(&parsed, &draft.spec.domain);
    for (source, corefile) in order.into_iter().filter_map(|at| sources.get(at).zip(parsed.get(at)))
    {
        match source {
            Source::Corefile { look, .. } => {
                let is_behind = corefile::serves(corefile, &draft.spec.domain);
                draft.front = front.clone().filter(|_| is_behind);
                draft.is_front = front.is_some() && !is_behind;
                corefile::convert(corefile, look, &mut draft)?;
            }
            Source::KubeDnsConfig(keys) => kube_dns::keys(keys, &mut draft),
            Source::KubeDnsArguments(arguments) => kube_dns::arguments(arguments, &mut draft),
            Source::Dnsmasq { options, look } => dnsmasq::convert(options, look, &mut draft),
            Source::Sidecar { name, arguments } => sidecar::convert(name, arguments, &mut draft),
            Source::Aside { name, arguments, why } => {
                for argument in arguments {
                    let what = format!("{name} {}", argument.text);
                    draft.report.add(&argument.place, Outcome::NotNeeded, &what, *why);
                }
            }
            Source::Size(size) => size::convert(size, &mut draft),
            Source::Keys(keys) => unread::keys(keys, &mut draft.report),
            Source::Note { place, outcome, what, message } => {
                draft.report.add(place, *outcome, what, message);
            }
        }
    }
    without_default_servers(sources, &parsed, front.as_ref(), &mut draft);
    if !is_known {
        assumed_domain(sources, &mut draft);
    }
    metrics_of_kube_dns(sources, &mut draft);
    draft.finished()
}

/// The order of the sources, and the cache that pods ask in front of the server of the cluster: where both are here, the cache
/// is read first, because it decides who is asked.
fn in_front(parsed: &[corefile::Parsed], domain: &str) -> (Vec<usize>, Option<Front>) {
    let mut order: Vec<usize> = (0..parsed.len()).collect();
    let behind = parsed.iter().position(|it| corefile::serves(it, domain));
    let mut all = parsed.iter().enumerate();
    let front = all.find_map(|(at, it)| Some((at, corefile::front(it, domain)?)));
    match (behind, front) {
        (Some(behind), Some((at, front))) => {
            if behind < at {
                order.remove(at);
                order.insert(behind, at);
            }
            (order, Some(front))
        }
        (None, _) | (_, None) => (order, None),
    }
}

/// A line about the cluster domain where nothing names it.
fn assumed_domain(sources: &[Source], draft: &mut Draft) {
    let place = |source: &Source| match source {
        Source::Corefile { text, .. } => Some(text.place()),
        Source::KubeDnsConfig(keys) => keys.values().next().map(Text::place),
        Source::KubeDnsArguments(arguments) => arguments.first().map(|it| it.place.clone()),
        Source::Dnsmasq { options, .. } => options.first().map(|it| it.place.clone()),
        Source::Sidecar { .. }
        | Source::Aside { .. }
        | Source::Size(_)
        | Source::Keys(_)
        | Source::Note { .. } => None,
    };
    // The default of kube-dns is ours.
    if sources.iter().any(|it| matches!(it, Source::KubeDnsArguments(_))) {
        return;
    }
    let Some(place) = sources.iter().find_map(place) else { return };
    let message = format!(
        "spec.domain: {} is assumed, and it cannot be changed later: if the cluster has another domain, import again with \
         --domain DOMAIN",
        draft.spec.domain
    );
    draft.report.add(&place, Outcome::Changed, "domain", message);
}

/// A line about the metrics of kube-dns. NodeLocal DNSCache reads the keys of kube-dns too, and has other metrics.
fn metrics_of_kube_dns(sources: &[Source], draft: &mut Draft) {
    let container = sources.iter().find_map(|source| match source {
        Source::KubeDnsArguments(arguments) => arguments.first().map(|it| it.place.clone()),
        _ => None,
    });
    let keys = sources.iter().find_map(|source| match source {
        Source::KubeDnsConfig(keys) => keys.values().next(),
        _ => None,
    });
    let is_other = sources.iter().any(|it| matches!(it, Source::Corefile { .. }));
    match (container, keys) {
        (Some(place), _) => kube_dns::metrics(&place, true, draft),
        (None, Some(text)) if !is_other => {
            kube_dns::metrics(&text.place(), false, draft);
        }
        (None, _) => {}
    }
}

/// CoreDNS asks no server where none is written; kube-dns and dnsmasq ask those of the node.
fn without_default_servers(
    sources: &[Source],
    parsed: &[corefile::Parsed],
    front: Option<&Front>,
    draft: &mut Draft,
) {
    let asks_node = |source: &Source| match source {
        Source::KubeDnsConfig(_) | Source::KubeDnsArguments(_) | Source::Dnsmasq { .. } => true,
        Source::Corefile { .. }
        | Source::Sidecar { .. }
        | Source::Aside { .. }
        | Source::Size(_)
        | Source::Keys(_)
        | Source::Note { .. } => false,
    };
    // A cache in front that leaves all names to the server behind asks no others.
    let leaves_all = front.is_some_and(|front| front.of("") == Some(&Next::Behind));
    let is_asking = |it: &corefile::Parsed| {
        corefile::has_default_servers(it)
            && (!leaves_all || corefile::serves(it, &draft.spec.domain))
    };
    if sources.iter().any(asks_node) || parsed.iter().any(is_asking) {
        return;
    }
    let Some(place) = parsed.iter().find_map(corefile::first_place) else { return };
    let none = Upstreams { none: Some(true), ..Upstreams::default() };
    let (outcome, message) = match draft.upstreams(none) {
        // DF36: a server block that has the name and no plugin that answers it.
        Ok(_) if parsed.iter().any(corefile::has_block_for_all) => {
            (Outcome::Changed, format!("{NO_SERVER}. {INSTEAD_OF_SERVFAIL}"))
        }
        Ok(_) => (Outcome::Kept, NO_SERVER.to_owned()),
        Err(why) => (Outcome::NotPossible, why),
    };
    draft.report.add(place, outcome, "no forward for .", message);
}

const NO_SERVER: &str =
    "spec.upstreams.none: true: no server is written for other names, so they are refused";

const INSTEAD_OF_SERVFAIL: &str = "CoreDNS answered them with SERVFAIL. At a refused name of their search list, programs with glibc ask no later domain of \
     the list. If pods have a search domain from their nodes that no server here has, write a stub domain for it";

fn parsed(source: &Source) -> Result<corefile::Parsed, Refused> {
    match source {
        Source::Corefile { text, variables, look } => corefile::parse(text, variables, look),
        Source::KubeDnsConfig(_)
        | Source::KubeDnsArguments(_)
        | Source::Dnsmasq { .. }
        | Source::Sidecar { .. }
        | Source::Aside { .. }
        | Source::Size(_)
        | Source::Keys(_)
        | Source::Note { .. } => Ok(corefile::Parsed::default()),
    }
}

/// The cluster domain that a source names.
fn domain((source, corefile): (&Source, &corefile::Parsed)) -> Option<String> {
    match source {
        Source::Corefile { .. } => corefile::domain(corefile),
        Source::KubeDnsArguments(arguments) => kube_dns::domain(arguments),
        Source::KubeDnsConfig(_)
        | Source::Dnsmasq { .. }
        | Source::Sidecar { .. }
        | Source::Aside { .. }
        | Source::Size(_)
        | Source::Keys(_)
        | Source::Note { .. } => None,
    }
}
