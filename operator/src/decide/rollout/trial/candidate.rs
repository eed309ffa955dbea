//! Which pod tries a configuration.

use k8s_openapi::api::core::v1::Pod;

use super::cut_off::{readers, reads};
use super::{Trial, retry};
use crate::decide::adoption::is_per_node;
use crate::decide::rollout::PODS_TO_TRY;
use crate::observe::pods;

impl<'a> Trial<'a> {
    /// The pod that tries it: the present canary if it tries something older, else the longest-ready one that runs
    /// stable. `None` while the workload rolls out, because its pods come and go, or while no other pod could answer.
    /// A rollout that is stuck, or lacks new pods only, does not count: the others stay, and clients wait for the change. Nor does a
    /// move to another workload that is stuck before any pod of that one can try it.
    pub(super) fn candidate(self, losses: u32) -> Option<&'a Pod> {
        let ready: Vec<&Pod> = pods::ready(self.observed).collect();
        let per_node = is_per_node(self.dns);
        let is_settled = pods::has_no_older_pods(self.observed, per_node);
        let is_moving = pods::is_moving(self.observed, per_node);
        let is_stuck =
            (is_moving || !is_settled) && pods::is_stuck(self.observed, per_node, self.now);
        if ready.len() < PODS_TO_TRY || !(is_settled || is_stuck) {
            return None;
        }
        let runs_stable = |pod: &&Pod| {
            self.reported(pod).is_some_and(|reported| reported.runs(&self.state.stable))
        };
        let is_of_newest = |pod: &&Pod| pods::is_of_newest_template(pod, self.observed, per_node);
        // Where pods move, none of the wanted workload is of an older template: those that are ready go first, because they stay.
        let has_new = ready.iter().any(|pod| is_of_newest(pod) && runs_stable(pod));
        let takes_all = is_stuck && !(is_settled && has_new);
        let newest = || ready.iter().copied().filter(|pod| takes_all || is_of_newest(pod));
        let canary = self.state.canary_pod.as_ref();
        let before = canary.map(|canary| canary.uid.as_str());
        let present = newest().filter(|_| losses == 0).find(|pod| {
            let refuses = self.reported(pod).is_some_and(|reported| reported.refusal().is_some());
            let is_another = canary.is_some_and(|canary| self.is_another_process(pod, canary));
            Some(pods::uid(pod)) == before
                && pods::restarts(pod) <= self.state.restarts
                && !is_another
                && !refuses
        });
        let others = newest().filter(runs_stable).filter(|pod| Some(pods::uid(pod)) != before);
        let others = readers(others.collect(), self.observed);
        let another_reads = others.first().is_some_and(|pod| reads(pod, self.observed));
        present
            .filter(|pod| reads(pod, self.observed) || !another_reads)
            .or_else(|| self.in_turn(others))
    }

    /// Does a rollout of pods take it away, which does not stand still? In the workload as it was seen.
    pub(super) fn is_about_to_go(self, pod: &Pod) -> bool {
        let per_node = is_per_node(self.dns);
        // A DaemonSet that is set back has all pods of the newest template before the pod of the other one is gone.
        pods::is_replaced(pod, self.observed, per_node)
            && !pods::stay(self.observed, per_node, self.now)
    }

    /// Was the workload written, and its controller has not looked at it yet? Then it is not known whether its pods stay: one edit
    /// may change the configuration and the image, and the pod that tries it is named just before the image is written.
    pub(super) fn is_template_unseen(self) -> bool {
        let per_node = is_per_node(self.dns);
        let progress = pods::progress(self.observed, per_node);
        progress.exists && !progress.is_seen && !pods::is_stuck(self.observed, per_node, self.now)
    }

    /// The longest-ready one; each retry takes the next, so that one bad node does not block a correct configuration.
    fn in_turn(self, mut pods: Vec<&'a Pod>) -> Option<&'a Pod> {
        pods.sort_by_key(|pod| (pods::ready_since(pod), pods::name(pod)));
        if retry::has_failed(self.dns, self.state, &self.asked.revision) {
            let index = self.state.failures as usize % pods.len().max(1);
            return pods.get(index).copied();
        }
        let failed_before = |pod: &&&Pod| pods::uid(pod) == self.state.failed_pod;
        let another = pods.iter().find(|pod| !failed_before(pod));
        another.or(pods.first()).copied()
    }
}
