//! Domains that need no group of their own, because all other names are asked at the same servers. Pure.

use crds::v1alpha1::Server;

use crate::import::draft::Draft;
use crate::import::report::Outcome::{self, NotNeeded, NotPossible};
use crate::import::values::is_at_or_below;

/// Are these the servers that are asked for a domain without a stub domain?
pub(super) fn are_asked_anyway(domain: &str, servers: &[Server], draft: &Draft) -> bool {
    let upstreams = draft.spec.upstreams.as_ref().and_then(|it| it.servers.as_deref());
    upstreams == Some(servers) && !has_stub_domain(domain, draft)
}

fn has_stub_domain(domain: &str, draft: &Draft) -> bool {
    let mut stubs = draft.spec.stub_domains.iter().flatten();
    stubs.any(|stub| is_at_or_below(domain, &stub.domain))
}

/// A domain for the servers of the node needs nothing where they are asked for it anyway.
pub(super) fn to_node(domain: &str, draft: &Draft) -> (Outcome, String) {
    let upstreams = draft.spec.upstreams.as_ref();
    let is_node = upstreams.is_some_and(|it| it.from_resolv_conf == Some(true));
    match is_node && !has_stub_domain(domain, draft) {
        true => (
            NotNeeded,
            format!(
                "{domain}: its names go to spec.upstreams, which are the servers of the node too"
            ),
        ),
        false => (
            NotPossible,
            format!(
                "{domain}: a stub domain needs the addresses of its servers: write them in place of the file"
            ),
        ),
    }
}
