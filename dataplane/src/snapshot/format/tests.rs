//! Any object comes back as it was. Any octets are read or refused, and nothing else happens.

use proptest::prelude::*;

use super::*;

fn text() -> impl Strategy<Value = Box<str>> {
    "[a-z0-9.:ü-]{0,70}".prop_map(Into::into)
}

fn key() -> impl Strategy<Value = Key> {
    (text(), text()).prop_map(|(namespace, name)| Key::new(namespace, name))
}

fn addresses() -> impl Strategy<Value = Vec<IpAddr>> {
    let v4 = any::<[u8; 4]>().prop_map(IpAddr::from);
    let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
    prop::collection::vec(prop_oneof![v4, v6], 0..4)
}

fn labels() -> impl Strategy<Value = Vec<(Box<str>, Box<str>)>> {
    prop::collection::vec((text(), text()), 0..3)
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp), Just(Protocol::Sctp)]
}

fn ports() -> impl Strategy<Value = Vec<(Box<str>, u16, Protocol)>> {
    prop::collection::vec((text(), any::<u16>(), protocol()), 0..4)
}

fn service() -> impl Strategy<Value = Object> {
    let kind = prop_oneof![
        addresses().prop_map(ServiceKind::ClusterIp),
        Just(ServiceKind::Headless),
        text().prop_map(ServiceKind::ExternalName),
    ];
    (key(), any::<u128>(), any::<u64>(), labels(), kind, ports()).prop_map(
        |(key, uid, version, labels, kind, ports)| {
            let ports = ports.into_iter();
            let ports = ports.map(|(name, port, protocol)| ServicePort { name, port, protocol });
            Object::Service(Service { key, uid, version, labels, kind, ports: ports.collect() })
        },
    )
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    let target = (text(), text()).prop_map(|(namespace, name)| TargetRef { namespace, name });
    (addresses(), any::<bool>(), prop::option::of(text()), prop::option::of(target)).prop_map(
        |(addresses, ready, hostname, target)| Endpoint { addresses, ready, hostname, target },
    )
}

fn slice() -> impl Strategy<Value = Object> {
    let endpoints = prop::collection::vec(endpoint(), 0..5);
    (key(), any::<u128>(), any::<u64>(), text(), any::<bool>(), ports(), endpoints).prop_map(
        |(key, uid, version, service, ipv6, ports, endpoints)| {
            let ports = ports.into_iter();
            let ports = ports.map(|(name, port, protocol)| SlicePort { name, port, protocol });
            let ports = ports.collect();
            Object::Slice(Slice { key, uid, version, service, ipv6, ports, endpoints })
        },
    )
}

fn namespace() -> impl Strategy<Value = Object> {
    (text(), any::<u128>(), any::<u64>(), labels()).prop_map(|(name, uid, version, labels)| {
        Object::Namespace(Namespace { name, uid, version, labels })
    })
}

fn pod() -> impl Strategy<Value = Object> {
    (key(), any::<u128>(), any::<u64>(), addresses(), any::<bool>(), any::<bool>()).prop_map(
        |(key, uid, version, addresses, host_network, finished)| {
            Object::Pod(Pod { key, uid, version, addresses, host_network, finished })
        },
    )
}

fn any_object() -> impl Strategy<Value = Object> {
    prop_oneof![service(), slice(), namespace(), pod()]
}

fn octets(of: &Object) -> Vec<u8> {
    let mut octets = Vec::new();
    assert!(put_object(&mut octets, of));
    assert_eq!(u32::from_le_bytes(octets[..4].try_into().unwrap()) as usize, octets.len() - 4);
    octets.split_off(4)
}

proptest! {
    #[test]
    fn every_object_comes_back_as_it_was(before in any_object()) {
        prop_assert_eq!(object(&octets(&before)), Some(before));
    }

    #[test]
    fn a_cut_object_is_refused(before in any_object(), cut in any::<prop::sample::Index>()) {
        let octets = octets(&before);
        prop_assert_eq!(object(&octets[..cut.index(octets.len())]), None);
    }

    #[test]
    fn other_octets_are_read_or_refused(
        before in any_object(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut octets = octets(&before);
        for (at, octet) in flips {
            let at = at.index(octets.len());
            octets[at] = octet;
        }
        // What is read is an object: it can be written again.
        if let Some(after) = object(&octets) {
            prop_assert!(put_object(&mut Vec::new(), &after));
        }
    }

    #[test]
    fn no_octets_make_it_panic(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = object(&octets);
    }
}

#[test]
fn an_object_that_is_too_large_is_left_out_as_a_whole() {
    let labels = vec![("a".into(), "x".repeat(65_536).into())];
    let huge = Object::Namespace(Namespace { name: "n".into(), uid: 0, version: 0, labels });
    let mut octets = vec![1, 2];
    assert!(!put_object(&mut octets, &huge));
    assert_eq!(octets, [1, 2]);
}
