//! What requests need of RBAC, and which rules of a role give it: pure, so that a test can leave out each rule.

use std::collections::BTreeSet;

use serde_json::Value;
use tests::fault_proxy::Answered;

/// One verb on one resource: what a rule gives, or a request needs. No namespace: all of them, no name: any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    pub(super) namespace: Option<String>,
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) verb: String,
    pub(super) name: Option<String>,
}

impl Right {
    pub(super) fn words(&self) -> String {
        let resource = match self.group.as_str() {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        };
        let name = self.name.iter().map(|name| format!(" {name}")).collect::<String>();
        let place =
            self.namespace.as_deref().map_or("everywhere".into(), |name| format!("in {name}"));
        format!("{} {resource}{name} {place}", self.verb)
    }

    /// Whether this right covers what is needed.
    pub(super) fn gives(&self, need: &Right) -> bool {
        let Right { namespace, group, resource, verb, name } = self;
        (group, resource, verb) == (&need.group, &need.resource, &need.verb)
            && (namespace.is_none() || *namespace == need.namespace)
            && (name.is_none() || *name == need.name)
    }
}

fn texts(value: &Value) -> Vec<String> {
    let texts = value.as_array().into_iter().flatten();
    texts.map(|text| text.as_str().expect("a text").to_owned()).collect()
}

/// Everything that the rules of a role give.
pub(super) fn rights(rules: &Value, namespace: Option<&str>) -> BTreeSet<Right> {
    let mut found = BTreeSet::new();
    for rule in rules.as_array().expect("rules") {
        let names: Vec<Option<String>> = match rule.get("resourceNames") {
            Some(names) => texts(names).into_iter().map(Some).collect(),
            None => vec![None],
        };
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    for name in &names {
                        found.insert(Right {
                            namespace: namespace.map(str::to_owned),
                            group: group.clone(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                            name: name.clone(),
                        });
                    }
                }
            }
        }
    }
    found
}

/// The right that an answered request needed; none for requests that every client may make, such as for versions.
pub(super) fn needs(answered: &Answered) -> Vec<Right> {
    let request = &answered.request;
    let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        // Questions about the client itself.
        ["apis", "authentication.k8s.io", ..] => return Vec::new(),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return Vec::new(),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        rest => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, None, None),
        [plural, name] => (*plural, Some(*name), None),
        [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
        _ => return Vec::new(),
    };
    let verbs: &[&str] = match (request.method.as_str(), name) {
        ("GET", Some(_)) => &["get"],
        ("GET", None) if request.is_watch() => &["watch"],
        ("GET", None) => &["list"],
        ("POST", _) => &["create"],
        ("PUT", _) => &["update"],
        // An apply that creates an object needs both.
        ("PATCH", _) if answered.status == 201 => &["patch", "create"],
        ("PATCH", _) => &["patch"],
        ("DELETE", _) => &["delete"],
        (method, _) => panic!("{method} {}: which verb is that?", request.path),
    };
    // The API server treats a list or watch of one name as a request for that name.
    let selected = name.is_none().then(|| selected_name(&request.query)).flatten();
    let right = |verb: &&str| Right {
        namespace: namespace.map(str::to_owned),
        group: group.to_owned(),
        resource: subresource.map_or(plural.to_owned(), |sub| format!("{plural}/{sub}")),
        verb: (*verb).to_owned(),
        name: name.map(str::to_owned).or_else(|| selected.clone()),
    };
    verbs.iter().map(right).collect()
}

/// The name in a field selector, as clients encode it.
fn selected_name(query: &str) -> Option<String> {
    let selector = query.split('&').find_map(|pair| pair.strip_prefix("fieldSelector="))?;
    let selector = selector.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/");
    let name = selector.split(',').find_map(|part| part.strip_prefix("metadata.name="))?;
    Some(name.to_owned())
}

#[test]
fn a_request_is_read_as_the_api_server_reads_it() {
    let words = |method: &str, path: &str, query: &str, status| {
        let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
        let request = tests::fault_proxy::Seen { method, path, query };
        let needed = needs(&Answered { request, status });
        needed.iter().map(Right::words).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(words("GET", "/version", "", 200), "");
    assert_eq!(words("GET", "/apis/apps/v1", "", 200), "");
    assert_eq!(words("GET", "/api/v1/nodes", "watch=true", 200), "watch nodes everywhere");
    let deployments = "/apis/apps/v1/namespaces/n/deployments";
    assert_eq!(words("GET", deployments, "limit=1", 200), "list deployments.apps in n");
    let named = "fieldSelector=metadata.name%3Da%2Ctype%3Dx%2Fy&limit=1";
    assert_eq!(words("GET", deployments, named, 200), "list deployments.apps a in n");
    let one = format!("{deployments}/a");
    assert_eq!(
        words("PATCH", &one, "", 201),
        "patch deployments.apps a in n, create deployments.apps a in n"
    );
    assert_eq!(words("DELETE", &one, "", 200), "delete deployments.apps a in n");
    let status = "/apis/clusterdns.dev/v1alpha1/clusterdnses/a/status";
    assert_eq!(
        words("PATCH", status, "", 200),
        "patch clusterdnses/status.clusterdns.dev a everywhere"
    );
}
