//! The aliases of ours that lead from a question to another name, within one budget (RR48): CNAMEs, and DNAMEs with the
//! CNAME that is made of each.

use alloc::sync::Arc;

use crate::wire::dname::Dname;
use crate::wire::name::Name;

/// CNAMEs of ours in one reply, those made of DNAMEs among them (RR48).
pub(crate) const MAX_OWN_CNAMES: usize = 10;

/// The kinds of alias.
#[derive(Clone, Copy, Debug)]
pub enum Alias<'a> {
    /// A CNAME record: its target, and its TTL in seconds.
    Cname(&'a Arc<Name>, u32),
    /// A DNAME record above the name (RR85): the next name follows from the name itself.
    Dname(&'a Arc<Dname>),
    /// A name of a federation (RR95): the next name is made as of a DNAME, which is not shown.
    Federated(&'a Arc<Dname>),
}

impl Alias<'_> {
    /// Records of the answer section: a DNAME comes with the CNAME that is made of it.
    pub fn records(&self) -> usize {
        match self {
            Alias::Cname(..) | Alias::Federated(_) => 1,
            Alias::Dname(_) => 2,
        }
    }

    /// The name that comes after `name`. If a DNAME would make a name that is too long, there is none; such an alias
    /// is never added.
    fn after(&self, name: Name) -> Name {
        match self {
            Alias::Cname(target, _) => Name::clone(target),
            Alias::Dname(dname) | Alias::Federated(dname) => {
                dname.substitute(name.wire()).unwrap_or(name)
            }
        }
    }
}

/// An [`Alias`] that owns its target.
#[derive(Clone, Debug)]
pub(super) enum KeptAlias {
    Cname(Arc<Name>, u32),
    Dname(Arc<Dname>),
    Federated(Arc<Dname>),
}

impl KeptAlias {
    pub(super) fn of(alias: Alias<'_>) -> KeptAlias {
        match alias {
            Alias::Cname(target, ttl_s) => KeptAlias::Cname(Arc::clone(target), ttl_s),
            Alias::Dname(dname) => KeptAlias::Dname(Arc::clone(dname)),
            Alias::Federated(end) => KeptAlias::Federated(Arc::clone(end)),
        }
    }

    pub(super) fn borrow(&self) -> Alias<'_> {
        match self {
            KeptAlias::Cname(target, ttl_s) => Alias::Cname(target, *ttl_s),
            KeptAlias::Dname(dname) => Alias::Dname(dname),
            KeptAlias::Federated(end) => Alias::Federated(end),
        }
    }
}

/// Aliases of ours, first to last. The first is about the question's name, each later one about the name that the one
/// before leads to; the last leads to the name that the upstream is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Cnames<'a> {
    hops: [Option<Alias<'a>>; MAX_OWN_CNAMES],
    count: u8,
}

impl<'a> Cnames<'a> {
    /// None: the question's name itself is what the upstream is asked about.
    pub const NONE: Cnames<'static> = Cnames { hops: [None; MAX_OWN_CNAMES], count: 0 };

    /// Adds a CNAME; false, and nothing is added, when it leads back or there are too many (RR48).
    pub fn push(&mut self, target: &'a Arc<Name>, ttl_s: u32) -> bool {
        let is_target = |alias| matches!(alias, Alias::Cname(known, _) if known == target);
        !self.iter().any(is_target) && self.add(Alias::Cname(target, ttl_s))
    }

    /// Adds one; false, and nothing is added, when there are too many (RR48). The bound also ends a loop of DNAMEs.
    pub(crate) fn add(&mut self, alias: Alias<'a>) -> bool {
        let Some(place) = self.hops.get_mut(usize::from(self.count)) else { return false };
        *place = Some(alias);
        self.count += 1;
        true
    }

    /// True if there is no alias.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// In chain order.
    pub fn iter(&self) -> impl Iterator<Item = Alias<'a>> {
        self.hops.iter().take(usize::from(self.count)).flatten().copied()
    }

    /// The name that they lead to from this one.
    pub(crate) fn lead_from(&self, name: Name) -> Name {
        let mut name = name;
        for alias in self.iter() {
            name = alias.after(name);
        }
        name
    }
}
