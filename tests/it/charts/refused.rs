//! Values with which the operator would end at each start, or that have no value: Helm refuses them before it writes
//! anything, and names them.

use operator::desired::{FLAGS, VARIABLES};
use serde_json::Value;

use super::{GOLDEN, helm, objects, read, template};

/// Why helm refuses this value of this key. Not `--set`, which reads commas and braces.
fn refusal(key: &str, value: &Value) -> String {
    let helm = helm().expect("asked for before");
    let set = format!("{key}={value}");
    template(&helm, &["--set-json", &set]).expect_err(&set)
}

/// As `--set` writes it, with all keys that are below it.
fn keys(values: &Value, above: &str, found: &mut Vec<String>) {
    for (key, value) in values.as_object().into_iter().flatten() {
        let key = format!("{above}{}", key.replace('.', "\\."));
        keys(value, &format!("{key}."), found);
        found.push(key);
    }
}

/// `podAnnotations:` with nothing behind it, or a value that `--reuse-values` does not have.
#[test]
fn each_value_may_be_null_or_the_refusal_names_it() {
    let Some(helm) = helm() else { return };
    let values = serde_saphyr::from_str(&read("charts/clusterdns/values.yaml")).expect("YAML");
    let mut all = Vec::new();
    keys(&values, "", &mut all);
    assert!(all.len() > 70, "{}", all.len());
    let everything = format!("{GOLDEN}/everything.values.yaml");
    for key in all {
        let set = format!("{key}=null");
        match template(&helm, &["--values", &everything, "--set", &set]) {
            Ok(rendered) => assert!(objects(&rendered).len() > 10, "{set}"),
            Err(why) => {
                let name = key.rsplit('.').next().expect("a word");
                let is_missing = why.contains(&format!("missing property '{name}'"));
                // What the chart checks itself is a message of ours.
                let is_checked = why.contains("deployment.yaml:1:4): ") && why.contains(&key);
                assert!(is_missing || is_checked, "{set}: {why}");
            }
        }
    }
}

#[test]
fn flags_and_variables_that_the_operator_sets_are_refused_for_the_data_plane() {
    if helm().is_none() {
        return;
    }
    for variable in VARIABLES {
        let why = refusal(&format!("dataplane.extraEnv.{variable}"), &"x".into());
        assert!(why.contains(&format!("the operator sets {variable} itself: remove it")), "{why}");
    }
    let why = refusal("dataplane.extraEnv.CLUSTERDNS_WORKERS", &"2".into());
    assert!(why.contains("CLUSTERDNS_WORKERS is a flag: write it in dataplane.extraArgs"), "{why}");
    let why = refusal("dataplane.extraEnv.A B", &"x".into());
    assert!(
        why.contains("'/dataplane/extraEnv': additional properties 'A B' not allowed"),
        "{why}"
    );
    for flag in FLAGS {
        for flag in [flag.to_owned(), format!("{flag}=x")] {
            let why = refusal("dataplane.extraArgs[0]", &flag.as_str().into());
            let name = flag.trim_end_matches("=x");
            assert!(why.contains(&format!("the operator sets {name} itself: remove it")), "{why}");
        }
    }
}

/// One argument of a container is one of the program.
#[test]
fn a_flag_with_its_value_behind_a_space_is_refused() {
    let Some(helm) = helm() else { return };
    for key in ["extraArgs", "dataplane.extraArgs"] {
        let place = format!("'/{}/0'", key.replace('.', "/"));
        for flag in ["--workers 2", "--workers\n2", "--", "workers=2"] {
            let why = refusal(&format!("{key}[0]"), &flag.into());
            assert!(why.contains(&place), "{flag}: {why}");
        }
    }
    let set = r#"dataplane.extraArgs=["--workers=2","--note=a b=c"]"#;
    let rendered = template(&helm, &["--set-json", set]).unwrap_or_else(|why| panic!("{why}"));
    assert!(rendered.contains(r#"- "--dataplane-args=--note=a b=c""#), "{rendered}");
}

#[test]
fn a_repository_has_no_scheme_and_no_tag() {
    let Some(helm) = helm() else { return };
    for value in [
        "https://registry.example/clusterdns",
        "registry.example/clusterdns:1.2",
        "clusterdns:1.2",
        "registry.example:5000",
        "registry.example//clusterdns",
    ] {
        let why = refusal("image.repository", &value.into());
        assert!(why.contains(&format!("image.repository: \"{value}\" is no repository")), "{why}");
    }
    for value in ["clusterdns", "registry.example:5000/dns/cluster_dns", "my_site/dns"] {
        let set = format!("image.repository={value}");
        let rendered = template(&helm, &["--set", &set]).unwrap_or_else(|why| panic!("{why}"));
        assert!(rendered.contains(&format!("--dataplane-image={value}:")), "{value}");
    }
    for value in [
        "registry.example/dns:1.2",
        "https://registry.example/dns",
        "registry.example:5000",
        "registry.example/Dns",
        "registry.example/Dns/",
        "registry.example/-x",
        "registry.example/x-",
        "registry.example/a//b",
        "Registry.Example",
        "dns..x",
        "registry..example/dns",
        "registry.example:500000/dns",
        "[::1/dns",
        "[1:2]/dns",
        "[::1]",
    ] {
        let why = refusal("allowedImages[0]", &value.into());
        assert!(why.contains(&format!("allowedImages: \"{value}\" is neither")), "{why}");
    }
    let set = "allowedImages={registry.example:5000/,registry.example:5000/dns,[::1]:5000/dns/,\
               dns,Registry.Example/a_b.c--d/,my_site/,[fd00:0:0:0:0:0:0:1]/dns}";
    template(&helm, &["--set", set]).unwrap_or_else(|why| panic!("{why}"));
}
