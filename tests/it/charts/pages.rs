//! What docs/install.md tells people with a release and without a clone to write and to run.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tests::helm::Tools;
use tests::scratch::Scratch;

use super::{object, objects, read};
use crate::architecture::files;

const PAGE: &str = "docs/install.md";
/// The image of a release, as its kustomization.yaml names it.
const RELEASED: &str = "registry.example.com/clusterdns/clusterdns";

/// The code of a page between fences of this kind.
fn code(page: &str, kind: &str) -> Vec<String> {
    let (text, begin) = (read(page), format!("```{kind}\n"));
    let end = |rest: &str| rest.split("```").next().expect("an end").to_owned();
    text.split(&begin).skip(1).map(end).collect()
}

/// The file of the page that is of this kind.
fn file(kind: &str) -> String {
    let mut all = code(PAGE, "yaml").into_iter();
    all.find(|text| text.contains(&format!("kind: {kind}\n"))).expect("a file")
}

#[test]
fn the_trial_of_the_page_is_the_example() {
    let value = |text: &str| serde_saphyr::from_str::<Value>(text).expect("YAML");
    assert_eq!(value(&file("ClusterDNS")), value(&read("crds/examples/second-domain.yaml")));
}

/// Changes of a person are in a file that no release brings, and an upgrade keeps them.
#[test]
fn the_overlay_of_the_page_changes_flags_and_image_of_the_files_of_a_release() {
    let Some(tools) = Tools::offline() else { return };
    let folder = tools.folder().join("dns");
    let release = folder.join("release");
    fs::create_dir_all(&release).expect("the folder is ours");
    let put = |version: &str, change: &dyn Fn(String) -> String| {
        for name in ["namespace.yaml", "operator.yaml", "kustomization.yaml"] {
            let text = read(&format!("charts/manifests/{name}"));
            let text = text.replace(env!("CARGO_PKG_VERSION"), version);
            let text = text.replace("newName: clusterdns", &format!("newName: {RELEASED}"));
            fs::write(release.join(name), change(text)).expect("the folder is ours");
        }
    };
    let overlay = file("Kustomization");
    let filled = overlay.replace("name: REGISTRY/clusterdns", &format!("name: {RELEASED}"));
    assert_ne!(filled, overlay, "a name that no release has must be filled in");
    fs::write(folder.join("kustomization.yaml"), filled).expect("it is ours");
    let build = || tools.kubectl(&["kustomize", &folder.display().to_string()]);
    for version in ["1.2.3", "1.3.0"] {
        put(version, &|text| text);
        let objects = objects(&build().ok());
        let operator = &object(&objects, "Deployment", "clusterdns-operator")["spec"]["template"];
        let container = &operator["spec"]["containers"][0];
        let image = format!("mirror.example.com/dns/clusterdns:{version}");
        assert_eq!(container["image"], image.as_str());
        let args = container["args"].to_string();
        for flag in [&format!("--dataplane-image={image}"), "--log-level=debug"] {
            assert!(args.contains(&format!("\"{flag}\"")), "{flag}: {args}");
        }
        assert!(args.ends_with("\"--allowed-images=mirror.example.com/dns/\"]"), "{args}");
        assert!(!args.contains("--log-level=info"), "{args}");
    }
    // A release that has the flag at another place: the build fails, and changes no other flag.
    put("1.4.0", &|text| {
        text.replace("        - --lost-pods\n", "        - --lost-pods\n        - --new\n")
    });
    let refusal = build().refused();
    assert!(refusal.contains("testing value"), "{refusal}");
}

/// A builder makes an image for its own architecture, and nodes of others cannot run it.
#[test]
fn pages_that_build_the_image_say_on_which_nodes_it_runs() {
    let mut seen = 0;
    for page in files().iter().filter(|path| path.ends_with(".md")) {
        let text = read(page);
        if text.contains("\n$ make image ") {
            seen += 1;
            assert!(text.contains("kubernetes.io/arch"), "{page}");
        }
    }
    assert_eq!(seen, 3, "README.md, docs/install.md and docs/upgrading.md");
}

/// Deleting a ClusterDNS returns at once, and only the operator gives its adopted Service back after that.
#[test]
fn the_operator_is_removed_after_it_has_given_adopted_services_back() {
    let folder = Scratch::new("uninstall").expect("a folder");
    // One Service is still adopted, the API server does not answer, then none is.
    let kubectl = r#"#!/bin/sh
echo "$*" >> calls
case $(wc -l < calls) in 1) printf '[default]' ;; 2) exit 1 ;; *) printf '[]' ;; esac
"#;
    for (name, text) in [("kubectl", kubectl), ("sleep", "#!/bin/sh\n")] {
        tests::scripts::write(&folder.path().join(name), text);
    }
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let annotation = operator::names::ADOPTED_BY.replace('.', r"\.");
    for (page, removal) in [
        (PAGE, "$ kubectl delete --ignore-not-found -k dns"),
        ("charts/clusterdns/README.md", "$ helm uninstall clusterdns "),
    ] {
        let blocks = code(page, "console");
        let begins = |block: &&String| block.starts_with("$ kubectl delete clusterdns --all\n");
        let block = blocks.iter().find(begins).unwrap_or_else(|| panic!("{page} deletes all"));
        let (before, _) = block.split_once(removal).expect(page);
        let mut lines = before.lines().filter_map(|line| line.strip_prefix("$ until "));
        let wait = lines.next().unwrap_or_else(|| panic!("{page} waits: {block}"));
        let _ = fs::remove_file(folder.path().join("calls"));
        let mut shell = Command::new("sh");
        shell.current_dir(folder.path()).env("PATH", &path);
        let status = shell.args(["-c", &format!("until {wait}")]).status().expect("a shell");
        let calls = fs::read_to_string(folder.path().join("calls")).expect("calls");
        assert!(status.success() && calls.lines().count() == 3, "{page}: {calls}");
        assert!(calls.contains(&annotation), "{page}: {calls}");
    }
}

/// A shell takes a bare word as it is, and then no such registry is there.
#[test]
fn commands_take_registry_and_version_from_the_variables_of_the_first_page() {
    let mut seen = 0;
    for page in [PAGE, "docs/upgrading.md", "docs/operating.md", "charts/clusterdns/README.md"] {
        for block in [code(page, "console"), code(page, "sh")].concat() {
            for name in ["REGISTRY", "VERSION"] {
                seen += block.matches(&format!("${name}")).count();
                let bare = block.replace(&format!("${name}"), "");
                assert!(!bare.contains(name), "{page}: write ${name}: {block}");
            }
        }
    }
    assert!(seen > 15, "{seen}");
}
