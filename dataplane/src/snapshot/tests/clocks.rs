//! Snapshots where the clock of the machine is set while a process runs.

use super::*;

/// The file as it is where it was confirmed a billion seconds later: as it looks to a machine whose clock is behind.
fn confirmed_later(folder: &Folder) -> u64 {
    const LATER: u64 = 1_000_000_000;
    let before_s = Stored::open(&folder.file()).unwrap().unwrap().confirmed_at_s().unwrap();
    let octets = fs::read(folder.file()).unwrap();
    let mut content = octets[..octets.len() - format::CHECKSUM].to_vec();
    // The kinds of objects were confirmed within two seconds, and each time has as many digits as before.
    for second in [before_s, before_s + 1] {
        let (from, to) = (second.to_string().into_bytes(), (second + LATER).to_string());
        let places = content.windows(from.len()).enumerate();
        let places: Vec<usize> =
            places.filter(|(_, text)| *text == from).map(|(at, _)| at).collect();
        for at in places {
            content[at..at + from.len()].copy_from_slice(to.as_bytes());
        }
    }
    fs::write(folder.file(), sealed(&content)).unwrap();
    before_s + LATER
}

#[test]
fn e41_what_is_loaded_while_the_clock_is_behind_keeps_its_time() {
    let folder = written(&Config::default());
    let confirmed_at_s = confirmed_later(&folder);
    let (mut writer, status, is_loaded) = load(&folder, &Config::default());
    assert!(is_loaded);
    let of_file = DataSource::Snapshot { confirmed_at_s };
    assert_eq!(source(&writer, Resource::Services), of_file);
    let loaded = status.read().snapshot.loaded.unwrap();
    assert_eq!((loaded.confirmed_at_s, loaded.age_s), (confirmed_at_s, 0));

    // One kind of objects is live, and the next snapshot has the others.
    writer.keep_snapshots(&folder.0).unwrap();
    writer.begin(Resource::Namespaces);
    writer.apply(Change::Apply(kube_system(1)));
    writer.complete(Resource::Namespaces, 0);
    writer.publish();
    step_until(&mut writer, &status, |reported| reported.writes == 1);
    let stored = Stored::open(&folder.file()).unwrap().unwrap();
    // At the next start the clock is right: no good data is dropped as too old.
    let usable = stored.usable(&Config::default(), confirmed_at_s + 60).unwrap();
    assert_eq!(usable[Resource::Services as usize], Some(confirmed_at_s));
}
