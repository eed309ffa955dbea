//! Names of federations, as kube-dns answered them (docs/dns.md §3.11). They exist only where Kubernetes has no name
//! with the same labels.

use alloc::sync::Arc;

use crate::records::{Kind, Records};
use crate::wire::dname::Dname;
use crate::wire::labels::Labels;

/// What a name is whose third label below `svc.Z` names a federation.
pub(super) enum Federated<'r> {
    /// `<federation>.svc.Z`, which exists in any case (RR98).
    Federation,
    /// `<ns>.<federation>.svc.Z`: names of the federation are below (RR98).
    Namespace,
    /// An alias: its end is replaced as this DNAME would do it.
    To(&'r Arc<Dname>),
    /// Its target has more than 255 octets, so there is no such name (RR97).
    TooLong,
    /// Its target is in the domain of the federation, but the zone or region of the cluster is not known (RR97).
    Unplaced,
}

/// Decides about a name below `svc.Z` (`left` labels below `Z`) that may be of a federation. The caller has checked
/// that Kubernetes has no name with these labels.
pub(super) fn federated<'r>(
    records: &'r Records,
    name: &Labels,
    left: usize,
) -> Option<Federated<'r>> {
    let label = left.checked_sub(2).filter(|below| *below <= 2).map(|at| name.label(at))?;
    let federation = records.zone.federations.find(label)?;
    match left {
        2 => Some(Federated::Federation),
        3 => is_label(name.label(0)).then_some(Federated::Namespace),
        _ if !is_service(name.label(0)) || !is_label(name.label(1)) => None,
        _ if is_served(records, name.range(0, 2)) => Some(Federated::To(&federation.here)),
        _ => Some(match &federation.away {
            None => Federated::Unplaced,
            Some(away) if away.substitute(name.wire()).is_none() => Federated::TooLong,
            Some(away) => Federated::To(away),
        }),
    }
}

/// RR96: the Service, by its two labels, is visible and has a published endpoint or another name.
fn is_served(records: &Records, wire: &[u8]) -> bool {
    let known = records.service(wire).map(|(_, entry)| entry);
    known.is_some_and(|entry| match records.visible(entry).map(|object| &object.kind) {
        Some(Kind::ClusterIp(_) | Kind::Headless) => !entry.by_address.is_empty(),
        Some(Kind::ExternalName(_)) => true,
        Some(Kind::Unserved) | None => false,
    })
}

/// A label of RFC 1123, as namespaces have; the name is lower case.
fn is_label(label: &[u8]) -> bool {
    let is_edge = |octet: Option<&u8>| octet.is_some_and(u8::is_ascii_alphanumeric);
    let is_inner = |octet: &u8| octet.is_ascii_alphanumeric() || *octet == b'-';
    is_edge(label.first()) && is_edge(label.last()) && label.iter().all(is_inner)
}

/// A label of RFC 1035, as Services have: it begins with a letter.
fn is_service(label: &[u8]) -> bool {
    is_label(label) && label.first().is_some_and(u8::is_ascii_alphabetic)
}
