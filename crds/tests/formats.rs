//! The document between the planes, release by release: `formats/VERSION` has resources, and the documents that the
//! operator of that version made of them. They are never changed after their release, so that an older data plane beside
//! a newer operator, and the reverse, are a table. `UPDATE_EXPECT=1` writes those of the version of Cargo.toml only.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use crds::config::{Config, FORMAT, revision_of};
use crds::document::ConfigError;
use crds::{check_resource, manifest};
use serde_json::{Value, json};

const THIS: &str = env!("CARGO_PKG_VERSION");
/// The document with every field of its release.
const FULL: &str = "full";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The names of the files in a folder that have this ending.
fn names(folder: &Path, end: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let names = entries.map(|entry| entry.expect("readable").file_name());
    let mut names: Vec<String> = names
        .filter_map(|name| name.to_str().expect("UTF-8").strip_suffix(end).map(str::to_owned))
        .collect();
    names.sort();
    names
}

fn document_of(resource: &str, name: &str) -> String {
    let (resource, _) = manifest::read(resource, name).unwrap_or_else(|error| panic!("{error}"));
    check_resource(&resource).unwrap_or_else(|error| panic!("{name}: {error}")).to_json()
}

/// Whether this version has a tag, so that others read its documents already.
fn is_released() -> bool {
    let tag = format!("refs/tags/v{THIS}");
    let mut git = Command::new("git");
    git.current_dir(folder("")).args(["rev-parse", "--quiet", "--verify", &tag]);
    git.output().is_ok_and(|git| git.status.success())
}

/// Writes the folder of this version from the examples.
fn update() {
    let (from, to) = (folder("examples"), folder("tests/formats").join(THIS));
    if is_released() {
        for name in names(&from, ".yaml") {
            let file = format!("{name}.yaml");
            assert!(
                fs::read(from.join(&file)).ok() == fs::read(to.join(&file)).ok(),
                "{THIS} is released, and its documents never change: set the next version in Cargo.toml for a new {file}"
            );
        }
        return;
    }
    let _ = fs::remove_dir_all(&to);
    fs::create_dir_all(&to).expect("a folder");
    for name in names(&from, ".yaml") {
        let resource = fs::read_to_string(from.join(format!("{name}.yaml"))).expect("an example");
        let document = document_of(&resource, &name) + "\n";
        fs::write(to.join(format!("{name}.yaml")), resource).expect("written");
        fs::write(to.join(format!("{name}.json")), document).expect("written");
    }
}

struct Released {
    /// `0.1.0/full`.
    name: String,
    resource: String,
    document: String,
}

/// Every committed document of one version, or of all.
fn released(of: Option<&str>) -> Vec<Released> {
    static ONCE: Once = Once::new();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        ONCE.call_once(update);
    }
    let formats = folder("tests/formats");
    let mut all = Vec::new();
    for version in names(&formats, "").iter().filter(|version| of.is_none_or(|of| of == *version)) {
        for name in names(&formats.join(version), ".json") {
            let file = |end| {
                let path = formats.join(version).join(format!("{name}.{end}"));
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
            };
            all.push(Released {
                name: format!("{version}/{name}"),
                resource: file("yaml"),
                document: file("json").trim_end().to_owned(),
            });
        }
    }
    all
}

/// Every field of a document, items of lists as `*`.
fn fields(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                fields(value, &at, found);
                found.insert(at);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| fields(item, &format!("{at}.*"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The fields of `new` that a reader ignores if it knows only those of `old`.
fn ignored(old: &str, new: &str) -> Vec<String> {
    let of = |text: &str| {
        let mut found = BTreeSet::new();
        fields(&serde_json::from_str(text).expect("JSON"), "", &mut found);
        found
    };
    of(new).difference(&of(old)).cloned().collect()
}

#[test]
fn this_version_has_committed_documents() {
    let names: Vec<String> = released(Some(THIS)).into_iter().map(|it| it.name).collect();
    assert!(names.len() >= 9 && names.contains(&format!("{THIS}/{FULL}")), "{names:?}");
}

/// A newer data plane beside an older operator.
#[test]
fn a_document_of_every_release_is_read_in_full_and_keeps_its_revision() {
    for Released { name, document, .. } in released(None) {
        let (config, unknown) =
            Config::from_json(&document).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(unknown.is_empty(), "{name}: {unknown} is not read any more");
        assert_eq!(config.to_json(), document, "{name}");
        assert_eq!(config.revision(), revision_of(&document), "{name}");
    }
}

/// A newer operator beside what an older one applied: an upgrade of the software alone rolls nothing out.
#[test]
fn a_resource_of_every_release_gives_the_document_that_it_gave_then() {
    for Released { name, resource, document } in released(None) {
        assert_eq!(document_of(&resource, &name), document, "{name}");
    }
}

/// An older data plane beside a newer operator: it uses the fields that it knows, and names the others.
#[test]
fn fields_of_a_newer_release_are_named_and_the_others_are_in_use() {
    for Released { name, document, .. } in released(None) {
        let mut newer: Value = serde_json::from_str(&document).expect("JSON");
        newer["addedLater"] = json!({"a": [1, 2]});
        let (config, unknown) =
            Config::from_json(&newer.to_string()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(config.to_json(), document, "{name}");
        assert_eq!(unknown.to_string(), "addedLater", "{name}");
    }
}

#[test]
fn a_document_of_a_newer_format_is_refused_with_what_to_do() {
    for Released { name, document, .. } in released(None) {
        let mut newer: Value = serde_json::from_str(&document).expect("JSON");
        newer["format"] = (FORMAT + 1).into();
        let error = Config::from_json(&newer.to_string()).expect_err(&name);
        assert!(matches!(error, ConfigError::NewerFormat { .. }), "{name}: {error}");
        assert!(error.to_string().contains("upgrade the data plane first"), "{name}: {error}");
    }
}

#[test]
fn what_a_reader_ignores_is_found_field_by_field() {
    let old = r#"{"format":1,"hosts":[{"name":"a"}],"cache":{"entries":1}}"#;
    let new = r#"{"format":1,"hosts":[{"name":"a","tag":1}],"cache":{"entries":1},"shape":{"round":true}}"#;
    assert_eq!(ignored(old, new), ["hosts.*.tag", "shape", "shape.round"]);
    assert_eq!(ignored(new, old), Vec::<String>::new());
}

/// `formats/VERSION/ignores.txt` of every older release lists the fields of this version that its data plane does not
/// know. When the list grows, ask whether a reader that leaves the field out misreads the document. If so, `FORMAT`
/// must grow.
#[test]
fn what_each_older_release_ignores_of_this_ones_documents_is_listed() {
    let this = released(Some(THIS));
    let newest = this.iter().find(|it| it.name.ends_with(FULL)).expect("the full document");
    let formats = folder("tests/formats");
    for version in names(&formats, "").iter().filter(|version| *version != THIS) {
        let old = fs::read_to_string(formats.join(version).join(format!("{FULL}.json")));
        let found = ignored(&old.expect("its full document"), &newest.document).join("\n");
        let list = formats.join(version).join("ignores.txt");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&list, format!("{found}\n")).expect("written");
        }
        assert_eq!(fs::read_to_string(&list).unwrap_or_default().trim_end(), found, "{list:?}");
    }
}
