//! `federation [ZONES...] { NAME DOMAIN ... }`, which CoreDNS had until 1.7.

use super::parse::Directive;
use super::scope::Scope;
use crate::import::federations::add;
use crate::import::report::Outcome::{Kept, NotNeeded, NotPossible};

/// Converts each line of its body.
pub(super) fn convert(directive: &Directive, scope: &mut Scope<'_>) {
    match directive.body.is_empty() {
        true => scope.say(directive, NotNeeded, "it names no federation"),
        false => scope.say(directive, Kept, "its lines are spec.federations"),
    }
    for line in &directive.body {
        let (outcome, message) = match (line.name.as_str(), line.args.as_slice()) {
            ("upstream", _) => {
                (NotNeeded, "what a name leads to is asked where such a name belongs".to_owned())
            }
            ("fallthrough", _) => {
                (NotNeeded, "names that are of no federation are answered as others".to_owned())
            }
            (name, [domain]) => add(name, domain, scope.draft),
            (_, _) => (NotPossible, "write a name and a domain in spec.federations".to_owned()),
        };
        scope.say_of(directive, line, outcome, message);
    }
}
