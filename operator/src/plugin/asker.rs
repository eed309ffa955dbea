//! From which address a question is explained where no pod asks it (pure): `access.clients` refuses the address of the plugin.

use std::net::IpAddr;

use crds::ClusterDNSSpec;
use ipnet::IpNet;

/// An address that `access.clients` lets ask, and what to say of it; none where everyone may ask.
pub(super) fn allowed(spec: &ClusterDNSSpec) -> Option<(IpAddr, String)> {
    let clients = spec.access.as_ref()?.clients.as_ref()?;
    let range: IpNet = clients.iter().find_map(|range| range.parse().ok())?;
    let address = range.hosts().next()?;
    let note = format!(
        "asked as the client {address}, because access.clients has {range}: --client names another one"
    );
    Some((address, note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask_pods::canary_analysis::clients::ClientList;

    #[test]
    fn the_client_is_one_that_may_ask() {
        let of = |clients: &str| {
            let spec = format!("{{access: {clients}}}");
            allowed(&serde_saphyr::from_str(&spec).expect(clients)).map(|(address, _)| address)
        };
        for (clients, range) in [
            ("{clients: [10.244.0.0/16, 10.0.0.0/8]}", "10.244.0.0/16"),
            ("{clients: [192.0.2.7/32]}", "192.0.2.7/32"),
            ("{clients: ['fd00:1::/64']}", "fd00:1::/64"),
        ] {
            let address = of(clients).expect(clients);
            let list = ClientList::of(&[range.parse().unwrap()]);
            assert!(list.allows(address.into()), "{clients}: {address}");
        }
        assert_eq!([of("{}"), of("{clients: []}")], [None, None], "everyone may ask");
    }
}
