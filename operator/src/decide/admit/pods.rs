//! What a ClusterDNS may write into its pods (S14): the right to write one must not give other rights in the namespace.
//! Images are those that the administrator allows. Certificates are Secrets with the label for it. Labels and annotations
//! reach neither other Services nor injectors of containers.

use std::collections::BTreeMap;

use crds::ClusterDNS;
use k8s_openapi::api::core::v1::PodAffinityTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

use super::image;
use crate::decide::adoption::{self, Standing};
use crate::decide::plan::Refusal;
use crate::desired::{labels_behind, own_labels, selects};
use crate::names::{self, CERTIFICATE};
use crate::observe::observed::{Certificate, Observed};
use crate::settings::{Allowed, Settings};

/// Whether all of it is allowed.
///
/// # Errors
/// The first field that is not, and what to write instead.
pub(super) fn are_allowed(
    dns: &ClusterDNS,
    observed: &Observed,
    settings: &Settings,
) -> Result<(), Refusal> {
    image_is_allowed(dns, settings)?;
    certificates_are_allowed(dns, observed)?;
    metadata_is_allowed(dns, &settings.allowed)?;
    affinity_is_narrow(dns)?;
    labels_are_not_of_others(dns, observed)
}

fn image_is_allowed(dns: &ClusterDNS, settings: &Settings) -> Result<(), Refusal> {
    let Some(written) = &dns.spec.image else { return Ok(()) };
    let own = [crds::image::repository(&settings.dataplane.image).unwrap_or_default().to_owned()];
    let allowed = match settings.allowed.images.as_slice() {
        [] => &own[..],
        listed => listed,
    };
    if allowed.iter().any(|entry| image::is_within(written, entry)) {
        return Ok(());
    }
    let message = format!(
        "the image {written} is not of {}: name one that is, leave it out to run the operator's own image, or add its repository \
         to allowedImages of the operator's chart",
        allowed.join(", ")
    );
    Err(Refusal::new("ImageNotAllowed", "spec.image", message))
}

/// Field and name of the certificate of each listener.
pub(crate) fn certificates(dns: &ClusterDNS) -> Vec<(&'static str, &str)> {
    let listeners = dns.spec.listeners.as_ref();
    let tls = listeners.and_then(|listeners| listeners.tls.as_ref());
    let https = listeners.and_then(|listeners| listeners.https.as_ref());
    let tls = tls.map(|tls| ("spec.listeners.tls.certificate.name", tls.certificate.name.as_str()));
    let https = https
        .map(|https| ("spec.listeners.https.certificate.name", https.certificate.name.as_str()));
    let quic = listeners.and_then(|listeners| listeners.quic.as_ref());
    let quic =
        quic.map(|quic| ("spec.listeners.quic.certificate.name", quic.certificate.name.as_str()));
    tls.into_iter().chain(https).chain(quic).collect()
}

fn certificates_are_allowed(dns: &ClusterDNS, observed: &Observed) -> Result<(), Refusal> {
    for (field, name) in certificates(dns) {
        let why = match observed.certificates.get(name) {
            // One that does not exist, or was never seen, turns off its listener only, and is reported as Degraded.
            Some(
                Certificate::Usable
                | Certificate::Missing
                | Certificate::Gone
                | Certificate::Unread,
            )
            | None => continue,
            Some(Certificate::OtherType) => {
                "is not of type kubernetes.io/tls: name one that is".to_owned()
            }
            Some(Certificate::NotMarked) => format!(
                "is not marked for this use: label it {CERTIFICATE}: \"true\" if it is meant for DNS, or add it to \
                 certificates.names of the operator's chart"
            ),
            Some(Certificate::NotReadable) => {
                "cannot be checked, because the operator may not list Secrets: add it to certificates.names of the \
                 operator's chart, or set certificates.labelled there"
                    .to_owned()
            }
        };
        let message = format!("the Secret {name} {why}");
        let refusal = Refusal::new("CertificateNotAllowed", field, message);
        return Err(Refusal { again_in: Some(super::LOOK_FOR_CERTIFICATES), ..refusal });
    }
    Ok(())
}

/// Sidecar injectors, network plug-ins and identity webhooks read keys with prefixes of their own.
fn metadata_is_allowed(dns: &ClusterDNS, allowed: &Allowed) -> Result<(), Refusal> {
    let placement = dns.spec.placement.clone().unwrap_or_default();
    let kinds = [
        ("podLabels", placement.pod_labels, &allowed.pod_labels, "allowedPodLabels"),
        (
            "podAnnotations",
            placement.pod_annotations,
            &allowed.pod_annotations,
            "allowedPodAnnotations",
        ),
    ];
    for (field, written, listed, value) in kinds {
        let keys = written.unwrap_or_default().into_keys();
        if let Some(key) = keys.into_iter().find(|key| !is_key_allowed(key, listed)) {
            let message = format!(
                "{key} may be read by what changes pods, such as a sidecar injector: use a key without a prefix, or add \
                 {key} to {value} of the operator's chart"
            );
            let field = format!("spec.placement.{field}");
            return Err(Refusal::new("PodMetadataNotAllowed", &field, message));
        }
    }
    Ok(())
}

/// A required podAntiAffinity is symmetric: the scheduler places no pod that it selects beside our pods. If it
/// selected pods without naming a value of a label, or pods of other namespaces, no node would take the pods of others. Which
/// topologyKey it has does not matter: there may be a pod of ours on each node.
fn affinity_is_narrow(dns: &ClusterDNS) -> Result<(), Refusal> {
    let placement = dns.spec.placement.clone().unwrap_or_default();
    let rules = placement.affinity.and_then(|affinity| affinity.pod_anti_affinity);
    let required = rules.and_then(|it| it.required_during_scheduling_ignored_during_execution);
    let (own, _) = names::service(dns);
    let is_wide = |term: &PodAffinityTerm| {
        let selects_all = term.label_selector.as_ref().is_some_and(|selector| {
            // Without a value, nearly all pods of others are selected: those that lack a label, or those that have one
            // which their controllers write.
            let names_no_value = |it: &LabelSelectorRequirement| match it.operator.as_str() {
                "NotIn" | "DoesNotExist" => true,
                "Exists" => it.key != names::INSTANCE,
                _ => false,
            };
            let expressions = selector.match_expressions.iter().flatten();
            selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
                && expressions.into_iter().all(names_no_value)
        });
        let has_others = term.namespaces.iter().flatten().any(|name| *name != own);
        selects_all || has_others || term.namespace_selector.is_some()
    };
    if !required.iter().flatten().any(is_wide) {
        return Ok(());
    }
    let message = format!(
        "a required podAntiAffinity that selects pods by no value of a label, or pods of other namespaces, keeps the pods of \
         others off the nodes: select {}, or name a value with matchLabels or In; leave namespaces and namespaceSelector out; \
         or use a preferred rule",
        names::INSTANCE
    );
    let field = "spec.placement.affinity.podAntiAffinity";
    Err(Refusal::new("AffinityTooWide", field, message))
}

/// A key without a prefix is private to users (Kubernetes, "Labels and Selectors"); an entry that ends in `/` is a prefix.
fn is_key_allowed(key: &str, listed: &[String]) -> bool {
    let is_listed = |entry: &String| match entry.ends_with('/') {
        true => key.starts_with(entry.as_str()),
        false => key == entry,
    };
    !key.contains('/') || listed.iter().any(is_listed)
}

/// A user who chooses this label could put the pod behind another Service, where it would answer.
fn labels_are_not_of_others(dns: &ClusterDNS, observed: &Observed) -> Result<(), Refusal> {
    let Some(written) = dns.spec.placement.as_ref().and_then(|it| it.pod_labels.clone()) else {
        return Ok(());
    };
    let adopts = dns.spec.service.clone().unwrap_or_default().adopt;
    let named = observed.service.as_ref();
    let is_foreign = adoption::standing(dns, named) != Standing::Own;
    let theirs = named.filter(|_| is_foreign).map(adoption::selector_without_us);
    // What pods carry in any case.
    let without = match &theirs {
        Some(theirs) if adopts => labels_behind(dns, theirs),
        Some(_) => labels_behind(dns, &BTreeMap::new()),
        None => own_labels(dns, observed),
    };
    let mut with = written;
    with.extend(without.clone());
    let (_, own_name) = names::service(dns);
    let left_to_others = theirs.filter(|_| !adopts).map(|selector| (own_name, selector));
    let selectors = observed.selectors.clone().into_iter().chain(left_to_others);
    let is_reached = |selector: &BTreeMap<String, String>| {
        selects(selector, &with) && !selects(selector, &without)
    };
    let Some((service, selector)) = selectors.into_iter().find(|(_, it)| is_reached(it)) else {
        return Ok(());
    };
    let selector: Vec<String> =
        selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let message = format!(
        "with these labels Service {service} would lead to our pods too, because it selects {}: leave out what it selects by",
        selector.join(",")
    );
    Err(Refusal::new("PodLabelsSelected", "spec.placement.podLabels", message))
}
