//! The names that a program in a pod really asks for one name, in their order, by the rules of its C library (pure).
//!
//! glibc is `__res_context_search` of 2.26 and later: a name with `ndots` dots or more is asked as it is first; the search
//! list has no bound; a name without data, a denied one and SERVFAIL lead to the next domain; another failure ends the
//! list, and the name itself is still asked. musl is `name_from_dns_search`: a name with `ndots` dots or more is never
//! searched, and only a denied name leads to the next domain. Both cut ndots to 15.

use std::collections::VecDeque;

use serde::Serialize;

use super::args::Libc;
use super::resolv_conf::ResolvConf;

/// Octets of a name as text without its final dot (RFC 1035 §2.3.4: 255 in wire form).
const MAX_NAME: usize = 253;
/// Octets of a label (RFC 1035 §2.3.4).
const MAX_LABEL: usize = 63;
/// `RES_MAXNDOTS` of glibc; the same number in musl.
const MAX_NDOTS: u8 = 15;

/// The outcome of the questions for one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// A record, for one of the types at least.
    Found,
    /// The name exists, without records of the types.
    NoData,
    NxDomain,
    ServFail,
    /// REFUSED and the like, or no reply.
    Failed,
    /// An upstream must be asked, so what it would say is not known.
    Unknown,
}

/// One name that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Try {
    /// Absolute, with its final dot.
    name: String,
    is_searched: bool,
}

/// A search that is under way.
#[derive(Clone, Debug)]
pub struct Search {
    libc: Libc,
    left: VecDeque<Try>,
    current: Option<Try>,
    seen: Seen,
}

/// What the outcome of a search depends on.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Of the name itself, where glibc asks it before the list.
    itself_first: Option<Outcome>,
    /// A name of the list exists without records of the types.
    no_data: bool,
    /// SERVFAIL for a name of the list.
    serv_fail: bool,
    /// An upstream decides one of the names.
    unknown: bool,
    last: Option<Outcome>,
}

impl Search {
    /// The search for a name.
    ///
    /// # Errors
    /// What is wrong with the name.
    pub fn new(name: &str, conf: &ResolvConf, libc: Libc) -> Result<Search, String> {
        checked(name)?;
        let is_absolute = name.ends_with('.');
        let bare = name.trim_end_matches('.');
        let dots = bare.matches('.').count() + usize::from(is_absolute);
        let enough = dots >= usize::from(conf.ndots.min(MAX_NDOTS));
        let itself = Try { name: format!("{bare}."), is_searched: false };
        let searched = conf.search.iter().filter_map(|domain| joined(bare, domain, libc));
        let has_root = conf.search.iter().any(|domain| domain == ".");
        let mut left = VecDeque::new();
        match (is_absolute, libc, enough) {
            (true, _, _) | (false, Libc::Musl, true) => left.push_back(itself),
            (false, Libc::Musl, false) => {
                left.extend(searched);
                left.push_back(itself);
            }
            (false, Libc::Glibc, true) => {
                left.push_back(itself);
                left.extend(searched);
            }
            (false, Libc::Glibc, false) => {
                left.extend(searched);
                // `no-tld-query` keeps a single label from being asked as it is, where there was a list.
                let is_kept = dots > 0 || left.is_empty() || !conf.has_option("no-tld-query");
                if is_kept && !has_root {
                    left.push_back(itself);
                }
            }
        }
        Ok(Search { libc, left, current: None, seen: Seen::default() })
    }

    /// The library whose rules are followed.
    pub fn libc(&self) -> Libc {
        self.libc
    }

    /// The next name, absolute, with its final dot.
    pub fn next_name(&mut self) -> Option<String> {
        self.current = self.left.pop_front();
        self.current.as_ref().map(|current| current.name.clone())
    }

    /// Whether other names follow if this one is not found.
    pub fn has_more(&self) -> bool {
        !self.left.is_empty()
    }

    /// The outcome of the last name decides whether and where the search continues.
    pub fn saw(&mut self, outcome: Outcome) {
        let is_searched = self.current.as_ref().is_some_and(|current| current.is_searched);
        let seen = &mut self.seen;
        if seen.last.is_none() && !is_searched {
            seen.itself_first = Some(outcome);
        }
        seen.no_data |= is_searched && outcome == Outcome::NoData;
        seen.serv_fail |= is_searched && outcome == Outcome::ServFail;
        seen.unknown |= outcome == Outcome::Unknown;
        seen.last = Some(outcome);
        let continues = match (self.libc, outcome) {
            (_, Outcome::Found) => false,
            (_, Outcome::NxDomain | Outcome::Unknown) => true,
            (Libc::Musl, Outcome::NoData | Outcome::ServFail | Outcome::Failed) => false,
            (Libc::Glibc, Outcome::NoData | Outcome::ServFail) => true,
            (Libc::Glibc, Outcome::Failed) if is_searched => {
                // The rest of the list is not asked, the name itself is.
                self.left.retain(|it| !it.is_searched);
                true
            }
            (Libc::Glibc, Outcome::Failed) => true,
        };
        if !continues {
            self.left.clear();
        }
    }

    /// What the program gets. Where an upstream decides one of the names, it decides the whole search.
    ///
    /// glibc returns the error of the name itself if that was asked first, else that of a name without data, else that of
    /// a SERVFAIL, else the last one. musl returns the last one.
    pub fn verdict(&self) -> Outcome {
        let Seen { itself_first, no_data, serv_fail, unknown, last } = &self.seen;
        let last = last.unwrap_or(Outcome::NxDomain);
        match (self.libc, last) {
            _ if *unknown => Outcome::Unknown,
            (_, Outcome::Found) | (Libc::Musl, _) => last,
            (Libc::Glibc, _) => match itself_first {
                Some(first) => *first,
                None if *no_data => Outcome::NoData,
                None if *serv_fail => Outcome::ServFail,
                None => last,
            },
        }
    }
}

/// The name below a domain of the list; `None` where the library asks nothing for it.
fn joined(name: &str, domain: &str, libc: Libc) -> Option<Try> {
    let domain = domain.trim_end_matches('.');
    if domain.is_empty() {
        // The root: musl makes `name..` of it, which it cannot send.
        let name = format!("{name}.");
        return (libc == Libc::Glibc).then_some(Try { name, is_searched: true });
    }
    let whole = format!("{name}.{domain}");
    (whole.len() <= MAX_NAME).then(|| Try { name: format!("{whole}."), is_searched: true })
}

/// A name that no library would send is refused, with the reason.
fn checked(name: &str) -> Result<(), String> {
    let bare = name.strip_suffix('.').unwrap_or(name);
    if bare.is_empty() {
        return Err(
            "the name is empty: write one such as cart, or cart.shop.svc.cluster.local".into()
        );
    }
    if bare.len() > MAX_NAME {
        return Err(format!("the name has {} octets: a name has at most {MAX_NAME}", bare.len()));
    }
    for label in bare.split('.') {
        if label.is_empty() {
            return Err(format!(
                "the name {name:?} has an empty label: two dots follow each other, or it begins with one"
            ));
        }
        if label.len() > MAX_LABEL {
            return Err(format!(
                "the label {label:?} has {} octets: a label has at most {MAX_LABEL}",
                label.len()
            ));
        }
        if label.chars().any(|it| it.is_whitespace() || it.is_control()) {
            return Err(format!("the name {name:?} has a space or a control character"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
