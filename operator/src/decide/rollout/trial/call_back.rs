//! A canary that was lost or failed, and is alive, goes back before another pod is named: two pods never run what no trial has
//! passed.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::{RECONCILE_EVERY, Trial, Verdict, keep, retry};
use crate::decide::adoption::is_per_node;
use crate::decide::plan::{CanaryPod, RolloutPlan, RolloutState};
use crate::observe::pods;

/// How long a report says what a pod runs now. A pod that hangs reports nothing, and does not delay the next trial.
const RECENT: Duration = Duration::from_secs(10);

impl<'a> Trial<'a> {
    /// Which process answers in this pod; empty: not known.
    pub(super) fn process(self, pod: &Pod) -> &'a str {
        self.reported(pod).map(|reported| reported.process.as_str()).unwrap_or_default()
    }

    /// A container that restarts quickly is ready before restartCount grows. The new process has an empty cache, and
    /// perhaps an older configuration: it is not the canary that was named.
    pub(super) fn is_another_process(self, pod: &Pod, canary: &CanaryPod) -> bool {
        let process = self.process(pod);
        !process.is_empty() && !canary.process.is_empty() && process != canary.process
    }

    /// What a canary that is asked to stop, or has ended, means for its trial. One edit may change the configuration and the template: then its
    /// canary is named just before the rollout of pods that takes it away.
    pub(super) fn leaves(self, pod: &Pod) -> Verdict {
        match pods::is_replaced(pod, self.observed, is_per_node(self.dns)) {
            true => Verdict::Replaced,
            false => Verdict::Lost("went away"),
        }
    }

    /// Whether a ready pod, which was lost as the canary, ran what is on trial a moment ago. Pods see the ConfigMap at
    /// different moments: if another pod were named now, two would run it (O7: one pod at most).
    pub(super) fn is_run_by_a_lost_pod(self) -> bool {
        pods::ready(self.observed).any(|pod| self.ran_lately(pod, &self.asked.revision))
    }

    fn ran_lately(self, pod: &Pod, revision: &str) -> bool {
        let report = self.observed.pod_reports.get(pods::uid(pod));
        let is_recent = report.is_some_and(|report| report.age <= RECENT);
        is_recent && self.reported(pod).is_some_and(|it| it.revision == revision)
    }

    /// Whether a pod has not gone back yet from the revision that failed last: it may need new lists for that (E43). This lasts
    /// until that revision may be tried again at most, so a pod that cannot go back does not stop later edits.
    pub(super) fn is_run_after_it_failed(self) -> bool {
        let failed = &self.state.failed;
        // A newer edit takes the place of what the present canary tries.
        let is_present = |pod: &Pod| {
            self.state.canary_pod.as_ref().is_some_and(|canary| canary.uid == pods::uid(pod))
        };
        !failed.is_empty()
            && *failed != self.state.stable
            && !retry::is_due(self.dns, self.state, self.now)
            && pods::ready(self.observed)
                .any(|pod| !is_present(pod) && self.ran_lately(pod, failed))
    }

    /// Names no pod until that one has gone back. What failed is remembered until then.
    pub(super) fn wait_for_failed(self) -> RolloutPlan {
        let mut plan = keep(self.stable, self.state);
        plan.again_in = Some(RECONCILE_EVERY);
        plan.state = RolloutState { stable: plan.state.stable, ..retry::remembered(self.state) };
        plan
    }

    /// Names no pod until the lost one has gone back, and then another one.
    pub(super) fn call_back(self, losses: u32) -> RolloutPlan {
        let mut plan = self.wait(losses);
        if let Some(lost) = &self.state.canary_pod {
            plan.state.failed_pod = lost.uid.clone();
        }
        plan
    }
}
