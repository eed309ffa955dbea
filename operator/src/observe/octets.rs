//! About how large an object is in memory. Pure.

use std::fmt;

use serde::ser::{self, Serialize, Serializer};

/// What a text takes besides its octets: the heap rounds up, and remembers how large each piece is.
const OF_TEXT: usize = 24;
/// What an element of a list takes, and each key and each value of a map, besides what it leads to: lists and nodes of a B-tree
/// have room for more than they hold.
const OF_VALUE: usize = 48;
/// Least octets that a map takes, unless it is empty: a node of a B-tree has room for eleven members.
const OF_MAP: usize = 632;
/// What a structure takes in a list or a map: fields that are absent take room, too.
const OF_STRUCTURE: usize = 632;

/// About how many octets an object takes in memory. Its text would say too little: `{"a":1}` is 7 octets of text and, as a map,
/// some 700 in memory. A structure inside of another one is a part of it, and no map.
pub(crate) fn octets(object: &impl Serialize) -> usize {
    let mut sum = size_of_val(object);
    let counter = Counter { sum: &mut sum, of_structure: 0 };
    object.serialize(counter).expect("nothing is written that can fail");
    sum
}

/// Adds up what a value takes besides its own place.
struct Counter<'a> {
    sum: &'a mut usize,
    /// What a structure adds: nothing where it is a field of another one.
    of_structure: usize,
}

impl Counter<'_> {
    fn add(&mut self, octets: usize) -> fmt::Result {
        *self.sum += octets;
        Ok(())
    }

    /// A part of a structure.
    fn part<T: ?Sized + Serialize>(&mut self, value: &T) -> fmt::Result {
        value.serialize(Counter { sum: self.sum, of_structure: 0 })
    }

    /// What is in a list or in a map.
    fn element<T: ?Sized + Serialize>(&mut self, value: &T) -> fmt::Result {
        *self.sum += OF_VALUE;
        value.serialize(Counter { sum: self.sum, of_structure: OF_STRUCTURE })
    }

    fn structure(self) -> Result<Self, fmt::Error> {
        *self.sum += self.of_structure;
        Ok(self)
    }
}

/// What has a place of its size: a field, an element.
macro_rules! sized {
    ($($name:ident: $type:ty),*) => {
        $(fn $name(self, _: $type) -> fmt::Result {
            Ok(())
        })*
    };
}

impl Serializer for Counter<'_> {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    sized! {
        serialize_bool: bool, serialize_char: char, serialize_f32: f32, serialize_f64: f64,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_unit_struct: &'static str
    }

    fn serialize_str(mut self, text: &str) -> fmt::Result {
        self.add(text.len() + OF_TEXT)
    }

    fn serialize_bytes(mut self, octets: &[u8]) -> fmt::Result {
        self.add(octets.len() + OF_TEXT)
    }

    fn serialize_none(self) -> fmt::Result {
        Ok(())
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> fmt::Result {
        value.serialize(self)
    }

    fn serialize_unit(self) -> fmt::Result {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> fmt::Result {
        Ok(())
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        value: &T,
    ) -> fmt::Result {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> fmt::Result {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self, fmt::Error> {
        *self.sum += if length == Some(0) { 0 } else { OF_MAP };
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, fmt::Error> {
        self.structure()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, fmt::Error> {
        self.structure()
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, fmt::Error> {
        self.structure()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, fmt::Error> {
        self.structure()
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, fmt::Error> {
        self.structure()
    }
}

/// Everything that has more than one value, by what one of them is.
macro_rules! several {
    ($($trait:ident $name:ident $of:ident ($($key:ty)?);)*) => {
        $(impl ser::$trait for Counter<'_> {
            type Ok = ();
            type Error = fmt::Error;

            fn $name<T: ?Sized + Serialize>(&mut self, $(_: $key,)? value: &T) -> fmt::Result {
                self.$of(value)
            }

            fn end(self) -> fmt::Result {
                Ok(())
            }
        })*
    };
}

several! {
    SerializeSeq serialize_element element ();
    SerializeTuple serialize_element part ();
    SerializeTupleStruct serialize_field part ();
    SerializeTupleVariant serialize_field part ();
    SerializeStruct serialize_field part (&'static str);
    SerializeStructVariant serialize_field part (&'static str);
}

impl ser::SerializeMap for Counter<'_> {
    type Ok = ();
    type Error = fmt::Error;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> fmt::Result {
        self.element(key)
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> fmt::Result {
        self.element(value)
    }

    fn end(self) -> fmt::Result {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crds::ClusterDNS;
    use k8s_openapi::api::core::v1::{Node, Pod};
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use kube::core::DynamicObject;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::many;

    /// Octets of the heap that an object of this text takes, and the estimate.
    fn measured<T: Serialize + DeserializeOwned>(value: &Value) -> (usize, usize) {
        let text = value.to_string();
        let mut object: Option<Box<T>> = None;
        let taken = allocation_counter::measure(|| {
            object = Some(Box::new(serde_json::from_str(&text).expect("an object")));
        });
        let taken = usize::try_from(taken.bytes_current).expect("it is held");
        (taken, octets(object.expect("it was read").as_ref()))
    }

    #[test]
    fn k23_the_estimate_of_an_object_is_near_what_it_takes() {
        let pairs = |count: usize| -> serde_json::Map<String, Value> {
            (0..count).map(|n| (format!("some-key-{n:04}"), json!("a value"))).collect()
        };
        let list: Vec<Value> =
            (0..300).map(|n| json!({"port": n, "name": n.to_string()})).collect();
        let service = json!({"metadata": {"name": "a", "namespace": "dns", "labels": pairs(7)},
            "spec": {"clusterIP": "10.96.0.11", "selector": pairs(3), "ports": list}});
        let map = json!({"metadata": {"name": "a", "namespace": "dns"}, "data": pairs(1_000)});
        let large = json!({"metadata": {"name": "a"}, "data": {"a": "x".repeat(100_000)}});
        let dns = json!({"metadata": {"name": "a"}, "spec": {"service": {"name": "dns"},
            "hosts": [{"name": "a.example", "addresses": ["10.0.0.2"]}]}});
        let pod = json!({"metadata": {"name": "a", "labels": pairs(4)},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"containerPort": 53}]}]},
            "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}});
        let rows = [
            ("a slice", measured::<EndpointSlice>(&many::slice(0, 0, 100))),
            ("a node", measured::<Node>(&many::node(0, 30))),
            ("a pod", measured::<Pod>(&pod)),
            ("a pod of a DaemonSet", measured::<Pod>(&many::pod(7))),
            ("a Service", measured::<DynamicObject>(&service)),
            ("a ConfigMap of many keys", measured::<DynamicObject>(&map)),
            ("a ConfigMap of one large text", measured::<DynamicObject>(&large)),
            ("a ClusterDNS", measured::<ClusterDNS>(&dns)),
            ("an empty ClusterDNS", measured::<ClusterDNS>(&json!({"metadata": {}, "spec": {}}))),
        ];
        for (what, (taken, estimate)) in rows {
            let is_near = estimate >= taken * 9 / 10 && estimate <= taken * 5 / 2;
            assert!(is_near, "{what} takes {taken}, and {estimate} are counted");
        }
    }
}
