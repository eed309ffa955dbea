//! The writes that take pods out of their Service, beside the rounds of questions and beside each other: one that is slow, or
//! has no answer, delays neither the questions nor the other pods. Each has the time limits of `take_out`.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use tokio::task::{Id, JoinSet};

use super::Lookout;
use super::ask::Target;
use super::silence::Silences;
use super::take_out::take_out;

/// Pods of all ClusterDNS that are taken out at the same time.
const AT_ONCE: usize = 64;

/// Ends its tasks with itself.
#[derive(Default)]
pub(super) struct TakeOuts {
    tasks: JoinSet<bool>,
    /// The ClusterDNS and the pod of each task.
    pods: HashMap<Id, (String, String)>,
}

impl TakeOuts {
    /// Begins to take this pod out. Where too many are on their way, a later round decides again. `heard`: when it was silent
    /// last.
    pub(super) fn begin(
        &mut self,
        it: &Lookout,
        (dns, silences): (&str, &mut Silences),
        pod: &Target,
        heard: Instant,
    ) {
        if self.pods.len() >= AT_ONCE {
            return;
        }
        let known = silences.leaves(&pod.uid, heard);
        let (it, name, lost) = (it.clone(), dns.to_owned(), pod.clone());
        let task = async move { take_out(&it, (&name, &known), &lost, heard).await };
        let id = self.tasks.spawn(task).id();
        self.pods.insert(id, (dns.to_owned(), pod.uid.clone()));
    }

    /// Tells what has become of those that are over.
    pub(super) fn ended(&mut self, silences: &mut BTreeMap<String, Silences>, now: Instant) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            // An error is a defect of ours: the next round decides again.
            let (id, is_settled) = ended.unwrap_or_else(|error| (error.id(), false));
            let Some((dns, uid)) = self.pods.remove(&id) else { continue };
            if let Some(silences) = silences.get_mut(&dns) {
                silences.ended(&uid, is_settled, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixtures::api::{self, Reply};
    use crate::lost_pods::take_out::tests::{lookout, pod, target};

    #[tokio::test]
    async fn o20_a_write_without_an_answer_delays_neither_other_pods_nor_the_questions() {
        let (client, log) = api::logged(|asked| {
            let all = (0..9).map(|n| pod(&format!("pod-{n}"), "True", "2026-01-01T00:00:00Z"));
            match asked.is_write() {
                true => Reply::silence(),
                false => Reply::list(all.collect::<Vec<_>>()),
            }
        });
        let it = lookout(client);
        let (mut take_outs, mut silences) = (TakeOuts::default(), Silences::default());
        // However slow this machine is, the silence is no old one.
        let now = Instant::now() + Duration::from_secs(3_600);
        for n in 0..4 {
            let mut lost = target(1);
            (lost.uid, lost.name) = (format!("pod-{n}"), format!("pod-{n}"));
            take_outs.begin(&it, ("default", &mut silences), &lost, now);
        }
        let all = async {
            while log.writes().len() < 3 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), all).await.expect("three are written");
        let mut silences = BTreeMap::from([("default".to_owned(), silences)]);
        while take_outs.pods.len() > 3 {
            tokio::task::yield_now().await;
            take_outs.ended(&mut silences, now);
        }
        let mut patched: Vec<String> = log.writes().into_iter().map(|it| it.path).collect();
        patched.sort();
        let third = ["0", "1", "2"].map(|n| format!("/api/v1/namespaces/dns/pods/pod-{n}/status"));
        assert_eq!(patched, third, "though all nine are listed as ready");
    }
}
