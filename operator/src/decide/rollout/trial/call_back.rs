//! A lost canary that is alive goes back before another pod is named, so that two pods never run what is on trial.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::{Trial, Verdict};
use crate::decide::adoption::is_per_node;
use crate::decide::plan::{CanaryPod, RolloutPlan};
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
        pods::ready(self.observed).any(|pod| {
            let report = self.observed.pod_reports.get(pods::uid(pod));
            let is_recent = report.is_some_and(|report| report.age <= RECENT);
            is_recent && self.reported(pod).is_some_and(|it| it.revision == self.asked.revision)
        })
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
