//! How values of flags are read, and what to write instead of one that cannot work: what would break every data plane is
//! refused when the operator starts.

use std::net::SocketAddr;

use crate::decide::admit::is_entry;
use crate::desired::{FLAGS, VARIABLES};

/// An empty text, as an empty variable gives, counts as not given.
pub(super) fn pull_policy(text: &str) -> Result<String, String> {
    match text {
        "" | "Always" | "IfNotPresent" | "Never" => Ok(text.to_owned()),
        _ => Err("write Always, IfNotPresent or Never".to_owned()),
    }
}

pub(super) fn image_entry(text: &str) -> Result<String, String> {
    match text.is_empty() || is_entry(text) {
        true => Ok(text.to_owned()),
        false => Err("write a repository without tag, such as registry.example/clusterdns, or a prefix that ends in /, such \
                      as registry.example/dns/"
            .to_owned()),
    }
}

/// A flag that is given twice would end the data plane before it serves.
pub(super) fn dataplane_flag(text: &str) -> Result<String, String> {
    let name = text.split('=').next().unwrap_or_default();
    // One argument of the container is one of the program: `--workers 2` would be a flag that it does not know.
    if !text.is_empty() && (!name.starts_with("--") || name.contains(char::is_whitespace)) {
        return Err("write a flag with its value, such as --workers=2".to_owned());
    }
    match FLAGS.contains(&name) {
        true => Err(format!("{name} is set by the operator: leave it out")),
        false => Ok(text.to_owned()),
    }
}

pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        None if text.is_empty() => Ok((String::new(), String::new())),
        Some((name, _)) if VARIABLES.contains(&name) => {
            Err(format!("{name} is set by the operator: leave it out"))
        }
        // Each is a flag too, and the flags that must not be set are known.
        Some((name, _)) if name.starts_with("CLUSTERDNS_") => {
            Err(format!("{name} is a flag: write it as one of --dataplane-args"))
        }
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("write NAME=VALUE".to_owned()),
    }
}

/// Without the slash at its end; an empty text, as an empty variable gives, counts as not given.
pub(super) fn base_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_url = rest.is_some_and(|rest| {
        !rest.is_empty()
            && !rest.starts_with('/')
            && rest.bytes().all(|octet| octet.is_ascii_graphic())
    });
    match text.is_empty() || is_url {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err("write a URL, such as https://docs.example.com/runbooks".to_owned()),
    }
}

/// An environment variable of another program.
pub(super) fn variable_of_import(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("write NAME=VALUE".to_owned()),
    }
}

pub(super) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let example = "write an IP address and a port, such as [::]:8080 or 127.0.0.1:8080";
    text.parse().map_err(|_| example.to_owned())
}
