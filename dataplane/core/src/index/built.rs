//! A slice on its way into the records: which of its addresses, names and ports are taken, and what is reported of the rest.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::is_label;
use super::names::Names;
use crate::object::{Endpoint, Problem, Slice};
use crate::records::{Port, Row, RowLabel, SliceEntry, address_order};
use crate::settings::EndpointNames;
use crate::steps::step;
use crate::wire::address::{Address, is_publishable};
use crate::wire::text::ShortText;

/// Published addresses of one slice. The API server allows 1,000 endpoints; files may have more.
const MAX_ROWS: usize = 10_000;
/// Addresses of one slice beyond the first of each endpoint. The API gives them no meaning, kube-proxy does not read them,
/// and the EndpointSlice controller writes none; one endpoint may have 100.
const MAX_MORE_ADDRESSES: usize = 1_000;
/// Ports of one Service or slice: as many as SRV records fit into the largest reply. The names of the
/// others are NODATA instead of NXDOMAIN.
pub(super) const MAX_PORTS: usize = 1_024;
/// Problems reported of one object; more add nothing.
const MAX_PROBLEMS: usize = 10;

/// The result of reading a slice.
pub(super) struct Built {
    slot: u32,
    most_label_octets: usize,
    pub(super) entry: SliceEntry,
    rows: Vec<Row>,
    pub(super) problems: Vec<Problem>,
}

/// The name of an endpoint: its place in the text, its length, and whether it is a hostname (RR23).
#[derive(Clone, Copy)]
struct Placed {
    place: usize,
    octets: usize,
    is_hostname: bool,
}

impl Built {
    pub(super) fn new(slot: u32, most_label_octets: usize) -> Built {
        let entry = SliceEntry::default();
        Built { slot, most_label_octets, entry, rows: Vec::new(), problems: Vec::new() }
    }

    /// Reads the endpoints; `old_text` is that of the slice until now.
    pub(super) fn read(&mut self, slice: &Slice, names: EndpointNames, old_text: &[u8]) {
        // Names of endpoints that are not ready are kept too: nothing is written again when they are.
        let named: Vec<_> =
            slice.endpoints.iter().map(|endpoint| endpoint_name(endpoint, names)).collect();
        let texts: Vec<&str> = named.iter().flatten().map(|(name, _)| &**name).collect();
        let laid_out = Names::laid_out(&texts, old_text);
        let mut places = laid_out.places.iter();
        let named: Vec<Option<Placed>> = named
            .iter()
            .map(|named| {
                let (name, is_hostname) = named.as_ref()?;
                let (place, octets) = (*places.next()?, name.len());
                Some(Placed { place, octets, is_hostname: *is_hostname })
            })
            .collect();
        self.rows.reserve_exact(slice.endpoints.len().min(MAX_ROWS));
        let ready = || slice.endpoints.iter().zip(&named).filter(|(endpoint, _)| endpoint.ready);
        for (endpoint, name) in ready() {
            for &address in endpoint.addresses.iter().take(1) {
                self.publish(slice, endpoint, address, *name);
            }
        }
        // After the first address of each endpoint, so that an endpoint with many addresses leaves room for the others.
        let more = ready().flat_map(|(endpoint, name)| {
            endpoint.addresses.iter().skip(1).map(move |address| (endpoint, *address, *name))
        });
        for (taken, (endpoint, address, name)) in more.enumerate() {
            if taken == MAX_MORE_ADDRESSES {
                let what = "addresses in one slice beyond the first of each endpoint";
                self.problem(Problem::TooMany { what, limit: MAX_MORE_ADDRESSES });
                break;
            }
            self.publish(slice, endpoint, address, name);
        }
        step(self.rows.len());
        self.entry.text = laid_out.text.into();
        self.rows.sort_unstable_by(address_order);
        self.rows.dedup();
        self.entry.rows = core::mem::take(&mut self.rows).into();
    }

    fn publish(
        &mut self,
        slice: &Slice,
        endpoint: &Endpoint,
        address: core::net::IpAddr,
        name: Option<Placed>,
    ) {
        let own_pod = endpoint.target.as_ref().is_some_and(|target| {
            target.namespace.is_empty() || target.namespace == slice.key.namespace
        });
        if !is_publishable(address, slice.ipv6) {
            self.problem(Problem::BadAddress(address));
            return;
        }
        if self.rows.len() >= MAX_ROWS {
            let what = "endpoint addresses in one slice";
            self.problem(Problem::TooMany { what, limit: MAX_ROWS });
            return;
        }
        let row = Address::from(address);
        let octets = match name {
            Some(name) => name.octets,
            None => ShortText::of(row).as_bytes().len(),
        };
        if octets > self.most_label_octets {
            let name = format!("{address} of {}", slice.service);
            self.problem(Problem::NameTooLong(name.into()));
            return;
        }
        let label = match name {
            Some(Placed { place, is_hostname, octets: _ }) => {
                RowLabel::at(place, is_hostname, own_pod)
            }
            None => RowLabel::derived(own_pod),
        };
        self.rows.push(Row { address: row, slice: self.slot, label });
    }

    pub(super) fn ports(&mut self, slice: &Slice) -> Vec<Port> {
        if slice.ports.len() > MAX_PORTS {
            self.problem(Problem::TooMany { what: "ports in one slice", limit: MAX_PORTS });
        }
        let mut ports: Vec<Port> = Vec::new();
        for port in slice.ports.iter().take(MAX_PORTS) {
            ports.push(Port {
                name: port.name.to_ascii_lowercase().into_bytes().into(),
                number: port.port,
                protocol: port.protocol,
            });
        }
        let order = |port: &Port| (port.number, port.protocol);
        ports.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.name.cmp(&b.name)));
        ports.dedup();
        ports
    }

    fn problem(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// The name of an endpoint that is not made of its address, and whether it is a hostname (RR23).
fn endpoint_name(endpoint: &Endpoint, names: EndpointNames) -> Option<(Box<str>, bool)> {
    if let Some(hostname) = &endpoint.hostname {
        let hostname = hostname.to_ascii_lowercase();
        if is_label(&hostname) {
            return Some((hostname.into(), true));
        }
    }
    let target = endpoint.target.as_ref()?;
    (names == EndpointNames::PodName && is_label(&target.name))
        .then(|| (target.name.clone(), false))
}
