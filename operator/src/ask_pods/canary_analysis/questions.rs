//! The questions of a round: names of the cluster that a stable pod answers, hosts in the spec, and the servers of
//! groups that changed. They cover what clients could lose. Nothing is left out because the configuration on trial
//! hides it, unless it was plainly hidden on purpose: a misspelled namespace hides everything else. The name of the API server is asked
//! for in any case. Pure.

use std::net::IpAddr;

use crds::Config;
use hickory_proto::rr::RecordType;

use super::progress::Progress;
use super::question::{Expects, OfService, Question, is_untouched, question};
use super::{groups, spec_records};
use crate::decide::adoption::cluster_ips;
use crate::names;
use crate::observe::observed::{Check, CheckResult, Observed, Sample, SampledService};

/// Namespaces that a message names.
const MAX_NAMED: usize = 3;
/// Services whose PTR is asked for as well.
const POINTERS: usize = 4;

/// Those of the next round, for a configuration on trial beside pods that run the one before. `fresh` is a label that no cache
/// knows; `worse` is what was worse in a round before; `progress` is what was asked of the change so far.
pub fn questions(
    config: &Config,
    before: &Config,
    observed: &Observed,
    (fresh, worse): (&str, &[String]),
    progress: &mut Progress,
) -> Vec<Question> {
    let mut questions = own_names(config, before, observed);
    let (changed, unchanged) = spec_records::questions(config, before);
    questions.extend(progress.of_hosts(changed, worse));
    questions.extend(unchanged);
    questions.extend(progress.of_groups(groups::of_stub_domains(config, before, fresh), worse));
    questions.extend(groups::of_upstreams(config, before, fresh));
    questions
}

/// Names of the cluster.
fn own_names(config: &Config, before: &Config, observed: &Observed) -> Vec<Question> {
    let domain = &config.domain;
    let shows = |by: &Config, it: &SampledService| is_shown(by, &observed.sample, it);
    let mut list: Vec<Question> = Vec::new();
    let mut add =
        |name: String, kind: RecordType, expects: Expects, of: Option<&SampledService>| {
            let question = question(&name, kind, expects).filter(|_| is_untouched(config, &name));
            let of = of.map(|it| OfService {
                namespace: it.namespace.clone(),
                name: it.name.clone(),
                is_hidden: shows(before, it) && !shows(config, it),
            });
            let question = question.map(|question| Question { of, ..question });
            // Our own Service is among the sampled ones too.
            list.extend(question.filter(|new| list.iter().all(|known| known.what != new.what)));
        };
    let service = observed.service.as_ref();
    let own = service.and_then(|service| Some((service, cluster_ips(service).next()?)));
    let kind = own.as_ref().map_or(RecordType::A, |(_, ip)| address_type(*ip));
    // Also where it is hidden on purpose: programs in pods ask for this name, so people should know.
    let expects =
        match is_hidden_on_purpose(config, &observed.sample, &api_server(&observed.sample)) {
            true => Expects::Hidden,
            false => Expects::Records,
        };
    add(format!("kubernetes.default.svc.{domain}"), kind, expects, None);
    if let Some((service, ip)) = own {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let labels = service.metadata.labels.clone().unwrap_or_default();
        let address = Some(ip);
        let service = SampledService {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            labels,
            address,
            version: String::new(),
        };
        // It has endpoints, our pods, so hiding empty Services does not hide it.
        if !is_hidden_on_purpose(config, &observed.sample, &service) {
            add(
                format!("{name}.{namespace}.svc.{domain}"),
                kind,
                Expects::Has(vec![spec_records::address(ip)]),
                None,
            );
            add(names::reverse(ip), RecordType::PTR, Expects::Records, None);
        }
    }
    let mut pointers = 0;
    for service in &observed.sample.services {
        let hides_empty = config.hide_empty_services && !before.hide_empty_services;
        if hides_empty || is_hidden_on_purpose(config, &observed.sample, service) {
            continue;
        }
        let kind = service.address.map_or(RecordType::A, address_type);
        let SampledService { namespace, name, .. } = service;
        add(format!("{name}.{namespace}.svc.{domain}"), kind, Expects::Records, Some(service));
        if let Some(ip) = service.address.filter(|_| pointers < POINTERS) {
            pointers += 1;
            add(names::reverse(ip), RecordType::PTR, Expects::Records, Some(service));
        }
    }
    list
}

/// The Service of the API server. Where it is not in the sample, it has the labels that the API server gives it.
fn api_server(sample: &Sample) -> SampledService {
    let is_it = |it: &&SampledService| (&*it.namespace, &*it.name) == ("default", "kubernetes");
    sample.services.iter().find(is_it).cloned().unwrap_or_else(|| {
        let labels = [("component", "apiserver"), ("provider", "kubernetes")];
        SampledService {
            namespace: "default".to_owned(),
            name: "kubernetes".to_owned(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..SampledService::default()
        }
    })
}

/// Does the spec hide a Service on purpose? Only if each namespace in it exists and each selector selects something;
/// otherwise it is probably misspelled.
fn is_hidden_on_purpose(config: &Config, sample: &Sample, service: &SampledService) -> bool {
    let exposure = &config.exposure;
    // The sample may lack a namespace, and without its labels no selector selects it.
    let by = &exposure.namespace_selector;
    let is_known = (by.match_labels.is_empty() && by.match_expressions.is_empty())
        || sample.namespaces.contains_key(&service.namespace);
    let is_meant = is_known
        && exposure.namespaces.iter().all(|name| !sample.missing.contains(name))
        && sample.namespaces.values().any(|labels| exposure.namespace_selector.matches(labels))
        && sample.selects.unwrap_or_else(|| {
            sample.services.iter().any(|other| exposure.service_selector.matches(&other.labels))
        });
    is_meant && !is_shown(config, sample, service)
}

/// Does the exposure of this configuration show a Service?
fn is_shown(config: &Config, sample: &Sample, service: &SampledService) -> bool {
    let exposure = &config.exposure;
    let labels = sample.namespaces.get(&service.namespace).cloned().unwrap_or_default();
    let listed = exposure.namespaces.is_empty() || exposure.namespaces.contains(&service.namespace);
    listed
        && exposure.namespace_selector.matches(&labels)
        && exposure.service_selector.matches(&service.labels)
}

/// Namespaces that the spec names and that do not exist: misspelled, or not created yet.
pub(super) fn missing_namespaces(config: &Config, observed: &Observed) -> Option<Check> {
    let missing = &observed.sample.missing;
    let named = config.exposure.namespaces.iter().filter(|name| missing.contains(*name));
    let named: Vec<&str> = named.take(MAX_NAMED).map(String::as_str).collect();
    (!named.is_empty()).then(|| Check {
        what: "spec.exposure.namespaces".to_owned(),
        outcome: CheckResult::Warning(format!(
            "{} does not exist: correct the name, or create the namespace",
            named.join(", ")
        )),
    })
}

fn address_type(ip: IpAddr) -> RecordType {
    match ip {
        IpAddr::V4(_) => RecordType::A,
        IpAddr::V6(_) => RecordType::AAAA,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{config, dns};

    #[test]
    fn o17_the_api_server_is_hidden_on_purpose_by_its_namespace_or_its_labels() {
        let mut observed = Observed::default();
        let sample = &mut observed.sample;
        sample.namespaces =
            ["default", "shop"].map(|name| (name.to_owned(), Default::default())).into();
        (sample.selects, sample.missing) = (Some(true), ["shpo".to_owned()].into());
        let before = config(&dns("{}"));
        for (exposure, expected) in [
            ("{namespaces: [default]}", Expects::Records),
            ("{namespaces: [shop]}", Expects::Hidden),
            ("{namespaces: [shpo]}", Expects::Records),
            ("{serviceSelector: {matchLabels: {provider: kubernetes}}}", Expects::Records),
            ("{serviceSelector: {matchLabels: {dns: shown}}}", Expects::Hidden),
        ] {
            let config = config(&dns(&format!("{{exposure: {exposure}}}")));
            let first = own_names(&config, &before, &observed).into_iter().next().unwrap();
            assert_eq!(first.expects, expected, "{exposure}");
        }
    }
}
