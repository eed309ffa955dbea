//! Certificates of private authorities: people name a ConfigMap, pods read them out of the configuration, so the operator
//! copies them in.

use std::collections::BTreeMap;

use crds::Config;
use crds::bounds::CONFIG_BYTES;
use crds::config::{CaBundle, Group, Upstreams};

use crate::decide::plan::Refusal;
use crate::observe::ca_bundles::Bundle;
use crate::observe::observed::Observed;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The Config with its certificates in it. They are added up before one is copied: a bundle may be copied into each of 1,515
/// servers.
///
/// # Errors
/// A certificate is missing or is not a certificate, or there are more than a configuration may hold.
pub fn with_bundles(config: &Config, observed: &Observed) -> Result<Config, Refusal> {
    let cut = Cut::of(config, &observed.ca_bundles)?;
    let mut config = config.clone();
    if let Upstreams::Servers(group) = &mut config.upstreams {
        cut.copy_into(group);
    }
    config.stub_domains.iter_mut().for_each(|stub| cut.copy_into(&mut stub.group));
    match config.to_json().len() {
        ..=CONFIG_BYTES => Ok(config),
        bytes => Err(too_large(&bytes.to_string())),
    }
}

fn too_large(bytes: &str) -> Refusal {
    let message = format!(
        "the configuration has {bytes} bytes with its certificates and may have {CONFIG_BYTES}: keep only the authorities that \
         sign these servers in the ConfigMaps, or move hosts and records to a DNS server of their own"
    );
    Refusal::new("TooLarge", "spec", message)
}

type Bundles = BTreeMap<(String, String), Bundle>;

/// The certificates of each ConfigMap that a configuration names, and what all servers together take of them.
#[derive(Debug, Default)]
struct Cut {
    certificates: BTreeMap<(String, String), String>,
    octets: usize,
}

impl Cut {
    fn of(config: &Config, bundles: &Bundles) -> Result<Cut, Refusal> {
        let mut cut = Cut::default();
        if let Upstreams::Servers(group) = &config.upstreams {
            cut.add(group, "spec.upstreams", bundles)?;
        }
        for (index, stub) in config.stub_domains.iter().enumerate() {
            cut.add(&stub.group, &format!("spec.stubDomains[{index}]"), bundles)?;
        }
        Ok(cut)
    }

    fn add(&mut self, group: &Group, field: &str, bundles: &Bundles) -> Result<(), Refusal> {
        for (index, server) in group.servers.iter().enumerate() {
            let bundle = server.tls.as_ref().and_then(|tls| tls.ca_bundle.as_ref());
            let Some(CaBundle::ConfigMap { name, key }) = bundle else { continue };
            let key = (name.clone(), key.clone());
            let octets = match self.certificates.get(&key) {
                Some(pem) => pem.len(),
                None => {
                    let field = format!("{field}.servers[{index}].tls.caBundle");
                    let pem = pem(&field, &key, bundles)?;
                    let octets = pem.len();
                    self.certificates.insert(key, pem);
                    octets
                }
            };
            self.octets += octets;
            if self.octets > CONFIG_BYTES {
                return Err(too_large(&format!("more than {CONFIG_BYTES}")));
            }
        }
        Ok(())
    }

    fn copy_into(&self, group: &mut Group) {
        let tls = group.servers.iter_mut().filter_map(|server| server.tls.as_mut());
        for bundle in tls.filter_map(|tls| tls.ca_bundle.as_mut()) {
            let CaBundle::ConfigMap { name, key } = &bundle else { continue };
            if let Some(pem) = self.certificates.get(&(name.clone(), key.clone())) {
                *bundle = CaBundle::Pem(pem.clone());
            }
        }
    }
}

fn pem(field: &str, named: &(String, String), bundles: &Bundles) -> Result<String, Refusal> {
    let (name, key) = named;
    match bundles.get(named) {
        Some(Bundle::Text(text)) => certificates(text).map_err(|what| {
            let message = format!("ConfigMap {name}, key {key}: {what}");
            Refusal::new("CABundleInvalid", field, message)
        }),
        Some(Bundle::Missing(why)) => Err(Refusal::new("CABundleMissing", field, why.clone())),
        Some(Bundle::NotRead) => Err(too_large(&format!("more than {CONFIG_BYTES}"))),
        None => {
            let message = format!(
                "ConfigMap {name} with key {key} was not found beside the Service: create it"
            );
            Err(Refusal::new("CABundleMissing", field, message))
        }
    }
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

#[cfg(test)]
mod tests {
    use crds::config::Config;
    use serde_json::json;

    use super::*;
    use crate::fixtures::{config, dns};

    /// One bundle for each of all servers that a spec can have.
    fn with_many() -> Config {
        let servers = |at: usize| -> Vec<_> {
            let server = |n: usize| {
                let address = format!("192.0.{at}.{n}");
                let tls = json!({"serverName": "dns.example", "caBundle": {"name": "ca"}});
                json!({"address": address, "transport": "TLS", "tls": tls})
            };
            (1..=15).map(server).collect()
        };
        let stub = |n: usize| json!({"domain": format!("d{n}.example"), "servers": servers(n)});
        let stubs: Vec<_> = (0..100).map(stub).collect();
        let spec = json!({"upstreams": {"servers": servers(200)}, "stubDomains": stubs});
        config(&dns(&spec.to_string()))
    }

    #[test]
    fn s14_a_bundle_for_each_of_many_servers_is_refused_before_it_is_copied() {
        let one = format!("{BEGIN}\nMIIB{}\n{END}\n", "A".repeat(1_000));
        let text = one.repeat((256 << 10) / one.len());
        let named = ("ca".to_owned(), "ca.crt".to_owned());
        let bundles = Bundles::from([(named.clone(), Bundle::Text(text.clone()))]);
        let refusal = Cut::of(&with_many(), &bundles).unwrap_err();
        assert_eq!((refusal.reason, refusal.field.as_str()), ("TooLarge", "spec"));
        // Only what is added up is copied.
        let small = Bundles::from([(named.clone(), Bundle::Text(one.clone()))]);
        assert_eq!(Cut::of(&with_many(), &small).unwrap_err().reason, "TooLarge");
        let mut few = with_many();
        few.stub_domains.truncate(10);
        let cut = Cut::of(&few, &small).unwrap();
        assert_eq!((cut.certificates.len(), cut.octets), (1, 165 * one.len()), "cut once");
        let unread = Bundles::from([(named, Bundle::NotRead)]);
        assert_eq!(Cut::of(&few, &unread).unwrap_err().reason, "TooLarge");
    }
}
