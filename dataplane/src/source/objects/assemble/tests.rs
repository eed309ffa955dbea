//! Files in, the combined objects out.

use super::super::documents::{Syntax, parse};
use super::*;

fn world(files: &[(&str, &str)]) -> World {
    world_beside(files, None)
}

fn world_beside(files: &[(&str, &str)], in_use: Option<&str>) -> World {
    let parsed: Vec<(&str, Manifests)> =
        files.iter().map(|(path, text)| (*path, parse(text, Syntax::Yaml).expect(text))).collect();
    assemble(parsed.iter().map(|(path, manifests)| (*path, manifests)), in_use)
}

fn service(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: data}}, spec: {{{spec}}}}}\n---\n"
    )
}

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: data, labels: {app: db}}, status: {podIP: 10.244.1.1}}\n---\n";
const SLICE: &str = "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: db-x, namespace: data, labels: {kubernetes.io/service-name: db}}, addressType: IPv4, endpoints: [{addresses: [10.244.1.2]}]}\n---\n";
const ENDPOINTS: &str = "{apiVersion: v1, kind: Endpoints, metadata: {name: db, namespace: data}, subsets: [{addresses: [{ip: 10.244.1.3}]}]}\n---\n";

fn dns(name: &str, ttl: u32) -> String {
    format!(
        "{{apiVersion: clusterdns.dev/v1alpha1, kind: ClusterDNS, metadata: {{name: {name}}}, spec: {{ttlSeconds: {ttl}}}}}\n---\n"
    )
}

/// Addresses in all slices, as text.
fn published(world: &World) -> Vec<String> {
    let mut addresses = Vec::new();
    for object in world.objects.values() {
        if let Object::Slice(slice) = object.object() {
            let of_slice = slice.endpoints.iter().flat_map(|e| &e.addresses);
            addresses.extend(of_slice.map(ToString::to_string));
        }
    }
    addresses
}

#[test]
fn slices_are_written_else_from_endpoints_else_from_pods() {
    let db = service("db", "clusterIP: None, selector: {app: db}");
    let rows = [
        (format!("{db}{POD}"), "10.244.1.1"),
        (format!("{db}{POD}{ENDPOINTS}"), "10.244.1.3"),
        (format!("{db}{POD}{ENDPOINTS}{SLICE}"), "10.244.1.2"),
        (format!("{POD}{SLICE}{db}"), "10.244.1.2"),
    ];
    for (text, address) in rows {
        let world = world(&[("a.yaml", &text)]);
        assert_eq!(
            (published(&world), world.warnings),
            (vec![address.to_owned()], vec![]),
            "{text}"
        );
    }
}

#[test]
fn pods_count_over_files() {
    let db = service("db", "clusterIP: None, selector: {app: db}");
    assert_eq!(published(&world(&[("a.yaml", POD), ("z.yaml", &db)])), ["10.244.1.1"]);
}

#[test]
fn of_two_files_with_one_object_the_later_path_wins_with_a_warning() {
    let (old, new) = (
        service("db", "clusterIP: None, selector: {app: db}"),
        service("db", "clusterIP: 10.96.0.9"),
    );
    let world = world(&[("a.yaml", &format!("{old}{POD}")), ("b.yaml", &new)]);
    let key = (Resource::Services, Key::new("data", "db"));
    let Object::Service(held) = world.objects[&key].object() else { panic!("{world:?}") };
    assert_eq!(held.kind, ServiceKind::ClusterIp(vec!["10.96.0.9".parse().unwrap()]));
    assert_eq!(published(&world), Vec::<String>::new(), "the loser's selector derives nothing");
    assert_eq!(
        world.warnings,
        ["services data/db is in a.yaml and in b.yaml: the one in b.yaml is served"]
    );
}

#[test]
fn the_first_cluster_dns_by_name_is_used_and_the_other_named() {
    let world = world(&[("a.yaml", &dns("second", 1)), ("b.yaml", &dns("first", 2))]);
    let (configuration, path) = world.configuration.unwrap();
    assert_eq!((configuration.name.as_str(), path.as_str()), ("first", "b.yaml"));
    let reported = &world.warnings[0];
    assert!(
        reported.contains("\"first\" in b.yaml is used, being the first by name"),
        "{reported}"
    );
    assert!(reported.contains("\"second\" in a.yaml is not"), "{reported}");
}

#[test]
fn a_cluster_dns_in_use_stays_when_one_with_an_earlier_name_comes() {
    let files = [("a.yaml", dns("first", 1)), ("b.yaml", dns("second", 2))];
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    let both = world_beside(&files, Some("second"));
    assert_eq!(both.configuration.unwrap().1, "b.yaml");
    let reported = &both.warnings[0];
    assert!(
        reported.contains("\"second\" in b.yaml is used, as it is in use already"),
        "{reported}"
    );
    assert!(reported.contains("\"first\" in a.yaml is not"), "{reported}");
    let gone = world_beside(&files[..1], Some("second"));
    assert_eq!(gone.configuration.unwrap().1, "a.yaml");
    assert_eq!(gone.warnings, Vec::<String>::new());
}

#[test]
fn of_two_files_with_the_same_endpoints_the_later_path_wins_with_a_warning() {
    // Two subsets, so two slices: neither may stay.
    let old = ENDPOINTS
        .replace("]}\n", ", {addresses: [{ip: 10.244.1.4}], ports: [{port: 80}]}]}\n")
        .replace("}]}], {", "}]}, {");
    let world = world(&[("a.yaml", &old), ("b.yaml", ENDPOINTS)]);
    assert_eq!(published(&world), ["10.244.1.3"]);
    let expected = "endpoints data/db is in a.yaml and in b.yaml: the one in b.yaml is served";
    assert_eq!(world.warnings, [expected]);
    let world = world_beside(&[("a.yaml", &format!("{old}{ENDPOINTS}"))], None);
    assert_eq!(published(&world), ["10.244.1.3"]);
    assert_eq!(world.warnings, ["endpoints data/db is twice in a.yaml: the later one is served"]);
}

#[test]
fn endpoints_without_addresses_take_the_place_of_earlier_ones_and_of_pods() {
    let db = service("db", "clusterIP: None, selector: {app: db}");
    let empty = ENDPOINTS.replace("{addresses: [{ip: 10.244.1.3}]}", "");
    let world = world(&[("a.yaml", &format!("{db}{POD}{ENDPOINTS}")), ("b.yaml", &empty)]);
    assert_eq!(published(&world), Vec::<String>::new());
    let expected = "endpoints data/db is in a.yaml and in b.yaml: the one in b.yaml is served";
    assert_eq!(world.warnings[0], expected);
    assert!(world.warnings[1].starts_with("headless Service data/db "), "{:?}", world.warnings);
}

#[test]
fn of_two_endpoints_with_one_name_none_has_addresses_of_both() {
    let ipv6 = ENDPOINTS.replace("10.244.1.3", "fd00::3");
    let world = world(&[("a.yaml", &format!("{ENDPOINTS}{ipv6}"))]);
    assert_eq!(published(&world), ["fd00::3"]);
    assert_eq!(world.warnings, ["endpoints data/db is twice in a.yaml: the later one is served"]);
}

#[test]
fn rr18_a_headless_service_without_endpoints_is_warned_about() {
    let headless = service("db", "clusterIP: None, selector: {app: db}");
    assert!(world(&[("a.yaml", &headless)]).warnings[0].starts_with("headless Service data/db "));
    let cluster_ip = service("db", "clusterIP: 10.96.0.1, selector: {app: db}");
    assert_eq!(world(&[("a.yaml", &cluster_ip)]).warnings, Vec::<String>::new());
}

#[test]
fn warnings_are_bounded() {
    let text = "{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n---\n".repeat(500);
    assert_eq!(world(&[("a.yaml", &text)]).warnings.len(), MAX_WARNINGS);
}
