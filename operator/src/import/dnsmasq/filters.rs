//! Options of dnsmasq that remove types from the answers of servers: no group of servers is asked for these types (FW45). They
//! are converted when all groups are known.

use crds::rrtype;

use super::options::flags;
use super::say;
use crate::import::Argument;
use crate::import::draft::Draft;
use crate::import::report::Outcome::{self, Changed, NotNeeded, NotPossible};

/// Is an option of this name one of them?
pub(super) fn is_one(name: &str) -> bool {
    ["filter-A", "filter-AAAA", "filter-rr"].contains(&name)
}

/// Converts those of all options, and reports each.
pub(super) fn convert(options: &[Argument], draft: &mut Draft) {
    for flag in flags(options).into_iter().filter(|flag| is_one(&flag.name)) {
        let types = match flag.name.strip_prefix("filter-") {
            Some(kind @ ("A" | "AAAA")) => vec![kind.to_owned()],
            _ => flag.words(),
        };
        if types.is_empty() {
            say(&flag, NotPossible, "a type must follow", draft);
        }
        for kind in types {
            let (outcome, message) = withheld(&kind, draft);
            say(&flag, outcome, message, draft);
        }
    }
}

fn withheld(kind: &str, draft: &mut Draft) -> (Outcome, String) {
    let Some(number) = rrtype::parse(kind) else {
        return (NotPossible, format!("{kind} is no record type"));
    };
    match draft.withhold(&rrtype::text(number), true, |_| true) {
        Ok(Some(message)) => {
            (Changed, format!("{message}; names of the cluster, hosts and records keep theirs"))
        }
        Ok(None) => (NotNeeded, "no server is asked".to_owned()),
        Err(why) => (NotPossible, why),
    }
}
