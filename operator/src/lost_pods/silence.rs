//! Which pods are lost: the decision, from what each round of questions heard. A pod is lost when it was silent on all ways
//! several times in a row, when a data plane on another node that answered meanwhile gets no reply from it either, when enough of
//! the others are left, and when it is not the operator's own node that is cut off. Pure: the time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
pub(super) use process::reached::Heard;

/// Silent questions in a row until a pod may be lost, for the operator that leads.
pub(super) const QUESTIONS: u32 = 3;
/// The same for a standby: it acts where the leader did not, for example because its node died too. Questions to a silent pod
/// are 0.7 s apart, and of up to 200 pods the first silent one of the leader is at most a second later than that of the standby. So
/// the standby acts 0.4 s after it or more, which is when a fast API server shows what the leader wrote. Both choose the same pods
/// in the same order, and both list the pods before they write.
pub(super) const QUESTIONS_OF_STANDBY: u32 = QUESTIONS + 2;
/// Silent questions more where the operator cannot know whether its own node is cut off: one that reaches more nodes, also a
/// standby, acts first, and takes out the pod that really is lost.
const MORE_QUESTIONS: u32 = 4;
/// From this silent question on a second data plane is asked to look, in the same round.
const SUSPECT_AFTER: u32 = QUESTIONS - 1;
/// Pods of one ClusterDNS that others look at in one round. If more are silent at once, a dead node is not the reason.
const MAX_LOOKS: usize = 16;
/// A pod that did not answer since it was taken out is not taken out again before.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// After this time a lost pod does not count any more: a living kubelet sets a pod that we took out back sooner, because it looks
/// every 10 s, and a node that stays off must not use up what others may lose.
const LOST_FOR: Duration = Duration::from_secs(120);
/// Pods of one ClusterDNS that are taken out at the same time.
const AT_ONCE: usize = 16;
/// One pod of every 3 may be lost at a time, and one of fewer than 6.
const OF: usize = 3;
/// Of fewer pods none is ever taken out.
const FEWEST: usize = 2;

/// A data plane on another node looked at a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// The uid of the pod that looked.
    pub(super) by: String,
    pub(super) heard: Heard,
}

/// A pod that was ready and was asked in this round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// metadata.uid of the pod.
    pub(super) uid: String,
    /// spec.nodeName of the pod.
    pub(super) node: String,
    /// It is on the node of the operator, as far as the operator knows its node.
    pub(super) is_here: bool,
    /// Over UDP, TCP and HTTP.
    pub(super) heard: Heard,
    /// What another data plane heard, if one was asked.
    pub(super) look: Option<Look>,
}

/// A request that one pod looks at another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    /// The pod that is silent.
    pub(super) uid: String,
    /// The pod that must look.
    pub(super) by: String,
}

/// A pod that is out of its Service because an operator took it out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Loss {
    /// metadata.uid of the pod.
    pub(super) uid: String,
    /// The time in its condition, by the clock of who wrote that: another loss of this pod has another one.
    pub(super) at: Timestamp,
}

/// What a list of its peers does not show of a pod that is being taken out.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// uids of pods that are being taken out and may be lost before it.
    pub(super) ahead: Vec<String>,
    /// Those that do not count any more ([`LOST_FOR`]). All others do, also where this process has not seen them yet.
    pub(super) past: BTreeSet<Loss>,
}

/// What is remembered of the pods of one ClusterDNS.
#[derive(Debug, Default)]
pub(super) struct Silences {
    pods: BTreeMap<String, Silence>,
    /// uids of the pods that are being taken out, in the order in which that began.
    leaving: Vec<String>,
    /// When a pod of another node than that of the operator last replied.
    heard_elsewhere: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    /// When it was asked last.
    asked: Option<Instant>,
    /// Silent questions in a row.
    in_a_row: u32,
    /// The last of them at which another data plane got a reply: those up to it do not count.
    heard_by_another: u32,
    /// When the first of them was, or the last one that does not count.
    silent_since: Option<Instant>,
    /// It is on the node of the operator.
    is_here: bool,
    /// When it last replied.
    answered: Option<Instant>,
    /// When it was taken out of the Service.
    taken_out: Option<Instant>,
    /// When the watch last showed it as taken out, if it was not ready since then.
    shown_out: Option<Instant>,
    /// What its condition said then.
    out_at: Option<Timestamp>,
}

/// What the operator knows about its own node while a pod is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnNode {
    /// A pod of another node has answered since then.
    Reached,
    /// One other node has silent pods, and none answers: that one is cut off, or that of the operator is.
    Unknown,
    /// Several other nodes are silent, and none answers.
    CutOff,
}

impl Silences {
    /// Silent pods that another data plane must look at in the next round, and which: pods of other nodes that answered last,
    /// in turns, and after each silence another one, because one that cannot look would never confirm the pod. One on the node
    /// of the operator looks from the same place, so it does where there is no other. Those that are silent for longest come
    /// last: what was not confirmed many times keeps no other pod waiting.
    pub(super) fn suspects(&self, ready: &[(String, String)]) -> Vec<Suspect> {
        let silent = |uid: &String| self.pods.get(uid).map_or(0, |it| it.in_a_row);
        let answers = |uid: &String| {
            self.pods.get(uid).is_some_and(|it| it.in_a_row == 0 && it.answered.is_some())
        };
        let is_here = |uid: &String| self.pods.get(uid).is_some_and(|it| it.is_here);
        let (mut suspects, witnesses): (Vec<_>, Vec<_>) = (
            ready.iter().filter(|(uid, _)| silent(uid) >= SUSPECT_AFTER).collect(),
            ready.iter().filter(|(uid, _)| answers(uid)).collect(),
        );
        suspects.sort_by(|(a, _), (b, _)| silent(a).cmp(&silent(b)).then_with(|| a.cmp(b)));
        let look = |(turn, (uid, node)): (usize, &(String, String))| {
            let mut elsewhere: Vec<_> =
                witnesses.iter().filter(|(_, other)| other != node).collect();
            if elsewhere.iter().any(|(uid, _)| !is_here(uid)) {
                elsewhere.retain(|(uid, _)| !is_here(uid));
            }
            let turn = turn + self.pods.get(uid).map_or(0, Silence::unheard) as usize;
            let (by, _) = elsewhere.get(turn % elsewhere.len().max(1))?;
            Some(Suspect { uid: uid.clone(), by: by.clone() })
        };
        suspects.into_iter().take(MAX_LOOKS).enumerate().filter_map(look).collect()
    }

    /// Whether it was taken out within the last minute, by whichever operator.
    #[cfg(test)]
    pub(super) fn was_taken_out_lately(&self, uid: &str, now: Instant) -> bool {
        self.pods.get(uid).is_some_and(|silence| silence.was_taken_out_lately(now))
    }

    /// When the pod was asked last.
    pub(super) fn asked(&self, uid: &str) -> Option<Instant> {
        self.pods.get(uid)?.asked
    }

    /// The pod is asked now.
    pub(super) fn asks(&mut self, uid: &str, now: Instant) {
        self.pods.entry(uid.to_owned()).or_default().asked = Some(now);
    }

    /// Whether a pod is silent, and not yet `needed` times in a row.
    pub(super) fn may_any_be_lost_soon(&self, needed: u32) -> bool {
        self.pods.keys().any(|uid| self.may_be_lost_soon(uid, needed))
    }

    /// The same of one pod.
    pub(super) fn may_be_lost_soon(&self, uid: &str, needed: u32) -> bool {
        self.pods.get(uid).is_some_and(|it| (1..needed).contains(&it.in_a_row))
    }

    /// The pods that are lost after this round, those that are silent for longest first, without those that are being taken out
    /// already. This many are `ready`, and this many are `lost` and out of the Service already; `needed` silent questions in a
    /// row make a loss.
    pub(super) fn hear(
        &mut self,
        asked: &[Asked],
        (ready, lost): (usize, usize),
        needed: u32,
        now: Instant,
    ) -> Vec<String> {
        for pod in asked {
            let silence = self.pods.entry(pod.uid.clone()).or_default();
            silence.is_here = pod.is_here;
            match pod.heard {
                Heard::Answer => {
                    (silence.in_a_row, silence.answered) = (0, Some(now));
                    if !pod.is_here {
                        self.heard_elsewhere = Some(now);
                    }
                }
                Heard::Silence => {
                    if silence.in_a_row == 0 {
                        (silence.silent_since, silence.heard_by_another) = (Some(now), 0);
                    }
                    silence.in_a_row = silence.in_a_row.saturating_add(1);
                    if pod.look.as_ref().is_some_and(|look| look.heard == Heard::Answer) {
                        (silence.heard_by_another, silence.silent_since) =
                            (silence.in_a_row, Some(now));
                    }
                }
                // An unknown result does not count as silence.
                Heard::Unknown => silence.in_a_row = 0,
            }
        }
        let mut all: Vec<(&Asked, Silence)> = asked
            .iter()
            .filter_map(|pod| Some((pod, *self.pods.get(&pod.uid)?)))
            .filter(|(pod, silence)| {
                silence.unheard() >= needed
                    && !self.leaving.contains(&pod.uid)
                    && is_confirmed(pod, asked)
                    && match self.own_node(silence, asked) {
                        OwnNode::Reached => silence.may_be_taken_out(now),
                        // Its kubelet may be alive, and only we do not reach it. Who confirms it is on our node.
                        OwnNode::Unknown => {
                            silence.unheard() >= needed + MORE_QUESTIONS
                                && silence.answered.is_some()
                                && !silence.is_unheard_since_taken_out()
                                && !self.is_confirmed_by_one_taken_out(pod, now)
                        }
                        OwnNode::CutOff => false,
                    }
            })
            .collect();
        all.sort_by(|(a, before), (b, other)| {
            other.in_a_row.cmp(&before.in_a_row).then_with(|| a.uid.cmp(&b.uid))
        });
        // They count as lost before a watch shows it.
        let leaving = self.leaving.len();
        let room = room(ready.saturating_sub(leaving), lost + leaving);
        let room = room.min(AT_ONCE.saturating_sub(leaving));
        all.into_iter().map(|(pod, _)| pod.uid.clone()).take(room).collect()
    }

    /// Whether the node of the operator may be cut off, and the pods of other nodes silent for that reason. An answer of the round
    /// in which the pod fell silent may be from before the cut.
    fn own_node(&self, silence: &Silence, asked: &[Asked]) -> OwnNode {
        if self.heard_elsewhere > silence.silent_since {
            return OwnNode::Reached;
        }
        let silent = asked.iter().filter(|pod| pod.heard == Heard::Silence && !pod.is_here);
        let nodes: BTreeSet<&str> = silent.map(|pod| pod.node.as_str()).collect();
        if nodes.len() > 1 { OwnNode::CutOff } else { OwnNode::Unknown }
    }

    /// Whether the pod that looked was out a short while ago, by whichever operator: another one does not reach it, so our own node
    /// may be cut off. That one takes it out again after [`AGAIN_AFTER`] where it is still silent there, before this ends.
    fn is_confirmed_by_one_taken_out(&self, pod: &Asked, now: Instant) -> bool {
        let witness = pod.look.as_ref().and_then(|look| self.pods.get(&look.by));
        let taken_out = witness.and_then(|it| it.taken_out);
        taken_out.is_some_and(|at| now.saturating_duration_since(at) < 2 * AGAIN_AFTER)
    }

    /// This pod is being taken out from now on. Those for which that began before it may be lost before it is.
    pub(super) fn leaves(&mut self, uid: &str, now: Instant) -> Known {
        let ahead = self.leaving.clone();
        self.leaving.push(uid.to_owned());
        let losses = self
            .pods
            .iter()
            .filter_map(|(uid, silence)| Some(Loss { uid: uid.clone(), at: silence.out_at? }));
        Known { ahead, past: losses.filter(|loss| !self.counts(loss, now)).collect() }
    }

    /// How many of these count as lost.
    pub(super) fn count(&self, losses: &[Loss], now: Instant) -> usize {
        losses.iter().filter(|loss| self.counts(loss, now)).count()
    }

    /// Whether this process has seen this loss for less than [`LOST_FOR`], or not yet. By its own clock: if that of the operator
    /// which took the pod out is behind, the pod would not count from the beginning, and a second third would go at once.
    fn counts(&self, loss: &Loss, now: Instant) -> bool {
        let silence = self.pods.get(&loss.uid).filter(|it| it.out_at == Some(loss.at));
        let since = silence.and_then(|it| it.taken_out);
        since.is_none_or(|since| now.saturating_duration_since(since) < LOST_FOR)
    }

    /// The attempt to take it out is over; not settled: the next round decides again.
    pub(super) fn ended(&mut self, uid: &str, is_settled: bool, now: Instant) {
        self.leaving.retain(|it| it != uid);
        if is_settled {
            self.taken_out(uid, now);
        }
    }

    /// No pod may be taken out now: what was heard is forgotten, not what is on its way, nor which pods must not be taken out
    /// again soon. The policy may be back in a moment.
    pub(super) fn forget(&mut self, now: Instant) {
        self.pods.retain(|_, silence| {
            silence.is_unheard_since_taken_out() || silence.was_shown_out_lately(now)
        });
        for silence in self.pods.values_mut() {
            let Silence { taken_out, shown_out, out_at, .. } = *silence;
            *silence = Silence { taken_out, shown_out, out_at, ..Silence::default() };
        }
    }

    /// This pod was taken out of the Service.
    pub(super) fn taken_out(&mut self, uid: &str, now: Instant) {
        let silence = self.pods.entry(uid.to_owned()).or_default();
        (silence.in_a_row, silence.taken_out) = (0, Some(now));
    }

    /// The watch shows this pod as taken out, by whichever operator: a kubelet that sets it back keeps the old time of its
    /// condition, so the pod does not show it later. It counts once, however long the pod stays out; without `at` it is back.
    pub(super) fn shown_out(&mut self, uid: &str, at: Option<Timestamp>, now: Instant) {
        let before = self.pods.get(uid).copied().unwrap_or_default();
        let is_another = at.is_some() && at != before.out_at;
        if before.shown_out.is_none() || is_another {
            self.taken_out(uid, now);
        }
        let silence = self.pods.entry(uid.to_owned()).or_default();
        (silence.shown_out, silence.out_at) = (Some(now), at.or(before.out_at));
    }

    /// Forgets pods that are not ready any more; of those that were taken out when, for as long as that matters.
    pub(super) fn keep(&mut self, is_ready: impl Fn(&str) -> bool, now: Instant) {
        self.pods.retain(|uid, silence| {
            if is_ready(uid) {
                (silence.shown_out, silence.out_at) = (None, None);
                return true;
            }
            silence.in_a_row = 0;
            silence.was_taken_out_lately(now) || silence.was_shown_out_lately(now)
        });
    }
}

impl Silence {
    /// Silent questions in a row since another data plane last got a reply.
    fn unheard(&self) -> u32 {
        self.in_a_row.saturating_sub(self.heard_by_another)
    }

    fn was_taken_out_lately(&self, now: Instant) -> bool {
        self.taken_out.is_some_and(|at| now.saturating_duration_since(at) < AGAIN_AFTER)
    }

    fn was_shown_out_lately(&self, now: Instant) -> bool {
        self.shown_out.is_some_and(|at| now.saturating_duration_since(at) < AGAIN_AFTER)
    }

    fn is_unheard_since_taken_out(&self) -> bool {
        self.taken_out.is_some() && self.answered <= self.taken_out
    }

    /// Not twice within a minute, unless it answered in between.
    fn may_be_taken_out(&self, now: Instant) -> bool {
        !(self.was_taken_out_lately(now) && self.is_unheard_since_taken_out())
    }
}

/// True if a data plane on another node, which answered in this round, got no reply from the pod either. If no other
/// pod answers, the operator itself is cut off.
fn is_confirmed(pod: &Asked, asked: &[Asked]) -> bool {
    let Some(Look { by, heard: Heard::Silence }) = &pod.look else { return false };
    let mut others = asked.iter();
    others.any(|other| other.uid == *by && other.heard == Heard::Answer && other.node != pod.node)
}

/// How many of `ready` pods may be out of the Service at a time: a third, or one of two to five.
fn most_lost(pods: usize) -> usize {
    if pods < FEWEST { 0 } else { (pods / OF).max(1) }
}

/// How many more may be taken out, where this many are ready and this many are lost.
pub(super) fn room(ready: usize, lost: usize) -> usize {
    let of_all = most_lost(ready + lost).saturating_sub(lost);
    of_all.min(ready.saturating_sub(1))
}

#[cfg(test)]
mod tests;
