//! A port that another client put beside ours, with the name of ours: the API server refuses ours until it is gone.

use super::*;
use crate::fixtures::api::Asked;

/// An API server that has one Service, and keeps the ports of other managers at an apply.
struct Ports {
    version: u64,
    service: Value,
    /// What was sent, in order: the kind of patch and the version that it names.
    sent: Vec<(&'static str, String)>,
}

impl Ports {
    /// Another client changed the port 53 of UDP to 5353.
    fn edited() -> Ports {
        let port =
            |port: u16, protocol: &str| format!(r#"k:{{"port":{port},"protocol":"{protocol}"}}"#);
        let mut service = serde_json::to_value(wanted()).unwrap();
        service["spec"]["ports"][0]["port"] = json!(5353);
        let entry = |manager: &str, operation: &str, port: String| {
            json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:ports": {port: {".": {}, "f:name": {}, "f:port": {}}}}}})
        };
        service["metadata"]["uid"] = json!("s");
        service["metadata"]["managedFields"] = json!([
            entry(names::FIELD_MANAGER, "Apply", port(53, "TCP")),
            entry("kubectl-edit", "Update", port(5353, "UDP")),
        ]);
        Ports { version: 7, service, sent: Vec::new() }
    }

    fn shown(&self) -> Value {
        let mut shown = self.service.clone();
        shown["metadata"]["resourceVersion"] = json!(self.version.to_string());
        shown
    }

    fn reply(&mut self, asked: &Asked) -> Reply {
        if !asked.is_write() {
            return Reply::ok(self.shown());
        }
        let (is_apply, sent) = (asked.is_apply, &asked.body);
        let version = sent["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        self.sent.push((if is_apply { "apply" } else { "merge" }, version.clone()));
        if version != self.version.to_string() {
            return Reply::status(409, "the object has been modified");
        }
        if is_apply {
            let managers = self.service["metadata"]["managedFields"].to_string();
            if managers.contains("kubectl-edit") {
                return Reply::status(
                    422,
                    "Service \"kube-dns\" is invalid: spec.ports[2].name: Duplicate value: \"dns\"",
                );
            }
            self.service["spec"] = sent["spec"].clone();
        } else {
            self.service["metadata"]["managedFields"] = sent["metadata"]["managedFields"].clone();
        }
        self.version += 1;
        Reply::ok(self.shown())
    }
}

fn wanted() -> DynamicObject {
    let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]);
    ours("v1", "Service", json!({"ports": ports}))
}

#[tokio::test]
async fn o4_a_port_that_others_put_beside_ours_does_not_keep_ours_away() {
    let state = Arc::new(Mutex::new(Ports::edited()));
    let shared = state.clone();
    let client = api::client(move |asked| match asked.path.ends_with("/clusterdns-default") {
        true => shared.lock().unwrap().reply(asked),
        false => Reply::silence(),
    });
    let (dns, ctx) = (dns("{}"), context(client, settings()));
    let mut newest = Newest::new(&ctx, &dns, true);
    let desired = Desired { objects: vec![(Kind::Service, wanted())] };
    let observed =
        Observed { service: Some(from(state.lock().unwrap().shown())), ..Observed::default() };
    let outcome = apply(&ctx, &mut newest, &desired, (&observed, at(0)), &plan()).await.unwrap();
    assert!(outcome.is_complete(), "{outcome:?}");
    let state = state.lock().unwrap();
    assert_eq!(
        state.service["spec"]["ports"],
        wanted().data["spec"]["ports"],
        "53 again, and no 5353"
    );
    let sent: Vec<_> = state.sent.iter().map(|(how, version)| (*how, version.as_str())).collect();
    // Each is made over the version that was seen before it.
    assert_eq!(sent, [("apply", "7"), ("merge", "7"), ("apply", "8")]);
}
