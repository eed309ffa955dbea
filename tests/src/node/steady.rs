//! A client in the network of a Pod that asks a Service steadily and asks again as the resolvers of C libraries do: over
//! UDP from a new socket for each question, which it keeps for the second try, so that what the kernel remembers of the
//! first one (conntrack) decides where the second one goes; over TCP with a new connection for each try.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::client::Question;

/// Tells the test binary that it is the client.
const IS_CLIENT: &str = "CLUSTERDNS_TEST_STEADY";
/// Between two questions of each transport; none waits for the reply to another.
const PAUSE_UDP: Duration = Duration::from_millis(5);
const PAUSE_TCP: Duration = Duration::from_millis(25);
/// How long a reply may take. Resolvers wait 5 s.
const FIRST_TRY: Duration = Duration::from_secs(2);
const SECOND_TRY: Duration = Duration::from_secs(5);
const LONGEST_REPLY: usize = 4096;
/// Losses that a summary names.
const SHOWN: usize = 3;

/// What to ask whom, and what a right reply contains.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task {
    server: SocketAddr,
    question: String,
    answer: Ipv4Addr,
}

/// What came of the questions over one transport.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// How many were asked.
    pub asked: usize,
    /// Those without a right reply to the first try: when, in seconds since the start, and why.
    pub first: Vec<String>,
    /// Those without one to the second try either.
    pub lost: Vec<String>,
    /// The longest time until a right reply.
    pub longest_ms: u64,
}

/// Over both.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tallies {
    /// Datagrams.
    pub udp: Tally,
    /// Connections.
    pub tcp: Tally,
}

/// Asks until [`Steady::stop`].
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
        (question, answer): (&str, Ipv4Addr),
    ) -> Steady {
        let task = Task { server, question: question.to_owned(), answer };
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
    /// In one line.
    pub fn summary(&self) -> String {
        let of = |name: &str, tally: &Tally| {
            let first = &tally.first[..tally.first.len().min(SHOWN)];
            format!(
                "{name}: {} asked, {} lost on the first try {first:?}, {} after the second, slowest {} ms",
                tally.asked,
                tally.first.len(),
                tally.lost.len(),
                tally.longest_ms
            )
        };
        format!("{}; {}", of("UDP", &self.udp), of("TCP", &self.tcp))
    }

    /// Something was asked over both, and nothing lost after the second try.
    ///
    /// # Panics
    /// With what was lost.
    #[track_caller]
    pub fn lost_nothing(&self, what: &str) {
        for tally in [&self.udp, &self.tcp] {
            assert!(tally.asked > 0, "{what}: nothing was asked");
            assert!(tally.lost.is_empty(), "{what}: {}\n{tally:#?}", self.summary());
        }
    }
}

/// The client itself: what the test of that name does when it is one, until its input ends. Otherwise nothing.
pub fn run_if_client() {
    let Ok(task) = std::env::var(IS_CLIENT) else { return };
    let task: Task = serde_json::from_str(&task).expect("a task");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let tallies = runtime.expect("a runtime").block_on(run(Arc::new(task)));
    let line = serde_json::to_string(&tallies).expect("plain values");
    // The test runner's own line ends without a line feed.
    let _ = writeln!(std::io::stdout(), "\nTALLIES {line}");
}

async fn run(task: Arc<Task>) -> Tallies {
    let packet = Question::parse(&task.question).expect("a question").packet;
    let (udp, tcp) = (Arc::default(), Arc::default());
    let asking = [
        tokio::spawn(ask_steadily(task.clone(), packet.clone(), Over::Udp, Arc::clone(&udp))),
        tokio::spawn(ask_steadily(task.clone(), packet, Over::Tcp, Arc::clone(&tcp))),
    ];
    let ended = tokio::task::spawn_blocking(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    });
    let _ = ended.await;
    for asking in asking {
        asking.abort();
        let _ = asking.await;
    }
    // Questions under way are questions too; each holds the task.
    while Arc::strong_count(&task) > 1 {
        tokio::time::sleep(PAUSE_TCP).await;
    }
    let taken = |tally: &Mutex<Tally>| tally.lock().expect("no panic").clone();
    Tallies { udp: taken(&udp), tcp: taken(&tcp) }
}

#[derive(Clone, Copy)]
enum Over {
    Udp,
    Tcp,
}

async fn ask_steadily(task: Arc<Task>, packet: Vec<u8>, over: Over, tally: Arc<Mutex<Tally>>) {
    let began = Instant::now();
    let mut next = tokio::time::interval(match over {
        Over::Udp => PAUSE_UDP,
        Over::Tcp => PAUSE_TCP,
    });
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for id in (0..=u16::MAX).cycle() {
        next.tick().await;
        let mut packet = packet.clone();
        packet[..2].copy_from_slice(&id.to_be_bytes());
        let (task, tally) = (task.clone(), tally.clone());
        tokio::spawn(async move {
            let asked = Instant::now();
            let at = format!("{:.2} s", (asked - began).as_secs_f32());
            let (first, lost) = match over {
                Over::Udp => twice_over_udp(&task, &packet).await,
                Over::Tcp => twice_over_tcp(&task, &packet).await,
            };
            let mut tally = tally.lock().expect("no panic");
            tally.asked += 1;
            tally.first.extend(first.map(|why| format!("{at}: {why}")));
            match lost {
                Some(why) => tally.lost.push(format!("{at}: {why}")),
                None => {
                    let took = u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX);
                    tally.longest_ms = tally.longest_ms.max(took);
                }
            }
        });
    }
}

/// Why the first try brought nothing, and why the second one did not either.
type Tries = (Option<String>, Option<String>);

async fn twice_over_udp(task: &Task, packet: &[u8]) -> Tries {
    let mut socket = match connected(task.server).await {
        Ok(socket) => socket,
        Err(why) => return (Some(why.clone()), Some(why)),
    };
    let Err(first) = over_udp(&socket, task, packet, FIRST_TRY).await else { return (None, None) };
    // Refused: resolvers close the socket then. Otherwise it stays the same.
    if first.is_refused {
        match connected(task.server).await {
            Ok(another) => socket = another,
            Err(why) => return (Some(first.why), Some(why)),
        }
    }
    let second = over_udp(&socket, task, packet, SECOND_TRY).await;
    (Some(first.why), second.err().map(|second| second.why))
}

async fn connected(server: SocketAddr) -> Result<UdpSocket, String> {
    let socket =
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.map_err(|error| error.to_string())?;
    socket.connect(server).await.map_err(|error| error.to_string())?;
    Ok(socket)
}

struct NoReply {
    why: String,
    is_refused: bool,
}

async fn over_udp(
    socket: &UdpSocket,
    task: &Task,
    packet: &[u8],
    patience: Duration,
) -> Result<(), NoReply> {
    let no_reply = |why: String| NoReply { why, is_refused: false };
    let asking = async {
        socket.send(packet).await?;
        let mut reply = [0; LONGEST_REPLY];
        let length = socket.recv(&mut reply).await?;
        Ok::<_, std::io::Error>(reply[..length].to_vec())
    };
    match tokio::time::timeout(patience, asking).await {
        Err(_) => Err(no_reply("no reply".into())),
        Ok(Err(error)) => Err(NoReply { why: error.to_string(), is_refused: true }),
        Ok(Ok(reply)) => is_right(task, packet, &reply).map_err(no_reply),
    }
}

async fn twice_over_tcp(task: &Task, packet: &[u8]) -> Tries {
    let Err(first) = over_tcp(task, packet, FIRST_TRY).await else { return (None, None) };
    (Some(first), over_tcp(task, packet, SECOND_TRY).await.err())
}

async fn over_tcp(task: &Task, packet: &[u8], patience: Duration) -> Result<(), String> {
    let asking = async {
        let mut stream = TcpStream::connect(task.server).await?;
        let length = u16::try_from(packet.len()).expect("a short question");
        stream.write_all(&[&length.to_be_bytes(), packet].concat()).await?;
        let mut reply = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut reply).await?;
        Ok::<_, std::io::Error>(reply)
    };
    match tokio::time::timeout(patience, asking).await {
        Err(_) => Err("no reply".into()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(reply)) => is_right(task, packet, &reply),
    }
}

/// The id of the question, no error, and the address at its end or anywhere in it.
fn is_right(task: &Task, packet: &[u8], reply: &[u8]) -> Result<(), String> {
    let of_question = reply.len() > packet.len() && reply[..2] == packet[..2];
    let rcode = reply.get(3).map_or(0, |flags| flags & 0x0F);
    let has_answer = reply.windows(4).any(|octets| octets == task.answer.octets());
    match of_question && rcode == 0 && has_answer {
        true => Ok(()),
        false => Err(format!("wrong reply, rcode {rcode}, {} octets", reply.len())),
    }
}
