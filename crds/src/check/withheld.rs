//! Types that servers are not asked for (FW45): few, each once, and none that resolution needs.

use super::bounds::at_most;
use super::violations::{Reason, Violations};
use crate::bounds as limit;
use crate::config::Config;
use crate::rrtype::{self, RrType};

/// Adds what is wrong with types that are withheld.
pub(super) fn check(config: &Config, violations: &mut Violations) {
    let upstreams = config.upstreams.options();
    let upstreams = upstreams.map(|options| ("spec.upstreams".to_owned(), options));
    let stubs = config.stub_domains.iter().enumerate();
    let stubs =
        stubs.map(|(index, stub)| (format!("spec.stubDomains[{index}]"), &stub.group.options));
    for (group, options) in upstreams.into_iter().chain(stubs) {
        let (types, field) = (&options.withheld_types, format!("{group}.withheldTypes"));
        at_most(types.len(), limit::WITHHELD_TYPES, &field, violations);
        for (index, RrType(number)) in types.iter().enumerate().take(limit::WITHHELD_TYPES) {
            let (field, kind) = (format!("{field}[{index}]"), rrtype::text(*number));
            if types[..index].contains(&RrType(*number)) {
                let message = format!("{kind} is there twice: leave one out");
                violations.add(field, Reason::Duplicate, message);
            } else if let Some(why) = rrtype::why_needed(*number) {
                let message = format!("{kind} cannot be withheld, because {why}: leave it out");
                violations.add(field, Reason::InvalidType, message);
            }
        }
    }
}
