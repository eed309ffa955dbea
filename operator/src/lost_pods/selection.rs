//! Which pods one round asks, where it may ask fewer than are silent (O20). A dead node is not the reason then, and the silent
//! pods of one ClusterDNS must not keep those of another from being asked. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::Group;
use super::ask::Target;
use super::rounds::Round;
use super::silence::{Silences, Suspect};

/// Pods that fell silent a moment ago come first, with at most one of this many questions: lossy pods fall silent again and
/// again, and a pod whose turn it is may have died.
const ONE_OF: usize = 2;

/// A pod to ask, the name of its ClusterDNS, and who looks at it.
pub(super) type Wanted<'a> = (&'a str, &'a Target, Option<Suspect>);

/// The pods that are asked, with those that look at them: those that may be lost soon, those whose turn it is, and those that
/// are silent for long without being lost. Of each kind those come first that were not asked for longest.
pub(super) fn wanted<'a>(
    groups: &'a BTreeMap<String, Group>,
    silences: &mut BTreeMap<String, Silences>,
    (round, needed): (Round, u32),
    now: Instant,
) -> Vec<Wanted<'a>> {
    let pods = groups.values().map(|group| group.ready.len()).sum();
    let mut place = 0;
    let (mut soon, mut turn, mut long) = (Vec::new(), Vec::new(), Vec::new());
    for (name, group) in groups {
        let silences = silences.entry(name.clone()).or_default();
        let is_ready = |uid: &str| group.ready.iter().any(|pod| pod.uid == uid);
        silences.keep(is_ready, now);
        let nodes: Vec<(String, String)> =
            group.ready.iter().map(|pod| (pod.uid.clone(), pod.node.clone())).collect();
        let suspects = silences.suspects(&nodes);
        for pod in &group.ready {
            let suspect = suspects.iter().find(|it| it.uid == pod.uid).cloned();
            let wanted = (silences.asked(&pod.uid), (name.as_str(), pod, suspect));
            if silences.may_be_lost_soon(&pod.uid, needed) {
                soon.push(wanted);
            } else if round.asks(place, pods) {
                turn.push(wanted);
            } else if round != Round::OfSilent && silences.is_silent(&pod.uid) {
                long.push(wanted);
            }
            place += 1;
        }
    }
    for kind in [&mut soon, &mut turn, &mut long] {
        kind.sort_by_key(|(asked, _)| *asked);
    }
    let first = match round {
        Round::OfTurn(_) => soon.len().min(round.most() / ONE_OF),
        Round::OfSilent => soon.len(),
    };
    let rest = soon.split_off(first);
    let all = [soon, turn, rest, long].into_iter().flatten().map(|(_, wanted)| wanted);
    with_witnesses(groups, all, round.most())
}

/// As many as there is room for. A look counts only if the pod that looks is asked in the same round.
fn with_witnesses<'a>(
    groups: &'a BTreeMap<String, Group>,
    all: impl Iterator<Item = Wanted<'a>>,
    most: usize,
) -> Vec<Wanted<'a>> {
    let (mut chosen, mut uids) = (Vec::new(), BTreeSet::new());
    for (name, pod, suspect) in all {
        let by = suspect
            .as_ref()
            .and_then(|it| groups.get(name)?.ready.iter().find(|pod| pod.uid == it.by));
        let by = by.filter(|by| !uids.contains(&by.uid));
        if uids.len() + 1 + usize::from(by.is_some()) > most {
            break;
        }
        for (pod, suspect) in [(pod, suspect)].into_iter().chain(by.map(|by| (by, None))) {
            if uids.insert(&pod.uid) {
                chosen.push((name, pod, suspect));
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::fixtures;
    use crate::lost_pods::ask;
    use crate::lost_pods::rounds::Order;
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
            ((*name).to_owned(), Group { ready, lost: 0 })
        };
        sizes.iter().map(group).collect()
    }

    /// All pods of this ClusterDNS are silent, the others answer.
    fn hear(
        silences: &mut BTreeMap<String, Silences>,
        wanted: &[Wanted<'_>],
        silent: &str,
        now: Instant,
    ) {
        for (name, pod, _) in wanted {
            let heard = if *name == silent { Heard::Silence } else { Heard::Answer };
            let (uid, node) = (pod.uid.clone(), pod.node.clone());
            let asked = Asked { uid, node, heard, look: None };
            let silences = silences.entry((*name).to_owned()).or_default();
            silences.hear(&[asked], (1, 0), QUESTIONS, now);
        }
    }

    #[test]
    fn o20_silent_pods_of_one_clusterdns_do_not_keep_those_of_another_from_being_asked() {
        let groups = groups(&[("aaa", 250), ("zzz", 2)]);
        let (mut order, mut silences) = (Order::default(), BTreeMap::new());
        let (begin, mut asked) = (Instant::now(), BTreeMap::new());
        for second in 0_u32..100 {
            let now = begin + Duration::from_secs(second.into());
            let is_soon = silences.values().any(|it: &Silences| it.may_any_be_lost_soon(QUESTIONS));
            let round = order.next(is_soon);
            let wanted = wanted(&groups, &mut silences, (round, QUESTIONS), now);
            assert!(wanted.len() <= round.most(), "{round:?}: {}", wanted.len());
            hear(&mut silences, &wanted, "aaa", now);
            asked.extend(wanted.iter().map(|(_, pod, _)| (pod.uid.clone(), second)));
            if second >= 50 {
                let ago = |uid: &str| asked.get(uid).map(|last| second - last);
                for uid in ["zzz-000-uid", "zzz-001-uid"] {
                    assert!(ago(uid).is_some_and(|ago| ago < 10), "{second}: {uid} {:?}", ago(uid));
                }
            }
        }
        assert!(asked.values().all(|last| *last >= 95), "those that are silent have turns too");
    }

    #[test]
    fn o20_a_round_of_turns_has_room_for_turns_also_where_hundreds_fall_silent() {
        let groups = groups(&[("aaa", 450), ("zzz", 2)]);
        let (mut silences, now) = (BTreeMap::new(), Instant::now());
        let all: Vec<Wanted<'_>> =
            groups["aaa"].ready.iter().map(|pod| ("aaa", pod, None)).collect();
        hear(&mut silences, &all, "aaa", now);
        let rounds = (0..3)
            .map(|number| wanted(&groups, &mut silences, (Round::OfTurn(number), QUESTIONS), now));
        let asked: Vec<&str> = rounds.flatten().map(|(name, ..)| name).collect();
        assert_eq!(asked.iter().filter(|name| **name == "zzz").count(), 2);
        assert_eq!(asked.len(), 600, "no question is wasted");
    }

    #[test]
    fn o20_a_pod_that_looks_is_asked_in_the_same_round() {
        let groups = groups(&[("aaa", 450)]);
        let (mut silences, now) = (BTreeMap::<String, Silences>::new(), Instant::now());
        for _ in 0..2 {
            for pod in &groups["aaa"].ready {
                let heard =
                    if pod.uid.as_str() < "aaa-060" { Heard::Silence } else { Heard::Answer };
                let (uid, node) = (pod.uid.clone(), pod.node.clone());
                let asked = Asked { uid, node, heard, look: None };
                let silences = silences.entry("aaa".to_owned()).or_default();
                silences.hear(&[asked], (1, 0), QUESTIONS, now);
            }
        }
        for round in [Round::OfSilent, Round::OfTurn(1)] {
            let wanted = wanted(&groups, &mut silences, (round, QUESTIONS), now);
            let looks: Vec<&Suspect> = wanted.iter().filter_map(|(.., it)| it.as_ref()).collect();
            assert_eq!(looks.len(), 16, "{round:?}");
            for look in looks {
                assert!(wanted.iter().any(|(_, pod, _)| pod.uid == look.by), "{round:?}: {look:?}");
            }
        }
    }
}
