//! Snapshots written, read, refused.

mod lists;
mod defect;
mod clocks;
mod shares;
mod folders;
mod never;

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use dataplane_core::{Change, Key, Namespace, Object, Service, ServiceKind};

use super::*;
use crate::source::writer::{Setup, Writer};
use crate::status::snapshot::SnapshotStatus;

/// Generous: machines that build are slow at times.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder of its own, removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("clusterdns-snapshot-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join(FILE)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn writer(config: &Config) -> (Writer, Arc<Status>) {
    let status = Arc::<Status>::default();
    (Writer::new(config, Setup::reporting_to(status.clone())).unwrap(), status)
}

fn service(name: &str, uid: u128, version: u64) -> Object {
    Object::Service(Service {
        key: Key::new("shop", name),
        uid,
        version,
        labels: vec![("tier".into(), "front".into())],
        kind: ServiceKind::ClusterIp(vec![IpAddr::from([10, 96, 0, 1])]),
        ports: Vec::new(),
    })
}

fn kube_system(uid: u128) -> Object {
    let name = KUBE_SYSTEM.into();
    Object::Namespace(Namespace { name, uid, version: 1, labels: Vec::new() })
}

const KUBE_SYSTEM: &str = "kube-system";

fn complete(writer: &mut Writer, objects: Vec<Object>) {
    for resource in Resource::ALL {
        writer.begin(resource);
    }
    for object in objects {
        writer.apply(Change::Apply(object));
    }
    for resource in Resource::ALL {
        writer.complete(resource, 0);
    }
    writer.publish();
}

/// Steps until snapshots have been written, or failed, as `done` asks.
fn step_until(writer: &mut Writer, status: &Status, done: impl Fn(&SnapshotStatus) -> bool) {
    step(writer, status, false, done);
}

/// The same, after the process was asked to end.
fn step_last_until(writer: &mut Writer, status: &Status, done: impl Fn(&SnapshotStatus) -> bool) {
    step(writer, status, true, done);
}

fn step(
    writer: &mut Writer,
    status: &Status,
    is_last: bool,
    done: impl Fn(&SnapshotStatus) -> bool,
) {
    let begin = Instant::now();
    while !done(&status.read().snapshot) {
        let wait = writer.step_snapshot(is_last).expect("snapshots are kept");
        std::thread::sleep(wait.min(Duration::from_millis(5)));
        assert!(begin.elapsed() < PATIENCE, "{:?}", status.read().snapshot);
    }
}

/// A folder with a snapshot of two Services and the Namespace `kube-system`, uid 1.
fn written(config: &Config) -> Folder {
    let folder = Folder::new();
    let (mut writer, status) = writer(config);
    writer.keep_snapshots(&folder.0).unwrap();
    complete(&mut writer, vec![service("cart", 5, 50), service("web", 6, 60), kube_system(1)]);
    step_until(&mut writer, &status, |reported| reported.writes == 1);
    folder
}

fn load(folder: &Folder, config: &Config) -> (Writer, Arc<Status>, bool) {
    let (mut writer, status) = writer(config);
    let is_loaded = open(&folder.0, &status).is_some_and(|stored| writer.load(&folder.0, stored));
    (writer, status, is_loaded)
}

fn services(status: &Status) -> usize {
    status.read().objects[Resource::Services as usize]
}

fn source(writer: &Writer, resource: Resource) -> DataSource {
    writer.state().published.load().records.source(resource)
}

fn with_exposure(selector: &str) -> Config {
    let text = format!(r#"{{"format":1,"exposure":{{"serviceSelector":{selector}}}}}"#);
    Config::from_json(&text).unwrap().0
}

#[test]
fn k2_what_was_written_is_served_at_the_next_start() {
    let folder = written(&Config::default());
    let (writer, status, is_loaded) = load(&folder, &Config::default());
    assert!(is_loaded);
    assert_eq!(services(&status), 2);
    for resource in lists::OBJECTS {
        assert!(matches!(source(&writer, resource), DataSource::Snapshot { .. }), "{resource:?}");
    }
    let reported = status.read().snapshot.clone();
    assert!(reported.loaded.unwrap().age_s <= PATIENCE.as_secs(), "{reported:?}");
    assert!(folder.file().exists() && !folder.0.join(TEMPORARY).exists());
}

#[test]
fn g163_a_snapshot_of_another_domain_is_not_used_and_is_there_for_the_right_one() {
    let folder = written(&Config::default());
    let other = Config { domain: "other.example".into(), ..Config::default() };
    let (writer, status, is_loaded) = load(&folder, &other);
    assert!(!is_loaded);
    let refused = status.read().snapshot.refused.clone().unwrap();
    assert!(refused.contains("of the cluster domain cluster.local"), "{refused}");
    assert_eq!(source(&writer, Resource::Services), DataSource::None);
    let (_, status, is_loaded) = load(&folder, &Config::default());
    assert!(is_loaded, "{:?}", status.read().snapshot.refused);
}

#[test]
fn g163_what_was_changed_or_cut_anywhere_is_set_aside() {
    let folder = written(&Config::default());
    let intact = fs::read(folder.file()).unwrap();
    let status = Status::default();
    let mut damaged: Vec<Vec<u8>> = (0..intact.len()).map(|end| intact[..end].to_vec()).collect();
    damaged.extend((0..intact.len()).map(|at| {
        let mut octets = intact.clone();
        octets[at] ^= 1 << (at % 8);
        octets
    }));
    damaged.push([&intact[..], b"x"].concat());
    for octets in damaged {
        fs::write(folder.file(), &octets).unwrap();
        assert!(open(&folder.0, &status).is_none(), "{} octets", octets.len());
        assert!(!folder.file().exists() && folder.0.join(REJECTED).exists());
    }
    fs::write(folder.file(), &intact).unwrap();
    assert!(open(&folder.0, &status).is_some());
}

/// A file with the right checksum around any content.
fn sealed(content: &[u8]) -> Vec<u8> {
    use sha2::Digest;
    [content, sha2::Sha256::digest(content).as_slice()].concat()
}

#[test]
fn g163_what_is_sealed_and_yet_wrong_is_set_aside_and_leaves_nothing() {
    let folder = written(&Config::default());
    let intact = fs::read(folder.file()).unwrap();
    let content = &intact[..intact.len() - format::CHECKSUM];
    // Every octet behind magic and format: lengths, the head, objects.
    for at in format::MAGIC.len() + 4..content.len() {
        for octet in [0, 1, 0x7f, 0xff] {
            let mut octets = content.to_vec();
            octets[at] = octet;
            fs::write(folder.file(), sealed(&octets)).unwrap();
            let (writer, status, is_loaded) = load(&folder, &Config::default());
            if !is_loaded {
                assert_eq!(services(&status), 0);
                assert_eq!(source(&writer, Resource::Services), DataSource::None);
            }
        }
    }
    fs::write(folder.file(), sealed(&content[..content.len() - 4])).unwrap();
    assert!(!load(&folder, &Config::default()).2, "the end is missing");
}

#[test]
fn g163_e41_a_snapshot_25_h_old_is_not_used_and_its_configuration_is() {
    let folder = written(&Config::default());
    let stored = Stored::open(&folder.file()).unwrap().unwrap();
    let now_s = stored.confirmed_at_s().unwrap();
    let config = Config::default();
    assert!(stored.usable(&config, now_s + 86_399).is_ok());
    for age_s in [86_400, 25 * 3600] {
        let refusal = stored.usable(&config, now_s + age_s).unwrap_err();
        assert!(matches!(refusal, Refusal::TooOld { .. }) && !refusal.is_final(), "{refusal}");
    }
    // One that was confirmed in the future is young enough.
    assert_eq!(stored.usable(&config, 1).unwrap(), stored.usable(&config, now_s).unwrap());
    assert_eq!(stored.configuration().unwrap(), config);
}

#[test]
fn e40_another_resolv_conf_is_not_written_again() {
    let folder = Folder::new();
    let resolv_conf = folder.0.join("resolv.conf");
    fs::write(&resolv_conf, "nameserver 192.0.2.1\n").unwrap();
    let status = Arc::<Status>::default();
    let setup = Setup { resolv_conf: resolv_conf.clone(), ..Setup::reporting_to(status.clone()) };
    let mut writer = Writer::new(&Config::default(), setup).unwrap();
    writer.keep_snapshots(&folder.0).unwrap();
    complete(&mut writer, vec![service("cart", 5, 50)]);
    step_until(&mut writer, &status, |reported| reported.writes == 1);
    fs::write(&resolv_conf, "nameserver 192.0.2.2\n").unwrap();
    assert!(writer.reread_resolv_conf());
    writer.publish();
    // The last one does not wait for its turn.
    assert_eq!(writer.step_snapshot(true), Some(IDLE));
    writer.apply(Change::Apply(service("late", 7, 70)));
    writer.publish();
    assert_eq!(writer.step_snapshot(true), Some(NEXT_STEP));
}

#[test]
fn e46_the_configuration_is_kept_and_during_a_canary_the_stable_one() {
    let stable = Config { ttl_seconds: 9, ..Config::default() };
    let canary = Config { ttl_seconds: 10, ..Config::default() };
    let folder = Folder::new();
    let (mut writer, status) = writer(&stable);
    writer.keep_snapshots(&folder.0).unwrap();
    writer.configure(&canary).unwrap();
    writer.keep_configuration(Arc::new(stable.clone()));
    complete(&mut writer, vec![kube_system(1)]);
    step_until(&mut writer, &status, |reported| reported.writes == 1);
    let stored = Stored::open(&folder.file()).unwrap().unwrap();
    assert_eq!(stored.configuration().unwrap(), stable);
}

#[test]
fn labels_that_were_not_kept_make_it_useless_rather_than_wrong() {
    let folder = written(&Config::default());
    let selecting = with_exposure(r#"{"matchLabels":{"tier":"front"}}"#);
    let (_, status, is_loaded) = load(&folder, &selecting);
    assert!(!is_loaded, "every Service would be hidden");
    assert!(status.read().snapshot.refused.as_ref().unwrap().contains("another exposure"));
    assert!(folder.file().exists(), "it is good under the configuration it was written under");
    let folder = written(&selecting);
    assert!(load(&folder, &selecting).2);
    assert!(load(&folder, &Config::default()).2, "less is read than was kept");
}

#[test]
fn a_configuration_that_reads_more_drops_what_only_a_snapshot_knows() {
    let folder = written(&Config::default());
    let (mut writer, status, _) = load(&folder, &Config::default());
    writer.configure(&with_exposure(r#"{"matchLabels":{"tier":"front"}}"#)).unwrap();
    writer.publish();
    assert_eq!(source(&writer, Resource::Services), DataSource::None);
    assert_eq!(services(&status), 0);
}

#[test]
fn e42_a_snapshot_of_another_cluster_is_dropped_at_once() {
    let folder = written(&Config::default());
    let (mut writer, status, _) = load(&folder, &Config::default());
    let replicas = |writer: &Writer| writer.state().published.load().records.replicas();
    assert_eq!(replicas(&writer), crate::identity::of_replicas(1, None), "A43");
    writer.begin(Resource::Namespaces);
    writer.apply(Change::Apply(kube_system(2)));
    writer.publish();
    assert_eq!(replicas(&writer), crate::identity::of_replicas(2, None), "A43");
    assert_eq!(services(&status), 0);
    assert_eq!(source(&writer, Resource::Services), DataSource::None);
    assert_eq!(status.read().objects[Resource::Namespaces as usize], 1, "the live one stays");
    assert_eq!(status.read().snapshot.loaded, None);
}

#[test]
fn e40_nothing_is_written_before_the_first_sync() {
    let folder = Folder::new();
    let (mut writer, status) = writer(&Config::default());
    writer.keep_snapshots(&folder.0).unwrap();
    for resource in [Resource::Services, Resource::Namespaces] {
        writer.begin(resource);
        writer.complete(resource, 0);
    }
    writer.publish();
    for _ in 0..100 {
        assert_eq!(writer.step_snapshot(false), Some(IDLE));
    }
    drop(writer);
    assert_eq!(status.read().snapshot.writes, 0);
    assert!(!folder.file().exists());
}

#[test]
fn e40_when_draining_the_last_change_is_written_at_once() {
    let folder = Folder::new();
    let (mut writer, status) = writer(&Config::default());
    writer.keep_snapshots(&folder.0).unwrap();
    complete(&mut writer, vec![service("cart", 5, 50)]);
    step_until(&mut writer, &status, |reported| reported.writes == 1);
    writer.apply(Change::Apply(service("late", 7, 70)));
    writer.publish();
    step_last_until(&mut writer, &status, |reported| reported.writes == 2);
    assert_eq!(services(&load(&folder, &Config::default()).1), 2);
}

#[test]
fn a_cluster_of_many_steps_comes_back_whole() {
    let folder = Folder::new();
    let (mut before, status) = writer(&Config::default());
    before.keep_snapshots(&folder.0).unwrap();
    let count = 3 * STEP;
    let objects = (0..count).map(|number| service(&format!("s{number}"), 1, 1)).collect();
    complete(&mut before, objects);
    step_until(&mut before, &status, |reported| reported.writes == 1);
    let (_, status, is_loaded) = load(&folder, &Config::default());
    assert!(is_loaded);
    assert_eq!(services(&status), count);
}

#[test]
fn e43_an_old_snapshot_waits_for_live_data_if_the_api_server_answers() {
    let begin = Instant::now();
    // Age in seconds, seconds since start, whether the API server answers; whether to wait.
    let rows = [
        (300, 0, Some(true), false),
        (301, 0, Some(true), true),
        (301, 0, None, true),
        (301, 0, Some(false), false),
        (301, 9, Some(true), true),
        (301, 10, Some(true), false),
        (301, 10, None, false),
    ];
    for (age_s, second, answers, waits) in rows {
        let loaded = Loaded { confirmed_at_s: 0, age_s, is_partial: false, at: begin };
        let now = begin + Duration::from_secs(second);
        assert_eq!(waits_for_live(loaded, now, answers), waits, "{age_s} {second} {answers:?}");
        // One without all records denies names that exist, however young it is.
        let partial = Loaded { is_partial: true, age_s: 1, ..loaded };
        let waits = answers != Some(false) && second < 10;
        assert_eq!(waits_for_live(partial, now, answers), waits, "partial {second} {answers:?}");
    }
}
