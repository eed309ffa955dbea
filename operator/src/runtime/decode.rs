//! Objects as the API server sends them, decoded one by one: one that cannot be read costs itself, not its list. Anyone who
//! may edit an object may write into its managed fields what the API server takes and no typed client reads: a time in the
//! year 10000, fields in fields 200 deep, or octets that are not UTF-8. Only such entries are changed or left out, because decisions read the others.
//!
//! Lists and watches are read here object by object. All other replies are what kube's client decodes by itself; its
//! [`lenient`] form gets them with such entries changed.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http_body_util::BodyExt;
use hyper::header::CONTENT_LENGTH;
use hyper::{Request, Response};
use kube::client::Body;
use kube::{Client, Error};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::managed_fields::{readable_reply, with_readable_managers};
use super::mend;
use crate::shortened::shortened;

/// Octets of why an object cannot be decoded, for people.
const MAX_WHY: usize = 300;

/// On a request whose reply is read object by object, by [`object`]: the client gives it as it arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadByObject;

/// The same client, whose replies have no managed fields that kube cannot decode: of the object that was read or written, or
/// of the objects of a list that kube decodes as a whole.
pub fn lenient(client: Client) -> Client {
    let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let as_it_arrives = request.extensions().get::<ReadByObject>().is_some();
            let reply = mend::send(&client, request).await?;
            // Another status: there is no object, or no HTTP any more.
            match !as_it_arrives && reply.status().is_success() {
                true => repaired(reply).await,
                false => Ok(reply),
            }
        }
    });
    Client::new(service, namespace).with_valid_until(valid_until)
}

/// kube reads such a reply to its end too, before it decodes it.
async fn repaired(reply: Response<Body>) -> Result<Response<Body>, Error> {
    let (mut parts, body) = reply.into_parts();
    let mut text = body.collect().await?.to_bytes().to_vec();
    if let Cow::Owned(in_utf8) = String::from_utf8_lossy(&text) {
        parts.headers.remove(CONTENT_LENGTH);
        text = in_utf8.into_bytes();
    }
    if let Some(repaired) = readable_reply(&text) {
        parts.headers.remove(CONTENT_LENGTH);
        text = repaired;
    }
    Ok(Response::from_parts(parts, Body::from(text)))
}

/// An object that cannot be decoded, and what names it.
#[derive(Debug)]
pub(crate) struct Undecodable {
    pub(crate) metadata: Named,
    pub(crate) error: serde_json::Error,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) resource_version: Option<String>,
    /// It may be what cannot be read.
    #[serde(skip_serializing)]
    pub(crate) deletion_timestamp: Option<IgnoredAny>,
    labels: Option<BTreeMap<String, String>>,
}

/// `metadata` of an object, and nothing else of it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OfObject {
    metadata: Named,
}

impl std::fmt::Display for Undecodable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Named { name, namespace, .. } = &self.metadata;
        write!(f, "{}/{name}: {}", namespace.as_deref().unwrap_or_default(), self.why())
    }
}

impl Undecodable {
    /// What cannot be read, for people. It may quote a value of any length.
    pub(crate) fn why(&self) -> String {
        let text = self.error.to_string();
        // Where in the text it is changes with each edit of something else.
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        shortened(what, MAX_WHY)
    }

    /// An object of the same name that has nothing else: to say that the state before is outdated. None for a kind that
    /// has no such object.
    pub(crate) fn nameless<K: DeserializeOwned>(&self) -> Option<K> {
        let object = serde_json::json!({"metadata": self.metadata, "spec": {}});
        serde_json::from_value(object).ok()
    }
}

/// Reads one object, if need be without what no client can read of its managed fields.
///
/// # Errors
/// Another field has a value that its type cannot have.
pub(crate) fn object<K: DeserializeOwned>(text: &[u8]) -> Result<K, Undecodable> {
    if let Ok(read) = serde_json::from_slice(text) {
        return Ok(read);
    }
    let text = String::from_utf8_lossy(text);
    let text = text.as_bytes();
    let read = serde_json::from_slice(text)
        .or_else(|_| with_readable_managers(text).and_then(|text| serde_json::from_slice(&text)));
    read.map_err(|error| {
        let OfObject { metadata } = serde_json::from_slice(text).unwrap_or_default();
        Undecodable { metadata, error }
    })
}

/// The version of an object, or of a bookmark.
///
/// # Errors
/// It is no object.
pub(crate) fn version(text: &str) -> serde_json::Result<String> {
    let OfObject { metadata } = serde_json::from_str(text)?;
    Ok(metadata.resource_version.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
    use kube::ResourceExt;
    use kube::core::DynamicObject;

    use super::*;
    use crate::fixtures::api::{self, Reply};

    /// What the API server shows of a time that was written as 9999-12-31T23:59:59-01:00.
    const YEAR_10000: &str =
        r#"{"manager":"m","operation":"Update","time":"10000-01-01T00:59:59Z"}"#;

    #[test]
    fn k23_what_managed_fields_say_keeps_no_object_from_being_read() {
        let deep = format!(r#"{{"fieldsV1":{}{{}}{}}}"#, r#"{"f:a":"#.repeat(200), "}".repeat(200));
        for hostile in [YEAR_10000, &deep, "7", r#"{"time":"\u0000"}"#] {
            let text = format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"managedFields":[{hostile}],"name":"a","labels":{{"b":"c"}}}},
                "spec":{{"nodeName":"n","containers":[]}}}}"#
            );
            let pod: Pod = object(text.as_bytes()).unwrap();
            assert_eq!((pod.name_any().as_str(), pod.labels()["b"].as_str()), ("a", "c"));
            assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("n"));
            let any: DynamicObject = object(text.as_bytes()).unwrap();
            assert_eq!(
                (any.name_any().as_str(), &any.data["spec"]["nodeName"]),
                ("a", &"n".into())
            );
        }
        assert!(object::<Pod>(b"{}").is_ok(), "without metadata");
    }

    #[test]
    fn k23_managers_that_can_be_read_keep_their_fields() {
        let deep = format!(r#"{{"fieldsV1":{}{{}}{}}}"#, r#"{"f:a":"#.repeat(200), "}".repeat(200));
        let good = r#"{"manager":"kubectl","operation":"Apply","time":"2026-01-01T00:00:00Z","fieldsV1":{"f:spec":{}}}"#;
        let text = format!(
            r#"{{"metadata":{{"name":"a","managedFields":[{YEAR_10000},{deep},{good}]}}}}"#
        );
        let pod: Pod = object(text.as_bytes()).unwrap();
        let of = |entry: &ManagedFieldsEntry| (entry.manager.clone(), entry.time.is_some());
        let managers: Vec<_> = pod.managed_fields().iter().map(of).collect();
        assert_eq!(managers, [(Some("m".into()), false), (Some("kubectl".into()), true)]);
        assert!(pod.managed_fields()[1].fields_v1.is_some());
    }

    /// An API server that gives this text for every request.
    fn server(text: impl AsRef<[u8]>) -> Client {
        let text = text.as_ref().to_vec();
        api::client(move |_| Reply::text(text.clone()))
    }

    #[tokio::test]
    async fn k23_replies_of_single_objects_are_read_too() {
        let deep = format!(r#"{{"fieldsV1":{}{{}}{}}}"#, r#"{"f:a":"#.repeat(150), "}".repeat(150));
        for hostile in [YEAR_10000, &deep] {
            let object = format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a","managedFields":[{hostile}]}},"spec":{{"containers":[]}}}}"#
            );
            let strict = kube::Api::<Pod>::namespaced(server(&object), "default");
            assert!(strict.get("a").await.is_err(), "what this is for");
            let pods = kube::Api::<Pod>::namespaced(lenient(server(&object)), "default");
            assert_eq!(pods.get_opt("a").await.unwrap().unwrap().name_any(), "a");
            assert_eq!(pods.get_metadata("a").await.unwrap().name_any(), "a");
            let params = kube::api::PatchParams::default();
            let patch = kube::api::Patch::Merge(serde_json::json!({}));
            assert_eq!(pods.patch_status("a", &params, &patch).await.unwrap().name_any(), "a");
            let list = format!(
                r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{object},{object}]}}"#
            );
            let pods = kube::Api::<Pod>::namespaced(lenient(server(&list)), "default");
            let listed = pods.list(&kube::api::ListParams::default()).await.unwrap();
            assert_eq!(
                (listed.items.len(), listed.metadata.resource_version.as_deref()),
                (2, Some("7"))
            );
            assert_eq!(listed.items[1].spec.as_ref().map(|it| it.containers.len()), Some(0));
        }
    }

    #[tokio::test]
    async fn k23_replies_with_octets_that_are_no_text_are_read_too() {
        let text = [
            br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","managedFields":[{"fieldsV1":{"f:"#,
            &[0xff][..],
            br#"":{}}}]},"spec":{"containers":[]}}"#,
        ]
        .concat();
        assert_eq!(object::<Pod>(&text).unwrap().name_any(), "a");
        let strict = kube::Api::<Pod>::namespaced(server(&text), "default");
        assert!(strict.get("a").await.is_err(), "what this is for");
        let pods = kube::Api::<Pod>::namespaced(lenient(server(&text)), "default");
        assert_eq!(pods.get("a").await.unwrap().name_any(), "a");
    }

    #[tokio::test]
    async fn a_reply_that_can_be_read_is_given_as_it_came() {
        for text in [r#"{"metadata":{"name":"a"},"b":1.50}"#, "no JSON", "", "[1]"] {
            let request = Request::get("/x").body(Vec::new()).unwrap();
            let got = lenient(server(text)).request_text(request).await.unwrap();
            assert_eq!(got, text);
        }
    }

    #[test]
    fn k23_an_object_that_cannot_be_read_is_named() {
        let text = r#"{"metadata":{"name":"a","namespace":"dns","resourceVersion":"7","deletionTimestamp":"10000-01-01T00:59:59Z"}}"#;
        let undecodable = object::<Pod>(text.as_bytes()).unwrap_err();
        assert!(undecodable.to_string().starts_with("dns/a: "), "{undecodable}");
        assert_eq!(undecodable.metadata.resource_version.as_deref(), Some("7"));
        let nameless: Pod = undecodable.nameless().unwrap();
        assert_eq!(
            (nameless.namespace().as_deref(), nameless.name_any().as_str()),
            (Some("dns"), "a")
        );
        assert!(undecodable.nameless::<crds::ClusterDNS>().is_some());
        assert!(object::<Pod>(b"no JSON").unwrap_err().metadata.name.is_empty());
    }
}
