//! When a pod answers: each address that a pod has is asked directly, many times a second, from the network of the control
//! plane. Clients of a Service cannot see which pod answers them. No question waits for the reply to another: kernels say only
//! once a second that a port is closed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tests::client::Question;
use tests::node::steady::now;
use tokio::net::UdpSocket;
use tokio::task::{JoinHandle, JoinSet};

use crate::resolving::{ADDRESS, QUESTION};
use crate::site::Site;

/// Between two looks for new addresses, and between two questions.
const EVERY: Duration = Duration::from_millis(20);
/// A reply later than this counts as none.
const PATIENCE: Duration = Duration::from_millis(500);
const LONGEST_REPLY: usize = 4096;

/// One file for each address that a pod of the node has, and some others: of the network plugin.
const ADDRESSES: &str = "var/lib/cni/networks/pods";

/// The questions to each address: when it was asked, and when the right reply came.
type Questions = BTreeMap<IpAddr, Vec<(f64, Option<f64>)>>;

/// Asks until it is dropped.
pub(super) struct Answers {
    questions: Arc<Mutex<Questions>>,
    asking: JoinHandle<()>,
}

impl Answers {
    /// Asks these addresses, and every new one that a pod gets.
    pub(super) fn start(site: &Site, dns: &[IpAddr]) -> Answers {
        let questions: Arc<Mutex<Questions>> = Arc::default();
        let folders: Vec<PathBuf> = site.nodes.iter().map(|node| node.path_to(ADDRESSES)).collect();
        // Those of clients and operators are there already.
        let mut known: Vec<IpAddr> = folders.iter().flat_map(|it| addresses(it)).collect();
        let (of_task, dns) = (questions.clone(), dns.to_owned());
        let asking = tokio::spawn(async move {
            let mut asking = JoinSet::new();
            for address in dns {
                asking.spawn(ask(address, of_task.clone()));
            }
            loop {
                for address in folders.iter().flat_map(|it| addresses(it)) {
                    if !known.contains(&address) {
                        known.push(address);
                        asking.spawn(ask(address, of_task.clone()));
                    }
                }
                tokio::time::sleep(EVERY).await;
            }
        });
        Answers { questions, asking }
    }

    /// When the first reply from this address came to a question after that time, as [`now`] counts.
    pub(super) fn first_after(&self, address: IpAddr, after: f64) -> Option<f64> {
        let questions = self.questions.lock().expect("no panic");
        let replies = questions.get(&address)?.iter().filter(|(asked, _)| *asked > after);
        replies.filter_map(|(_, replied)| *replied).min_by(f64::total_cmp)
    }

    /// From when on each address answered, and from when on not, in seconds after this time.
    pub(super) fn in_words(&self, since: f64) -> Vec<String> {
        let questions = self.questions.lock().expect("no panic");
        let mut turns: Vec<(f64, String)> = Vec::new();
        for (address, questions) in questions.iter() {
            let mut questions = questions.clone();
            questions.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            for turn in questions.chunk_by(|(_, a), (_, b)| a.is_some() == b.is_some()) {
                let (at, says) = match turn[0] {
                    (_, Some(replied)) => (replied, "answers"),
                    (asked, None) => (asked, "does not answer"),
                };
                turns.push((at, format!("{:6.2} s: {address} {says}", at - since)));
            }
        }
        turns.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        turns.into_iter().map(|(_, line)| line).collect()
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

/// Those of IPv4; none before the first pod.
fn addresses(folder: &Path) -> Vec<IpAddr> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let address = |name: &str| name.parse::<Ipv4Addr>().ok().map(IpAddr::from);
    files.filter_map(|file| address(file.file_name().to_str()?)).collect()
}

/// Asks one address forever, and remembers what came.
async fn ask(address: IpAddr, questions: Arc<Mutex<Questions>>) {
    let packet = Question::parse(QUESTION).expect("a question").packet;
    let mut under_way = JoinSet::new();
    loop {
        let (packet, questions) = (packet.clone(), questions.clone());
        under_way.spawn(async move {
            let asked = now();
            let answers = answers(SocketAddr::new(address, 53), &packet).await;
            let replied = answers.then(now);
            let mut questions = questions.lock().expect("no panic");
            questions.entry(address).or_default().push((asked, replied));
        });
        while under_way.try_join_next().is_some() {}
        tokio::time::sleep(EVERY).await;
    }
}

/// Whether a right reply comes.
async fn answers(server: SocketAddr, packet: &[u8]) -> bool {
    let asking = async {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        socket.connect(server).await?;
        socket.send(packet).await?;
        let mut reply = [0; LONGEST_REPLY];
        let length = socket.recv(&mut reply).await?;
        let has_answer = reply[..length].windows(4).any(|it| it == ADDRESS.octets());
        Ok::<_, std::io::Error>(reply[..2] == packet[..2] && reply[3] & 0x0F == 0 && has_answer)
    };
    matches!(tokio::time::timeout(PATIENCE, asking).await, Ok(Ok(true)))
}
