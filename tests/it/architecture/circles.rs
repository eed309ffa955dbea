//! No circles of imports: inside each package, files import each other in one direction only. A file and the files below
//! it are one module, so a child may use what its parent defines; every other import counts, followed through re-exports
//! to the file that defines the name.

use std::collections::{BTreeMap, BTreeSet};

use super::rust_files;
use super::sources::program;

/// The sources of each package.
const PACKAGES: [&str; 6] = [
    "crds/src",
    "crds/process/src",
    "operator/src",
    "dataplane/src",
    "dataplane/core/src",
    "dataplane/udp/src",
];

/// One file: its text without comments and tests, and the names that its `use` lines bring.
struct File {
    text: String,
    names: BTreeMap<String, Vec<String>>,
}

/// The files of a package by module path, such as `decide::scale`; the root is empty.
type Files = BTreeMap<String, File>;

fn files(folder: &str) -> Files {
    let mut files = Files::new();
    let mut tests = BTreeSet::new();
    for path in rust_files(&format!("{folder}/")) {
        let inside = &path[folder.len() + 1..path.len() - ".rs".len()];
        if inside == "main" || inside.starts_with("bin/") {
            continue;
        }
        let module = if inside == "lib" { String::new() } else { inside.replace('/', "::") };
        let text: Vec<String> = program(&path).into_iter().map(|(_, line)| line).collect();
        tests.extend(test_modules(&text).map(|name| join(&module, &name)));
        let text = text.join("\n");
        let names = imports(&text);
        files.insert(module, File { text, names });
    }
    files.retain(|module, _| !tests.iter().any(|test| is_at_or_below(module, test)));
    files
}

/// Modules that exist for tests only.
fn test_modules(lines: &[String]) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("#[cfg(test)")) {
        let next = lines[at + 1..].iter().find(|line| !line.starts_with("#["));
        let module = next.and_then(|line| line.split_once("mod ")?.1.strip_suffix(';'));
        found.extend(module.map(str::to_owned));
    }
    found.into_iter()
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

fn is_at_or_below(module: &str, other: &str) -> bool {
    module == other || module.starts_with(&format!("{other}::"))
}

/// Every name that a `use` brings into a file, with its path.
fn imports(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut names = BTreeMap::new();
    let is_start = |line: &str| {
        let line = line.trim_start();
        line.starts_with("use ") || line.starts_with("pub") && line.contains(" use ")
    };
    let starts = text.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line))
    });
    for (at, _) in starts.filter(|(_, line)| is_start(line)) {
        let tree = text[at..].split_once("use ").map_or("", |(_, rest)| rest);
        let tree = tree.split(';').next().unwrap_or_default();
        for path in expanded(tree.trim()) {
            let (path, alias) = match path.split_once(" as ") {
                Some((path, alias)) => (path.to_owned(), Some(alias.trim().to_owned())),
                None => (path, None),
            };
            let mut path: Vec<String> =
                path.split("::").map(|part| part.trim().to_owned()).collect();
            if path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            if let Some(last) = path.last().cloned() {
                names.insert(alias.unwrap_or(last), path);
            }
        }
    }
    names
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn expanded(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let inside = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside);
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for character in inside.chars() {
        depth += i32::from(character == '{') - i32::from(character == '}');
        match character {
            ',' if depth == 0 => parts.push(String::new()),
            other => parts.last_mut().unwrap().push(other),
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(expanded).map(|path| format!("{prefix}{path}")).collect()
}

/// The file that defines what a path in `module` names; none: another package, or a module as a whole.
fn resolved(files: &Files, module: &str, path: &[String], depth: usize) -> Option<String> {
    let mut at: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => (at, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                at.pop();
                rest = &rest[1..];
            }
        }
        first if files.contains_key(&join(module, first)) => {}
        first => {
            let import = files[module].names.get(first).filter(|import| import[0] != first)?;
            let path = [import, &path[1..]].concat();
            return if depth == 0 { None } else { resolved(files, module, &path, depth - 1) };
        }
    }
    while let Some(next) =
        rest.first().filter(|next| files.contains_key(&join(&at.join("::"), next)))
    {
        at.push(next);
        rest = &rest[1..];
    }
    let found = at.join("::");
    let name = rest.first()?;
    match files[&found].names.get(name).filter(|_| found != module && depth > 0) {
        Some(import) => {
            let path = [import, &rest[1..]].concat();
            resolved(files, &found, &path, depth - 1).or(Some(found))
        }
        None => Some(found),
    }
}

/// Every path of two names or more in a text.
fn paths(text: &str) -> impl Iterator<Item = Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    text.split(move |c| !is_part(c))
        .filter(|word| word.contains("::") && !word.starts_with(':'))
        .map(|word| word.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect())
}

/// Which files each file imports.
fn graph(files: &Files) -> BTreeMap<&str, BTreeSet<String>> {
    let imported = |(module, file): (&String, &File)| {
        let written = paths(&file.text).chain(file.names.values().cloned());
        written
            .filter_map(|path| resolved(files, module, &path, 8))
            .filter(|to| !to.is_empty() && !is_at_or_below(module, to))
            .collect()
    };
    files.iter().map(|entry| (entry.0.as_str(), imported(entry))).collect()
}

/// Everything that can be reached from a file by imports.
fn reached<'a>(graph: &'a BTreeMap<&str, BTreeSet<String>>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = graph[from].iter().map(String::as_str).collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(graph[next].iter().map(String::as_str));
        }
    }
    found
}

/// The circles of a package: files that import each other, directly or through others.
fn circles(folder: &str) -> Vec<BTreeSet<String>> {
    let files = files(folder);
    assert!(files.len() > 2, "{folder}: this test looks in the wrong place");
    let graph = graph(&files);
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|from| (*from, reached(&graph, from))).collect();
    let circle = |from: &&str| -> BTreeSet<String> {
        let back = reach[from].iter().filter(|to| reach[**to].contains(from));
        back.map(|to| (*to).to_owned()).collect()
    };
    let all: BTreeSet<BTreeSet<String>> = reach.keys().map(circle).collect();
    all.into_iter().filter(|circle| circle.len() > 1).collect()
}

#[test]
fn files_of_a_package_import_each_other_in_one_direction() {
    let mut found = Vec::new();
    for folder in PACKAGES {
        let line =
            |circle| format!("{folder}: {}", Vec::from_iter::<BTreeSet<_>>(circle).join(", "));
        found.extend(circles(folder).into_iter().map(line));
    }
    assert!(found.is_empty(), "files that import each other in a circle:\n{}", found.join("\n"));
}

#[test]
fn an_import_is_followed_to_the_file_that_defines_the_name() {
    assert_eq!(expanded("a::{b, c::{d, self}}"), ["a::b", "a::c::d", "a::c::self"]);
    let file = |text: &str| File { text: text.to_owned(), names: imports(text) };
    let files = Files::from([
        (String::new(), file("mod a;\nmod b;")),
        ("a".to_owned(), file("mod c;\npub use c::Thing;")),
        ("a::c".to_owned(), file("use crate::b;\npub struct Thing(b::Other);")),
        ("b".to_owned(), file("use crate::a::{Thing as It};\npub type Other = It;")),
    ]);
    let graph = graph(&files);
    assert_eq!(graph["b"], BTreeSet::from(["a::c".to_owned()]), "through the re-export");
    assert_eq!(graph["a::c"], BTreeSet::from(["b".to_owned()]), "by the path, not by the module");
    assert!(reached(&graph, "b").contains("b"), "the circle is seen");
    assert!(!reached(&graph, "a").contains("a"), "a parent does not belong to it");
}
