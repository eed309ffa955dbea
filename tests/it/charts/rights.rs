//! What the chart lets the operator and people do (S7, S12): as little as possible, and enough to grant a data plane its
//! own rights.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{golden, object, objects, read};

/// Rules that cannot be narrowed by name although they do more than read or create, and why.
const OPEN: [(&str, &str); 3] = [
    // Names of pods are generated: a ValidatingAdmissionPolicy limits which pods, and what may change.
    ("clusterdns:operator-lost-pods", "pods/status"),
    // A ClusterDNS that may not run here of any name is refused with a reason.
    ("clusterdns:operator", "clusterdnses/status"),
    // Names of Events are generated.
    ("clusterdns:operator-events", "events"),
];
/// What a rule without names may do.
const READS_AND_CREATES: [&str; 4] = ["get", "list", "watch", "create"];

fn words(value: &Value) -> BTreeSet<String> {
    let words = value.as_array().into_iter().flatten();
    words.map(|word| word.as_str().expect("a text").to_owned()).collect()
}

fn rules(role: &Value) -> &[Value] {
    role["rules"].as_array().expect("rules")
}

fn roles(objects: &[Value]) -> impl Iterator<Item = &Value> {
    objects
        .iter()
        .filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")))
}

/// One thing that a rule allows: group, resource, verb, and the name it is for, if only that.
type Right = (String, String, String, Option<String>);

fn rights(rules: &[Value]) -> BTreeSet<Right> {
    let mut found = BTreeSet::new();
    for rule in rules {
        let names: Vec<Option<String>> = match rule.get("resourceNames") {
            Some(names) => words(names).into_iter().map(Some).collect(),
            None => vec![None],
        };
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                for verb in words(&rule["verbs"]) {
                    for name in &names {
                        found.insert((group.clone(), resource.clone(), verb.clone(), name.clone()));
                    }
                }
            }
        }
    }
    found
}

#[test]
fn s7_the_operator_has_no_wildcard_and_cannot_escalate_bind_or_impersonate() {
    for (case, text) in golden() {
        for role in roles(&objects(&text)) {
            for (_, resource, verb, name) in rights(rules(role)) {
                for word in [&resource, &verb].into_iter().chain(&name) {
                    assert!(!word.contains('*'), "{case}: {role}");
                }
                assert!(
                    !["escalate", "bind", "impersonate"].contains(&verb.as_str()),
                    "{case}: {role}"
                );
                let forbidden = ["pods/exec", "pods/proxy", "nodes/proxy", "serviceaccounts/token"];
                assert!(!forbidden.contains(&resource.as_str()), "{case}: {role}");
                // Lists one Secret's metadata, to see whether it is a certificate; no Secret may be read or watched.
                assert!(resource != "secrets" || verb == "list", "{case}: {role}");
            }
        }
    }
}

#[test]
fn s14_secrets_are_listed_by_name_or_not_at_all_unless_labels_are_asked_for() {
    for (case, expected) in [
        ("defaults", vec![]),
        ("everything", vec![Some("dns-tls".to_owned())]),
        ("service-monitor", vec![None]),
    ] {
        let (_, text) = golden().into_iter().find(|(name, _)| name == case).expect(case);
        let objects = objects(&text);
        let role = rights(rules(object(&objects, "Role", "clusterdns:operator-workload")));
        let secrets = role.into_iter().filter(|(_, resource, ..)| resource == "secrets");
        let names: Vec<Option<String>> = secrets.map(|(.., name)| name).collect();
        assert_eq!(names, expected, "{case}");
    }
}

#[test]
fn s7_rights_beyond_reading_and_creating_are_narrowed_by_name() {
    for (case, text) in golden().into_iter().filter(|(case, _)| case != "everything") {
        for role in roles(&objects(&text)) {
            let name = role["metadata"]["name"].as_str().unwrap();
            if !name.starts_with("clusterdns:operator") {
                continue;
            }
            for (_, resource, verb, only) in rights(rules(role)) {
                let is_open = OPEN.contains(&(name, &resource));
                let is_mild = READS_AND_CREATES.contains(&verb.as_str());
                assert!(only.is_some() || is_mild || is_open, "{case}: {name}: {verb} {resource}");
            }
        }
    }
}

/// A patch that fails because of managed fields is mended with what a GET of the object shows.
#[test]
fn k23_what_the_operator_patches_it_may_read() {
    for (case, text) in golden() {
        let objects = objects(&text);
        let of_operator = roles(&objects).filter(|role| {
            let name = role["metadata"]["name"].as_str();
            name.is_some_and(|name| name.starts_with("clusterdns:operator"))
        });
        let held: BTreeSet<Right> = of_operator.flat_map(|role| rights(rules(role))).collect();
        for (group, resource, _, name) in held.iter().filter(|(_, _, verb, _)| verb == "patch") {
            let object = resource.split('/').next().unwrap_or_default();
            let reads = |name| (group.clone(), object.to_owned(), "get".to_owned(), name);
            let may_read = held.contains(&reads(None)) || held.contains(&reads(name.clone()));
            assert!(may_read, "{case}: {resource}");
        }
    }
}

#[test]
fn s7_no_rule_says_again_what_another_says() {
    for (case, text) in golden() {
        for role in roles(&objects(&text)) {
            let all: Vec<BTreeSet<Right>> =
                rules(role).iter().map(|rule| rights(std::slice::from_ref(rule))).collect();
            let total: usize = all.iter().map(BTreeSet::len).sum();
            assert_eq!(total, rights(rules(role)).len(), "{case}: {}", role["metadata"]["name"]);
        }
    }
}

#[test]
fn s7_no_namespace_says_again_what_holds_in_all_of_them() {
    for (case, text) in golden() {
        let objects = objects(&text);
        let everywhere = rights(rules(object(&objects, "ClusterRole", "clusterdns:operator")));
        for role in roles(&objects).filter(|role| role["kind"] == "Role") {
            let twice: Vec<Right> =
                rights(rules(role)).intersection(&everywhere).cloned().collect();
            assert!(twice.is_empty(), "{case}: {}: {twice:?}", role["metadata"]["name"]);
        }
    }
}

#[test]
fn s6_s7_the_operator_holds_every_right_it_grants_to_a_data_plane() {
    let holds = |held: &BTreeSet<Right>, (group, resource, verb, name): &Right| {
        let with = |name| held.contains(&(group.clone(), resource.clone(), verb.clone(), name));
        with(None) || with(name.clone())
    };
    for (case, text) in golden() {
        let objects = objects(&text);
        let cluster_wide = rights(rules(object(&objects, "ClusterRole", "clusterdns:operator")));
        let in_namespace = rights(rules(object(&objects, "Role", "clusterdns:operator-workload")));
        for (file, held) in [
            ("clusterrole.yaml", &cluster_wide),
            ("clusterrole-verified-pods.yaml", &cluster_wide),
            ("role.yaml", &in_namespace),
        ] {
            let role: Value =
                serde_saphyr::from_str(&read(&format!("dataplane/rbac/{file}"))).unwrap();
            let granted = rights(rules(&role));
            assert!(!granted.is_empty());
            for right in &granted {
                assert!(
                    holds(held, right),
                    "{case}: {file} grants {right:?}, which the operator has not"
                );
            }
        }
    }
}

#[test]
fn s7_every_role_is_bound_to_the_operator_and_nothing_else_is() {
    for (case, text) in golden() {
        let objects = objects(&text);
        let bindings: Vec<&Value> = objects
            .iter()
            .filter(|object| {
                object["kind"].as_str().is_some_and(|kind| kind.ends_with("RoleBinding"))
            })
            .collect();
        for role in roles(&objects).filter(|role| {
            role["metadata"]["name"].as_str().unwrap().starts_with("clusterdns:operator")
        }) {
            let of = |binding: &&&Value| {
                binding["roleRef"]["name"] == role["metadata"]["name"]
                    && binding["roleRef"]["kind"] == role["kind"]
                    && binding["metadata"]["namespace"] == role["metadata"]["namespace"]
            };
            assert_eq!(bindings.iter().filter(of).count(), 1, "{case}: {}", role["metadata"]);
        }
        for binding in bindings {
            let subjects = binding["subjects"].as_array().expect("subjects");
            assert_eq!(subjects.len(), 1, "{case}");
            let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
            let account = &deployment["spec"]["template"]["spec"]["serviceAccountName"];
            assert_eq!(&subjects[0]["name"], account, "{case}");
        }
    }
}

#[test]
fn s12_no_right_to_write_a_cluster_dns_is_part_of_a_role_that_people_have_already() {
    const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";
    for (case, text) in golden() {
        for role in roles(&objects(&text)) {
            let labels = role["metadata"]["labels"].as_object().expect("labels");
            let into: Vec<&String> =
                labels.keys().filter(|key| key.starts_with(AGGREGATE)).collect();
            let only_asked_for =
                case == "everything" && role["metadata"]["name"] == "clusterdns:view";
            assert_eq!(into.len(), usize::from(only_asked_for), "{case}: {into:?}");
            for _ in into {
                let reads = |right: &Right| ["get", "list", "watch"].contains(&right.2.as_str());
                assert!(rights(rules(role)).iter().all(reads), "{case}: {role}");
            }
        }
    }
}
