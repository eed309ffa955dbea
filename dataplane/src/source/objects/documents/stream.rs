//! One document of a text, turned into objects while it is read. A dump of a cluster is one `List`: as untyped values its
//! items take fifteen times the memory of the text, so each item is sorted by its kind before the next one is read.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{ITEMS, Manifests, is_list};

/// What one document holds.
#[derive(Debug)]
pub(super) struct Document(Manifests);

impl Extend<Document> for Manifests {
    fn extend<T: IntoIterator<Item = Document>>(&mut self, documents: T) {
        documents.into_iter().for_each(|Document(manifests)| self.append(manifests));
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Document, D::Error> {
        from.deserialize_any(DocumentVisitor)
    }
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
        let (mut head, mut items) = (Map::new(), Items::default());
        while let Some(field) = map.next_key::<String>()? {
            if field == ITEMS {
                items = map.next_value()?;
                // The items are read already. A ClusterDNS with this field is reported with it, so its name stays.
                head.insert(field, items.is_there.then(Vec::<Value>::new).into());
            } else {
                head.insert(field, map.next_value()?);
            }
        }
        let mut manifests = Manifests::default();
        if is_list(&head) && items.is_there {
            manifests = items.sorted;
            // Items that do not say their kind have that of the list, which may come after them.
            head.insert(ITEMS.to_owned(), items.rest.into());
        }
        manifests.add(head.into(), None, 0);
        Ok(Document(manifests))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Document, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(no_object())
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(Document(Manifests::default()))
    }

    fn visit_none<E>(self) -> Result<Document, E> {
        Ok(Document(Manifests::default()))
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Document, D::Error> {
        Document::deserialize(from)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Document, E> {
        Ok(no_object())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Document, E> {
        Ok(no_object())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Document, E> {
        Ok(no_object())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Document, E> {
        Ok(no_object())
    }

    fn visit_str<E>(self, _: &str) -> Result<Document, E> {
        Ok(no_object())
    }
}

/// A number, a text or a sequence: it is counted and nothing is read from it.
fn no_object() -> Document {
    let mut manifests = Manifests::default();
    manifests.add(Value::Bool(true), None, 0);
    Document(manifests)
}

/// The field `items`, sorted as far as items say what they are.
#[derive(Default)]
struct Items {
    is_there: bool,
    sorted: Manifests,
    /// From the first item on that does not say its kind: of two objects with one name the later one is served.
    rest: Vec<Value>,
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Items, D::Error> {
        from.deserialize_any(ItemsVisitor)
    }
}

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Items;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Items, A::Error> {
        let mut items = Items { is_there: true, ..Items::default() };
        while let Some(item) = seq.next_element::<Value>()? {
            let says = |field: &str| item.get(field).is_some_and(Value::is_string);
            if items.rest.is_empty() && says("kind") && says("apiVersion") {
                items.sorted.add(item, None, 1);
            } else {
                items.rest.push(item);
            }
        }
        Ok(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Items, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Items::default())
    }

    fn visit_unit<E>(self) -> Result<Items, E> {
        Ok(Items::default())
    }

    fn visit_none<E>(self) -> Result<Items, E> {
        Ok(Items::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Items, D::Error> {
        Items::deserialize(from)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Items, E> {
        Ok(Items::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Items, E> {
        Ok(Items::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Items, E> {
        Ok(Items::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Items, E> {
        Ok(Items::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Items, E> {
        Ok(Items::default())
    }
}
