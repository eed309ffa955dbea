//! `template` without an answer, for all names of its server block: the servers of these names are not asked for its type
//! (FW45).

use crds::rrtype;

use super::{PART, rcode_of};
use crate::import::corefile::forward::is_for;
use crate::import::corefile::parse::Directive;
use crate::import::corefile::scope::{Scope, elsewhere};
use crate::import::report::Outcome::{self, Changed, Kept, NotNeeded, NotPossible};
use crate::import::values::{is_at_or_below, zones};

/// What becomes of it; none where it is not of this kind: it is for a part of the names, or for a type that cannot be withheld.
pub(super) fn decided(
    directive: &Directive,
    asked: &str,
    of: &[String],
    scope: &mut Scope<'_>,
) -> Option<(Outcome, String)> {
    let number = rrtype::parse(asked).filter(|it| rrtype::why_needed(*it).is_none())?;
    let rcodes = directive.body.iter().filter(|line| line.name == "rcode");
    let rcodes: Vec<String> = rcodes.map(rcode_of).collect();
    if rcodes.iter().any(|it| !["NOERROR", "NXDOMAIN"].contains(&it.as_str())) {
        return None;
    }
    let written: Vec<String> = of.iter().flat_map(|zone| zones(zone)).collect();
    let covers =
        |zone: &&String| written.is_empty() || written.iter().any(|it| is_at_or_below(zone, it));
    let covered: Vec<String> = scope.zones.iter().filter(covers).cloned().collect();
    if covered.is_empty() {
        return None;
    }
    let (own, others) = (&scope.zones, scope.others);
    let has = |name: &str| {
        covered.iter().any(|zone| is_at_or_below(name, zone))
            && elsewhere(own, others, name).is_none()
    };
    let is_root = covered.iter().any(String::is_empty);
    let asks = is_root && scope.directives.iter().any(|line| is_for(line, ""));
    let has_cluster = has(&scope.draft.spec.domain);
    let denies = rcodes.iter().any(|it| it == "NXDOMAIN");
    Some(match scope.draft.withhold(&rrtype::text(number), asks, has) {
        Ok(Some(mut message)) => {
            if has_cluster {
                message.push_str("; names of the cluster, hosts and records keep theirs");
            }
            if denies {
                message.push_str("; no data in place of NXDOMAIN, which denies the whole name");
            }
            (if has_cluster || denies { Changed } else { Kept }, message)
        }
        Ok(None) => (NotPossible, if has_cluster { OF_CLUSTER } else { NO_GROUP }.to_owned()),
        Err(why) => (NotPossible, why),
    })
}

const OF_CLUSTER: &str = "names of the cluster have all types that their Services have";
const NO_GROUP: &str = "these names have no servers of their own here, and withheldTypes is a list of a group of servers: write a stub \
                        domain for them";

/// What becomes of `rcode` and `fallthrough` in it, where the whole is decided so.
pub(super) fn option(line: &Directive, decided: Outcome) -> (Outcome, String) {
    let (outcome, message) = match (decided, line.name.as_str(), rcode_of(line).as_str()) {
        (_, "fallthrough", _) => (NotNeeded, "it has all names, so none is left"),
        (NotPossible, _, _) => (NotPossible, PART),
        (_, _, "NXDOMAIN") => (Changed, "the answer is NOERROR without data"),
        (_, _, _) => (NotNeeded, "a type that is withheld is answered so"),
    };
    (outcome, message.to_owned())
}
