//! What several addresses of one name have in common. Pure.

use crds::v1alpha1::Host;

/// What one more address does not have as it was written: a host has one TTL, and reverse names for all or none.
pub(super) fn of_first_address(host: &Host, ttl_seconds: u32, reverse: bool) -> Option<String> {
    let mut differs = Vec::new();
    if host.ttl_seconds != ttl_seconds {
        let first = host.ttl_seconds;
        differs
            .push(format!("the TTL is {first} s, that of its first address, not {ttl_seconds} s"));
    }
    match (host.reverse, reverse) {
        (true, false) => differs.push("it has a reverse name, as its first address has".to_owned()),
        (false, true) => {
            differs.push("it has no reverse name, as its first address has none".to_owned())
        }
        (true, true) | (false, false) => {}
    }
    (!differs.is_empty()).then(|| differs.join("; "))
}
