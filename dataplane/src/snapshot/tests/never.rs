//! A maximum age of 0: objects are neither used nor written.

use super::*;

#[test]
fn e41_a_maximum_age_of_0_means_never() {
    let folder = written(&Config::default());
    let text = r#"{"format":1,"warmStart":{"maxAgeSeconds":0}}"#;
    let (_, status, is_loaded) = load(&folder, &Config::from_json(text).unwrap().0);
    assert!(!is_loaded);
    assert!(status.read().snapshot.refused.as_ref().unwrap().contains("maxAgeSeconds is 0"));
}

#[test]
fn e40_with_a_maximum_age_of_0_only_the_configuration_is_written() {
    let never = Config::from_json(r#"{"format":1,"warmStart":{"maxAgeSeconds":0}}"#).unwrap().0;
    let folder = written(&never);
    let stored = Stored::open(&folder.file()).unwrap().unwrap();
    assert_eq!(stored.configuration().unwrap(), never);
    let mut objects = 0;
    stored.objects(|_| objects += 1).unwrap();
    assert_eq!(objects, 0);
    // No other configuration takes it for a cluster without objects.
    for config in [never, Config::default()] {
        let (writer, status, is_loaded) = load(&folder, &config);
        assert!(!is_loaded && folder.file().exists());
        assert_eq!(source(&writer, Resource::Services), DataSource::None);
        assert!(status.read().snapshot.refused.as_ref().unwrap().contains("it has no objects"));
        assert_eq!(status.read().snapshot.on_disk_confirmed_at_s, None);
    }
    // One that may use objects has them written.
    let (mut writer, status, _) = load(&folder, &Config::default());
    writer.keep_snapshots(&folder.0).unwrap();
    complete(&mut writer, vec![service("cart", 5, 50)]);
    step_until(&mut writer, &status, |reported| reported.writes == 1);
    assert!(load(&folder, &Config::default()).2);
}
