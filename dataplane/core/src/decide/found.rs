//! What the trees have for a name, where they were searched before it is decided whose the name is.

use crate::records::{Publisher, Records, ServiceEntry};
use crate::wire::address::Address;
use crate::wire::labels::Labels;
use crate::wire::reverse::ReverseName;

/// What was found in the trees for a name.
#[derive(Clone, Copy)]
pub(crate) enum Found<'r> {
    /// They were not searched.
    Unknown,
    /// There is no Service with the labels of this name; the number of its labels left of the cluster domain.
    NoService(usize),
    /// The Service with the labels of this name, visible or not, and the same number.
    Service(usize, &'r ServiceEntry),
    /// All rows of the address of this reverse name.
    Publishers(ReverseName, &'r [(Address, Publisher)]),
}

impl<'r> Found<'r> {
    /// The name as a reverse name, if it is one.
    #[inline(always)]
    pub(crate) fn reverse(&self, name: &Labels) -> Option<ReverseName> {
        match self {
            Found::Unknown => ReverseName::of(name),
            Found::NoService(_) | Found::Service(..) => None,
            Found::Publishers(reverse, _) => Some(*reverse),
        }
    }

    /// How many labels lie left of the cluster domain; `None` if the name is not at or below it.
    #[inline(always)]
    pub(crate) fn left(&self, records: &Records, name: &Labels) -> Option<usize> {
        match *self {
            Found::NoService(left) | Found::Service(left, _) => Some(left),
            Found::Unknown | Found::Publishers(..) => {
                name.below(records.zone.apex(), records.zone.apex_labels)
            }
        }
    }

    /// The Service with these labels, visible or not: two labels of the name in wire form.
    pub(crate) fn service(&self, records: &'r Records, wire: &[u8]) -> Option<&'r ServiceEntry> {
        match *self {
            Found::Service(_, entry) => Some(entry),
            Found::NoService(_) => None,
            Found::Unknown | Found::Publishers(..) => records.service(wire).map(|(_, entry)| entry),
        }
    }

    /// All rows of the address of a reverse name.
    pub(crate) fn publishers(
        &self,
        records: &'r Records,
        address: Address,
    ) -> &'r [(Address, Publisher)] {
        match *self {
            Found::Publishers(_, rows) => rows,
            Found::Unknown | Found::NoService(_) | Found::Service(..) => {
                records.addresses.get(address)
            }
        }
    }
}
