//! What an upstream is asked: with the route, the identity of a lookup and of a cache entry (docs/dns.md §1).

use core::hash::{Hash, Hasher};

use crate::wire::name::Name;

/// The name in lower case, type, DO and CD. The class is always IN. Clients whose queries have the same key and route
/// share one lookup (FW11) and one cache entry (CA1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupKey {
    name: Name,
    qtype: u16,
    dnssec_ok: bool,
    checking_disabled: bool,
}

/// Two writes instead of the five of a derived one: every hit of the cache hashes its key.
impl Hash for LookupKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let flags = u32::from(self.dnssec_ok) << 1 | u32::from(self.checking_disabled);
        self.name.hash(state);
        state.write_u32(u32::from(self.qtype) << 2 | flags);
    }
}

impl LookupKey {
    /// The key of a question about `name`; `dnssec_ok` is DO, `checking_disabled` is CD.
    pub fn new(name: Name, qtype: u16, dnssec_ok: bool, checking_disabled: bool) -> LookupKey {
        LookupKey { name, qtype, dnssec_ok, checking_disabled }
    }

    /// The name that the upstream is asked about, in lower case.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The type that the upstream is asked for.
    pub fn qtype(&self) -> u16 {
        self.qtype
    }

    /// DO of the query.
    pub fn dnssec_ok(&self) -> bool {
        self.dnssec_ok
    }

    /// CD of the query.
    pub fn checking_disabled(&self) -> bool {
        self.checking_disabled
    }

    /// The same question about another name, such as the target of a CNAME (FW42).
    pub fn about(&self, name: Name) -> LookupKey {
        LookupKey { name, ..*self }
    }
}
