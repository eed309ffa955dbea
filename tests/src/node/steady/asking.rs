//! The process inside the network of the Pod: four clients side by side, each with its own way of trying twice.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::tally::{Tries, seconds_at};
use super::{IS_CLIENT, Names, Tallies, Tally, Task, now};
use crate::client::Question;

/// Between two looks at whether the last questions are answered.
const POLL: Duration = Duration::from_millis(25);
/// How long a reply may take. Resolvers wait 5 s.
const FIRST_TRY: Duration = Duration::from_secs(2);
const SECOND_TRY: Duration = Duration::from_secs(5);
const LONGEST_REPLY: usize = 4096;

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
    let began = now();
    let questions = |way| Questions::new(&task, way, began);
    let [udp, tcp, kept_udp, kept_tcp]: [Arc<Mutex<Tally>>; 4] = Default::default();
    let is_over = Arc::new(AtomicBool::new(false));
    let keeping =
        [(Over::Udp, 1, &kept_udp), (Over::Tcp, 2, &kept_tcp)].map(|(over, way, tally)| {
            let keep = keep(task.clone(), questions(way), over, tally.clone(), is_over.clone());
            tokio::spawn(keep)
        });
    let asking = [(Over::Udp, 3, &udp), (Over::Tcp, 4, &tcp)].map(|(over, way, tally)| {
        tokio::spawn(ask_steadily(task.clone(), questions(way), over, tally.clone()))
    });
    let ended = tokio::task::spawn_blocking(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    });
    let _ = ended.await;
    is_over.store(true, Ordering::Relaxed);
    for asking in asking {
        asking.abort();
        let _ = asking.await;
    }
    for keeping in keeping {
        keeping.await.expect("asking does not panic");
    }
    // Questions under way are questions too; each holds the task.
    while Arc::strong_count(&task) > 1 {
        tokio::time::sleep(POLL).await;
    }
    let taken = |tally: &Mutex<Tally>| tally.lock().expect("no panic").clone();
    Tallies {
        began,
        udp: taken(&udp),
        tcp: taken(&tcp),
        kept_udp: taken(&kept_udp),
        kept_tcp: taken(&kept_tcp),
    }
}

#[derive(Clone, Copy)]
enum Over {
    Udp,
    Tcp,
}

/// The questions of one of the four clients, each with the next id.
struct Questions {
    server: SocketAddr,
    one: Option<Asked>,
    /// The first octets of the addresses whose pod names are asked: no other client has them, nor the one before.
    network: [u8; 2],
    id: u16,
}

/// A question to a server, and the address that a right reply contains.
#[derive(Clone)]
struct Asked {
    server: SocketAddr,
    packet: Vec<u8>,
    answer: Ipv4Addr,
}

impl Asked {
    fn new(server: SocketAddr, question: &str, answer: Ipv4Addr) -> Asked {
        Asked { server, packet: Question::parse(question).expect("a question").packet, answer }
    }
}

impl Questions {
    fn new(task: &Task, way: u8, began: f64) -> Questions {
        let one = match &task.names {
            Names::One(question, answer) => Some(Asked::new(task.server, question, *answer)),
            Names::Pods => None,
        };
        let network = [way, (began as u64 % 256) as u8];
        Questions { server: task.server, one, network, id: 0 }
    }

    fn next(&mut self) -> Asked {
        self.id = self.id.wrapping_add(1);
        let id = self.id.to_be_bytes();
        let mut asked = self.one.clone().unwrap_or_else(|| {
            let ([a, b], [c, d]) = (self.network, id);
            let name = format!("{a}-{b}-{c}-{d}.default.pod.cluster.local. A");
            Asked::new(self.server, &name, Ipv4Addr::new(a, b, c, d))
        });
        asked.packet[..2].copy_from_slice(&id);
        asked
    }
}

async fn ask_steadily(
    task: Arc<Task>,
    mut questions: Questions,
    over: Over,
    tally: Arc<Mutex<Tally>>,
) {
    // None waits for the reply to another.
    let mut next = tokio::time::interval(Duration::from_millis(match over {
        Over::Udp => task.pace.udp_ms,
        Over::Tcp => task.pace.tcp_ms,
    }));
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let due = seconds_at(next.tick().await.into_std());
        let asked = questions.next();
        let (under_way, tally) = (task.clone(), tally.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            let tries = match over {
                Over::Udp => twice_over_udp(&asked).await,
                Over::Tcp => twice_over_tcp(&asked).await,
            };
            tally.lock().expect("no panic").add((due, began.elapsed()), tries);
            drop(under_way);
        });
    }
}

/// One question after the other over what is kept until it fails.
async fn keep(
    task: Arc<Task>,
    mut questions: Questions,
    over: Over,
    tally: Arc<Mutex<Tally>>,
    is_over: Arc<AtomicBool>,
) {
    let mut kept = Kept::default();
    while !is_over.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(task.pace.kept_ms)).await;
        let asked = questions.next();
        let (at, began) = (now(), Instant::now());
        let tries = match kept.ask(&asked, over, FIRST_TRY).await {
            Ok(()) => (None, None),
            Err(why) => (Some(why), kept.ask(&asked, over, SECOND_TRY).await.err()),
        };
        tally.lock().expect("no panic").add((at, began.elapsed()), tries);
    }
}

/// What a forwarder keeps; made again when it was refused or closed, not after silence.
#[derive(Default)]
struct Kept {
    socket: Option<UdpSocket>,
    stream: Option<TcpStream>,
}

impl Kept {
    async fn ask(&mut self, asked: &Asked, over: Over, patience: Duration) -> Result<(), String> {
        match over {
            Over::Udp => {
                let socket = match self.socket.take() {
                    Some(socket) => socket,
                    None => connected(asked.server).await?,
                };
                let heard = over_udp(&socket, asked, patience).await;
                if heard.as_ref().is_err_and(|none| none.is_refused) {
                    drop(socket);
                } else {
                    self.socket = Some(socket);
                }
                heard.map_err(|none| none.why)
            }
            Over::Tcp => {
                let mut stream = self.stream.take();
                let heard = over_stream(&mut stream, asked, patience).await;
                if heard.is_ok() {
                    self.stream = stream;
                }
                heard
            }
        }
    }
}

async fn twice_over_udp(asked: &Asked) -> Tries {
    let mut socket = match connected(asked.server).await {
        Ok(socket) => socket,
        Err(why) => return (Some(why.clone()), Some(why)),
    };
    let Err(first) = over_udp(&socket, asked, FIRST_TRY).await else { return (None, None) };
    // Refused: resolvers close the socket then. Otherwise it stays the same.
    if first.is_refused {
        match connected(asked.server).await {
            Ok(another) => socket = another,
            Err(why) => return (Some(first.why), Some(why)),
        }
    }
    let second = over_udp(&socket, asked, SECOND_TRY).await;
    (Some(first.why), second.err().map(|second| second.why))
}

async fn connected(server: SocketAddr) -> Result<UdpSocket, String> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await.map_err(|error| error.to_string())?;
    socket.connect(server).await.map_err(|error| error.to_string())?;
    Ok(socket)
}

struct NoReply {
    why: String,
    is_refused: bool,
}

async fn over_udp(socket: &UdpSocket, asked: &Asked, patience: Duration) -> Result<(), NoReply> {
    let no_reply = |why: String| NoReply { why, is_refused: false };
    let asking = async {
        socket.send(&asked.packet).await?;
        let mut reply = [0; LONGEST_REPLY];
        loop {
            let length = socket.recv(&mut reply).await?;
            // A late reply to an earlier question does not count.
            if reply[..2] == asked.packet[..2] {
                return Ok::<_, std::io::Error>(reply[..length].to_vec());
            }
        }
    };
    match tokio::time::timeout(patience, asking).await {
        Err(_) => Err(no_reply("no reply".into())),
        Ok(Err(error)) => Err(NoReply { why: error.to_string(), is_refused: true }),
        Ok(Ok(reply)) => is_right(asked, &reply).map_err(no_reply),
    }
}

async fn twice_over_tcp(asked: &Asked) -> Tries {
    let Err(first) = over_tcp(asked, FIRST_TRY).await else { return (None, None) };
    (Some(first), over_tcp(asked, SECOND_TRY).await.err())
}

async fn over_tcp(asked: &Asked, patience: Duration) -> Result<(), String> {
    over_stream(&mut None, asked, patience).await
}

/// Over this connection, or a new one, which it leaves there.
async fn over_stream(
    stream: &mut Option<TcpStream>,
    asked: &Asked,
    patience: Duration,
) -> Result<(), String> {
    let asking = async {
        let stream = match stream {
            Some(stream) => stream,
            None => stream.insert(TcpStream::connect(asked.server).await?),
        };
        let length = u16::try_from(asked.packet.len()).expect("a short question");
        stream.write_all(&[&length.to_be_bytes()[..], &asked.packet].concat()).await?;
        let mut reply = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut reply).await?;
        Ok::<_, std::io::Error>(reply)
    };
    match tokio::time::timeout(patience, asking).await {
        Err(_) => Err("no reply".into()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(reply)) => is_right(asked, &reply),
    }
}

/// The id of the question, no error, and the address at its end or anywhere in it.
fn is_right(asked: &Asked, reply: &[u8]) -> Result<(), String> {
    let of_question = reply.len() > asked.packet.len() && reply[..2] == asked.packet[..2];
    let rcode = reply.get(3).map_or(0, |flags| flags & 0x0F);
    let has_answer = reply.windows(4).any(|octets| octets == asked.answer.octets());
    match of_question && rcode == 0 && has_answer {
        true => Ok(()),
        false => Err(format!("wrong reply, rcode {rcode}, {} octets", reply.len())),
    }
}
