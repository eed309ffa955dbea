//! A data plane of a soak: the real program, the way to its API server, the disk of its snapshot, and what it is known to
//! have seen.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use dataplane_core::Transport;

use super::objects::{CONFIG_NAME, CONFIG_NAMESPACE};
use crate::client;
use crate::data_plane::DataPlane;
use crate::fault_proxy::FaultProxy;
use crate::http;
use crate::oracle::expected::Question;
use crate::scratch::Scratch;

/// How long each try of a question of ours waits. Together it is far more than a machine that does other work needs. Where
/// 15 % of all datagrams are lost, a try over UDP fails with 28 %: nine tries in a row fail once in 100,000 questions, and 18
/// once in 10,000,000,000.
const TRIES: [Duration; 18] = {
    let mut tries = [Duration::from_secs(1); 18];
    tries[0] = Duration::from_millis(250);
    tries[1] = Duration::from_millis(250);
    tries[2] = Duration::from_millis(500);
    tries[15] = Duration::from_secs(5);
    tries[16] = Duration::from_secs(5);
    tries[17] = Duration::from_secs(10);
    tries
};
/// The same of a question that upstreams answer, each longer than the 4 s of a lookup. Six of them fail in a row once in
/// 2,000 questions, which is what a run of an hour asks under that fault.
const TRIES_OF_OTHERS: [Duration; 18] = [Duration::from_secs(5); 18];
/// A snapshot holds what was seen this long before it was written.
const WRITTEN_WITHIN: Duration = Duration::from_secs(30);
/// Room for a snapshot of a soak, many times over.
const DISK: &str = "size=2m";
/// By how much the clocks of a process are ahead, in turns: far forward, and back.
const SHIFTS_S: [u32; 2] = [3_600, 40 * 86_400];
/// The times of marks that are kept: more than a snapshot may be old while the disk is not full.
const MAX_TIMES: usize = 600;

/// One data plane.
#[derive(Debug)]
pub struct Pod {
    name: String,
    plane: Option<DataPlane>,
    /// The way to the API server.
    pub proxy: FaultProxy,
    disk: PathBuf,
    _files: Scratch,
    is_paused: bool,
    /// How often its clocks were shifted.
    shifts: usize,
    /// Whether this process said once that it is ready.
    pub is_ready: bool,
    /// Whether this process has shown a mark; before that its data may be from a snapshot.
    pub is_live: bool,
    /// Whether what it has seen is too long ago for the history.
    pub is_unknown: bool,
    /// The change up to which it has seen everything.
    pub seen: u64,
    /// When it had seen what.
    times: Vec<(SystemTime, u64)>,
    /// The counters of this process as they were read last.
    pub counters: BTreeMap<String, f64>,
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.plane = None;
        // The scratch folder could not be removed while something is mounted in it.
        let _ = Command::new("umount").arg("--lazy").arg(&self.disk).status();
    }
}

impl Pod {
    /// Starts one behind a proxy before this API server.
    pub async fn start(number: usize, api: &Path) -> Pod {
        let files = Scratch::new("soak").expect("a scratch directory");
        let disk = files.path().join("state");
        fs::create_dir(&disk).expect("the directory is ours");
        let mount = ["-t", "tmpfs", "-o", DISK, "tmpfs"];
        let mounted = Command::new("mount").args(mount).arg(&disk).status();
        assert!(mounted.is_ok_and(|status| status.success()), "no tmpfs for the snapshot");
        let mut pod = Pod {
            name: format!("soak-{number}"),
            plane: None,
            proxy: FaultProxy::before(api).await,
            disk,
            _files: files,
            is_paused: false,
            shifts: 0,
            is_ready: false,
            is_live: false,
            is_unknown: false,
            seen: 0,
            times: Vec::new(),
            counters: BTreeMap::new(),
        };
        pod.start_process(0, 0);
        pod
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether questions to it must be answered.
    pub fn is_running(&self) -> bool {
        self.plane.is_some() && !self.is_paused
    }

    pub fn plane(&self) -> Option<&DataPlane> {
        self.plane.as_ref()
    }

    /// Starts its process: with what the snapshot holds, or empty. `now` is the last change, and the history begins at
    /// `oldest`.
    pub fn start_process(&mut self, now: u64, oldest: u64) {
        let disk = self.disk.display().to_string();
        let config_map = format!("{CONFIG_NAMESPACE}/{CONFIG_NAME}");
        let flags = [
            "--config-map",
            &config_map,
            "--pod-name",
            &self.name,
            "--state-dir",
            &disk,
            "--list-spread-seconds",
            "0",
        ];
        let clocks = (self.shifts > 0).then(|| clocks(SHIFTS_S[self.shifts % SHIFTS_S.len()]));
        let below: Vec<&str> = clocks.iter().flatten().map(String::as_str).collect();
        self.plane = Some(DataPlane::start_below(&below, self.proxy.kubeconfig(), &flags));
        self.is_paused = false;
        self.is_ready = false;
        self.is_live = false;
        self.counters.clear();
        self.seen = self.seen_by_the_snapshot().unwrap_or(now);
        self.is_unknown = self.seen < oldest;
        self.seen = self.seen.max(oldest);
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut plane) = self.plane.take() {
            plane.process.kill();
        }
    }

    /// SIGKILL, of which the run does not know.
    pub fn crash(&mut self) {
        if let Some(plane) = &mut self.plane {
            plane.process.kill();
        }
    }

    /// SIGKILL; its monotonic clocks are others at the next start. Whether this machine has time namespaces.
    pub fn shift_clocks(&mut self) -> bool {
        let [unshare, flags @ ..] = &clocks(SHIFTS_S[0]);
        let tried = Command::new(unshare).args(flags).arg("true").status();
        if !tried.is_ok_and(|status| status.success()) {
            return false;
        }
        self.shifts += 1;
        self.kill();
        true
    }

    /// SIGSTOP; returns when it has stopped.
    pub fn pause(&mut self) {
        self.is_paused = true;
        if let Some(plane) = &mut self.plane {
            plane.process.pause();
        }
    }

    /// SIGCONT.
    pub fn resume(&mut self) {
        self.is_paused = false;
        if let Some(plane) = &mut self.plane {
            plane.process.resume();
        }
    }

    /// Leaves no room on the disk of its snapshot.
    pub fn fill_the_disk(&self) {
        let filler = fs::File::create(self.disk.join("filler"));
        if let Ok(mut filler) = filler {
            while filler.write_all(&[0; 4096]).is_ok() {}
        }
    }

    pub fn empty_the_disk(&self) {
        let _ = fs::remove_file(self.disk.join("filler"));
    }

    /// It has shown everything up to this change.
    pub fn has_seen(&mut self, change: u64) {
        self.seen = change;
        self.is_live = true;
        self.is_ready = true;
        self.is_unknown = false;
        self.times.push((SystemTime::now(), change));
        if self.times.len() > MAX_TIMES {
            self.times.remove(0);
        }
    }

    /// The first change that still matters: what a process that starts now may show.
    pub fn needs_since(&self) -> u64 {
        self.seen.min(self.seen_by_the_snapshot().unwrap_or(self.seen))
    }

    /// The change up to which the snapshot surely has everything; nothing where there is none.
    fn seen_by_the_snapshot(&self) -> Option<u64> {
        let written = fs::metadata(self.disk.join("snapshot")).ok()?.modified().ok()?;
        let before = |at: SystemTime| at + WRITTEN_WITHIN <= written;
        Some(self.times.iter().rev().find(|(at, _)| before(*at)).map_or(0, |(_, seen)| *seen))
    }

    /// Notes whether it says by now that it is ready.
    pub fn look_whether_ready(&mut self) {
        if let (false, false, Some(plane)) = (self.is_ready, self.is_paused, &self.plane) {
            self.is_ready = http::get(plane.http(), "/readyz").is_ok_and(|(code, _)| code == 200);
        }
    }

    /// Asks until a reply comes; nothing when none does.
    pub fn ask(&self, question: &Question, id: u16, is_of_others: bool) -> Option<Vec<u8>> {
        let plane = self.plane.as_ref()?;
        let packet = question.packet(id);
        let tries = if is_of_others { &TRIES_OF_OTHERS[..] } else { &TRIES[..] };
        tries.iter().find_map(|wait| match question.transport {
            Transport::Udp => ask_udp(plane, &packet, *wait),
            Transport::Tcp => client::ask_tcp(plane.address(), &packet).ok().flatten(),
        })
    }
}

/// What starts a program with clocks that are ahead. A time namespace has only monotonic clocks, and no wall clock.
fn clocks(ahead_s: u32) -> [String; 4] {
    let [monotonic, boottime] =
        ["monotonic", "boottime"].map(|clock| format!("--{clock}={ahead_s}"));
    ["unshare".into(), "--time".into(), monotonic, boottime]
}

/// Asks once from a new socket.
fn ask_udp(plane: &DataPlane, packet: &[u8], wait: Duration) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
    socket.connect(plane.address()).ok()?;
    socket.send(packet).ok()?;
    let deadline = Instant::now() + wait;
    let mut buffer = vec![0; 65_535];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        socket.set_read_timeout(Some(left)).ok()?;
        // An ICMP error of a process that is not there yet is no reply.
        let Ok(length) = socket.recv(&mut buffer) else { continue };
        buffer.truncate(length);
        return Some(buffer);
    }
}
