//! DNAME: names below one name lead to the names below another one (RFC 6672).

use crate::wire::name::Name;

/// A DNAME record of ours (RR85). Neither name has a wildcard label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dname {
    /// The owner. Names below it are replaced; the owner itself is not.
    pub owner: Name,
    /// The target, which replaces the owner at the end of these names.
    pub target: Name,
    /// TTL of the record and of the CNAMEs that are made of it, in seconds (RFC 6672 §3.1).
    pub ttl_s: u32,
}

impl Dname {
    /// The name that replaces a name below the owner, which is in wire form and lower case (RFC 6672 §2.2). `None` if
    /// the result has more than 255 octets, or if the name is shorter than the owner.
    pub(crate) fn substitute(&self, name: &[u8]) -> Option<Name> {
        let before = self.before(name)?;
        Name::compose(&[name.get(..before)?, self.target.wire()])
    }

    /// How many octets of a name below the owner are in front of it.
    pub(crate) fn before(&self, name: &[u8]) -> Option<usize> {
        name.len().checked_sub(self.owner.wire().len())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn rr85_the_owner_at_the_end_of_a_name_becomes_the_target() {
        let name = |text: &str| Name::from_text(text).unwrap();
        let dname =
            Dname { owner: name("old.example"), target: name("new.corp.example"), ttl_s: 30 };
        let led = |text: &str| dname.substitute(name(text).wire()).map(|name| name.to_string());
        assert_eq!(led("a.old.example").as_deref(), Some("a.new.corp.example."));
        assert_eq!(led("a.b.old.example").as_deref(), Some("a.b.new.corp.example."));
        assert_eq!(led("example"), None);
        let label = "x".repeat(63);
        let long =
            |last: usize| std::format!("{label}.{label}.{label}.{}.old.example", "x".repeat(last));
        // 3 * 64 + 1 + 44 + 18 octets of the target are 255.
        assert_eq!(dname.substitute(name(&long(44)).wire()).unwrap().wire().len(), 255);
        assert_eq!(dname.substitute(name(&long(45)).wire()), None);
    }
}
