//! An object as a folder of manifests keeps it: in the octets of a snapshot. The last content of every file must stay at
//! hand, because a file that stops parsing keeps what it said. With objects as structures, a folder of 10,000 Services and
//! 100,000 endpoints took 81 MiB; with their octets it takes 39 MiB, the index included.

#![allow(clippy::missing_panics_doc, reason = "octets that were made of an object are read as one")]

use std::sync::Arc;

use dataplane_core::{Key, Object, Resource};

use crate::snapshot::format;

/// One object; two are equal if their contents are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    Octets(Arc<[u8]>),
    /// An object that the format has no room for, such as a slice of more than 65,535 endpoints.
    Whole(Arc<Object>),
}

impl Kept {
    pub fn new(object: Object) -> Kept {
        match format::octets(&object) {
            Some(octets) => Kept::Octets(octets.into()),
            None => Kept::Whole(Arc::new(object)),
        }
    }

    /// The object, decoded.
    pub fn object(&self) -> Object {
        match self {
            Kept::Octets(octets) => format::object(octets).expect("they were an object"),
            Kept::Whole(object) => Object::clone(object),
        }
    }

    /// Its resource and its name.
    pub fn id(&self) -> (Resource, Key) {
        match self {
            Kept::Octets(octets) => format::id(octets).expect("they were an object"),
            Kept::Whole(object) => (object.resource(), object.key()),
        }
    }
}

#[cfg(test)]
mod tests {
    use dataplane_core::{Endpoint, Slice};

    use super::*;

    fn slice(endpoints: usize) -> Object {
        let endpoint =
            Endpoint { addresses: Vec::new(), ready: true, hostname: None, target: None };
        Object::Slice(Slice {
            key: Key::new("shop", "cart-x"),
            uid: 7,
            version: 9,
            service: "cart".into(),
            ipv6: false,
            ports: Vec::new(),
            endpoints: vec![endpoint; endpoints],
        })
    }

    #[test]
    fn an_object_comes_back_whole_also_one_that_the_format_has_no_room_for() {
        for endpoints in [0, 3, 65_536] {
            let object = slice(endpoints);
            let kept = Kept::new(object.clone());
            assert_eq!(matches!(kept, Kept::Whole(_)), endpoints > 65_535);
            assert_eq!(kept.id(), (Resource::EndpointSlices, Key::new("shop", "cart-x")));
            assert!(kept == Kept::new(object.clone()) && kept != Kept::new(slice(1)));
            assert_eq!(kept.object(), object);
        }
    }
}
