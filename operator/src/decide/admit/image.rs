//! Which repository an image reference names, by the grammar of the OCI distribution reference:
//! `[host[:port]/]path[:tag][@digest]`. Text is compared with text, so a reference that is written in another way than the
//! entry is not allowed, even where it means the same.

/// Whether an image is within an entry of the allowed ones. An entry that ends in `/` allows every repository below it, and
/// another one its repository with every tag and digest: `registry.example/dns` allows `registry.example/dns:1`, but neither
/// `registry.example/dns-evil`, `registry.example/dns/evil` nor `registry.example:5000/dns`.
pub(super) fn is_within(image: &str, entry: &str) -> bool {
    let Some(repository) = repository(image) else { return false };
    match entry.ends_with('/') {
        true => repository.starts_with(entry),
        false => repository == entry,
    }
}

/// Whether this can be an entry.
pub(crate) fn is_entry(entry: &str) -> bool {
    let name = entry.strip_suffix('/').unwrap_or(entry);
    // `registry.example:5000/` names a host with its port, which alone would read as a tag.
    let as_repository = format!("{name}/x");
    repository(&as_repository) == Some(as_repository.as_str())
        && (entry.ends_with('/') || repository(name) == Some(name))
}

/// The part before tag and digest; none: this is no image reference.
pub(crate) fn repository(image: &str) -> Option<&str> {
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
            "sha512" => 128,
            _ => return false,
        };
        hex.len() == length && hex.bytes().all(is_hex)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn s14_a_prefix_of_an_image_is_a_repository_or_a_folder_of_them() {
        let digest = format!("registry.example/dns{DIGEST}");
        let both = format!("registry.example/dns:1{DIGEST}");
        for (entry, image, expected) in [
            ("registry.example/dns", "registry.example/dns", true),
            ("registry.example/dns", "registry.example/dns:1.2", true),
            ("registry.example/dns", digest.as_str(), true),
            ("registry.example/dns", both.as_str(), true),
            ("registry.example/dns", "registry.example/dns-evil", false),
            ("registry.example/dns", "registry.example/dns.evil/x", false),
            ("registry.example/dns", "registry.example/dns/evil", false),
            ("registry.example/dns", "registry.example:5000/dns", false),
            ("registry.example/dns", "registry.example.evil.example/dns", false),
            ("registry.example/dns", "evil.example/registry.example/dns", false),
            ("registry.example/dns", "registry.example/dns@evil.example/x", false),
            ("registry.example/dns", "registry.example/dns:1@evil.example/x", false),
            ("registry.example/dns", "registry.example/dns:1@sha256:00", false),
            ("registry.example/dns", "user@registry.example/dns", false),
            ("registry.example/dns", "user:password@registry.example/dns", false),
            ("registry.example/dns", "https://registry.example/dns", false),
            ("registry.example/dns", "Registry.Example/dns", false),
            ("registry.example/dns", "registry.example//dns", false),
            ("registry.example/dns", "registry.example/../dns", false),
            ("registry.example/dns", "registry.example/dns:", false),
            ("registry.example/dns", "registry.example/dns:1/../../x", false),
            ("registry.example/dns", "registry.example/dns\u{2215}x", false),
            ("registry.example/", "registry.example/a/b:1", true),
            ("registry.example/", "registry.example", false),
            ("registry.example/", "registry.example-evil/a", false),
            ("registry.example/", "registry.example:5000/a", false),
            ("registry.example:5000/dns/", "registry.example:5000/dns/a:1", true),
            ("registry.example:5000/dns/", "registry.example:5000/dnsevil/a", false),
            ("registry.example:5000/", "registry.example:50001/a", false),
            ("[fd00::1]:5000/dns", "[fd00::1]:5000/dns:1", true),
            // Without a host: the container runtime reads both in the same way.
            ("clusterdns", "clusterdns:0.1.0", true),
            ("clusterdns", "clusterdns/evil", false),
            ("clusterdns", "clusterdns:5000/evil", false),
            ("clusterdns", "clusterdns.evil.example/x", false),
        ] {
            assert_eq!(is_within(image, entry), expected, "{entry} {image}");
        }
    }

    #[test]
    fn s14_an_entry_that_could_mean_anything_is_none() {
        for entry in [
            "clusterdns",
            "registry.example/",
            "registry.example:5000/",
            "registry.example/a/b",
            "[fd00::1]/",
        ] {
            assert!(is_entry(entry), "{entry}");
        }
        for entry in [
            "",
            "/",
            "registry.example/dns:1",
            "registry.example:5000",
            "a@b/",
            "https://a/",
            "*",
            "a/*",
            "a//",
        ] {
            assert!(!is_entry(entry), "{entry}");
        }
        assert!(!is_entry("registry.example/dns@sha256:00"));
    }
}
