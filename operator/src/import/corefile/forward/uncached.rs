//! Whether CoreDNS cached what the servers of a `forward` answer. Pure.

use crate::import::corefile::routes::cached_zones;
use crate::import::corefile::scope::{Scope, is_below};
use crate::import::values::is_at_or_below;

/// What is said of servers whose answers are cached here and were not cached by CoreDNS, or only of some names in the domain.
/// `ends` is what ends that for all of their names, `ends_here` for those of this domain.
pub(super) fn was_not_cached(
    domain: &str,
    (ends, ends_here): (&str, &str),
    scope: &Scope<'_>,
) -> Option<String> {
    let lines = scope.directives.iter().filter(|it| it.name == "cache");
    let cached: Vec<String> = lines.flat_map(|line| cached_zones(line, &scope.zones)).collect();
    if cached.iter().any(|zone| is_at_or_below(domain, zone)) {
        return None;
    }
    let within: Vec<&str> =
        cached.iter().filter(|zone| is_below(zone, domain)).map(String::as_str).collect();
    Some(match within.is_empty() {
        true => format!(
            "what these servers answer is cached, which CoreDNS does with cache only ({ends} ends that)"
        ),
        false => format!(
            "what these servers answer is cached, which CoreDNS did for {} only ({ends_here} ends that for the others)",
            within.join(", ")
        ),
    })
}
