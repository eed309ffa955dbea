//! A restart while the API server is away: answers come from the snapshot, the same as before
//! (K2, G150), however the process before ended (D4).

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::Config;
use dataplane::snapshot::{self, Stored};
use dataplane::source::writer::{Setup, Writer};
use dataplane::status::Status;
use dataplane_core::{Change, Identity, Object, Resource};
use tests::client::{Question, Text, Transport};
use tests::scenario::{Block, Cluster, Core, Scenario, config};
use tests::scratch::Scratch;

/// Generous: machines that build are slow at times.
const PATIENCE: Duration = Duration::from_secs(60);
/// The variable that names the folder to a process that the test kills.
const CHILD: &str = "CLUSTERDNS_TEST_SNAPSHOT_CHILD";
const AGE: &str = "EDE: 3";
/// That of a type that is withheld (FW45).
const WITHHELD: &str = "EDE: 17";

fn writer(config: &Config) -> (Writer, Arc<Status>) {
    let status = Arc::<Status>::default();
    let identity = Identity { version: "".into(), pod_name: "".into(), instance_id: "".into() };
    let resolv_conf = "/nonexistent".into();
    let setup = Setup {
        counters: Vec::new(),
        identity,
        resolv_conf,
        location: Default::default(),
        status: status.clone(),
    };
    (Writer::new(config, setup).unwrap(), status)
}

/// Lists the objects as a live source does, and writes them down.
fn keep(folder: &Path, config: &Config, objects: Vec<Object>) {
    let (mut writer, status) = writer(config);
    writer.keep_snapshots(folder).unwrap();
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
    let begin = Instant::now();
    while status.read().snapshot.writes == 0 {
        writer.step_snapshot(false);
        assert!(begin.elapsed() < PATIENCE, "{:?}", status.read().snapshot);
    }
}

fn restart(folder: &Path) -> Option<(Writer, Arc<Status>)> {
    let stored = snapshot::open(folder, &Status::default())?;
    let (mut writer, status) = writer(&stored.configuration().unwrap());
    assert!(writer.load(folder, stored), "{:?}", status.read().snapshot);
    Some((writer, status))
}

/// The answers of a scenario's core after a restart, and before it.
struct Restarted {
    before: Core,
    after: Core,
}

impl Restarted {
    fn new(cluster: &Cluster) -> Restarted {
        let folder = Scratch::new("snapshot").unwrap();
        let text: Vec<String> = cluster.objects.iter().map(ToString::to_string).collect();
        let (objects, _) = dataplane::source::objects_from_yaml(&text.join("\n---\n")).unwrap();
        keep(folder.path(), &config(&cluster.objects).unwrap(), objects);
        let (writer, _) = restart(folder.path()).unwrap();
        let records = writer.state().published.load().records.clone();
        let core = || Core::new(&cluster.objects).unwrap();
        Restarted { before: core(), after: core().with_records(records) }
    }

    /// The replies of both, and whether the later one showed its age.
    fn ask(&self, question: &Question, transport: Transport, seed: u64) -> (Text, Text, bool) {
        let [mut before, mut after] = [&self.before, &self.after].map(|core| {
            let outcome = core.ask(&question.packet, transport, seed).unwrap();
            outcome.text(question, transport, &core.names())
        });
        let notes = after.notes.len();
        after.notes.retain(|note| note != AGE);
        let is_aged = after.notes.len() < notes;
        // A reply has one Extended DNS Error, and the age of what leads to a withheld type comes first (N22).
        before.notes.retain(|note| !(is_aged && note == WITHHELD));
        (before, after, is_aged)
    }
}

fn questions(scenarios: &[Scenario]) -> impl Iterator<Item = (&String, &Question)> {
    let blocks = scenarios.iter().flat_map(|scenario| scenario.answers.blocks());
    blocks.flat_map(|block: &Block| block.questions.iter().map(|(row, question)| (row, question)))
}

#[test]
fn g150_k2_every_scenario_is_answered_the_same_after_a_restart() {
    let mut differences = Vec::new();
    let mut aged = Vec::new();
    for cluster in Cluster::all().unwrap() {
        let restarted = Restarted::new(&cluster);
        for (seed, (row, question)) in questions(&cluster.scenarios).enumerate() {
            for transport in [Transport::Udp, Transport::Tcp] {
                if !question.is_for(transport) {
                    continue;
                }
                let (before, after, is_aged) = restarted.ask(question, transport, seed as u64);
                if before != after {
                    let asked = &question.text;
                    differences.push(format!("{row} {asked}\nbefore:\n{before}after:\n{after}"));
                }
                if is_aged {
                    aged.push(row.clone());
                }
            }
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
    // G12 is a cluster IP, G10 a name that does not exist; G121 would be a name of another namespace.
    for row in ["G12", "G10", "G34"] {
        assert!(aged.iter().any(|aged| aged == row), "{row} rests on the snapshot: {aged:?}");
    }
    // Configured names need no data (§4.4).
    for row in ["G1", "G2"] {
        assert!(!aged.iter().any(|aged| aged == row), "{row} rests on nothing: {aged:?}");
    }
}

/// Writes one snapshot after the other until it is killed.
fn write_without_end(folder: &Path) -> ! {
    let (objects, _) = dataplane::source::objects_from_yaml(&services(500)).unwrap();
    for number in 1.. {
        keep(folder, &Config::default(), objects[..1 + number % objects.len()].to_vec());
    }
    unreachable!("the numbers do not end")
}

fn services(count: usize) -> String {
    let service = |number| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s{number}, namespace: shop}}\n\
             spec: {{clusterIP: 10.96.{}.{}}}\n",
            number / 250,
            number % 250 + 1
        )
    };
    (0..count).map(service).collect::<Vec<_>>().join("---\n")
}

#[test]
fn d4_a_killed_process_leaves_a_whole_snapshot() {
    if let Some(folder) = std::env::var_os(CHILD) {
        write_without_end(Path::new(&folder));
    }
    let folder = Scratch::new("killed").unwrap();
    let mut found = 0;
    for round in 0..20_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "snapshot::d4_a_killed_process_leaves_a_whole_snapshot"])
            .env(CHILD, folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        while round == 0 && !folder.path().join("snapshot").exists() {
            assert!(begin.elapsed() < PATIENCE, "nothing was written");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Each time at another point of its work.
        std::thread::sleep(Duration::from_millis(50 + 7 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let (_, status) = restart(folder.path()).expect("a snapshot was there before");
        found += status.read().objects[Resource::Services as usize];
    }
    assert!(found > 0);
}

#[test]
fn a_snapshot_is_readable_by_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Scratch::new("mode").unwrap();
    keep(folder.path(), &Config::default(), Vec::new());
    let file = folder.path().join("snapshot");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(Stored::open(&file).unwrap().is_some());
}
