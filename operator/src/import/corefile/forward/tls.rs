//! `tls` and `tls_servername` of `forward`: whose certificates encrypted servers must have.

use crds::bounds;
use crds::v1alpha1::{CaBundle, Server};

use crate::import::corefile::parse::Directive;
use crate::import::report::Outcome::{self, Changed, Kept, NotNeeded, NotPossible};
use crate::import::values::{address, certificate};
use crate::import::{Look, Refused};

/// The key of a ConfigMap that people are asked to make.
const KEY: &str = "ca.crt";

/// Why a line of TLS does nothing.
const NONE_ENCRYPTED: &str = "it is only for servers that are written as tls://ADDRESS";

/// Gives encrypted servers the name that their certificates must have.
pub(super) fn names(servers: &mut [Server], name: &str) -> (Outcome, String) {
    if !servers.iter().any(|it| it.transport.is_encrypted()) {
        return (NotNeeded, NONE_ENCRYPTED.to_owned());
    }
    for server in servers.iter_mut().filter(|it| it.transport.is_encrypted()) {
        let Some((ip, _)) = address(&server.address) else { continue };
        if let Ok(tls) = certificate(&ip, Some(name)) {
            server.tls = Some(tls);
        }
    }
    (Kept, format!("tls: {{serverName: {name}}}"))
}

/// `tls [CA]`, `tls CERTIFICATE KEY [CA]`: the file of the authorities becomes a ConfigMap, the one that it is mounted from
/// where that is known.
///
/// # Errors
/// More words than CoreDNS takes.
pub(super) fn authorities(
    line: &Directive,
    servers: &[Server],
    found: &mut Option<CaBundle>,
    look: &Look<'_>,
) -> Result<(Outcome, String), Refused> {
    let (file, has_own) = match &line.args[..] {
        [] => (None, false),
        [file] => (Some(file), false),
        [_, _] => (None, true),
        [_, _, file] => (Some(file), true),
        _ => return Err(line.refused("at most a certificate, its key and a file of authorities")),
    };
    if !servers.iter().any(|it| it.transport.is_encrypted()) {
        return Ok((NotNeeded, NONE_ENCRYPTED.to_owned()));
    }
    let (outcome, message) = match file {
        None => (Kept, "certificates are compared with the public authorities".to_owned()),
        Some(file) => {
            let (bundle, outcome, message) = bundle(file, look);
            *found = Some(bundle);
            (outcome, message)
        }
    };
    Ok(match has_own {
        false => (outcome, message),
        true => {
            let lost = "servers that ask for a certificate of ours are not supported";
            (NotPossible, format!("{lost}; {message}"))
        }
    })
}

fn bundle(file: &str, look: &Look<'_>) -> (CaBundle, Outcome, String) {
    if let Some((name, key)) = look(file).found.into_iter().find_map(|text| text.map) {
        let message = format!(
            "tls: {{caBundle: {{name: {name}, key: {key}}}}}, the ConfigMap that has this file; it must stay, beside the \
             Service"
        );
        return (CaBundle { name, key }, Kept, message);
    }
    let name = map_name(file);
    let message = format!(
        "tls: {{caBundle: {{name: {name}}}}}: make that ConfigMap in the namespace of the Service, kubectl create configmap \
         {name} --from-file={KEY}={file}; the ClusterDNS is not accepted before it is there"
    );
    (CaBundle { name, key: KEY.to_owned() }, Changed, message)
}

/// The path of a file as the name of an object: each file has one of its own.
fn map_name(file: &str) -> String {
    let plain = file.to_ascii_lowercase().replace(|it: char| !it.is_ascii_alphanumeric(), "-");
    let short: String = plain.trim_matches('-').chars().take(bounds::OBJECT_NAME).collect();
    match short.trim_end_matches('-') {
        "" => "ca".to_owned(),
        name => name.to_owned(),
    }
}
