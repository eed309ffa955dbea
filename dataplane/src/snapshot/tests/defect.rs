//! A snapshot with an object that meets a defect of this program.

use super::*;
use crate::source::writer::DEFECT;

#[test]
fn e41_a_snapshot_whose_loading_panics_is_set_aside_and_the_start_continues() {
    let config = Config::default();
    let folder = Folder::new();
    let (mut before, status) = writer(&config);
    before.keep_snapshots(&folder.0).unwrap();
    let objects = vec![service("cart", 5, 50), service(DEFECT, 6, 60), kube_system(1)];
    complete(&mut before, objects);
    step_until(&mut before, &status, |reported| reported.writes == 1);

    let (mut writer, status, is_loaded) = load(&folder, &config);
    assert!(!is_loaded && !folder.file().exists() && folder.0.join(REJECTED).exists());
    assert_eq!((services(&status), status.read().panics), (0, 1));
    assert_eq!(source(&writer, Resource::Services), DataSource::None);
    let refused = status.read().snapshot.refused.clone().unwrap();
    assert!(refused.contains("a defect of ClusterDNS"), "{refused}");
    assert_eq!(status.read().snapshot.loaded.map(|loaded| loaded.age_s), None);

    // Another cluster than that of the snapshot is no news.
    complete(&mut writer, vec![service("cart", 5, 50), kube_system(2)]);
    assert_eq!((services(&status), status.read().cluster_changes), (1, 0));
    assert_eq!(source(&writer, Resource::Services), DataSource::Live);

    let (_, status, is_loaded) = load(&folder, &config);
    let reported = status.read();
    assert!(!is_loaded && reported.panics == 0 && reported.snapshot.refused.is_none());
}
