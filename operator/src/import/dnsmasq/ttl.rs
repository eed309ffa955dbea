//! `local-ttl` of dnsmasq: the TTL of what it answers from its own options and hosts files. Here each host and record has
//! one of its own.

use crds::{bounds, defaults};

use super::options::Flag;
use crate::import::report::Outcome::{self, Changed, Kept, NotNeeded, NotPossible};

/// Options that make hosts and records.
const RECORDS: [&str; 7] =
    ["address", "addn-hosts", "hostsdir", "host-record", "cname", "txt-record", "srv-host"];

/// What `local-ttl` means for these options.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LocalTtl {
    /// The last one that can be read; dnsmasq takes the last, too.
    written: Option<u32>,
    /// Whether there is a host or record that it is for.
    is_used: bool,
}

/// That of all options: it holds for those in front of it, too.
pub(super) fn of(all: &[Flag]) -> LocalTtl {
    let of_ttl = all.iter().filter(|flag| flag.name == "local-ttl");
    LocalTtl {
        written: of_ttl.filter_map(|flag| flag.value.parse().ok()).next_back(),
        is_used: all.iter().any(|flag| RECORDS.contains(&flag.name.as_str())),
    }
}

impl LocalTtl {
    /// `ttlSeconds` of a host or record without a TTL of its own.
    pub(super) fn seconds(self) -> Option<u32> {
        self.written.map(|seconds| seconds.min(bounds::RECORD_TTL_SECONDS))
    }

    /// What became of hosts and records without a TTL of their own, with what dnsmasq gives them where there is no `local-ttl`.
    pub(super) fn said(self, (outcome, message): (Outcome, String)) -> (Outcome, String) {
        if self.written.is_some() || !matches!(outcome, Kept | Changed) {
            return (outcome, message);
        }
        let ours = defaults::RECORD_TTL_SECONDS;
        let ttl = format!(
            "the TTL is {ours} s, in dnsmasq 0 s without local-ttl: ttlSeconds of each changes it"
        );
        (Changed, format!("{message}; {ttl}"))
    }

    /// What becomes of the option itself.
    pub(super) fn decided(self, flag: &Flag) -> (Outcome, String) {
        let Ok(seconds) = flag.value.parse::<u32>() else {
            return (NotPossible, "it is no number of seconds".to_owned());
        };
        let most = bounds::RECORD_TTL_SECONDS;
        match self.written {
            _ if !self.is_used => {
                (NotNeeded, "no option makes a host or record that it is for".to_owned())
            }
            Some(last) if last != seconds => {
                (NotNeeded, format!("another local-ttl, of {last} s, takes its place"))
            }
            _ if seconds > most => (
                Changed,
                format!(
                    "ttlSeconds: {most} of each host and record without its own, which is the most"
                ),
            ),
            _ => (Kept, format!("ttlSeconds: {seconds} of each host and record without its own")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::Argument;
    use crate::import::dnsmasq::options::flags;
    use crate::import::report::Place;

    fn decided(options: &[&str]) -> Vec<(Outcome, String)> {
        let argument = |text: &&str| Argument { place: Place::default(), text: (*text).to_owned() };
        let all = flags(&options.iter().map(argument).collect::<Vec<_>>());
        let ttl = of(&all);
        let of_ttl = all.iter().filter(|flag| flag.name == "local-ttl");
        of_ttl.map(|flag| ttl.decided(flag)).collect()
    }

    #[test]
    fn each_local_ttl_has_an_outcome() {
        let host = "--host-record=a.example,10.0.0.1";
        let kept = |seconds: u32| {
            (Kept, format!("ttlSeconds: {seconds} of each host and record without its own"))
        };
        assert_eq!(decided(&["--local-ttl=0", host]), [kept(0)]);
        let [first, last] = &decided(&["--local-ttl=5", host, "--local-ttl=7"])[..] else {
            panic!("two")
        };
        assert_eq!((first.0, last), (NotNeeded, &kept(7)));
        assert_eq!(decided(&["--local-ttl=90000", host])[0].0, Changed);
        assert_eq!(decided(&["--local-ttl=5"])[0].0, NotNeeded);
        assert_eq!(decided(&["--local-ttl=soon", host])[0].0, NotPossible);
    }
}
