//! Options of dnsmasq with a number that counts once. Of several the last one counts, and several options can be one field
//! here: all are read before a line says what became of one.

use std::collections::HashMap;

use crds::bounds;

use super::options::Flag;
use crate::import::report::Outcome::{self, NotNeeded};

const ONCE: [&str; 7] = [
    "cache-size",
    "max-ttl",
    "max-cache-ttl",
    "neg-ttl",
    "edns-packet-max",
    "use-stale-cache",
    "dns-forward-max",
];
/// What 0 means of an option for a longest time.
const ZERO: &str = "0 is the default of dnsmasq: no limit";

/// The numbers that count.
#[derive(Clone, Debug, Default)]
pub(super) struct Once {
    last: HashMap<&'static str, u32>,
    /// No denial is kept, also where another option says for how long.
    no_negcache: bool,
}

/// Those of all options.
pub(super) fn of(all: &[Flag]) -> Once {
    let number = |flag: &Flag| {
        let name = ONCE.iter().find(|name| **name == flag.name)?;
        Some((*name, flag.value.parse().ok()?))
    };
    Once {
        last: all.iter().filter_map(number).collect(),
        no_negcache: all.iter().any(|flag| flag.name == "no-negcache"),
    }
}

impl Once {
    /// What becomes of an option where a later one has another number.
    pub(super) fn replaced(&self, flag: &Flag) -> Option<(Outcome, String)> {
        let own: u32 = flag.value.parse().ok()?;
        let last = *self.last.get(flag.name.as_str())?;
        (last != own).then(|| {
            let message = format!("another {}, of {last}, takes its place", flag.name);
            (NotNeeded, message)
        })
    }

    /// `spec.cache.maxTTLSeconds` of `max-ttl` or `max-cache-ttl`: the lower one of both decides.
    ///
    /// # Errors
    /// Why this one is not needed.
    pub(super) fn max_ttl(&self, name: &str, own: u32) -> Result<u32, String> {
        let other = if name == "max-ttl" { "max-cache-ttl" } else { "max-ttl" };
        match self.last.get(other) {
            _ if own == 0 => Err(ZERO.to_owned()),
            Some(lower @ 1..) if *lower < own => {
                Err(format!("{other}, of {lower}, is lower and one field with it"))
            }
            Some(_) | None => Ok(own.min(bounds::RECORD_TTL_SECONDS)),
        }
    }

    /// The lowest of `max-ttl` and `max-cache-ttl`, which are for denials too.
    fn most(&self) -> u32 {
        let both = ["max-ttl", "max-cache-ttl"].map(|name| self.last.get(name).copied());
        both.into_iter().flatten().filter(|seconds| *seconds > 0).min().unwrap_or(u32::MAX)
    }

    /// `spec.cache.maxNegativeTTLSeconds` of `neg-ttl`.
    ///
    /// # Errors
    /// Why it is not needed.
    pub(super) fn negative_ttl(&self, own: u32) -> Result<u32, String> {
        match own {
            _ if self.no_negcache => Err("with no-negcache no denial is kept".to_owned()),
            0 => Err("0 is the default of dnsmasq: denials without an SOA record are not kept"
                .to_owned()),
            _ => Ok(own.min(self.most()).min(bounds::RECORD_TTL_SECONDS)),
        }
    }
}
