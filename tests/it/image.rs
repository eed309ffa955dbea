//! The Dockerfile agrees with the other files: versions, programs, paths and the user of the pods. This test does not
//! build the image; `make image` does.

use std::path::Path;

use serde_json::Value;

use crate::architecture::{read, root};

const PROGRAMS: [&str; 2] = ["operator", "dataplane"];
/// Files that have pods of ours.
const PODS: [&str; 2] = ["charts/manifests/operator.yaml", "tests/golden/desired/minimal.yaml"];

/// The text after each such instruction, in the order of the file.
fn instructions(name: &str) -> Vec<String> {
    let text = read("Dockerfile").replace("\\\n", " ");
    let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    lines.map(|rest| rest.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The value of an ARG; the same in every stage.
fn argument(name: &str) -> String {
    let all = instructions("ARG");
    let mut values = all.iter().filter_map(|arg| arg.strip_prefix(name)?.strip_prefix('='));
    values.next().unwrap_or_else(|| panic!("the Dockerfile has no ARG {name}")).to_owned()
}

/// `1.95` as numbers that can be compared.
fn version(text: &str) -> Vec<u32> {
    text.split('.').map(|part| part.parse().expect("a version")).collect()
}

/// The pod templates of a file, or parts of them: every object below it that has these fields.
fn with_field<'v>(value: &'v Value, field: &str, found: &mut Vec<&'v Value>) {
    found.extend(value.get(field));
    let below: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    };
    below.into_iter().for_each(|value| with_field(value, field, found));
}

/// This field of everything in a file of several documents.
fn field(path: &str, name: &str) -> Vec<Value> {
    let text = read(path);
    let documents = text.split("\n---").map(serde_saphyr::from_str::<Value>);
    let mut all = Vec::new();
    for document in documents.map(|document| document.expect("YAML")) {
        let mut found = Vec::new();
        with_field(&document, name, &mut found);
        all.extend(found.into_iter().cloned());
    }
    all
}

#[test]
fn the_image_has_the_version_of_the_programs() {
    assert_eq!(argument("VERSION"), env!("CARGO_PKG_VERSION"));
    let title = format!("clusterdns:{} .", env!("CARGO_PKG_VERSION"));
    assert_eq!(read("Dockerfile").matches(&title).count(), 2, "the commands in its head");
}

#[test]
fn the_image_is_built_with_a_compiler_that_the_workspace_takes() {
    let (compiler, oldest) = (argument("RUST"), env!("CARGO_PKG_RUST_VERSION"));
    assert!(version(&compiler) >= version(oldest), "{compiler} is older than {oldest}");
    assert!(instructions("FROM")[0].starts_with("rust:${RUST}-"));
}

#[test]
fn p7_the_image_is_both_programs_and_their_licences_and_nothing_else() {
    let copied = instructions("COPY");
    let mut wanted: Vec<String> = vec![". .".into()];
    for package in PROGRAMS {
        let program = format!("clusterdns-{package}");
        assert!(read(&format!("{package}/Cargo.toml")).contains(&format!("name = \"{program}\"")));
        let build = format!("--package {package} --bin {program}");
        let commands = instructions("RUN");
        assert!(commands.iter().any(|command| command.contains(&build)), "{build}");
        wanted.push(format!("--from=build /out/{program} /{program}"));
    }
    wanted.push("--from=build /out/THIRD-PARTY.html /THIRD-PARTY.html".into());
    wanted.push("LICENSE /LICENSE".into());
    assert_eq!(copied, wanted);
    assert_eq!(instructions("FROM")[1..], ["scratch"]);
}

#[test]
fn p7_pods_run_what_the_image_has_as_the_user_it_has() {
    let copied = instructions("COPY");
    for path in PODS {
        let commands = field(path, "command");
        assert!(!commands.is_empty(), "{path}");
        for program in commands.iter().filter_map(|command| command[0].as_str()) {
            assert!(copied.iter().any(|copy| copy.ends_with(&format!(" {program}"))), "{program}");
        }
        let (users, groups) = (field(path, "runAsUser"), field(path, "runAsGroup"));
        for (user, group) in users.iter().zip(&groups) {
            assert_eq!(instructions("USER"), [format!("{user}:{group}")], "{path}");
        }
        assert!(!users.is_empty() && users.len() == groups.len(), "{path}");
    }
}

/// The files that the builder gets: all sources of the packages, nothing that was built, no history.
#[test]
fn the_builder_is_sent_the_packages_and_neither_what_was_built_nor_history() {
    let text = read(".dockerignore");
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.next(), Some("*"), "nothing, except for what follows");
    let (sent, kept): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with('!'));
    assert!(kept.contains(&"**/target"));
    let sent: Vec<&str> = sent.iter().map(|line| &line[1..]).collect();
    assert!(sent.iter().all(|path| root().join(path).exists()), "{sent:?}");
    assert!(kept.iter().all(|path| path.contains('*') || root().join(path).exists()), "{kept:?}");
    let manifest = read("Cargo.toml");
    let members = manifest.split_once("members = [").expect("members").1;
    let members = members.split_once(']').expect("their end").0;
    for member in members.split(',').map(|member| member.trim().trim_matches('"')) {
        let top = Path::new(member).components().next().expect("a folder");
        assert!(sent.iter().any(|path| Path::new(path) == Path::new(&top)), "{member}");
    }
    for file in ["Cargo.toml", "Cargo.lock", "LICENSE"] {
        assert!(sent.contains(&file), "{file}");
    }
}
