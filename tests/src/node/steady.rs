//! A client in the network of a Pod that asks a Service steadily and asks again as the resolvers of C libraries do: over
//! UDP from a new socket for each question, which it keeps for the second try, so that what the kernel remembers of the
//! first one (conntrack) decides where the second one goes; over TCP with a new connection for each try. Beside it one
//! that keeps its socket and one that keeps its connection for as long as they work, as forwarders do.

mod asking;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

pub use asking::run_if_client;
use serde::{Deserialize, Serialize};

/// Tells the test binary that it is the client.
const IS_CLIENT: &str = "CLUSTERDNS_TEST_STEADY";
/// Losses that a summary names.
const SHOWN: usize = 3;

/// What is asked of which server, and how often.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task {
    server: SocketAddr,
    names: Names,
    pace: Pace,
}

/// What is asked, and which address a right reply contains.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Names {
    /// Always this question.
    One(String, Ipv4Addr),
    /// The pod name of an address, of another one each time: no cache on the way has it.
    Pods,
}

/// Milliseconds between two questions.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Pace {
    /// Over UDP, each from a new socket.
    pub udp_ms: u64,
    /// Over TCP, each with a new connection.
    pub tcp_ms: u64,
    /// Over the socket and over the connection that are kept.
    pub kept_ms: u64,
}

impl Pace {
    /// For one client on one node.
    pub const BUSY: Pace = Pace { udp_ms: 5, tcp_ms: 25, kept_ms: 5 };
    /// 200 questions a second over UDP, and few on the other ways, so that several clients fit on a small machine.
    pub const OVER_UDP: Pace = Pace { udp_ms: 5, tcp_ms: 100, kept_ms: 100 };
}

/// A question without a right reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Miss {
    /// When it was asked, in seconds since 1970.
    pub at: f64,
    pub why: String,
}

/// The results of the questions over one transport.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    pub asked: usize,
    /// Those without a right reply to the first try.
    pub first: Vec<Miss>,
    /// Those without one to the second try either.
    pub lost: Vec<Miss>,
    /// The longest time until a right reply, in milliseconds, of the questions of each second since 1970.
    pub longest_ms: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tallies {
    /// When the client began, in seconds since 1970.
    pub began: f64,
    /// UDP, a socket for each question.
    pub udp: Tally,
    /// TCP, a connection for each question.
    pub tcp: Tally,
    /// UDP, always the same socket.
    pub kept_udp: Tally,
    /// TCP, the same connection until it is closed.
    pub kept_tcp: Tally,
}

/// Asks a name again and again until [`Steady::stop`].
#[derive(Debug)]
pub struct Steady {
    child: Child,
}

impl Steady {
    /// Starts asking from this network namespace. `client` names the test that calls [`run_if_client`].
    pub fn start(
        network: &Path,
        client: &str,
        server: SocketAddr,
        names: Names,
        pace: Pace,
    ) -> Steady {
        let task = Task { server, names, pace };
        let task = serde_json::to_string(&task).expect("plain values");
        let child = Command::new("nsenter")
            .arg(format!("--net={}", network.display()))
            .arg(std::env::current_exe().expect("the test binary"))
            .args(["--exact", client, "--nocapture", "--include-ignored"])
            .env(IS_CLIENT, task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("nsenter of util-linux");
        Steady { child }
    }

    /// Ends it, and says what was asked and lost.
    ///
    /// # Panics
    /// It ended by itself.
    pub fn stop(mut self) -> Tallies {
        // The end of its input is the end of its work.
        drop(self.child.stdin.take());
        let mut printed = String::new();
        let mut output = self.child.stdout.take().expect("piped");
        output.read_to_string(&mut printed).expect("text");
        let _ = self.child.wait();
        let line = printed.lines().find_map(|line| line.strip_prefix("TALLIES "));
        let line = line.unwrap_or_else(|| panic!("the client says nothing:\n{printed}"));
        serde_json::from_str(line).expect("what it wrote")
    }
}

impl Drop for Steady {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tallies {
    /// All counts in one line.
    pub fn summary(&self) -> String {
        let of = |(name, tally): (&str, &Tally)| {
            let shown = tally.first.iter().take(SHOWN);
            let shown: Vec<String> =
                shown.map(|it| format!("{:.2} s: {}", it.at - self.began, it.why)).collect();
            format!(
                "{name}: {} asked, {} lost on the first try {shown:?}, {} after the second, slowest {} ms",
                tally.asked,
                tally.first.len(),
                tally.lost.len(),
                tally.longest_since(self.began)
            )
        };
        self.all().map(of).join("; ")
    }

    fn all(&self) -> [(&'static str, &Tally); 4] {
        let Tallies { udp, tcp, kept_udp, kept_tcp, began: _ } = self;
        [("UDP", udp), ("TCP", tcp), ("one UDP socket", kept_udp), ("one connection", kept_tcp)]
    }

    /// Each client asked something, and nothing was lost after the second try.
    ///
    /// # Panics
    /// With what was lost.
    #[track_caller]
    pub fn lost_nothing(&self, what: &str) {
        for (name, tally) in self.all() {
            assert!(tally.asked > 0, "{what}: nothing was asked over {name}");
            assert!(tally.lost.is_empty(), "{what}: {}\n{tally:#?}", self.summary());
        }
    }
}

/// Why the first try failed, and why the second one failed too.
type Tries = (Option<String>, Option<String>);

impl Tally {
    fn add(&mut self, (at, took): (f64, Duration), (first, lost): Tries) {
        self.asked += 1;
        self.first.extend(first.map(|why| Miss { at, why }));
        match lost {
            Some(why) => self.lost.push(Miss { at, why }),
            None => {
                let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                let longest = self.longest_ms.entry(at as u64).or_default();
                *longest = took.max(*longest);
            }
        }
    }

    /// The longest time until a right reply, in milliseconds, of questions of this second since 1970 and later ones.
    pub fn longest_since(&self, second: f64) -> u64 {
        self.longest_ms.range(second as u64..).map(|(_, longest)| *longest).max().unwrap_or(0)
    }
}

/// Seconds since 1970: the one clock that processes share.
pub fn now() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
