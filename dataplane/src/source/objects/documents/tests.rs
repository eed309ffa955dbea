//! Texts in, objects, notes and errors out.

use dataplane_core::Resource;

use super::*;

fn yaml(text: &str) -> Manifests {
    parse(text, Syntax::Yaml).expect(text)
}

/// `services shop/cart` for each object.
fn keys(manifests: &Manifests) -> Vec<String> {
    let line = |e: &Entry| {
        let (resource, key) = e.object.id();
        format!("{} {key}", resource.plural())
    };
    manifests.objects.iter().map(line).collect()
}

#[test]
fn documents_lists_and_kinds_are_sorted() {
    let manifests = yaml(
        "# a comment first\n---\n\
         apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, namespace: ignored}\n---\n\
         apiVersion: v1\nkind: List\nitems:\n\
         - {apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, spec: {clusterIP: None}}\n\
         - {apiVersion: apps/v1, kind: Deployment, metadata: {name: cart}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSliceList\nitems:\n\
         - {metadata: {name: cart-x, namespace: shop, labels: {kubernetes.io/service-name: cart}}, addressType: IPv4}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nstatus: {podIP: 10.0.0.1}\n---\n\
         {apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: not-ours}}\n---\n\
         just: values\n---\n",
    );
    assert_eq!(
        keys(&manifests),
        ["namespaces shop", "services shop/cart", "endpointslices shop/cart-x", "pods default/p"]
    );
    let others: Vec<_> = manifests.other_kinds.iter().map(|(k, n)| (k.as_str(), *n)).collect();
    assert_eq!(
        others,
        [
            ("(not a Kubernetes object)", 1),
            ("Deployment.apps", 1),
            ("Service.serving.knative.dev", 1)
        ]
    );
    assert_eq!(manifests.skipped, []);
}

#[test]
fn json_reads_like_yaml() {
    let text = r#"{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"a"},"spec":{"clusterIP":"10.96.0.1"}}]}
                  {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}"#;
    let json = parse(text, Syntax::Json).unwrap();
    assert_eq!(keys(&json), ["services default/a", "namespaces n"]);
    assert_eq!(keys(&yaml(text.lines().next().unwrap())), ["services default/a"]);
}

#[test]
fn a_text_that_does_not_parse_is_refused_with_its_line() {
    let broken = "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n   namespace: b\n";
    let error = parse(broken, Syntax::Yaml).unwrap_err();
    assert_eq!(error.line, 5, "{error}");
    let error = parse("{\n\"kind\": \"Service\",,\n}", Syntax::Json).unwrap_err();
    assert_eq!(error.line, 2, "{error}");
    assert_eq!(error.to_string().lines().count(), 1, "goes to a log line");
}

#[test]
fn e15_a_malformed_object_is_named_with_its_field_and_the_rest_is_served() {
    let manifests = yaml(
        "{apiVersion: v1, kind: Service, metadata: {name: bad, namespace: shop}, spec: {ports: [{port: http}]}}\n---\n\
         {apiVersion: v1, kind: Service, metadata: {namespace: shop}, spec: {clusterIP: None}}\n---\n\
         {apiVersion: v1, kind: Service, metadata: {name: good, namespace: shop}, spec: {clusterIP: None}}\n",
    );
    assert_eq!(keys(&manifests), ["services shop/good"]);
    let unread: Vec<_> = manifests.unread.iter().map(Unread::skipped).collect();
    let named: Vec<_> =
        unread.iter().map(|s| (s.kind, s.namespace.as_str(), s.name.as_str())).collect();
    assert_eq!(named, [("Service", "shop", "bad"), ("Service", "shop", "")]);
    assert!(unread[0].reason.starts_with("spec.ports[0].port: "), "{manifests:?}");
    assert_eq!(unread[1].reason, "it has no metadata.name; nothing of it is served");
}

#[test]
fn a_service_that_needs_a_cluster_ip_and_has_none_is_served_with_a_warning() {
    let manifests =
        yaml("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}");
    assert_eq!(keys(&manifests), ["services default/web"]);
    assert!(manifests.skipped[0].reason.contains("needs a clusterIP"), "{manifests:?}");
}

#[test]
fn a_word_of_a_service_that_no_api_server_takes_is_named() {
    for (spec, said) in [
        ("type: externalname, externalName: a.example", "type \"externalname\" is not ClusterIP"),
        ("type: Headless", "clusterIP: None"),
        ("type: headless, clusterIP: 10.96.0.1", "type \"headless\" is not ClusterIP"),
        ("externalName: a.example", "write type: ExternalName"),
        ("clusterIP: none", "write None, in this spelling"),
    ] {
        let manifests = yaml(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: web}}, spec: {{{spec}}}}}"
        ));
        let reason = &manifests.skipped[0].reason;
        assert!(reason.contains(said) && !reason.contains("needs a clusterIP"), "{spec}: {reason}");
    }
}

#[test]
fn a_pod_as_committed_has_no_address_and_says_so_unless_it_has_ended() {
    let manifests = yaml(
        "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n\
         {apiVersion: v1, kind: Pod, metadata: {name: b}, status: {phase: Succeeded}}\n",
    );
    let named: Vec<_> = manifests.skipped.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(named, ["a"]);
}

#[test]
fn uid_and_version_of_a_dump_are_dropped_so_that_going_back_is_a_change() {
    let manifests = yaml(
        "{apiVersion: v1, kind: Service, metadata: {name: a, uid: 00000000-0000-0000-0000-0000000000ff, resourceVersion: '9'}, spec: {clusterIP: None}}",
    );
    let Object::Service(service) = manifests.objects[0].object.object() else {
        panic!("{manifests:?}")
    };
    assert_eq!((service.uid, service.version), (0, 0));
}

#[test]
fn a_cluster_dns_is_kept_whole_for_the_check() {
    let manifests = yaml(
        "{apiVersion: clusterdns.dev/v1alpha1, kind: ClusterDNS, metadata: {name: main}, spec: {ttlSeconds: 9}}",
    );
    assert_eq!(manifests.configurations[0].name, "main");
    assert_eq!(manifests.configurations[0].object["spec"]["ttlSeconds"], 9);
    assert!(manifests.objects.is_empty());
}

#[test]
fn a_name_that_yaml_reads_as_a_boolean_says_so_as_with_kubectl() {
    let manifests = yaml("{apiVersion: v1, kind: Namespace, metadata: {name: n}}");
    let reason = manifests.unread[0].skipped().reason;
    assert!(reason.starts_with("metadata.name: invalid type: boolean"), "{reason}");
}

#[test]
fn k20_hostile_texts_are_bounded_and_leave_no_control_characters() {
    let deep = "[".repeat(100_000);
    assert!(parse(&deep, Syntax::Yaml).is_err());
    assert!(parse(&deep, Syntax::Json).is_err());
    let bomb = "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e]\ng: [*f, *f, *f, *f, *f, *f, *f, *f, *f]\n";
    assert!(parse(bomb, Syntax::Yaml).is_err());
    let manifests = yaml("{apiVersion: v1, kind: \"Evil\\u001b[31m\\r\\n\", metadata: {name: a}}");
    assert_eq!(manifests.other_kinds.keys().collect::<Vec<_>>(), ["Evil[31m"]);
    let name = "{apiVersion: v1, kind: Service, metadata: {name: \"a\\u001b[31m\"}, spec: [}]}";
    assert!(parse(name, Syntax::Yaml).is_err());
}

#[test]
fn one_anchor_may_have_any_number_of_aliases() {
    let hosts = ", {name: b.example, addresses: *here}".repeat(150);
    let manifests = yaml(&format!(
        "{{apiVersion: clusterdns.dev/v1alpha1, kind: ClusterDNS, metadata: {{name: main}}, \
         spec: {{hosts: [{{name: a.example, addresses: &here [192.0.2.1]}}{hosts}]}}}}"
    ));
    assert_eq!(manifests.configurations.len(), 1);
}

#[test]
fn every_resource_of_the_core_can_come_from_a_file() {
    let manifests = yaml(
        "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None}}\n---\n\
         {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a, labels: {kubernetes.io/service-name: a}}, addressType: IPv4}\n---\n\
         {apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n---\n\
         {apiVersion: v1, kind: Pod, metadata: {name: p}, status: {podIP: 10.0.0.1}}\n",
    );
    let found: Vec<Resource> = manifests.objects.iter().map(|e| e.object.id().0).collect();
    assert_eq!(found, Resource::ALL);
}

#[test]
fn items_of_a_list_are_served_in_their_order_wherever_the_list_says_its_kind() {
    let slice = "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: x, labels: {kubernetes.io/service-name: a}}, addressType: IPv4}";
    let service = |name: &str| format!("{{metadata: {{name: {name}}}, spec: {{clusterIP: None}}}}");
    let (a, b) = (service("a"), service("b"));
    let whole = a.replace("{metadata", "{apiVersion: v1, kind: Service, metadata");
    let rows = [
        (format!("{{kind: ServiceList, apiVersion: v1, items: [{a}, {slice}, {b}]}}"), 3),
        (format!("{{items: [{a}, {slice}, {b}], kind: ServiceList, apiVersion: v1}}"), 3),
        (format!("{{items: [{slice}, {whole}, {b}], apiVersion: v1, kind: ServiceList}}"), 3),
        (
            format!(
                "{{apiVersion: v1, kind: List, items: [{whole}, {{kind: ServiceList, apiVersion: v1, items: [{b}]}}]}}"
            ),
            2,
        ),
        // Not a list: what is below `items` is not read.
        (format!("{{apiVersion: v1, kind: ConfigMap, items: [{whole}]}}"), 0),
        ("{apiVersion: v1, kind: List, items: null}".to_owned(), 0),
        ("{apiVersion: v1, kind: List, items: 5}".to_owned(), 0),
        ("{apiVersion: v1, kind: List, items: {a: b}}".to_owned(), 0),
        ("[1, 2]".to_owned(), 0),
        ("text".to_owned(), 0),
    ];
    for (text, objects) in rows {
        let manifests = yaml(&text);
        let keys = keys(&manifests);
        assert_eq!(keys.len(), objects, "{text}");
        let services: Vec<_> = keys.iter().filter(|key| key.starts_with("services")).collect();
        assert!(services.is_sorted(), "{text}: {keys:?}");
        let others: usize = manifests.other_kinds.values().sum();
        assert_eq!(others, usize::from(objects == 0), "{text}");
    }
}

#[test]
fn a_cluster_dns_with_items_keeps_the_field_for_the_check() {
    let manifests = yaml(
        "{apiVersion: clusterdns.dev/v1alpha1, kind: ClusterDNS, metadata: {name: main}, items: [1]}",
    );
    assert!(manifests.configurations[0].object.get("items").is_some());
}
