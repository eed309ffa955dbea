//! Large pages reach what the look-ups read: the C library asks for them for the heap of the first thread only, so the records
//! must be there, whichever way they come.

use std::fs;

use operator::desired::LARGE_PAGES;
use serde_json::{Value, json};
use tests::control_plane::not_allowed;
use tests::data_plane::DataPlane;
use tests::scale::Cluster;
use tests::scratch::Scratch;
use tests::scripted_api::ScriptedApi;

const SERVICES: usize = 5_000;
/// Where `madvise` is chosen in it, a program can ask for large pages.
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

fn objects() -> Vec<Value> {
    let cluster = Cluster::of_manifests(SERVICES, "shop");
    let of = |service| [Some(cluster.service_object(service)), cluster.slice_object(service)];
    (0..SERVICES).flat_map(of).flatten().collect()
}

/// KiB of the process that no file has: all, and those for which large pages were asked for.
fn anonymous(pid: u32) -> [u64; 2] {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let (mut all, mut large, mut of_area) = (0, 0, 0);
    for line in text.lines() {
        if let Some(size) = line.strip_prefix("Anonymous:") {
            of_area = size.trim().trim_end_matches(" kB").parse().unwrap();
            all += of_area;
        }
        // The last line of an area.
        if line.strip_prefix("VmFlags:").is_some_and(|flags| flags.split(' ').any(|it| it == "hg"))
        {
            large += of_area;
        }
    }
    [all, large]
}

fn the_records_have_large_pages(plane: &DataPlane) {
    plane.wait_until_ready();
    let [all, large] = anonymous(plane.process.pid().unwrap());
    // glibc 2.36 compares more octets of the setting than it has read: it asks at some starts only.
    if large == 0 {
        return not_allowed("large pages, for which its C library asks at each start");
    }
    // The other threads have heaps too.
    assert!(large * 3 > all, "{large} KiB of {all}");
}

/// Where the machine gives large pages to all programs or to none, no program asks for them.
fn cannot_be_asked_for() -> bool {
    let setting = fs::read_to_string(SETTING).unwrap_or_default();
    let cannot = !setting.contains("[madvise]");
    if cannot {
        not_allowed("large pages on request");
    }
    cannot
}

#[test]
fn records_of_an_api_server_and_of_a_folder_have_large_pages() {
    if cannot_be_asked_for() {
        return;
    }
    let variable = format!("{}={}", LARGE_PAGES.0, LARGE_PAGES.1);
    let (by, objects) = (["env", &variable], objects());
    let api = ScriptedApi::start(&objects);
    the_records_have_large_pages(&DataPlane::start_below(&by, api.kubeconfig(), &[]));
    let folder = Scratch::new("large-pages").unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    folder.write("all.json", list).unwrap();
    the_records_have_large_pages(&DataPlane::of_manifests_below(&by, folder.path()));
}
