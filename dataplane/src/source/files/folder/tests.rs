//! A folder on disk, changed step by step. `now` is an argument: no test waits for a clock.

use std::fs;

use super::*;

/// A folder of its own, removed at the end.
struct Disk(PathBuf);

impl Disk {
    fn new(name: &str) -> Disk {
        let path = std::env::temp_dir().join(format!("clusterdns-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Disk(path)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.0.join(name)).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn namespace(name: &str) -> String {
    format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n")
}

fn held(folder: &Folder) -> Vec<String> {
    folder.world(None).objects.keys().map(|(_, key)| key.to_string()).collect()
}

/// Long after every change, so that stamps are trusted.
fn later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(60)
}

#[test]
fn manifests_are_found_recursively_and_hidden_or_other_files_are_not() {
    let disk = Disk::new("recursive");
    disk.write("a.yaml", &namespace("one"));
    disk.write("deep/er/b.YML", &namespace("two"));
    disk.write(
        "deep/c.json",
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"three"}}"#,
    );
    disk.write("README.md", "not a manifest");
    disk.write(".hidden/d.yaml", &namespace("four"));
    let mut folder = Folder::new(&disk.0);
    assert!(folder.scan(later()));
    assert_eq!(held(&folder), ["one", "three", "two"]);
    assert_eq!((folder.len(), folder.bad_files()), (3, vec![]));
}

#[test]
fn an_unchanged_folder_is_nothing_new() {
    let disk = Disk::new("unchanged");
    disk.write("a.yaml", &namespace("one"));
    let mut folder = Folder::new(&disk.0);
    assert!(folder.scan(later()));
    assert!(!folder.scan(later()));
    disk.write("a.yaml", &namespace("one"));
    assert!(!folder.scan(later()), "written again with the same content");
}

#[test]
fn a_change_behind_the_same_stamp_is_seen_while_the_file_is_young() {
    let disk = Disk::new("stamp");
    disk.write("a.yaml", &namespace("one"));
    let path = disk.0.join("a.yaml");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let mut folder = Folder::new(&disk.0);
    folder.scan(modified);
    disk.write("a.yaml", &namespace("two"));
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert!(folder.scan(modified));
    assert_eq!(held(&folder), ["two"]);
}

#[test]
fn a_file_that_could_not_be_read_is_read_at_the_next_look_though_it_is_the_same() {
    let disk = Disk::new("unread");
    disk.write("a.yaml", &namespace("one"));
    let mut folder = Folder::new(&disk.0);
    let mut found = scan::list(&disk.0).unwrap().files.remove(0);
    let path = std::mem::replace(&mut found.path, disk.0.join("elsewhere"));
    folder.look(&found, later());
    assert_eq!((held(&folder), folder.bad_files().len()), (vec![], 1));
    found.path = path;
    assert!(folder.look(&found, later()));
    assert_eq!((held(&folder), folder.bad_files()), (vec!["one".to_owned()], vec![]));
}

#[test]
fn a_file_that_stops_parsing_keeps_its_last_good_content_and_says_where() {
    let disk = Disk::new("broken");
    disk.write("a.yaml", &namespace("one"));
    disk.write("b.yaml", &namespace("two"));
    let mut folder = Folder::new(&disk.0);
    folder.scan(later());
    disk.write("a.yaml", "kind: Namespace\n  metadata: [\n");
    assert!(folder.scan(later()));
    assert_eq!(held(&folder), ["one", "two"]);
    let bad = folder.bad_files();
    assert_eq!(bad[0].path, "a.yaml");
    assert!(bad[0].error.starts_with("line "), "{bad:?}");
    disk.write("a.yaml", &namespace("three"));
    folder.scan(later());
    assert_eq!((held(&folder), folder.bad_files()), (vec!["three".into(), "two".into()], vec![]));
}

/// A file with one object of each kind, and what it is read as.
const EACH_KIND: [&str; 5] = [
    "{apiVersion: v1, kind: Service, metadata: {name: cart, namespace: shop}, spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}}",
    "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: x, namespace: shop, labels: {kubernetes.io/service-name: other}}, addressType: IPv4, endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]}",
    "{apiVersion: v1, kind: Endpoints, metadata: {name: cart, namespace: shop}, subsets: [{addresses: [{ip: 10.0.0.2}]}]}",
    "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {a: b}}}",
    "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, status: {podIP: 10.0.0.3}}",
];

fn reasons(folder: &Folder) -> Vec<String> {
    folder.world(None).skipped.into_iter().map(|skipped| skipped.reason).collect()
}

#[test]
fn an_object_that_cannot_be_read_any_more_keeps_its_last_good_version() {
    let rows = [
        ("port: 80", "port: \"80\""),
        ("spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}", "spec:, clusterIP: 10.96.0.1"),
        ("ready: true", "ready: \"true\""),
        ("addressType: IPv4", "addressType: ipv4"),
        ("ip: 10.0.0.2", "ip: 7"),
        ("labels: {a: b}", "labels: [a]"),
        ("podIP: 10.0.0.3", "podIP: 7"),
        ("kind: Service,", "kind: service,"),
        ("kind: Service,", "kind: Servce,"),
        ("kind: Pod", "kind: Pods"),
        ("apiVersion: discovery.k8s.io/v1", "apiVersion: v1"),
        ("name: cart, namespace: shop}, spec", "nme: cart, namespace: shop}, spec"),
        ("metadata: {name: p, namespace: shop}", "metadata:, name: p"),
        ("name: shop, labels", "name: 7, labels"),
    ];
    let good = EACH_KIND.join("\n---\n");
    for (from, to) in rows {
        let disk = Disk::new("unread");
        disk.write("a.yaml", &good);
        let mut folder = Folder::new(&disk.0);
        folder.scan(later());
        let before = folder.world(None).objects;
        assert_eq!((before.len(), reasons(&folder)), (5, vec![]));
        // Another object of the file changes at the same time, and a second edit does not mend it.
        for other in ["10.0.0.8", "10.0.0.9"] {
            let another = format!("{}\n---\n{}", good.replace(from, to), namespace(other));
            assert!(another.contains(to), "{to}");
            disk.write("a.yaml", &another);
            assert!(folder.scan(later()));
            let mut after = folder.world(None).objects;
            assert!(after.keys().any(|(_, key)| *key.name == *other), "the rest is served: {to}");
            after.retain(|(_, key), _| *key.name != *other);
            assert_eq!(after, before, "{to}");
            let said = reasons(&folder);
            let [reason] = &said[..] else { panic!("{to}: {said:?}") };
            let end = "its last good content stays in use (in a.yaml)";
            assert!(reason.ends_with(end), "{to}: {reason}");
        }
        disk.write("a.yaml", &namespace("one"));
        folder.scan(later());
        assert_eq!((held(&folder), reasons(&folder)), (vec!["one".to_owned()], vec![]), "{to}");
    }
}

#[test]
fn an_object_that_could_never_be_read_is_not_served_and_hides_no_other() {
    let disk = Disk::new("unreadable");
    let bad = EACH_KIND[0].replace("port: 80", "port: \"80\"");
    disk.write("a.yaml", &format!("{bad}\n---\n{}", namespace("one")));
    let mut folder = Folder::new(&disk.0);
    folder.scan(later());
    assert_eq!(held(&folder), ["one"]);
    let reason = &reasons(&folder)[0];
    assert!(reason.ends_with("; nothing of it is served (in a.yaml)"), "{reason}");
    // A good version of the same object beside it is the newer one.
    disk.write("a.yaml", EACH_KIND[0]);
    folder.scan(later());
    let newer = EACH_KIND[0].replace("10.96.0.1", "10.96.0.2");
    disk.write("a.yaml", &format!("{bad}\n---\n{newer}"));
    folder.scan(later());
    let world = folder.world(None);
    assert_eq!((world.objects.len(), world.warnings), (1, vec![]));
    let service = world.objects.values().next().unwrap().object();
    assert!(format!("{service:?}").contains("10.96.0.2"), "{service:?}");
    let reason = &reasons(&folder)[0];
    assert!(reason.contains("; the file has this object once more, and that one"), "{reason}");
}

/// A Service of the namespace `shop`.
fn service(name: &str, address: &str) -> String {
    let metadata = format!("{{name: {name}, namespace: shop}}");
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {metadata}, spec: {{clusterIP: {address}}}}}\n---\n"
    )
}

#[test]
fn a_document_that_never_had_a_name_keeps_no_deleted_object_of_its_kind() {
    let wrong_namespace = service("other", "10.96.0.9").replace("shop", "7");
    for nameless in [service("123", "10.96.0.9"), service("", "10.96.0.9"), wrong_namespace] {
        let disk = Disk::new("nameless");
        let [cart, old] = [service("cart", "10.96.0.1"), service("old", "10.96.0.2")];
        disk.write("z.yaml", &format!("{cart}{old}{nameless}"));
        let mut folder = Folder::new(&disk.0);
        folder.scan(later());
        assert_eq!(held(&folder), ["shop/cart", "shop/old"]);
        disk.write("z.yaml", &format!("{cart}{nameless}"));
        folder.scan(later());
        assert_eq!(held(&folder), ["shop/cart"], "{nameless}");
        // Moved to a file of which the objects give way to those of this one.
        disk.write("z.yaml", &nameless);
        disk.write("a.yaml", &service("cart", "10.96.0.3"));
        folder.scan(later());
        let world = folder.world(None);
        assert_eq!((world.objects.len(), world.warnings), (1, vec![]));
        let service = world.objects.values().next().unwrap().object();
        assert!(format!("{service:?}").contains("10.96.0.3"), "{service:?}");
        let reason = &reasons(&folder)[0];
        assert!(reason.ends_with("; nothing of it is served (in z.yaml)"), "{reason}");
    }
}

#[test]
fn a_document_that_loses_its_name_keeps_the_object_that_it_may_be_and_no_other() {
    let [cart, old, new] = ["cart", "old", "new"].map(|name| service(name, "10.96.0.1"));
    let nameless = service("123", "10.96.0.1");
    let wrong_namespace = cart.replace("shop", "7");
    let elsewhere = old.replace("shop", "prod");
    let rows: [(&[&str], &[&str]); 7] = [
        // Nothing is gone, or one, or two of which one was deleted.
        (&[&cart, &old, &nameless], &["shop/cart", "shop/old"]),
        (&[&cart, &nameless], &["shop/cart", "shop/old"]),
        (&[&nameless], &[]),
        (&[&new, &nameless, &nameless], &["shop/cart", "shop/new", "shop/old"]),
        // What can be read of it counts.
        (&[&wrong_namespace], &["shop/cart"]),
        (&[&nameless, &wrong_namespace], &["shop/cart", "shop/old"]),
        (&[&cart, &nameless.replace("shop", "prod")], &["shop/cart"]),
    ];
    for (texts, expected) in rows {
        let disk = Disk::new("loses-name");
        disk.write("a.yaml", &format!("{cart}{old}"));
        let mut folder = Folder::new(&disk.0);
        folder.scan(later());
        // Another edit beside it deletes what was not kept for it.
        for other in [&elsewhere, ""] {
            disk.write("a.yaml", &format!("{}{other}", texts.concat()));
            folder.scan(later());
            let mut held = held(&folder);
            held.retain(|key| other.is_empty() || key != "prod/old");
            assert_eq!(held, expected, "{texts:?} {:?}", reasons(&folder));
        }
    }
    let disk = Disk::new("says-which");
    disk.write("a.yaml", &format!("{cart}{old}"));
    let mut folder = Folder::new(&disk.0);
    folder.scan(later());
    disk.write("a.yaml", &format!("{cart}{nameless}"));
    folder.scan(later());
    let reason = &reasons(&folder)[0];
    assert!(reason.contains("it may be Service shop/old, which the file"), "{reason}");
}

#[test]
fn a_deleted_file_takes_its_objects_along() {
    let disk = Disk::new("deleted");
    disk.write("a.yaml", &namespace("one"));
    disk.write("b.yaml", &namespace("two"));
    let mut folder = Folder::new(&disk.0);
    folder.scan(later());
    disk.remove("a.yaml");
    assert!(folder.scan(later()));
    assert_eq!(held(&folder), ["two"]);
}

#[test]
fn a_folder_that_cannot_be_read_any_more_keeps_everything() {
    let disk = Disk::new("gone");
    disk.write("a.yaml", &namespace("one"));
    let mut folder = Folder::new(&disk.0);
    folder.scan(later());
    fs::remove_dir_all(&disk.0).unwrap();
    assert!(folder.scan(later()));
    assert_eq!(held(&folder), ["one"]);
    assert_eq!(folder.bad_files()[0].path, ".");
    assert!(!folder.scan(later()), "the same problem again is nothing new");
}

#[test]
fn a_file_that_is_not_text_is_refused_with_its_line() {
    let disk = Disk::new("binary");
    fs::write(disk.0.join("a.yaml"), b"kind: Namespace\n\xff\xfe").unwrap();
    let mut folder = Folder::new(&disk.0);
    folder.scan(later());
    assert!(folder.bad_files()[0].error.starts_with("line 2, column 1: it is not UTF-8"));
}

#[test]
fn a_broken_file_that_speaks_of_a_cluster_dns_hides_the_configuration() {
    let disk = Disk::new("hidden");
    disk.write("a.yaml", "kind: ClusterDNS\n  spec: [\n");
    let mut folder = Folder::new(&disk.0);
    folder.scan(later());
    assert_eq!(folder.hidden_configuration().unwrap().path, "a.yaml");
    disk.write("a.yaml", "kind: ClusterDNS\n");
    folder.scan(later());
    assert_eq!(folder.hidden_configuration(), None);
}

#[test]
fn links_that_lead_in_circles_end_and_linked_files_are_read() {
    let disk = Disk::new("links");
    disk.write("..data/a.yaml", &namespace("one"));
    std::os::unix::fs::symlink("..data/a.yaml", disk.0.join("a.yaml")).unwrap();
    std::os::unix::fs::symlink(".", disk.0.join("circle")).unwrap();
    std::os::unix::fs::symlink("nowhere", disk.0.join("dangling.yaml")).unwrap();
    let mut folder = Folder::new(&disk.0);
    folder.scan(later());
    assert_eq!((held(&folder), folder.bad_files()), (vec!["one".into()], vec![]));
}

#[test]
fn a_file_that_is_emptied_keeps_its_content_until_it_is_written_or_deleted() {
    let disk = Disk::new("emptied");
    disk.write("a.yaml", &namespace("one"));
    disk.write("never.yaml", "");
    let mut folder = Folder::new(&disk.0);
    folder.scan(later());
    assert_eq!(folder.bad_files(), vec![]);
    disk.write("a.yaml", "");
    assert!(folder.scan(later()));
    assert_eq!(held(&folder), ["one"]);
    let error = &folder.bad_files()[0].error;
    assert!(error.contains("is empty") && error.contains("stays in use"), "{error}");
    disk.write("a.yaml", " \n\n");
    assert!(folder.scan(later()));
    assert_eq!(held(&folder), ["one"], "white space is as much as nothing");
    disk.write("a.yaml", "# nothing, and meant so\n");
    folder.scan(later());
    assert_eq!((held(&folder), folder.bad_files()), (vec![], vec![]));
}

#[test]
fn another_file_of_the_same_time_and_size_is_seen() {
    let disk = Disk::new("twins");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    for (name, text) in [("a.yaml", namespace("one")), (".b", namespace("two"))] {
        disk.write(name, &text);
        let file = fs::File::options().write(true).open(disk.0.join(name)).unwrap();
        file.set_modified(old).unwrap();
    }
    let mut folder = Folder::new(&disk.0);
    folder.scan(later());
    fs::rename(disk.0.join(".b"), disk.0.join("a.yaml")).unwrap();
    assert!(folder.scan(later()));
    assert_eq!(held(&folder), ["two"]);
}

#[test]
fn a_file_that_was_never_good_says_that_nothing_of_it_is_served() {
    let disk = Disk::new("never");
    disk.write("a.yaml", "kind: Namespace\n  metadata: [\n");
    let mut folder = Folder::new(&disk.0);
    folder.scan(later());
    assert!(folder.bad_files()[0].error.ends_with("; nothing of it is served"));
}

#[test]
fn a_byte_order_mark_is_no_mistake() {
    let disk = Disk::new("mark");
    disk.write("a.yaml", &format!("\u{feff}{}", namespace("one")));
    disk.write(
        "b.json",
        "\u{feff}{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"two\"}}",
    );
    let mut folder = Folder::new(&disk.0);
    folder.scan(later());
    assert_eq!((held(&folder), folder.bad_files()), (vec!["one".into(), "two".into()], vec![]));
}
