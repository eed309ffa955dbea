//! Names that have a meaning of their own, and so cannot be written.

use kube::core::Rule;

use super::rule;
use crate::names::{
    DEFAULT_GROUP, SPECIAL_FOR_DOMAIN, SPECIAL_FOR_RECORDS, SPECIAL_FOR_STUB_DOMAINS,
};

pub(in crate::v1alpha1) fn domain_is_not_special() -> Rule {
    rule(
        format!("!({})", at_or_below("self", &SPECIAL_FOR_DOMAIN)),
        "this name has a meaning of its own (RFC 6761, reverse names): use a name such as cluster.local",
    )
}

pub(in crate::v1alpha1) fn owner_is_not_special() -> Rule {
    rule(
        format!("!({})", at_or_below("self.name", &SPECIAL_FOR_RECORDS)),
        "names in localhost, invalid, onion, resolver.arpa and clusterdns-loop are answered locally, and reverse names \
         follow from the addresses: use another name",
    )
    .field_path(".name")
}

pub(in crate::v1alpha1) fn stub_domain_is_not_special() -> Rule {
    rule(
        format!("!({})", at_or_below("self.domain", &SPECIAL_FOR_STUB_DOMAINS)),
        "localhost, invalid, onion, resolver.arpa, clusterdns-loop and the reverse names of loopback are answered \
         locally and never asked elsewhere: leave this stub domain out",
    )
    .field_path(".domain")
}

pub(in crate::v1alpha1) fn stub_domain_is_not_called_upstreams() -> Rule {
    rule(
        format!("self.domain != '{DEFAULT_GROUP}'"),
        "in metrics, status and /upstreams this is the name of the servers of spec.upstreams: use a longer name",
    )
    .field_path(".domain")
}

pub(in crate::v1alpha1) fn wildcard_has_two_labels() -> Rule {
    rule(
        "!self.name.startsWith('*.') || self.name.indexOf('.', 2) > 0",
        "a wildcard needs two labels or more after '*.', as in *.apps.example: it would replace a whole top-level domain",
    )
    .field_path(".name")
}

/// At creation only: the name cannot be changed, and a resource that is there can be edited. API servers take a digit from
/// Kubernetes 1.35 on.
pub(in crate::v1alpha1) fn service_name_begins_with_a_letter() -> Rule {
    rule(
        "oldSelf.hasValue() || (has(self.adopt) && self.adopt) || !self.name.matches('^[0-9]')",
        "many API servers refuse a Service whose name begins with a digit: write a letter first, or adopt the Service that \
         has this name",
    )
    .optional_old_self(true)
    .field_path(".name")
}

fn at_or_below(name: &str, suffixes: &[&str]) -> String {
    let each = |suffix: &&str| format!("{name} == '{suffix}' || {name}.endsWith('.{suffix}')");
    suffixes.iter().map(each).collect::<Vec<_>>().join(" || ")
}
