//! Servers of a `forward` that are the server that is replaced: a ClusterDNS that takes its Service over would ask itself.

use super::CLUSTER_DNS;
use crate::import::corefile::parse::Directive;
use crate::import::corefile::scope::Scope;
use crate::import::report::Outcome::{Changed, NotPossible};
use crate::import::values::list;

/// The other servers, where some are left; the report says what becomes of those that are replaced.
pub(super) fn left<'a>(
    directive: &Directive,
    domains: &[String],
    to: &'a [String],
    scope: &mut Scope<'_>,
) -> Option<Vec<&'a String>> {
    let is_gone = |server: &&String| {
        CLUSTER_DNS.contains(&server.as_str()) || scope.draft.replaced.has_address(server)
    };
    let (gone, left): (Vec<&String>, Vec<&String>) = to.iter().partition(is_gone);
    let gone: Vec<String> = gone.into_iter().cloned().collect();
    if gone.is_empty() {
        return Some(left);
    }
    let servers = list(&gone);
    if !left.is_empty() {
        let message = format!("{servers}: that is the server that is replaced, so it is left out");
        scope.say(directive, Changed, message);
        return Some(left);
    }
    if domains.iter().any(String::is_empty) {
        let message = format!(
            "{servers}: that is the server that is replaced, and which servers it asks for names elsewhere is not read here: \
             import its configuration too, or write these servers in spec.upstreams"
        );
        scope.say(directive, NotPossible, message);
    }
    let named: Vec<String> = domains.iter().filter(|it| !it.is_empty()).cloned().collect();
    if !named.is_empty() {
        let message = format!(
            "{servers}: that is the server that is replaced, so names in {} go to spec.upstreams: if it asks others for them, \
             import its configuration too",
            list(&named)
        );
        scope.say(directive, Changed, message);
    }
    None
}
