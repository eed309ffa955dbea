//! A client in the network of a Pod that asks a Service steadily and asks again as the resolvers of C libraries do: over
//! UDP from a new socket for each question, which it keeps for the second try, so that what the kernel remembers of the
//! first one (conntrack) decides where the second one goes; over TCP with a new connection for each try. Beside it one
//! that keeps its socket and one that keeps its connection for as long as they work, as forwarders do.

mod asking;
mod tally;

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub use asking::run_if_client;
use serde::{Deserialize, Serialize};
pub use tally::{Miss, Slowest, Tallies, Tally, now};

/// Tells the test binary that it is the client.
const IS_CLIENT: &str = "CLUSTERDNS_TEST_STEADY";

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
