//! Memory of a folder of manifests: what reading it takes and what stays, beside the length of its text.

use std::fs;

use dataplane::source::files::Files;
use serde_json::json;
use tests::scale::Cluster;
use tests::scratch::Scratch;

use crate::edits::setup;

const SERVICES: usize = 1_000;

#[test]
fn reading_a_folder_takes_two_and_a_half_times_its_text_and_keeps_one_and_a_half() {
    let cluster = Cluster::of_manifests(SERVICES, "shop");
    let objects = |service| [Some(cluster.service_object(service)), cluster.slice_object(service)];
    let items: Vec<_> = (0..SERVICES).flat_map(objects).flatten().collect();
    let text = json!({"apiVersion": "v1", "items": items, "kind": "List"}).to_string();
    let folder = Scratch::new("folder-memory").unwrap();
    fs::write(folder.path().join("all.json"), &text).unwrap();
    let octets = text.len() as u64;
    let mut files = None;
    let measured =
        allocation_counter::measure(|| files = Some(Files::open(folder.path(), setup()).unwrap()));
    let objects = files.iter().flat_map(Files::objects).count();
    assert!(objects > SERVICES, "{objects} objects");
    let stays = u64::try_from(measured.bytes_current).unwrap();
    assert!(stays * 2 <= octets * 3, "{stays} octets stay of a text of {octets}");
    let peak = measured.bytes_max;
    assert!(peak <= octets * 5 / 2, "{peak} octets at most for a text of {octets}");
}
