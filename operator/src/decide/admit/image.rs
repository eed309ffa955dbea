//! Which images the operator allows. Text is compared with text, so a reference that is written in another way than the
//! entry is not allowed, even where it means the same.

use crds::image::repository;

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
