//! What is visible, who may ask, what the server reveals about itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::bounds;
use crate::config::LabelSelector;
use crate::defaults::flag;
use crate::names::LABEL_PATTERN;

/// Which namespaces and Services have names.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exposure {
    /// Only these namespaces, at most 1024. Without the namespace default there is no name of the API server,
    /// kubernetes.default.svc: such a change passes its trial with a warning. [] is the same as no list: all. Example:
    /// [default, shop]. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = bounds::NAMESPACES),
        inner(length(min = 1, max = bounds::LABEL), regex(pattern = LABEL_PATTERN))
    )]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub namespaces: Option<Vec<String>>,

    /// Only namespaces with such labels; together with namespaces both must hold. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,

    /// Only Services with such labels. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_selector: Option<LabelSelector>,
}

/// Which clients get answers; the others get REFUSED (N7).
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// Address ranges that may ask, at most 256; others are refused. Write those of pods and of nodes: NodeLocal DNSCache and
    /// pods on the network of their node ask from there. [] is the same as no list: everyone may ask. Example: [10.0.0.0/8].
    /// Default: everyone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = bounds::CLIENTS), inner(length(max = bounds::CIDR)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[schemars(extend("x-kubernetes-validations" = [rules::every_cidr_is_a_range()]))]
    pub clients: Option<Vec<String>>,

    /// Removes private, shared, loopback, link-local and reserved addresses, and those in reverseCIDRs, from answers of the
    /// default upstreams; those of stub domains are left alone. Default false.
    #[serde(default)]
    pub rebind_protection: bool,
}

/// What the server reveals about itself.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Answers CHAOS names such as version.bind, id.server and cachesize.bind. Default true.
    #[serde(default = "flag::<true>")]
    pub chaos: bool,

    /// Answers the NSID option with the name of the pod. Default true.
    #[serde(default = "flag::<true>")]
    pub nsid: bool,
}

impl Default for Identity {
    fn default() -> Self {
        Self { chaos: true, nsid: true }
    }
}
