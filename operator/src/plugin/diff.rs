//! `diff`: what an edit of a ClusterDNS would change, before it is applied. It compares what the fields mean, not how they
//! are written; it asks data planes at most what they answer today, and never writes.

mod meaning;
mod names;
mod settings;
mod text;

use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use crds::config::UnknownFields;
use crds::manifest::{self, Found, ManifestError};
use crds::{ClusterDNS, Config};
use serde::Serialize;
use serde_json::Value;

use super::args::{Diff, Output, Which};
use super::asker::allowed;
use super::data_plane::{self, DataPlane};
use super::lookups::{self, Cluster};
use super::output::{Printed, json};
use super::pages::Answer;
use crate::offline::{self, indexed, text_of};
use meaning::meaning;
pub use names::NameChange;
use names::names;
pub use settings::SettingChange;
use settings::settings;

/// Names whose present answer is asked for.
const MAX_ASKED: usize = 64;
/// Status where something would change, as of `kubectl diff`.
const DIFFERS: u8 = 1;
/// Status where that is not known.
pub(super) const FAILED: u8 = 2;

/// The result of `diff`, as text and JSON show it.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// Name of the ClusterDNS.
    pub cluster_dns: String,
    /// What it is compared with: the one of the cluster, or a file.
    pub against: String,
    /// Revision of the configuration of data planes now, and with the edit.
    pub revisions: (String, String),
    /// Fields, by what they mean.
    pub settings: Vec<SettingChange>,
    /// Names, and what they would be answered with.
    pub names: Vec<NameChange>,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// Compares the edited ClusterDNS with the one of the cluster, or of a file.
pub(super) async fn run(which: &Which, args: &Diff) -> Printed {
    let (file, new) = one(&args.file, which.clusterdns.as_deref())?;
    // What the API server would drop, such as a misspelled field, would else be no change.
    let wrong = offline::wrong(&file, &new);
    if !wrong.is_empty() {
        return Err(format!("the edit is not valid, and would be refused:\n{}", wrong.join("\n")));
    }
    let new = new.resource;
    let name = new.metadata.name.clone().unwrap_or_default();
    let (cluster, (old, unknown), against) = match &args.against {
        Some(file) => {
            let (_, Found { resource, unknown, .. }) = one(file, Some(&name))?;
            (None, (resource, unknown), file.display().to_string())
        }
        None => {
            let cluster = Cluster::connect(which).await?;
            let found = cluster.cluster_dns_and_unknown(Some(&name)).await?;
            (Some(cluster), found, "the cluster".to_owned())
        }
    };
    let mut changes = Changes::of(&old, &new, &against)?;
    changes.remove_unknown(&unknown);
    let data_plane = match (which.address, &cluster) {
        (Some(address), _) => Some(Ok(lookups::at(which, address))),
        (None, Some(cluster)) => Some(cluster.asked(which, &old).await),
        (None, None) => None,
    };
    if let Some(data_plane) = data_plane {
        let client = match (args.client, allowed(&old.spec)) {
            (None, Some((client, note))) => {
                changes.notes.extend(changes.asks().then_some(note));
                Some(client)
            }
            (client, _) => client,
        };
        if let Err(why) = today(&mut changes, data_plane, client).await {
            changes.notes.push(format!("what is answered today is not known: {why}"));
        }
    }
    let text = match args.output {
        Output::Text => changes.text(),
        Output::Json => json(&changes),
    };
    Ok((text, if changes.is_none() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERS) }))
}

impl Changes {
    /// The changes from one to the other.
    ///
    /// # Errors
    /// What is wrong with the edited one, by field.
    pub fn of(old: &ClusterDNS, new: &ClusterDNS, against: &str) -> Result<Changes, String> {
        let name = new.metadata.name.clone().unwrap_or_default();
        let after = crds::check_resource(new).map_err(|violations| {
            format!("the edit is not valid, and would be refused:\n{violations}")
        })?;
        let mut notes = Vec::new();
        let before = crds::check_resource(old).unwrap_or_else(|violations| {
            notes.push(format!("{against} has a ClusterDNS that is not valid, compared with the defaults: {violations}"));
            Config::default()
        });
        let refused = crds::check_update(old, &new.spec).err().unwrap_or_default();
        let immutable: Vec<&str> = refused.listed().iter().map(|it| it.field.as_str()).collect();
        let settings = settings(&meaning(&old.spec), &meaning(&new.spec), &immutable);
        let refused = settings.iter().filter(|it| it.is_immutable).map(|it| it.field.as_str());
        let refused: Vec<&str> = refused.collect();
        if !refused.is_empty() {
            notes.push(format!(
                "the API server refuses the edit: {} cannot be changed",
                refused.join(", ")
            ));
        }
        let revisions = (before.revision(), after.revision());
        let moves = move_of_service(old, new);
        let say = match (settings.is_empty(), revisions.0 == revisions.1) {
            (false, true) if moves.is_some() => Some("data planes run the same configuration"),
            (false, true) => Some(
                "data planes run the same configuration: answers stay, only how they run changes",
            ),
            (true, false) => Some(
                "no field has another value, only the order of a list: pods get the configuration as a new revision",
            ),
            (true, true) | (false, false) => None,
        };
        notes.extend(say.into_iter().chain(moves).map(str::to_owned));
        Ok(Changes {
            cluster_dns: name,
            against: against.to_owned(),
            revisions,
            names: names(&before, &after),
            settings,
            notes,
        })
    }
}

/// Clients ask the address of the Service: which server answers there is not in the configuration of data planes.
fn move_of_service(old: &ClusterDNS, new: &ClusterDNS) -> Option<&'static str> {
    let adopts = |dns: &ClusterDNS| dns.spec.service.as_ref().is_some_and(|service| service.adopt);
    match (adopts(old), adopts(new)) {
        (false, true) => Some(
            "spec.service.adopt: a Service of another DNS server is taken over, and its clients then get the answers of this \
             ClusterDNS",
        ),
        (true, false) => Some(
            "spec.service.adopt: a Service that was taken over is given back, and its clients then get the answers of the other \
             DNS server",
        ),
        (false, false) | (true, true) => None,
    }
}

impl Changes {
    /// Is there a name to ask a data plane for?
    fn asks(&self) -> bool {
        self.names.iter().any(|change| change.asked.is_some())
    }

    /// Nothing would change: the fields mean the same, and data planes run the same configuration.
    fn is_none(&self) -> bool {
        self.settings.is_empty() && self.revisions.0 == self.revisions.1
    }

    /// The edit has no field that this version does not know, so it removes those of the other one.
    fn remove_unknown(&mut self, unknown: &UnknownFields) {
        let of_spec = unknown.paths.iter().filter(|path| path.starts_with("spec."));
        let removed: Vec<_> = of_spec
            .map(|path| SettingChange {
                field: indexed(path),
                before: Some("is set, and this version of the plugin does not know it".to_owned()),
                after: None,
                is_immutable: false,
            })
            .collect();
        if !removed.is_empty() {
            self.notes.push(format!(
                "{} has fields that this version of the plugin ({}) does not know. The edit removes them, and what that \
                 changes is not known: update the plugin",
                self.against,
                env!("CARGO_PKG_VERSION")
            ));
        }
        self.settings.extend(removed);
    }
}

/// Asks a data plane what it answers now to the names that would change.
async fn today(
    changes: &mut Changes,
    data_plane: Result<DataPlane, String>,
    client: Option<IpAddr>,
) -> Result<(), String> {
    let mut connection = data_plane?.open().await?;
    let more = changes.names.len().saturating_sub(MAX_ASKED);
    for change in changes.names.iter_mut().take(MAX_ASKED) {
        let Some(asked) = &change.asked else { continue };
        let path = data_plane::explain(asked, &change.qtype, client);
        let page = connection.page(hyper::Method::GET, &path).await?;
        let page: Value = serde_json::from_str(&page).map_err(|error| error.to_string())?;
        change.today = Some(Answer::read(&page)?.short());
    }
    if more > 0 {
        changes
            .notes
            .push(format!("what is answered today was asked for the first {MAX_ASKED} names"));
    }
    Ok(())
}

/// How to call a file, and its ClusterDNS: the one of this name, or the only one.
fn one(file: &Path, name: Option<&str>) -> Result<(String, Found), String> {
    let (shown, text) = text_of(file)?;
    let read = manifest::read_all(&text, &shown).map_err(|error| error.to_string())?;
    let read: Result<Vec<_>, ManifestError> = read.into_iter().collect();
    let mut all = read.map_err(|error| error.to_string())?;
    let of = |found: &Found| found.resource.metadata.name.clone();
    let names: Vec<String> = all.iter().filter_map(of).collect();
    if let Some(name) = name {
        all.retain(|found| of(found).as_deref() == Some(name));
    }
    match (all.len(), name) {
        (1, _) => Ok((shown, all.swap_remove(0))),
        (0, _) if names.is_empty() => Err(format!(
            "{shown} has no ClusterDNS: write apiVersion: clusterdns.dev/v1alpha1 and kind: ClusterDNS"
        )),
        (_, Some(name)) => {
            Err(format!("{shown} has not one ClusterDNS {name}: it has {}", names.join(", ")))
        }
        (_, None) => {
            Err(format!("{shown} has several: add --clusterdns with one of {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(spec: Value) -> (ClusterDNS, UnknownFields) {
        let object = json!({"apiVersion": "clusterdns.dev/v1alpha1", "kind": "ClusterDNS",
            "metadata": {"name": "a"}, "spec": spec, "status": {"colour": "red"}});
        manifest::read_value(object).unwrap()
    }

    /// The names of one address are in the order of the hosts, so the revision of the configuration is another one.
    #[test]
    fn a_new_revision_is_a_change_also_where_no_setting_differs() {
        let host = |name: &str| json!({"name": name, "addresses": ["192.0.2.1"]});
        let of =
            |first: &str, second: &str| resource(json!({"hosts": [host(first), host(second)]})).0;
        let changes =
            Changes::of(&of("a.example", "b.example"), &of("b.example", "a.example"), "it")
                .unwrap();
        assert!(changes.settings.is_empty() && !changes.is_none());
        let text = changes.text();
        assert!(text.contains("only the order of a list"), "{text}");
        assert!(!text.contains("nothing would change") && !text.contains("settings\n"), "{text}");
        let same = Changes::of(&of("a.example", "b.example"), &of("a.example", "b.example"), "it");
        assert!(same.unwrap().is_none());
    }

    /// What a plugin that is older than the cluster compares.
    #[test]
    fn diff_shows_that_an_edit_removes_fields_that_this_version_does_not_know() {
        let known = json!({"hosts": [{"name": "a.example", "addresses": ["192.0.2.1"]}]});
        let mut newer = known.clone();
        newer["colour"] = "red".into();
        newer["hosts"][0]["shade"] = 1.into();
        let (new, _) = resource(known.clone());
        for (old, expected) in [(newer, &["spec.colour", "spec.hosts[0].shade"][..]), (known, &[])]
        {
            let (old, unknown) = resource(old);
            let mut changes = Changes::of(&old, &new, "the cluster").unwrap();
            changes.remove_unknown(&unknown);
            let mut fields: Vec<&str> =
                changes.settings.iter().map(|it| it.field.as_str()).collect();
            fields.sort_unstable();
            assert_eq!(fields, expected);
            let is_said = changes.notes.iter().any(|note| note.contains("update the plugin"));
            assert_eq!(is_said, !expected.is_empty(), "{:?}", changes.notes);
        }
    }

    #[test]
    fn diff_says_that_clients_get_other_answers_where_the_service_moves() {
        let of = |adopt: bool| resource(json!({"service": {"adopt": adopt}})).0;
        let text = |old, new| Changes::of(&of(old), &of(new), "the cluster").unwrap().text();
        for (old, new, words) in [(false, true, "taken over"), (true, false, "given back")] {
            let text = text(old, new);
            assert!(text.contains(words) && !text.contains("answers stay"), "{text}");
        }
        let faster = resource(json!({"scaling": {"fixed": {"replicas": 3}}})).0;
        let text = Changes::of(&of(false), &faster, "the cluster").unwrap().text();
        assert!(text.contains("answers stay"), "{text}");
    }
}
