//! Folders without a snapshot, or in which nothing can be read or written.

use super::*;

#[test]
fn no_snapshot_is_nothing_to_report() {
    let folder = Folder::new();
    let (writer, status, is_loaded) = load(&folder, &Config::default());
    assert!(!is_loaded);
    assert_eq!(status.read().snapshot.refused, None);
    assert_eq!(source(&writer, Resource::Services), DataSource::None);
}

#[test]
fn g163_what_cannot_be_read_stays_where_it_is() {
    let folder = Folder::new();
    // Reading it fails, also for root.
    fs::create_dir(folder.file()).unwrap();
    let status = Status::default();
    assert!(open(&folder.0, &status).is_none());
    let refused = status.read().snapshot.refused.clone().unwrap();
    assert!(refused.contains("it cannot be read: "), "{refused}");
    assert!(folder.file().exists() && !folder.0.join(REJECTED).exists());
}

#[test]
fn a_folder_that_cannot_be_written_to_is_counted_and_nothing_else_suffers() {
    let folder = Folder::new();
    let (mut writer, status) = writer(&Config::default());
    writer.keep_snapshots(&folder.0).unwrap();
    // Even root cannot write to a folder that is gone.
    fs::remove_dir_all(&folder.0).unwrap();
    complete(&mut writer, vec![service("cart", 5, 50)]);
    step_until(&mut writer, &status, |reported| reported.failures == 1);
    let reported = status.read().snapshot.clone();
    assert!(reported.error.is_some() && reported.writes == 0, "{reported:?}");
}

#[test]
fn a_folder_that_cannot_be_made_is_a_failure_that_is_counted_and_named() {
    let folder = Folder::new();
    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    let (mut writer, status) = writer(&Config::default());
    assert!(writer.keep_snapshots(&file.join("state")).is_err());
    let reported = status.read().snapshot.clone();
    assert_eq!(reported.failures, 1);
    assert!(reported.error.as_ref().unwrap().contains("(--state-dir)"), "{reported:?}");
}
