//! Two operators that decide side by side about the same pods, each by what it hears where it is.

use super::*;
use crate::lost_pods::rounds::Round;

/// Each pod is on a node of its own.
const PODS: [(&str, &str); 2] = [("a", "node-1"), ("b", "node-2")];
/// A kubelet that lives sets a pod back after this time.
const SET_BACK_AFTER: Duration = Duration::from_secs(10);
/// The network of node-1 is cut from then on: only the host itself, with its kubelet, reaches the API server.
const CUT: Duration = Duration::from_secs(5);
/// Operators begin their rounds at multiples of it.
const STEP: Duration = Duration::from_millis(100);

struct Operator {
    silences: Silences,
    node: &'static str,
    needed: u32,
    next_round: Duration,
}

impl Operator {
    fn on(node: &'static str, needed: u32, next_round: Duration) -> Operator {
        Operator { silences: Silences::default(), node, needed, next_round }
    }

    /// One round of questions, while these pods are out: those that it takes out.
    fn round(&mut self, out: &BTreeSet<&str>, is_cut: bool, now: Instant) -> Vec<String> {
        let ready: Vec<(String, String)> = PODS
            .iter()
            .filter(|(uid, _)| !out.contains(uid))
            .map(|(uid, node)| ((*uid).to_owned(), (*node).to_owned()))
            .collect();
        out.iter().for_each(|uid| self.silences.shown_out(uid, Some(Timestamp::UNIX_EPOCH), now));
        self.silences.keep(|uid| ready.iter().any(|(it, _)| it == uid), now);
        let suspects = self.silences.suspects(&ready);
        let hears = |from: &str, to: &str| {
            let is_separate = (from == "node-1") != (to == "node-1");
            if is_cut && is_separate { Heard::Silence } else { Heard::Answer }
        };
        let asked: Vec<Asked> = ready
            .iter()
            .map(|(uid, node)| {
                let look = suspects.iter().find(|it| it.uid == *uid).map(|it| {
                    let (_, witness) = ready.iter().find(|(uid, _)| *uid == it.by).unwrap();
                    Look { by: it.by.clone(), heard: hears(witness, node) }
                });
                let is_here = node == self.node;
                let heard = hears(self.node, node);
                Asked { uid: uid.clone(), node: node.clone(), is_here, heard, look }
            })
            .collect();
        let lost = self.silences.hear(&asked, (ready.len(), out.len()), self.needed, now);
        lost.iter().for_each(|uid| self.silences.taken_out(uid, now));
        lost
    }
}

/// The pods that go within five minutes, by an operator that leads and runs on a node of a pod, and by one on a third node.
fn taken_out(of_leader: Duration, of_standby: Duration) -> Vec<String> {
    let mut operators = [
        Operator::on("node-1", QUESTIONS, of_leader),
        Operator::on("node-3", QUESTIONS_OF_STANDBY, of_standby),
    ];
    let (begun, mut time) = (Instant::now(), Duration::ZERO);
    let (mut out, mut all) = (BTreeMap::<&str, Duration>::new(), Vec::new());
    while time < Duration::from_secs(300) {
        out.retain(|_, since| time < *since + SET_BACK_AFTER);
        for operator in &mut operators {
            if operator.next_round > time {
                continue;
            }
            let uids = out.keys().copied().collect();
            for uid in operator.round(&uids, time >= CUT, begun + time) {
                let (known, _) = PODS.iter().find(|(it, _)| *it == uid).unwrap();
                out.insert(known, time);
                all.push(uid);
            }
            let is_soon = operator.silences.may_any_be_lost_soon(operator.needed);
            operator.next_round = time + Round::next(is_soon).wait();
        }
        time += STEP;
    }
    all
}

#[test]
fn o20_of_two_pods_the_one_whose_node_is_cut_off_goes_and_not_the_other() {
    for tenths in 0..10 {
        for (of_leader, of_standby) in [(tenths, 0), (0, tenths)] {
            let all = taken_out(STEP * of_leader, STEP * of_standby);
            assert!(!all.is_empty() && all.iter().all(|uid| uid == "a"), "{tenths}: {all:?}");
        }
    }
}
