//! An API server for tests that has what is applied with the owner of each field, denies writes of some kinds, and lets others
//! edit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use kube::Client;
use serde_json::{Map, Value, json};

use crate::desired::Kind;
use crate::fixtures::api::{self, Asked, Reply};
use crate::fixtures::from;
use crate::names;
use crate::observe::observed::Observed;
use crate::runtime::resources;

#[derive(Default)]
pub(super) struct Cluster {
    version: u64,
    pub(super) objects: BTreeMap<String, Value>,
    /// Paths of all writes, in order.
    pub(super) written: Vec<String>,
    /// Kinds of which nothing is written, by plural.
    pub(super) denied: BTreeSet<&'static str>,
    /// What of an object makes it invalid.
    pub(super) invalid: Option<fn(&Value) -> bool>,
    /// It has not the feature for the newer words of `trafficDistribution`.
    pub(super) knows_close_only: bool,
}

pub(super) type Shared = Arc<Mutex<Cluster>>;

/// The path of the object of this kind that belongs to the ClusterDNS `default`.
pub(super) fn path(kind: Kind) -> String {
    let resource = resources::resource(kind);
    let group = match resource.group.as_str() {
        "" => "/api".to_owned(),
        group => format!("/apis/{group}"),
    };
    let namespace = if resources::CLUSTER.contains(&kind) { "" } else { "/namespaces/kube-system" };
    let name = if kind == Kind::Service { "kube-dns" } else { "clusterdns-default" };
    format!("{group}/{}{namespace}/{}/{name}", resource.version, resource.plural)
}

/// Where an object is, and not all of a kind.
fn is_object(path: &str) -> bool {
    ["/clusterdns-default", "/kube-dns"].iter().any(|end| path.ends_with(end))
}

/// A client of it. Watches show nothing after the first lists, and these only `with_lists`: without them caches stay empty, and
/// each object is read by itself.
pub(super) fn client(cluster: &Shared, with_lists: bool) -> Client {
    let cluster = cluster.clone();
    api::client(move |asked| {
        let is_list = !asked.is_write() && !is_object(&asked.path);
        if is_list && (!with_lists || asked.is_watch()) {
            return Reply::silence();
        }
        lock(&cluster).reply(asked)
    })
}

pub(super) fn lock(cluster: &Shared) -> MutexGuard<'_, Cluster> {
    cluster.lock().unwrap()
}

impl Cluster {
    fn reply(&mut self, asked: &Asked) -> Reply {
        let (path, sent) = (&*asked.path, &asked.body);
        let is_object = is_object(path);
        if !asked.is_write() {
            if is_object {
                return Reply::found(self.objects.get(path));
            }
            let within = format!("{path}/");
            let of_it = self.objects.iter().filter(|(path, _)| path.starts_with(&within));
            let items: Vec<&Value> = of_it.map(|(_, object)| object).collect();
            return Reply::list_at(self.version, items);
        }
        self.written.push(path.to_owned());
        if self.denied.iter().any(|plural| path.contains(&format!("/{plural}"))) {
            return Reply::status(403, "denied");
        }
        if self.invalid.is_some_and(|is_invalid| is_invalid(sent)) {
            return Reply::status(422, "it is invalid");
        }
        let distribution = sent["spec"]["trafficDistribution"].as_str().unwrap_or("PreferClose");
        if self.knows_close_only && distribution != "PreferClose" {
            let message = format!(
                "Service \"kube-dns\" is invalid: spec.trafficDistribution: Unsupported value: \"{distribution}\": supported values: \
                 \"PreferClose\""
            );
            return Reply::status(422, &message);
        }
        if !is_object {
            return Reply::ok(sent);
        }
        let live = self.objects.remove(path).unwrap_or(Value::Null);
        // It chooses, and not the same one twice.
        let address = if live.is_null() { "10.96.0.10" } else { "10.96.7.7" };
        let object = self.objects.entry(path.to_owned()).or_insert(applied(live, asked));
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if path.contains("/services/") && object["spec"]["clusterIPs"].is_null() {
            object["spec"]["clusterIP"] = json!(address);
            object["spec"]["clusterIPs"] = json!([address]);
        }
        Reply::ok(object)
    }

    /// Another client sets a field, or removes it.
    pub(super) fn edit(&mut self, kind: Kind, pointer: &str, value: Option<Value>) {
        self.version += 1;
        let object = self.objects.get_mut(&path(kind)).expect("it was applied");
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let fields = object.pointer_mut(parent).and_then(Value::as_object_mut).unwrap();
        fields.remove(key);
        fields.extend(value.map(|value| (key.to_owned(), value)));
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let entries = object["metadata"]["managedFields"].as_array_mut().unwrap();
        let owned: String = pointer[1..].split('/').map(|part| format!("/f:{part}")).collect();
        let (parent, key) = owned.rsplit_once('/').unwrap();
        for entry in entries.iter_mut() {
            let fields = entry["fieldsV1"].pointer_mut(parent).and_then(Value::as_object_mut);
            fields.map(|fields| fields.remove(key));
        }
        entries.push(json!({"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {}}));
    }

    pub(super) fn delete(&mut self, kind: Kind) {
        self.objects.remove(&path(kind));
    }

    pub(super) fn get(&self, kind: Kind, pointer: &str) -> Value {
        self.objects
            .get(&path(kind))
            .and_then(|it| it.pointer(pointer))
            .cloned()
            .unwrap_or_default()
    }

    /// How often this kind was written, or was tried to be.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.written.iter().filter(|it| **it == path(kind)).count()
    }

    /// What decisions read of it.
    pub(super) fn shown_in(&self, observed: &mut Observed) {
        let get = |kind| self.objects.get(&path(kind)).cloned();
        observed.config_map = get(Kind::ConfigMap).map(from);
        observed.service = get(Kind::Service).map(from);
        observed.daemon_set = get(Kind::DaemonSet).map(from);
        let status = observed.deployment.take().and_then(|it| it.status);
        observed.deployment = get(Kind::Deployment).map(from);
        if let Some(deployment) = &mut observed.deployment {
            deployment.status = status;
        }
    }
}

/// The live object after an apply, or a merge patch without a manager's fields.
fn applied(mut live: Value, asked: &Asked) -> Value {
    let manager = asked.parameter("fieldManager").unwrap_or_default();
    let mut sent = asked.body.clone();
    let mut entries = live["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    if let Some(metadata) = sent["metadata"].as_object_mut() {
        metadata.retain(|key, _| !["resourceVersion", "uid"].contains(&key.as_str()));
    }
    let mut fields = owned_by(&sent);
    let named: Map<String, Value> = ["f:labels", "f:annotations", "f:ownerReferences"]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), fields["f:metadata"].get(key)?.clone())))
        .collect();
    fields["f:metadata"] = Value::Object(named);
    for type_of in ["f:apiVersion", "f:kind"] {
        fields.as_object_mut().unwrap().remove(type_of);
    }
    let (before, mut entries): (Vec<Value>, Vec<Value>) =
        entries.drain(..).partition(|it| it["manager"] == manager);
    for entry in before {
        give_up(&mut live, &entry["fieldsV1"], &fields);
    }
    for entry in &mut entries {
        without(&mut entry["fieldsV1"], &fields);
    }
    entries.push(json!({"manager": manager, "operation": "Apply", "fieldsV1": fields}));
    merge(&mut live, sent);
    live["metadata"]["managedFields"] = json!(entries);
    live["metadata"]["uid"] = json!("u");
    live
}

fn merge(live: &mut Value, sent: Value) {
    match (live, sent) {
        (Value::Object(live), Value::Object(sent)) => {
            for (key, value) in sent {
                let live = live.entry(key.clone()).or_insert(Value::Null);
                // It has one owner as a whole.
                if key == "selector" {
                    *live = Value::Null;
                }
                merge(live, value);
            }
        }
        (live, sent) => *live = sent,
    }
}

/// Removes what a manager had, and does not send any more.
fn give_up(live: &mut Value, before: &Value, now: &Value) {
    for (key, inner) in before.as_object().into_iter().flatten() {
        let name = key.trim_start_matches("f:");
        let is_leaf = inner.as_object().is_none_or(Map::is_empty);
        match (now.get(key), live.as_object_mut()) {
            (None, Some(live)) if is_leaf => _ = live.remove(name),
            (now, Some(live)) => {
                let Some(live) = live.get_mut(name) else { continue };
                give_up(live, inner, now.unwrap_or(&Value::Null));
            }
            (_, None) => {}
        }
    }
}

/// Maps by their members, all else as a whole.
fn owned_by(value: &Value) -> Value {
    let members = value.as_object().into_iter().flatten();
    Value::Object(members.map(|(key, value)| (format!("f:{key}"), owned_by(value))).collect())
}

fn without(fields: &mut Value, taken: &Value) {
    let Some(fields) = fields.as_object_mut() else { return };
    for (key, inner) in taken.as_object().into_iter().flatten() {
        match inner.as_object().is_none_or(Map::is_empty) {
            true => _ = fields.remove(key),
            false => {
                if let Some(fields) = fields.get_mut(key) {
                    without(fields, inner);
                }
            }
        }
    }
}

/// Labels of the pods of the Deployment, which the Service of a test selects.
pub(super) fn selector() -> Value {
    json!(names::selector("default"))
}
