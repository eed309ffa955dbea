//! Fractions and other forms of numbers: `check` takes those that the API server takes from kubectl. The package `tests` asks
//! a real API server the same rows.

use crds::{check_resource, manifest};
use serde::Deserialize;

#[derive(Deserialize)]
struct Row {
    spec: String,
    is_taken: bool,
}

#[test]
fn check_takes_the_numbers_that_the_api_server_takes() {
    let rows: Vec<Row> = serde_saphyr::from_str(include_str!("numbers.yaml")).expect("rows");
    let mut wrong = Vec::new();
    for Row { spec, is_taken } in rows {
        let head = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {name: a}\n";
        let said = match manifest::read(&format!("{head}spec: {{{spec}}}\n"), "a.yaml") {
            Ok((resource, _)) => check_resource(&resource).map(drop).map_err(|it| it.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if said.is_ok() != is_taken {
            wrong.push(format!("{spec}: {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_fraction_is_refused_with_what_to_write() {
    let text = "apiVersion: clusterdns.dev/v1alpha1\nkind: ClusterDNS\nmetadata: {name: a}\nspec: {resources: {limits: {cpu: 1.5}}}\n";
    let error = manifest::read(text, "a.yaml").expect_err("a number with a fraction").to_string();
    assert!(error.contains("spec.resources.limits.cpu: "), "{error}");
    assert!(error.contains("as text or as a whole number, found 1.5"), "{error}");
}
