//! Which pods one round asks, where it may ask fewer than there are (O20). The silent pods of one ClusterDNS must not keep
//! those of another from being asked. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::Group;
use super::ask::Target;
use super::rounds::{Round, has_own_turns};
use super::silence::{Silences, Suspect};

/// A pod to ask, the name of its ClusterDNS, and who looks at it.
pub(super) type Wanted<'a> = (&'a str, &'a Target, Option<Suspect>);

/// The pods that are asked, with those that look at them: first those that may be lost soon, as far as there is room for them,
/// then all others in turn.
pub(super) fn wanted<'a>(
    groups: &'a BTreeMap<String, Group>,
    silences: &mut BTreeMap<String, Silences>,
    (round, needed): (Round, u32),
    now: Instant,
) -> Vec<Wanted<'a>> {
    let (mut soon, mut turn) = (Vec::new(), Vec::new());
    for (name, group) in groups {
        let silences = silences.entry(name.clone()).or_default();
        let ready: BTreeSet<&str> = group.ready.iter().map(|pod| pod.uid.as_str()).collect();
        silences.keep(|uid| ready.contains(uid), now);
        let nodes: Vec<(String, String)> =
            group.ready.iter().map(|pod| (pod.uid.clone(), pod.node.clone())).collect();
        let suspects = silences.suspects(&nodes);
        for pod in &group.ready {
            let suspect = suspects.iter().find(|it| it.uid == pod.uid).cloned();
            let is_soon = silences.may_be_lost_soon(&pod.uid, needed);
            let kind = if is_soon { &mut soon } else { &mut turn };
            kind.push((silences.asked(&pod.uid), (name.as_str(), pod, suspect)));
        }
    }
    let own_turns = has_own_turns(soon.len() + turn.len());
    let mut chosen = Chosen { groups, all: Vec::new(), uids: BTreeSet::new() };
    turn.extend(chosen.add(in_turn(soon, true), round.most_silent()));
    turn.retain(|(_, (_, pod, _))| !chosen.uids.contains(pod.uid.as_str()));
    let mut turn = in_turn(turn, own_turns);
    turn.truncate(round.most_in_turn());
    chosen.add(turn, round.most());
    for (name, pod, _) in &chosen.all {
        silences.entry((*name).to_owned()).or_default().asks(&pod.uid, now);
    }
    chosen.all
}

/// When each was asked last, and what is asked.
type Turns<'a> = Vec<(Option<Instant>, Wanted<'a>)>;

/// Those first that were not asked for longest, of all, or one of each ClusterDNS after the other.
fn in_turn(mut turns: Turns<'_>, own_turns: bool) -> Turns<'_> {
    turns.sort_by_key(|(asked, _)| *asked);
    let mut places = BTreeMap::<&str, usize>::new();
    let mut placed: Vec<_> = turns
        .into_iter()
        .map(|it| {
            let place = places.entry(it.1.0).or_default();
            *place += usize::from(own_turns);
            (*place, it)
        })
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, it)| it).collect()
}

struct Chosen<'a> {
    groups: &'a BTreeMap<String, Group>,
    all: Vec<Wanted<'a>>,
    uids: BTreeSet<&'a str>,
}

impl<'a> Chosen<'a> {
    /// Adds as many as there is room for, with this many in all, and returns the others. A look counts only if the pod that
    /// looks is asked in the same round.
    fn add(&mut self, turns: Turns<'a>, most: usize) -> Turns<'a> {
        let mut turns = turns.into_iter();
        while let Some((asked, (name, pod, suspect))) = turns.next() {
            let by = suspect
                .as_ref()
                .and_then(|it| self.groups.get(name)?.ready.iter().find(|pod| pod.uid == it.by));
            let by = by.filter(|by| !self.uids.contains(by.uid.as_str()));
            let is_new = !self.uids.contains(pod.uid.as_str());
            if self.uids.len() + usize::from(is_new) + usize::from(by.is_some()) > most {
                let mut left = vec![(asked, (name, pod, suspect))];
                left.extend(turns);
                return left;
            }
            for (pod, suspect) in [(pod, suspect)].into_iter().chain(by.map(|by| (by, None))) {
                if self.uids.insert(pod.uid.as_str()) {
                    self.all.push((name, pod, suspect));
                }
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::fixtures;
    use crate::lost_pods::ask;
    use crate::lost_pods::silence::{Asked, Heard, QUESTIONS};

    fn groups(sizes: &[(&str, usize)]) -> BTreeMap<String, Group> {
        let dns = fixtures::dns("{}");
        let target = |name: &str, n: usize| {
            let mut pod = fixtures::pod(&format!("{name}-{n:03}"), 0, 0);
            pod.metadata.namespace = Some("dns".to_owned());
            pod.spec =
                Some(fixtures::from(json!({"nodeName": format!("node-{n}"), "containers": []})));
            ask::target(&dns, &pod).unwrap()
        };
        let group = |(name, size): &(&str, usize)| {
            let ready = (0..*size).map(|n| target(name, n)).collect();
            ((*name).to_owned(), Group { ready, ..Group::default() })
        };
        sizes.iter().map(group).collect()
    }

    /// What a pod does at its nth question.
    type Does = fn(u32) -> Heard;
    const ANSWERS: Does = |_| Heard::Answer;
    const SILENT: Does = |_| Heard::Silence;
    /// It never is lost, and always may be soon.
    const LOSSY: Does = |nth| if nth % 3 == 0 { Heard::Answer } else { Heard::Silence };

    /// What was asked in a minute.
    struct Minute {
        /// The longest time that a pod of this ClusterDNS was not asked, in milliseconds.
        longest: BTreeMap<String, u128>,
        /// Questions in all.
        questions: usize,
    }

    /// Plays a minute that begins when each pod has been asked some times.
    fn minute(sizes: &[(&str, usize)], does: impl Fn(&str, usize) -> Does) -> Minute {
        let groups = groups(sizes);
        let (mut silences, mut now) = (BTreeMap::<String, Silences>::new(), Instant::now());
        let begin = now + Duration::from_secs(20);
        let mut asked = BTreeMap::<String, (Instant, u32)>::new();
        let mut minute = Minute { longest: BTreeMap::new(), questions: 0 };
        loop {
            let is_soon = silences.values().any(|it| it.may_any_be_lost_soon(QUESTIONS));
            let round = Round::next(is_soon);
            now += round.wait();
            if now >= begin + Duration::from_secs(60) {
                break;
            }
            let wanted = wanted(&groups, &mut silences, (round, QUESTIONS), now);
            assert!(wanted.len() <= round.most(), "{round:?}: {}", wanted.len());
            for (name, pod, _) in wanted {
                let place = groups[name].ready.iter().position(|it| it.uid == pod.uid).unwrap();
                let does = does(name, place);
                let (last, nth) = asked.get(&pod.uid).copied().unwrap_or((now, 0));
                asked.insert(pod.uid.clone(), (now, nth + 1));
                let (uid, node, heard) = (pod.uid.clone(), pod.node.clone(), does(nth));
                let asked = Asked { uid, node, is_here: false, heard, look: None };
                let silences = silences.entry(name.to_owned()).or_default();
                silences.hear(&[asked], (1, 0), QUESTIONS, now);
                if now < begin {
                    continue;
                }
                minute.questions += 1;
                let gap = (now - last).as_millis();
                let longest = minute.longest.entry(name.to_owned()).or_default();
                *longest = gap.max(*longest);
            }
        }
        assert_eq!(asked.len(), sizes.iter().map(|(_, size)| size).sum::<usize>());
        minute
    }

    #[test]
    fn o20_each_pod_is_asked_every_three_seconds_also_where_many_are_silent() {
        for (pods, longest) in [(1, 1_000), (150, 1_000), (200, 1_000), (400, 2_000), (600, 3_000)]
        {
            let all_answer = minute(&[("a", pods)], |_, _| ANSWERS);
            assert_eq!(all_answer.longest["a"], longest, "{pods} pods");
            assert_eq!(all_answer.questions, 60 * pods.min(200), "{pods} pods");
            for one_of in [2, 3, 10] {
                let does = |_: &str, place| if place % one_of == 1 { SILENT } else { ANSWERS };
                let some = minute(&[("a", pods)], does);
                assert!(some.longest["a"] <= longest, "{pods}, {one_of}: {}", some.longest["a"]);
                // With those that look at 16 of them.
                let most = 60 * (pods.min(200) + 16).min(pods);
                assert!(some.questions <= most, "{pods}, {one_of}: {}", some.questions);
            }
        }
    }

    #[test]
    fn o20_pods_that_fall_silent_again_and_again_keep_no_others_waiting() {
        for (pods, longest) in [(150, 1_000), (200, 1_700), (400, 2_700), (600, 3_700)] {
            for lossy in [1, 12, 40, pods / 2] {
                let does = |_: &str, place| if place < lossy { LOSSY } else { ANSWERS };
                let heard = minute(&[("a", pods)], does);
                let what = format!("{lossy} of {pods} pods");
                assert!(heard.longest["a"] <= longest, "{what}: {}", heard.longest["a"]);
            }
        }
    }

    #[test]
    fn o20_silent_pods_of_one_clusterdns_do_not_keep_those_of_another_from_being_asked() {
        for silent in [SILENT, LOSSY] {
            let does = |name: &str, _| if name == "aaa" { silent } else { ANSWERS };
            let heard = minute(&[("aaa", 450), ("zzz", 2)], does);
            assert!(heard.longest.values().all(|it| *it <= 3_700), "{:?}", heard.longest);
        }
        let heard = minute(&[("aaa", 2_000), ("zzz", 3)], |_, _| ANSWERS);
        assert_eq!((heard.longest["aaa"], heard.longest["zzz"]), (11_000, 1_000));
    }

    #[test]
    fn o20_a_pod_that_looks_is_asked_in_the_same_round() {
        let (groups, now) = (groups(&[("aaa", 450)]), Instant::now());
        for round in [Round::Soon, Round::Usual] {
            let mut silences = BTreeMap::from([("aaa".to_owned(), Silences::default())]);
            for pod in groups["aaa"].ready.iter().chain(&groups["aaa"].ready) {
                let heard =
                    if pod.uid.as_str() < "aaa-060" { Heard::Silence } else { Heard::Answer };
                let (uid, node) = (pod.uid.clone(), pod.node.clone());
                let asked = Asked { uid, node, is_here: false, heard, look: None };
                let silences = silences.get_mut("aaa").unwrap();
                silences.hear(&[asked], (1, 0), QUESTIONS, now);
            }
            let wanted = wanted(&groups, &mut silences, (round, QUESTIONS), now);
            let looks: Vec<&Suspect> = wanted.iter().filter_map(|(.., it)| it.as_ref()).collect();
            assert_eq!(looks.len(), 16, "{round:?}");
            for look in looks {
                assert!(wanted.iter().any(|(_, pod, _)| pod.uid == look.by), "{round:?}: {look:?}");
            }
        }
    }
}
