//! Certificates of private authorities: people name a ConfigMap, pods read them out of the configuration, so the operator
//! copies them in.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crds::Config;
use crds::bounds::CONFIG_BYTES;
use crds::config::{CaBundle, Group, Upstreams};

use crate::decide::plan::Refusal;
use crate::observe::ca_bundles::Bundle;
use crate::observe::observed::Observed;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Servers that a message names.
const MAX_NAMED: usize = 3;

/// The Config with its certificates in it. They are added up before one is copied: a bundle may be copied into each of 1,515
/// servers.
///
/// # Errors
/// A certificate is missing or is not a certificate, or there are more than a configuration may hold.
pub fn with_bundles(config: &Config, observed: &Observed) -> Result<Config, Refusal> {
    let cut = Cut::of(config, &observed.ca_bundles)?;
    if cut.octets > CONFIG_BYTES {
        return Err(too_large(&more_than_all(), &cut.copies()));
    }
    let mut config = config.clone();
    if let Upstreams::Servers(group) = &mut config.upstreams {
        cut.copy_into(group);
    }
    config.stub_domains.iter_mut().for_each(|stub| cut.copy_into(&mut stub.group));
    match config.to_json().len() {
        ..=CONFIG_BYTES => Ok(config),
        bytes => Err(too_large(&bytes.to_string(), &cut.copies())),
    }
}

/// `copies`: what takes most of it.
fn too_large(bytes: &str, copies: &str) -> Refusal {
    let message = format!(
        "the configuration has {bytes} bytes with its certificates and may have {CONFIG_BYTES}. {copies}Keep only the \
         authorities that signed these servers in the ConfigMaps, leave tls.caBundle out where a public authority did, or move \
         hosts and records to a DNS server of their own"
    );
    Refusal::new("TooLarge", "spec", message)
}

fn more_than_all() -> String {
    format!("more than {CONFIG_BYTES}")
}

type Bundles = BTreeMap<(String, String), Bundle>;

/// The certificates of each ConfigMap that a configuration names, and what all servers together take of them.
#[derive(Debug, Default)]
struct Cut {
    certificates: BTreeMap<(String, String), Certificates>,
    octets: usize,
}

/// Those of one ConfigMap.
#[derive(Debug, Default)]
struct Certificates {
    pem: String,
    /// How many servers have a copy, and the first of them.
    copies: usize,
    servers: Vec<String>,
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
            let server = format!("{field}.servers[{index}]");
            let of_map = match self.certificates.entry((name.clone(), key.clone())) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let pem = pem(&format!("{server}.tls.caBundle"), new.key(), bundles)?;
                    new.insert(Certificates { pem, ..Certificates::default() })
                }
            };
            self.octets += of_map.pem.len();
            of_map.copies += 1;
            if of_map.servers.len() < MAX_NAMED {
                of_map.servers.push(server);
            }
        }
        Ok(())
    }

    /// The ConfigMap of which all copies together take most. Pods of each version read a copy for each server.
    fn copies(&self) -> String {
        let all = self.certificates.iter();
        let most = all.max_by_key(|(_, it)| it.pem.len().saturating_mul(it.copies));
        let Some(((name, key), Certificates { pem, copies, servers })) = most else {
            return String::new();
        };
        let more = match copies.saturating_sub(servers.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(
            "Each server has a copy of its certificates, and those of ConfigMap {name}, key {key}, take {copies} x {} bytes, for \
             {}{more}. ",
            pem.len(),
            servers.join(", ")
        )
    }

    fn copy_into(&self, group: &mut Group) {
        let tls = group.servers.iter_mut().filter_map(|server| server.tls.as_mut());
        for bundle in tls.filter_map(|tls| tls.ca_bundle.as_mut()) {
            let CaBundle::ConfigMap { name, key } = &bundle else { continue };
            if let Some(of_map) = self.certificates.get(&(name.clone(), key.clone())) {
                *bundle = CaBundle::Pem(of_map.pem.clone());
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
        Some(Bundle::NotRead) => Err(too_large(&more_than_all(), "")),
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
        let with = |config: &Config, bundles: &Bundles| {
            let observed = Observed { ca_bundles: bundles.clone(), ..Observed::default() };
            with_bundles(config, &observed)
        };
        let refusal = with(&with_many(), &bundles).unwrap_err();
        assert_eq!((refusal.reason, refusal.field.as_str()), ("TooLarge", "spec"));
        let cut = Cut::of(&with_many(), &bundles).unwrap();
        let held: usize = cut.certificates.values().map(|it| it.pem.len()).sum();
        assert_eq!((cut.certificates.len(), held), (1, text.len()), "cut once, and not copied");
        // Only what is added up is copied.
        let small = Bundles::from([(named.clone(), Bundle::Text(one.clone()))]);
        assert_eq!(with(&with_many(), &small).unwrap_err().reason, "TooLarge");
        let mut few = with_many();
        few.stub_domains.truncate(10);
        let cut = Cut::of(&few, &small).unwrap();
        assert_eq!((cut.certificates.len(), cut.octets), (1, 165 * one.len()), "cut once");
        let unread = Bundles::from([(named, Bundle::NotRead)]);
        assert_eq!(Cut::of(&few, &unread).unwrap_err().reason, "TooLarge");
    }

    #[test]
    fn a_bundle_that_is_too_large_for_its_servers_is_named_with_them() {
        let one = format!("{BEGIN}\nMIIB{}\n{END}\n", "A".repeat(1_000));
        let text = one.repeat((220 << 10) / one.len());
        let refused = |servers: usize| {
            let mut config = with_many();
            config.stub_domains.truncate(1);
            config.stub_domains[0].group.servers.truncate(servers - 1);
            if let Upstreams::Servers(group) = &mut config.upstreams {
                group.servers.truncate(1);
            }
            let named = ("ca".to_owned(), "ca.crt".to_owned());
            let ca_bundles = Bundles::from([(named, Bundle::Text(text.clone()))]);
            with_bundles(&config, &Observed { ca_bundles, ..Observed::default() }).err()
        };
        assert!(refused(1).is_none());
        let octets = text.len();
        for (servers, fields) in [
            (2, "spec.upstreams.servers[0], spec.stubDomains[0].servers[0]. Keep"),
            (5, "spec.stubDomains[0].servers[0], spec.stubDomains[0].servers[1] and 2 more. Keep"),
        ] {
            let message = refused(servers).expect("it is too large").message;
            let copies = format!("{servers} x {octets} bytes, for ");
            for words in ["ConfigMap ca, key ca.crt,", &copies, fields, "leave tls.caBundle out"] {
                assert!(message.contains(words), "{words}: {message}");
            }
        }
    }
}
