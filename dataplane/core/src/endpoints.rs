//! The published endpoints of one Service as RRsets need them: distinct addresses, the rows of one name,
//! and in `pairs` what SRV records are made of.

mod pairs;

use crate::address::{Address, dashed};
use crate::records::{Port, Records, Row, ServiceEntry};
use crate::schema::PortName;
use crate::text::ShortText;

pub(crate) use pairs::scaled;

/// One label that may name endpoints.
#[derive(Clone, Copy)]
pub(crate) struct EndpointName<'q> {
    label: &'q [u8],
    /// The address whose derived name it is.
    derived: Option<Address>,
}

impl<'q> EndpointName<'q> {
    /// Reads a lower-case label. Only the one spelling of RR23 is an endpoint name.
    pub(crate) fn read(label: &'q [u8]) -> EndpointName<'q> {
        // The `0` that RR23 adds to a leading or trailing dash reads as part of the same address.
        let derived = dashed(label).filter(|&a| ShortText::of(a).as_bytes() == label);
        EndpointName { label, derived }
    }
}

impl<'q> EndpointName<'q> {
    /// The label without its length octet.
    pub(crate) fn label(&self) -> &'q [u8] {
        self.label
    }
}

/// Who may see a port: all, or the one named in the question.
#[derive(Clone, Copy)]
pub(crate) enum PortFilter<'q> {
    Any,
    Named(PortName<'q>),
}

impl PortFilter<'_> {
    fn passes(&self, port: &Port) -> bool {
        match self {
            PortFilter::Any => true,
            PortFilter::Named(name) => name.matches(port),
        }
    }
}

impl ServiceEntry {
    /// Whether all published endpoints have such a port.
    pub(crate) fn has_port_everywhere(&self, records: &Records, port: PortName<'_>) -> bool {
        self.slices.iter().all(|&slot| {
            records.slices.get(slot).is_none_or(|slice| {
                slice.rows == 0 || slice.ports.all.iter().any(|p| port.matches(p))
            })
        })
    }

    /// Whether a published endpoint has such a port.
    pub(crate) fn has_port(&self, records: &Records, wanted: impl Fn(&Port) -> bool) -> bool {
        self.slices.iter().any(|&slot| {
            records
                .slices
                .get(slot)
                .is_some_and(|slice| slice.rows > 0 && slice.ports.all.iter().any(&wanted))
        })
    }

    /// Number of distinct addresses of a family.
    pub(crate) fn address_count(&self, ipv6: bool) -> usize {
        if ipv6 {
            self.by_address.len() - self.v4_rows as usize - self.repeated_v6 as usize
        } else {
            self.v4_rows as usize - self.repeated_v4 as usize
        }
    }

    /// Rows of one family in address order.
    fn family(&self, ipv6: bool) -> impl Iterator<Item = &Row> {
        let v4_rows = self.v4_rows as usize;
        let (start, count) =
            if ipv6 { (v4_rows, self.by_address.len() - v4_rows) } else { (0, v4_rows) };
        self.by_address.starting_at(start).take(count)
    }

    /// Distinct addresses of a family, starting with number `start` and coming round once (WR24).
    pub(crate) fn addresses(&self, ipv6: bool, start: usize) -> impl Iterator<Item = Address> {
        let v4_rows = self.v4_rows as usize;
        let (first, rows, repeated) = if ipv6 {
            (v4_rows, self.by_address.len() - v4_rows, self.repeated_v6)
        } else {
            (0, v4_rows, self.repeated_v4)
        };
        // Without repetitions the row number is the address number: no need to walk there.
        let direct = if repeated == 0 { start } else { 0 };
        let from = self.by_address.starting_at(first + direct).take(rows - direct);
        let tail = distinct(from.map(|row| row.address)).skip(start - direct);
        tail.chain(distinct(self.family(ipv6).map(|row| row.address)).take(start))
    }

    /// Distinct addresses of a family whose endpoints have a port (RR36).
    pub(crate) fn addresses_with_port<'a>(
        &'a self,
        records: &'a Records,
        ipv6: bool,
        port: PortName<'a>,
    ) -> impl Iterator<Item = Address> + 'a {
        let has_port = move |row: &&Row| records.ports(row).iter().any(|p| port.matches(p));
        distinct(self.family(ipv6).filter(has_port).map(|row| row.address))
    }

    /// The rows of one endpoint name: those that bear it, then those whose address spells it.
    pub(crate) fn endpoint_rows<'a>(
        &'a self,
        records: &'a Records,
        name: EndpointName<'a>,
    ) -> impl Iterator<Item = &'a Row> + Clone + 'a {
        let at = self.by_name.seek(|row| records.name_of(row).cmp(&Some(name.label)));
        let named =
            self.by_name.from(at).take_while(move |row| records.name_of(row) == Some(name.label));
        named.chain(self.spelling(name.derived))
    }

    /// The rows whose name is made of this address, if it is one.
    fn spelling(&self, address: Option<Address>) -> impl Iterator<Item = &Row> + Clone {
        let rows = address.into_iter().flat_map(move |address| {
            let at = self.by_address.seek(|row| row.address.cmp(&address));
            self.by_address.from(at).take_while(move |row| row.address == address)
        });
        rows.filter(|row| row.label.is_derived())
    }

    /// Distinct addresses of one endpoint name and family (RR25).
    pub(crate) fn endpoint_addresses<'a>(
        &'a self,
        records: &'a Records,
        name: EndpointName<'a>,
        ipv6: bool,
    ) -> impl Iterator<Item = Address> + 'a {
        // An address with a row that bears its own derived name as hostname is met twice. Looked for
        // once: both kinds of row may be thousands, written by whoever writes slices.
        let is_borne = name.derived.is_some_and(|address| {
            let order =
                |row: &Row| (records.name_of(row), row.address).cmp(&(Some(name.label), address));
            let at = self.by_name.seek(order);
            self.by_name.at(at).is_some_and(|row| order(row).is_eq())
        });
        let rows = self.endpoint_rows(records, name);
        let own = rows.filter(move |row| {
            row.address.is_v4() != ipv6 && !(row.label.is_derived() && is_borne)
        });
        distinct(own.map(|row| row.address))
    }
}

/// Drops repetitions from addresses that come in order.
fn distinct(addresses: impl Iterator<Item = Address>) -> impl Iterator<Item = Address> {
    let mut last = None;
    addresses.filter(move |&address| last.replace(address) != Some(address))
}
