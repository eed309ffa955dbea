//! Certificates of private authorities: people name a ConfigMap, pods read them out of the configuration, so the operator
//! copies them in.

use std::collections::BTreeMap;

use crds::Config;
use crds::bounds::CONFIG_BYTES;
use crds::config::{CaBundle, Group, Upstreams};

use crate::decide::plan::Refusal;
use crate::observe::observed::Observed;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The Config with its certificates in it.
///
/// # Errors
/// A certificate that is not there or is none, or more of them than a configuration may hold.
pub fn with_bundles(config: &Config, observed: &Observed) -> Result<Config, Refusal> {
    let mut config = config.clone();
    if let Upstreams::Servers(group) = &mut config.upstreams {
        copy_into(group, "spec.upstreams", &observed.ca_bundles)?;
    }
    for (index, stub) in config.stub_domains.iter_mut().enumerate() {
        copy_into(&mut stub.group, &format!("spec.stubDomains[{index}]"), &observed.ca_bundles)?;
    }
    let bytes = config.to_json().len();
    if bytes > CONFIG_BYTES {
        return Err(Refusal::new(
            "TooLarge",
            "spec",
            format!(
                "the configuration has {bytes} bytes with its certificates and may have {CONFIG_BYTES}: keep only the \
                 authorities that sign these servers in the ConfigMaps, or move hosts and records to a DNS server of their own"
            ),
        ));
    }
    Ok(config)
}

type Bundles = BTreeMap<(String, String), Result<String, String>>;

fn copy_into(group: &mut Group, field: &str, bundles: &Bundles) -> Result<(), Refusal> {
    for (index, server) in group.servers.iter_mut().enumerate() {
        let Some(bundle) = server.tls.as_mut().and_then(|tls| tls.ca_bundle.as_mut()) else {
            continue;
        };
        let CaBundle::ConfigMap { name, key } = &bundle else { continue };
        let field = format!("{field}.servers[{index}].tls.caBundle");
        let pem = match bundles.get(&(name.clone(), key.clone())) {
            Some(Ok(text)) => certificates(text).map_err(|what| {
                let message = format!("ConfigMap {name}, key {key}: {what}");
                Refusal::new("CABundleInvalid", &field, message)
            })?,
            Some(Err(why)) => return Err(Refusal::new("CABundleMissing", &field, why.clone())),
            None => {
                let message = format!(
                    "ConfigMap {name} with key {key} was not found beside the Service: create it"
                );
                return Err(Refusal::new("CABundleMissing", &field, message));
            }
        };
        *bundle = CaBundle::Pem(pem);
    }
    Ok(())
}

/// Only the certificates of a PEM text: comments, or a private key beside them, are not copied.
fn certificates(text: &str) -> Result<String, String> {
    let mut found = String::new();
    let mut rest = text;
    while let Some((_, from_begin)) = rest.split_once(BEGIN) {
        let Some((body, after)) = from_begin.split_once(END) else {
            return Err(format!("a certificate has no line {END}: copy it as a whole"));
        };
        let base64: String = body.split_whitespace().collect();
        let (content, padding) = base64.split_at(base64.trim_end_matches('=').len());
        let is_base64 =
            content.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"+/".contains(&octet));
        // `M` and `I`: a DER sequence with a length of more than one octet, which every certificate is.
        if !is_base64
            || padding.len() > 2
            || !base64.len().is_multiple_of(4)
            || !content.starts_with("MI")
        {
            return Err(
                "the text between BEGIN and END CERTIFICATE is not a certificate: copy it again"
                    .to_owned(),
            );
        }
        for line in [BEGIN, body.trim(), END] {
            found.push_str(line);
            found.push('\n');
        }
        rest = after;
    }
    match found.is_empty() {
        true => {
            Err(format!("there is no certificate in it: it needs the PEM text from {BEGIN} on"))
        }
        false => Ok(found),
    }
}
