//! Patches of objects that the API server cannot patch: while a time in their managed fields is not of RFC 3339, it answers
//! server-side apply with 500 and other patches with 422. Anyone who may edit such an object can write such a time: the API
//! server accepts a time of the year 9999 west of Greenwich, and in UTC it is of the year 10000. Only such a patch is sent a
//! second time.

use http_body_util::BodyExt;
use hyper::{Method, Request, Response, StatusCode, Uri};
use kube::client::Body;
use kube::{Client, Error};

use super::managed_fields;

/// Sends a request. Where a patch fails because of unreadable managed fields, they are written back without what cannot be
/// read, and the patch is sent again; so two requests more at most, and one for each patch that fails for another reason.
pub(super) async fn send(client: &Client, request: Request<Body>) -> Result<Response<Body>, Error> {
    if request.method() != Method::PATCH {
        return client.send(request).await;
    }
    let (parts, body) = request.into_parts();
    let body = body.collect_bytes().await?;
    let again = Request::from_parts(parts.clone(), Body::from(body.clone()));
    let reply = client.send(Request::from_parts(parts, Body::from(body))).await?;
    let may_be_unreadable = matches!(
        reply.status(),
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::UNPROCESSABLE_ENTITY
    );
    if !may_be_unreadable || !mend(client, again.uri()).await? {
        return Ok(reply);
    }
    client.send(again).await
}

/// Whether the object at this path had managed fields that cannot be read, and has none any more. They are written where the
/// patch was sent to: a right to patch the status is enough.
async fn mend(client: &Client, patched: &Uri) -> Result<bool, Error> {
    let Some(path) = object_path(patched.path()) else { return Ok(false) };
    let reply = client.send(request(Method::GET, path, Vec::new())?).await?;
    let status = reply.status();
    if !status.is_success() {
        // An object that is gone needs nothing.
        if status != StatusCode::NOT_FOUND {
            tracing::warn!(
                path,
                status = status.as_u16(),
                "the API server refuses a patch of this object, perhaps because managedFields have a time that it cannot read, and \
                 refuses to show the object too: `kubectl replace` it without managedFields, or delete it"
            );
        }
        return Ok(false);
    }
    let object = reply.into_body().collect().await?.to_bytes();
    let Some(patch) = managed_fields::patch_of_managers(&object) else { return Ok(false) };
    let reply = client.send(request(Method::PATCH, patched.path(), patch)?).await?;
    let is_mended = reply.status().is_success();
    if is_mended {
        tracing::warn!(
            path,
            "managedFields had a time that the API server cannot read, so it refused every patch; that entry was removed"
        );
    } else {
        tracing::warn!(
            path,
            status = reply.status().as_u16(),
            "managedFields have a time that the API server cannot read, so it refuses every patch, and this one too: \
             `kubectl replace` the object without managedFields, or delete it"
        );
    }
    Ok(is_mended)
}

fn request(method: Method, path: &str, body: Vec<u8>) -> Result<Request<Body>, Error> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/merge-patch+json");
    request.body(Body::from(body)).map_err(Error::HttpError)
}

/// The path of an object without its subresource: `/api/v1/RESOURCE/NAME`, `/apis/GROUP/v1/namespaces/NAMESPACE/RESOURCE/NAME`.
fn object_path(path: &str) -> Option<&str> {
    let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let version = if segments.first() == Some(&"api") { 2 } else { 3 };
    let is_in_namespace =
        segments.get(version) == Some(&"namespaces") && segments.len() >= version + 4;
    let count = version + if is_in_namespace { 4 } else { 2 };
    let octets: usize = segments.get(..count)?.iter().map(|segment| 1 + segment.len()).sum();
    path.get(..octets)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Patch, PatchParams};
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::Lines;
    use crate::fixtures::api::{self, Log, Reply};
    use crate::runtime::decode::lenient;

    #[test]
    fn the_path_of_an_object_is_the_one_without_its_subresource() {
        for (path, object) in [
            ("/api/v1/namespaces/dns/pods/a/status", Some("/api/v1/namespaces/dns/pods/a")),
            ("/api/v1/namespaces/dns/services/a", Some("/api/v1/namespaces/dns/services/a")),
            (
                "/apis/apps/v1/namespaces/dns/deployments/a/scale",
                Some("/apis/apps/v1/namespaces/dns/deployments/a"),
            ),
            (
                "/apis/clusterdns.dev/v1alpha1/clusterdnses/a/status",
                Some("/apis/clusterdns.dev/v1alpha1/clusterdnses/a"),
            ),
            ("/api/v1/namespaces/dns", Some("/api/v1/namespaces/dns")),
            ("/api/v1/namespaces/dns/status", Some("/api/v1/namespaces/dns")),
            ("/api/v1/pods", None),
            ("/readyz", None),
        ] {
            assert_eq!(object_path(path), object, "{path}");
        }
    }

    /// An API server that has one Pod with these managed fields, and patches it only while their times can be read. It answers a
    /// GET with `read`.
    fn server(managers: &Value, read: u16, may_mend: bool) -> (Client, Log) {
        let managers = Mutex::new(managers.clone());
        api::logged(move |asked| {
            let mut managers = managers.lock().unwrap();
            let is_unreadable = managers.to_string().contains("10000-");
            let code = match (asked.is_write(), asked.body["metadata"].get("managedFields")) {
                (true, Some(_)) if !may_mend => 403,
                (true, Some(mends)) => {
                    let entries = mends.as_array().unwrap();
                    assert!(entries.iter().all(|it| it["manager"] != "late"), "{mends}");
                    let version = &asked.body["metadata"]["resourceVersion"];
                    assert_eq!(version, "7", "over what was read only");
                    *managers = mends.clone();
                    200
                }
                (true, None) if is_unreadable => 500,
                (true, None) if asked.body["spec"].is_string() => 422,
                (true, None) => 200,
                (false, _) => read,
            };
            let object = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []},
                "metadata": {"name": "a", "resourceVersion": "7", "managedFields": *managers}});
            match code {
                200 => Reply::ok(object),
                code => Reply::status(code, "no"),
            }
        })
    }

    /// Patches the Pod; whether that was accepted, and what was asked.
    async fn patch(managers: Value, may_mend: bool, patch: Value) -> (bool, Vec<String>) {
        let (client, log) = server(&managers, 200, may_mend);
        let client = lenient(client);
        let pods = kube::Api::<Pod>::namespaced(client, "dns");
        let patched = pods.patch_status("a", &PatchParams::default(), &Patch::Merge(patch)).await;
        let asked = log.all().into_iter().map(|it| {
            let mends = it.body["metadata"].get("managedFields");
            let what = if mends.is_some() { "mended" } else { "" };
            format!("{} {} {what}", it.method, it.path)
        });
        (patched.is_ok(), asked.collect())
    }

    const POD: &str = "/api/v1/namespaces/dns/pods/a";

    #[tokio::test]
    async fn k23_a_time_in_managed_fields_keeps_no_object_from_being_patched() {
        let late = json!([{"manager": "late", "operation": "Update", "time": "10000-01-01T00:59:59Z"},
            {"manager": "good", "operation": "Update", "time": "2026-01-01T00:00:00Z"}]);
        let (is_patched, asked) = patch(late.clone(), true, json!({})).await;
        let status = format!("PATCH {POD}/status ");
        assert!(is_patched, "{asked:?}");
        assert_eq!(
            asked,
            [status.clone(), format!("GET {POD} "), format!("{status}mended"), status.clone()]
        );

        // Without the right to do so, the patch fails as it did.
        let (is_patched, asked) = patch(late, false, json!({})).await;
        assert!(!is_patched && asked.len() == 3, "{asked:?}");
    }

    #[tokio::test]
    async fn k23_a_log_line_says_what_to_do_also_where_the_object_may_not_be_read() {
        let late =
            json!([{"manager": "late", "operation": "Update", "time": "10000-01-01T00:59:59Z"}]);
        for (read, is_said) in [(403, true), (404, false)] {
            let (lines, _guard) = Lines::of_this_thread();
            let (client, log) = server(&late, read, true);
            let client = lenient(client);
            let pods = kube::Api::<Pod>::namespaced(client, "dns");
            let patch = Patch::Merge(json!({}));
            assert!(pods.patch_status("a", &PatchParams::default(), &patch).await.is_err());
            assert_eq!(log.all().len(), 2);
            let text = lines.text();
            assert_eq!(text.contains("without managedFields"), is_said, "{read}: {text}");
            assert_eq!(text.contains(POD), is_said, "{read}: {text}");
        }
    }

    #[tokio::test]
    async fn a_patch_that_is_refused_for_another_reason_changes_no_managed_fields() {
        let good = json!([{"manager": "m", "operation": "Update", "time": "2026-01-01T00:00:00Z"}]);
        let (is_patched, asked) = patch(good.clone(), true, json!({"spec": "wrong"})).await;
        assert!(!is_patched && asked.len() == 2, "{asked:?}");
        let (is_patched, asked) = patch(good, true, json!({})).await;
        assert!(is_patched && asked.len() == 1, "{asked:?}");
    }
}
