//! The order in which the directives of all server blocks are converted. CoreDNS asks its plugins in a fixed order, for any
//! order of the lines: of `rewrite`, `template` and `hosts`, the first that has a name decides. Pure.

use super::parse::Directive;
use super::{cache, forward};

/// When a directive is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Other directives change the stub domains that these make.
    Forwards,
    /// Whether a zone for the servers of the node needs something depends on all other servers.
    ZonesForTheNode,
    Rewrites,
    Templates,
    Others,
    /// Whether they need something depends on the records of hosts and other templates.
    TemplatesWithoutAnswer,
    /// The bound of the whole cache is above those of stub domains.
    CachesOfZones,
}

impl Turn {
    pub(super) const ALL: [Turn; 7] = [
        Turn::Forwards,
        Turn::ZonesForTheNode,
        Turn::Rewrites,
        Turn::Templates,
        Turn::Others,
        Turn::TemplatesWithoutAnswer,
        Turn::CachesOfZones,
    ];

    /// That of a directive, in a server block with these zones.
    pub(super) fn of(directive: &Directive, zones: &[String]) -> Turn {
        let is_root = zones.iter().any(String::is_empty);
        let is_for_all = is_root && directive.args.first().is_some_and(|from| from == ".");
        match directive.name.as_str() {
            "forward" | "proxy" if forward::is_to_node(directive) && !is_for_all => {
                Turn::ZonesForTheNode
            }
            "forward" | "proxy" => Turn::Forwards,
            "rewrite" => Turn::Rewrites,
            "template" if directive.body.iter().any(|line| line.name == "answer") => {
                Turn::Templates
            }
            "template" => Turn::TemplatesWithoutAnswer,
            "cache" if !cache::is_whole(directive, zones) => Turn::CachesOfZones,
            _ => Turn::Others,
        }
    }
}
