//! The grammar of the OCI distribution reference, by which images are named: `[host[:port]/]path[:tag][@digest]`.

/// The part before tag and digest; none: this is no image reference, so no container runtime reads it.
pub fn repository(image: &str) -> Option<&str> {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    if !digest.is_none_or(is_digest) {
        return None;
    }
    // A colon after the last slash begins a tag; one before it, a port.
    let last = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest[last..].find(':') {
        Some(colon) => (&rest[..last + colon], Some(&rest[last + colon + 1..])),
        None => (rest, None),
    };
    (is_name(name) && tag.is_none_or(is_tag)).then_some(name)
}

fn is_name(name: &str) -> bool {
    let mut parts = name.split('/');
    let Some(first) = parts.next() else { return false };
    let rest: Vec<&str> = parts.collect();
    let first_is_fine = match rest.is_empty() {
        true => is_path_part(first),
        false => is_path_part(first) || is_host(first),
    };
    first_is_fine && rest.into_iter().all(is_path_part)
}

/// Lower case letters and digits, with separators between them only.
fn is_path_part(part: &str) -> bool {
    let is_inside = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit();
    let ends = [part.bytes().next(), part.bytes().last()];
    ends.into_iter().all(|end| end.is_some_and(is_inside))
        && part.bytes().all(|octet| is_inside(octet) || b"._-".contains(&octet))
        && !part.contains("..")
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        // An IPv6 address in brackets.
        Some(rest) => match rest.split_once(']') {
            Some((address, "")) => (address, None),
            Some((address, port)) => match port.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None => return false,
            },
            None => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    let is_port = |port: &str| {
        (1..=5).contains(&port.len()) && port.bytes().all(|octet| octet.is_ascii_digit())
    };
    let is_address = host.starts_with('[') && name.parse::<std::net::Ipv6Addr>().is_ok();
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-')
    };
    port.is_none_or(is_port) && (is_address || name.split('.').all(is_label))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|octet| is_word(octet) || b".-".contains(&octet))
}

fn is_digest(digest: &str) -> bool {
    let is_hex = |octet: u8| octet.is_ascii_digit() || (b'a'..=b'f').contains(&octet);
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        let length = match algorithm {
            "sha256" => 64,
            "sha384" => 96,
            "sha512" => 128,
            _ => return false,
        };
        hex.len() == length && hex.bytes().all(is_hex)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_has_a_lower_case_path_one_tag_and_a_whole_digest() {
        let digest = format!("registry.example/dns@sha256:{}", "0a".repeat(32));
        for (image, expected) in [
            ("dns", Some("dns")),
            ("Registry.Example:5000/dns:1.0", Some("Registry.Example:5000/dns")),
            (digest.as_str(), Some("registry.example/dns")),
            ("registry.example/Dns:1", None),
            ("registry.example/dns:1:2", None),
            ("registry.example/dns@sha256:123", None),
            ("registry.example/dns@md5:0123456789abcdef0123456789abcdef", None),
        ] {
            assert_eq!(repository(image), expected, "{image}");
        }
    }
}
