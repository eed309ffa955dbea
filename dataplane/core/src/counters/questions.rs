//! The question types that metrics name. They are those that CoreDNS names, so that its dashboards show the same rows.

/// The type of a question as metrics show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(
    missing_docs,
    reason = "variants without a comment are mnemonics of RFC 1035 and RFC 4034"
)]
pub enum QuestionType {
    A,
    Aaaa,
    Cname,
    /// Keys of a signed zone.
    Dnskey,
    /// The digest of a key in the parent zone.
    Ds,
    /// Service binding for HTTPS (RFC 9460).
    Https,
    Mx,
    Ns,
    Nsec,
    /// Denial of existence with hashed names.
    Nsec3,
    Ptr,
    Rrsig,
    Soa,
    Srv,
    Txt,
    /// Every other type.
    Other,
}

use QuestionType as Type;

/// Types by their number (IANA DNS parameters). HTTPS is the largest number that has a name here.
const BY_NUMBER: [QuestionType; 66] = {
    let mut types = [Type::Other; 66];
    let mut place = 0;
    while place < Type::ALL.len() - 1 {
        types[Type::ALL[place].number() as usize] = Type::ALL[place];
        place += 1;
    }
    types
};

impl QuestionType {
    /// Every type, in the order of their discriminants.
    pub const ALL: [QuestionType; 16] = [
        Type::A,
        Type::Aaaa,
        Type::Cname,
        Type::Dnskey,
        Type::Ds,
        Type::Https,
        Type::Mx,
        Type::Ns,
        Type::Nsec,
        Type::Nsec3,
        Type::Ptr,
        Type::Rrsig,
        Type::Soa,
        Type::Srv,
        Type::Txt,
        Type::Other,
    ];

    /// The type of this number.
    pub fn of(qtype: u16) -> QuestionType {
        BY_NUMBER.get(usize::from(qtype)).copied().unwrap_or(Type::Other)
    }

    /// The metrics label, as CoreDNS writes it.
    pub const fn label(self) -> &'static str {
        match self {
            Type::A => "A",
            Type::Aaaa => "AAAA",
            Type::Cname => "CNAME",
            Type::Dnskey => "DNSKEY",
            Type::Ds => "DS",
            Type::Https => "HTTPS",
            Type::Mx => "MX",
            Type::Ns => "NS",
            Type::Nsec => "NSEC",
            Type::Nsec3 => "NSEC3",
            Type::Ptr => "PTR",
            Type::Rrsig => "RRSIG",
            Type::Soa => "SOA",
            Type::Srv => "SRV",
            Type::Txt => "TXT",
            Type::Other => "other",
        }
    }

    /// Its number; 0, which no question may have, for the others.
    const fn number(self) -> u16 {
        match self {
            Type::A => 1,
            Type::Aaaa => 28,
            Type::Cname => 5,
            Type::Dnskey => 48,
            Type::Ds => 43,
            Type::Https => 65,
            Type::Mx => 15,
            Type::Ns => 2,
            Type::Nsec => 47,
            Type::Nsec3 => 50,
            Type::Ptr => 12,
            Type::Rrsig => 46,
            Type::Soa => 6,
            Type::Srv => 33,
            Type::Txt => 16,
            Type::Other => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_by_its_number_and_at_its_own_place() {
        for (place, qtype) in QuestionType::ALL.into_iter().enumerate() {
            assert_eq!(qtype as usize, place, "{}", qtype.label());
            assert_eq!(QuestionType::of(qtype.number()), qtype, "{}", qtype.label());
        }
        for number in [0, 3, 64, 66, 255, 65_535] {
            assert_eq!(QuestionType::of(number), QuestionType::Other, "{number}");
        }
    }
}
