//! Where names are in RDATA: those of the types that RFC 3597 §4 lists are decompressed (FW41),
//! every other RDATA is opaque.

#![allow(
    clippy::indexing_slicing,
    reason = "octets whose lengths were checked when they were read; fuzzed"
)]

use alloc::vec::Vec;

use super::read;
use super::work_budget::WorkBudget;

pub(super) const NS: u16 = 2;
pub(super) const CNAME: u16 = 5;
pub(super) const SOA: u16 = 6;
pub(super) const DNAME: u16 = 39;
pub(super) const RRSIG: u16 = 46;
pub(super) const NSEC: u16 = 47;
pub(super) const NSEC3: u16 = 50;

/// The shape of RDATA with names in it.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Octets of fixed length before the names.
    before: usize,
    /// Character-strings before the names.
    strings: usize,
    /// Domain names after the strings.
    names: usize,
    /// Octets after the names; `None` is any number.
    after: Option<usize>,
    /// May its names be compressed in what we write? RFC 1035 types only (RFC 3597 §4, WR25).
    pub(super) compressible: bool,
}

impl Layout {
    const fn new(before: usize, names: usize, after: Option<usize>) -> Layout {
        Layout { before, strings: 0, names, after, compressible: false }
    }

    /// The layout of a type; `None` is opaque.
    pub(super) fn of(rtype: u16) -> Option<Layout> {
        Some(match rtype {
            NS | CNAME | 12 => Layout { compressible: true, ..Layout::new(0, 1, Some(0)) },
            SOA => Layout { compressible: true, ..Layout::new(0, 2, Some(20)) },
            15 => Layout { compressible: true, ..Layout::new(2, 1, Some(0)) },
            // MD, MF, MB, MG, MR, and DNAME, whose target must not be compressed but sometimes is.
            3 | 4 | 7 | 8 | 9 | DNAME => Layout::new(0, 1, Some(0)),
            // MINFO, RP.
            14 | 17 => Layout::new(0, 2, Some(0)),
            // AFSDB, RT.
            18 | 21 => Layout::new(2, 1, Some(0)),
            // SIG.
            24 => Layout::new(18, 1, None),
            // PX.
            26 => Layout::new(2, 2, Some(0)),
            // NXT.
            30 => Layout::new(0, 1, None),
            // SRV.
            33 => Layout::new(6, 1, Some(0)),
            // NAPTR.
            35 => Layout { strings: 3, ..Layout::new(4, 1, Some(0)) },
            _ => return None,
        })
    }

    /// Where the names begin in `rdata`.
    pub(super) fn names_at(&self, rdata: &[u8]) -> Option<usize> {
        let mut at = self.before;
        for _ in 0..self.strings {
            at += 1 + *rdata.get(at)? as usize;
        }
        (at <= rdata.len()).then_some(at)
    }

    /// How many names there are.
    pub(super) fn names(&self) -> usize {
        self.names
    }
}

/// Appends RDATA with its names decompressed; `None` if it does not parse, or costs more than the message may, which
/// [`WorkBudget::why_unread`] distinguishes.
pub(super) fn expand(
    octets: &[u8],
    rtype: u16,
    extent: &core::ops::Range<usize>,
    budget: &WorkBudget,
    to: &mut Vec<u8>,
) -> Option<()> {
    let rdata = octets.get(extent.clone())?;
    budget.spend_octets(rdata.len())?;
    let Some(layout) = Layout::of(rtype) else {
        // Addresses of another size would make the whole reply unreadable for the client.
        let size = match rtype {
            1 => Some(4),
            28 => Some(16),
            _ => None,
        };
        to.extend_from_slice(rdata);
        return (size.is_none_or(|size| size == rdata.len())).then_some(());
    };
    let mut at = extent.start + layout.names_at(rdata)?;
    to.extend_from_slice(&octets[extent.start..at]);
    for _ in 0..layout.names {
        // Pointers may lead anywhere before; the octets of the name itself must end within the RDATA.
        at = read::read_name(octets, at, budget, to)?;
        if at > extent.end {
            return None;
        }
    }
    let after = &octets[at..extent.end];
    to.extend_from_slice(after);
    (layout.after.is_none_or(|size| size == after.len())).then_some(())
}
