//! What the converter of a directive works with: its server block, the other ones, and the draft.

use super::parse::Directive;
use super::routes::{Led, Served};
use crate::import::Look;
use crate::import::draft::Draft;
use crate::import::report::{Outcome, Place};
use crate::import::values::is_at_or_below;

/// One server block while it is converted.
pub(super) struct Scope<'a> {
    /// What it serves; the root is the empty text.
    pub(super) zones: Vec<String>,
    /// What the other server blocks serve.
    pub(super) others: &'a [&'a str],
    /// The directives of this server block.
    pub(super) directives: &'a [Directive],
    /// All server blocks that clients ask, this one too.
    pub(super) blocks: &'a [Served<'a>],
    /// The names that the rules of `rewrite` change, in all of these.
    pub(super) led: &'a Led<'a>,
    /// The files that directives name.
    pub(super) look: &'a Look<'a>,
    pub(super) draft: &'a mut Draft,
}

impl Scope<'_> {
    /// Reports what became of a directive.
    pub(super) fn say(&mut self, of: &Directive, outcome: Outcome, message: impl Into<String>) {
        self.draft.report.add(&of.place, outcome, &of.text(), message);
    }

    /// The same of a line in the body of a directive.
    pub(super) fn say_of(
        &mut self,
        of: &Directive,
        line: &Directive,
        outcome: Outcome,
        message: impl Into<String>,
    ) {
        let what = format!("{}: {}", of.name, line.text());
        self.draft.report.add(&line.place, outcome, &what, message);
    }

    /// The same of a directive and of every line of its body.
    pub(super) fn say_all(&mut self, of: &Directive, outcome: Outcome, message: &str) {
        self.say(of, outcome, message);
        let mut rest: Vec<&Directive> = of.body.iter().rev().collect();
        while let Some(line) = rest.pop() {
            self.say_of(of, line, outcome, message);
            rest.extend(line.body.iter().rev());
        }
    }

    /// Reports something that is not a directive.
    pub(super) fn note(
        &mut self,
        place: &Place,
        outcome: Outcome,
        what: &str,
        message: impl Into<String>,
    ) {
        self.draft.report.add(place, outcome, what, message);
    }

    /// Does this server block serve the root?
    pub(super) fn is_root(&self) -> bool {
        self.zones.iter().any(String::is_empty)
    }

    /// Why a name never comes to this server block, where it does not.
    pub(super) fn elsewhere(&self, name: &str) -> Option<String> {
        elsewhere(&self.zones, self.others, name)
    }

    /// The names that a record of this owner answers here: the owner itself, or, for a wildcard above zones of this
    /// server block, these zones and all names below them.
    ///
    /// # Errors
    /// Why none of them comes to this server block.
    pub(super) fn owners(&self, owner: &str) -> Result<Vec<String>, String> {
        let Some(why) = self.elsewhere(owner) else { return Ok(vec![owner.to_owned()]) };
        let zones = owner.strip_prefix("*.").map(|above| self.zones_below(above));
        match zones.filter(|zones| !zones.is_empty()) {
            Some(zones) => {
                Ok(zones.into_iter().flat_map(|zone| [format!("*.{zone}"), zone]).collect())
            }
            None => Err(why),
        }
    }

    /// Its own zones below this name.
    pub(super) fn zones_below(&self, above: &str) -> Vec<String> {
        self.zones.iter().filter(|zone| is_below(zone, above)).cloned().collect()
    }

    /// An error where another server block serves a part of the names below this one: CoreDNS gives these names to that
    /// block, and a record for all of them would win over its stub domain (A17, RR85).
    pub(super) fn has_all_below(&self, above: &str) -> Result<(), String> {
        has_all_below(self.others, self.draft, above)
    }
}

/// The same of the zones of the `others`.
pub(super) fn has_all_below(others: &[&str], draft: &Draft, above: &str) -> Result<(), String> {
    let is_lost = |zone: &&&str| is_below(zone, above) && !draft.is_ours(zone);
    match others.iter().find(is_lost) {
        Some(zone) => Err(format!(
            "a record for all names below {above} would take those of the server block of {zone} too: write a CNAME \
             record in spec.records, or a host, for each name that is asked"
        )),
        None => Ok(()),
    }
}

pub(super) fn is_below(name: &str, above: &str) -> bool {
    name != above && is_at_or_below(name, above)
}

/// Why a name never comes to the server block of `own` zones, where it does not.
pub(super) fn elsewhere(own: &[String], others: &[&str], name: &str) -> Option<String> {
    let bare = name.strip_prefix("*.").unwrap_or(name);
    let nearest = own.iter().filter(|zone| is_at_or_below(bare, zone)).map(String::len).max();
    let Some(nearest) = nearest else {
        let zones = own.join(" ");
        return Some(format!(
            "it is not below {zones}, so this server block is never asked for it"
        ));
    };
    let longer = others.iter().filter(|zone| is_at_or_below(bare, zone) && zone.len() > nearest);
    let other = longer.max_by_key(|zone| zone.len())?;
    Some(format!("the server block of {other} is asked for it, not this one"))
}
