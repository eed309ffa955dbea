//! The process inside the network of the Pod: four clients side by side, each with its own way of trying twice.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::{IS_CLIENT, Tallies, Tally, Task, Tries, now};
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
    let packet = Question::parse(&task.question).expect("a question").packet;
    let began = now();
    let [udp, tcp, kept_udp, kept_tcp]: [Arc<Mutex<Tally>>; 4] = Default::default();
    let is_over = Arc::new(AtomicBool::new(false));
    let keeping = [
        tokio::spawn(keep(
            task.clone(),
            packet.clone(),
            Over::Udp,
            kept_udp.clone(),
            is_over.clone(),
        )),
        tokio::spawn(keep(
            task.clone(),
            packet.clone(),
            Over::Tcp,
            kept_tcp.clone(),
            is_over.clone(),
        )),
    ];
    let asking = [
        tokio::spawn(ask_steadily(task.clone(), packet.clone(), Over::Udp, udp.clone())),
        tokio::spawn(ask_steadily(task.clone(), packet, Over::Tcp, tcp.clone())),
    ];
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

async fn ask_steadily(task: Arc<Task>, packet: Vec<u8>, over: Over, tally: Arc<Mutex<Tally>>) {
    // None waits for the reply to another.
    let mut next = tokio::time::interval(Duration::from_millis(match over {
        Over::Udp => task.pace.udp_ms,
        Over::Tcp => task.pace.tcp_ms,
    }));
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for id in (0..=u16::MAX).cycle() {
        next.tick().await;
        let mut packet = packet.clone();
        packet[..2].copy_from_slice(&id.to_be_bytes());
        let (task, tally) = (task.clone(), tally.clone());
        tokio::spawn(async move {
            let (at, asked) = (now(), Instant::now());
            let tries = match over {
                Over::Udp => twice_over_udp(&task, &packet).await,
                Over::Tcp => twice_over_tcp(&task, &packet).await,
            };
            tally.lock().expect("no panic").add((at, asked.elapsed()), tries);
        });
    }
}

/// One question after the other over what is kept until it fails.
async fn keep(
    task: Arc<Task>,
    packet: Vec<u8>,
    over: Over,
    tally: Arc<Mutex<Tally>>,
    is_over: Arc<AtomicBool>,
) {
    let mut kept = Kept::default();
    for id in (0..=u16::MAX).cycle() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(task.pace.kept_ms)).await;
        let mut packet = packet.clone();
        packet[..2].copy_from_slice(&id.to_be_bytes());
        let (at, asked) = (now(), Instant::now());
        let tries = match kept.ask(&task, &packet, over, FIRST_TRY).await {
            Ok(()) => (None, None),
            Err(why) => (Some(why), kept.ask(&task, &packet, over, SECOND_TRY).await.err()),
        };
        tally.lock().expect("no panic").add((at, asked.elapsed()), tries);
    }
}

/// What a forwarder keeps; made again when it was refused or closed, not after silence.
#[derive(Default)]
struct Kept {
    socket: Option<UdpSocket>,
    stream: Option<TcpStream>,
}

impl Kept {
    async fn ask(
        &mut self,
        task: &Task,
        packet: &[u8],
        over: Over,
        patience: Duration,
    ) -> Result<(), String> {
        match over {
            Over::Udp => {
                let socket = match self.socket.take() {
                    Some(socket) => socket,
                    None => connected(task.server).await?,
                };
                let heard = over_udp(&socket, task, packet, patience).await;
                if heard.as_ref().is_err_and(|none| none.is_refused) {
                    drop(socket);
                } else {
                    self.socket = Some(socket);
                }
                heard.map_err(|none| none.why)
            }
            Over::Tcp => {
                let mut stream = self.stream.take();
                let heard = over_stream(&mut stream, task, packet, patience).await;
                if heard.is_ok() {
                    self.stream = stream;
                }
                heard
            }
        }
    }
}

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
        loop {
            let length = socket.recv(&mut reply).await?;
            // A late reply to an earlier question does not count.
            if reply[..2] == packet[..2] {
                return Ok::<_, std::io::Error>(reply[..length].to_vec());
            }
        }
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
    over_stream(&mut None, task, packet, patience).await
}

/// Over this connection, or a new one, which it leaves there.
async fn over_stream(
    stream: &mut Option<TcpStream>,
    task: &Task,
    packet: &[u8],
    patience: Duration,
) -> Result<(), String> {
    let asking = async {
        let stream = match stream {
            Some(stream) => stream,
            None => stream.insert(TcpStream::connect(task.server).await?),
        };
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
