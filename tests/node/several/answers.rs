//! When a pod answers: each address that a pod has is asked directly, many times a second, from the network of the control
//! plane. Clients of a Service cannot see which pod answers them.

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

/// Whether an address answers, from a time on.
type Turns = BTreeMap<IpAddr, Vec<(f64, bool)>>;

/// Asks until it is dropped.
pub(super) struct Answers {
    turns: Arc<Mutex<Turns>>,
    asking: JoinHandle<()>,
}

impl Answers {
    /// Asks these addresses, and every new one that a pod gets.
    pub(super) fn start(site: &Site, dns: &[IpAddr]) -> Answers {
        let turns: Arc<Mutex<Turns>> = Arc::default();
        let folders: Vec<PathBuf> = site.nodes.iter().map(|node| node.path_to(ADDRESSES)).collect();
        // Those of clients and operators are there already.
        let mut known: Vec<IpAddr> = folders.iter().flat_map(|it| addresses(it)).collect();
        let (of_task, dns) = (turns.clone(), dns.to_owned());
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
        Answers { turns, asking }
    }

    /// When the first reply from this address came after that time, as [`now`] counts, if it was silent before.
    pub(super) fn first_after(&self, address: IpAddr, after: f64) -> Option<f64> {
        let turns = self.turns.lock().expect("no panic");
        turns.get(&address)?.iter().find(|(at, answers)| *answers && *at > after).map(|(at, _)| *at)
    }

    /// Every turn of every address, in seconds after this time.
    pub(super) fn in_words(&self, since: f64) -> Vec<String> {
        let turns = self.turns.lock().expect("no panic");
        let turns =
            turns.iter().flat_map(|(address, turns)| turns.iter().map(move |it| (address, it)));
        let mut turns: Vec<_> = turns.collect();
        turns.sort_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b));
        let line = |(address, (at, answers)): (&IpAddr, &(f64, bool))| {
            let says = if *answers { "answers" } else { "does not answer" };
            format!("{:6.2} s: {address} {says}", at - since)
        };
        turns.into_iter().map(line).collect()
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

/// Asks one address forever, and remembers each turn.
async fn ask(address: IpAddr, turns: Arc<Mutex<Turns>>) {
    let packet = Question::parse(QUESTION).expect("a question").packet;
    loop {
        let asked = now();
        let answers = answers(SocketAddr::new(address, 53), &packet).await;
        {
            let mut turns = turns.lock().expect("no panic");
            let turns = turns.entry(address).or_default();
            if turns.last().map(|(_, answers)| *answers) != Some(answers) {
                turns.push((if answers { now() } else { asked }, answers));
            }
        }
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
