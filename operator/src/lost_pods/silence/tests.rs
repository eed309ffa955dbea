//! Rounds of questions as tables: what each pod did, second by second, and who was taken out when.

mod clocks;
mod two_operators;

use super::*;

/// Pods as letters; each has a node of its own, unless two letters are given for one pod: its name and its node.
struct Cluster {
    silences: Silences,
    now: Instant,
    lost: Vec<String>,
    /// That of the operator.
    own_node: Option<String>,
}

/// What pods do in one round, a letter each: `+` answers, `.` is silent for all, `o` is silent for the operator only,
/// `x` for the operator and the pods of its node, `c` for the operator and pod c, `?` cannot be asked, `-` is not ready. The round `forget` is one without the admission policy, and in `out a` the watch shows
/// that another operator took a out.
fn play(rounds: &[&str], needed: u32) -> Vec<(usize, String)> {
    play_on(rounds, needed, |pod| format!("node-{pod}"))
}

fn play_on(rounds: &[&str], needed: u32, node: impl Fn(usize) -> String) -> Vec<(usize, String)> {
    play_at(None, rounds, needed, node)
}

/// With an operator that is on the node of the first pod.
fn play_beside_first(rounds: &[&str]) -> Vec<(usize, String)> {
    play_at(Some("node-0"), rounds, QUESTIONS, |pod| format!("node-{pod}"))
}

fn play_at(
    own_node: Option<&str>,
    rounds: &[&str],
    needed: u32,
    node: impl Fn(usize) -> String,
) -> Vec<(usize, String)> {
    let mut cluster = Cluster {
        silences: Silences::default(),
        now: Instant::now(),
        lost: Vec::new(),
        own_node: own_node.map(str::to_owned),
    };
    let mut taken_out = Vec::new();
    for (second, round) in rounds.iter().enumerate() {
        cluster.now += Duration::from_secs(1);
        if *round == "forget" {
            cluster.silences.forget(cluster.now);
            continue;
        }
        if let Some(uid) = round.strip_prefix("out ") {
            cluster.silences.shown_out(uid, Some(Timestamp::UNIX_EPOCH), cluster.now);
            continue;
        }
        for uid in cluster.round(round, needed, &node) {
            taken_out.push((second, uid));
        }
    }
    taken_out
}

impl Cluster {
    fn round(&mut self, round: &str, needed: u32, node: impl Fn(usize) -> String) -> Vec<String> {
        let pods: Vec<(String, String, char)> = round
            .chars()
            .enumerate()
            .map(|(place, does)| (place_name(place), node(place), does))
            .collect();
        // A kubelet that lives has set it back: it is ready again as soon as it does something else than being silent.
        self.lost.retain(|uid| pods.iter().any(|(it, _, does)| it == uid && *does == '.'));
        let is_ready = |uid: &str, does: char| does != '-' && !self.lost.iter().any(|it| it == uid);
        let ready: Vec<_> = pods.iter().filter(|(uid, _, does)| is_ready(uid, *does)).collect();
        let names: Vec<(String, String)> =
            ready.iter().map(|(uid, node, _)| (uid.clone(), node.clone())).collect();
        self.silences.keep(|uid| names.iter().any(|(it, _)| it == uid), self.now);
        let suspects = self.silences.suspects(&names);
        let asked: Vec<Asked> = ready
            .iter()
            .map(|(uid, node, does)| {
                let look = suspects.iter().find(|it| it.uid == *uid).map(|it| {
                    let of_witness = names.iter().find(|(uid, _)| *uid == it.by);
                    let is_silent = match does {
                        '.' => true,
                        'x' => of_witness.map(|(_, node)| node) == self.own_node.as_ref(),
                        'c' => it.by == "c",
                        _ => false,
                    };
                    let heard = if is_silent { Heard::Silence } else { Heard::Answer };
                    Look { by: it.by.clone(), heard }
                });
                let heard = match does {
                    '+' => Heard::Answer,
                    '.' | 'o' | 'x' | 'c' => Heard::Silence,
                    _ => Heard::Unknown,
                };
                let is_here = Some(node) == self.own_node.as_ref();
                Asked { uid: uid.clone(), node: node.clone(), is_here, heard, look }
            })
            .collect();
        let counts = (asked.len(), self.lost.len());
        let lost = self.silences.hear(&asked, counts, needed, self.now);
        for uid in &lost {
            self.silences.taken_out(uid, self.now);
            self.lost.push(uid.clone());
        }
        lost
    }
}

fn place_name(place: usize) -> String {
    char::from(b'a' + u8::try_from(place).unwrap()).to_string()
}

fn lost(all: &[(usize, &str)]) -> Vec<(usize, String)> {
    all.iter().map(|(second, uid)| (*second, (*uid).to_owned())).collect()
}

#[test]
fn o20_pods_that_are_being_taken_out_count_as_lost_and_are_not_chosen_again() {
    let mut silences = Silences::default();
    let mut now = Instant::now();
    let asked = |silent: usize| -> Vec<Asked> {
        let asked = |n: usize| Asked {
            uid: place_name(n),
            node: n.to_string(),
            is_here: false,
            heard: if n < silent { Heard::Silence } else { Heard::Answer },
            look: (n < silent).then(|| Look { by: "l".to_owned(), heard: Heard::Silence }),
        };
        (0..12).map(asked).collect()
    };
    for _ in 1..QUESTIONS {
        assert_eq!(silences.hear(&asked(3), (12, 0), QUESTIONS, now), [] as [&str; 0]);
        now += Duration::from_secs(1);
    }
    assert_eq!(silences.hear(&asked(3), (12, 0), QUESTIONS, now), ["a", "b", "c"]);
    assert_eq!(silences.leaves("a", now).ahead, [] as [&str; 0]);
    assert_eq!(silences.leaves("b", now).ahead, ["a"]);
    assert_eq!(silences.leaves("c", now).ahead, ["a", "b"]);
    // No write has an answer: the questions go on, and two more pods fall silent.
    for _ in 1..QUESTIONS {
        assert_eq!(silences.hear(&asked(5), (12, 0), QUESTIONS, now), [] as [&str; 0]);
        now += Duration::from_secs(1);
    }
    assert_eq!(silences.hear(&asked(5), (12, 0), QUESTIONS, now), ["d"], "a third of twelve");
    silences.ended("b", false, now);
    assert_eq!(silences.hear(&asked(5), (12, 0), QUESTIONS, now), ["b", "d"], "it failed");
    silences.ended("a", true, now);
    assert_eq!(silences.hear(&asked(5), (11, 1), QUESTIONS, now), ["b", "d"]);
}

#[test]
fn o20_the_pod_of_a_frozen_node_is_taken_out_after_three_silent_questions() {
    assert_eq!(play(&["++", "+.", "+.", "+.", "+."], QUESTIONS), lost(&[(3, "b")]));
    assert_eq!(play(&["+++", ".++", ".++", ".++"], QUESTIONS), lost(&[(3, "a")]));
    // The one that waits for the lease leaves it to the one that has it.
    let frozen = ["++", "+.", "+.", "+.", "+.", "+.", "+.", "+."];
    assert_eq!(play(&frozen, QUESTIONS_OF_STANDBY), lost(&[(5, "b")]));
}

#[test]
fn o20_what_is_slow_lossy_or_heard_by_another_is_left_alone() {
    for rounds in [
        // It answers now and then.
        &["++", "+.", "+.", "++", "+.", "+.", "++"][..],
        // Partitions that cut off only the operator: from one pod, from all but one, from all.
        &["++", "+o", "+o", "+o", "+o", "+o"],
        &["+++", "+oo", "+oo", "+oo", "+oo"],
        &["++", "oo", "oo", "oo", "oo"],
        // The operator's own trouble.
        &["++", "+?", "+?", "+?", "+?"],
        &["++", "+.", "+.", "+?", "+.", "+."],
        // The pod is being deleted, or its kubelet has set it not ready: the operator does nothing.
        &["++", "+-", "+-", "+-", "+-"],
    ] {
        assert_eq!(play(rounds, QUESTIONS), [], "{rounds:?}");
    }
}

#[test]
fn o20_where_all_are_silent_nothing_is_done() {
    assert_eq!(play(&["++++++", "......", "......", "......", "......"], QUESTIONS), []);
    assert_eq!(play(&["+", ".", ".", ".", ".", "."], QUESTIONS), [], "the only one");
    assert_eq!(play(&["..", "..", "..", "..", ".."], QUESTIONS), [], "from the start");
}

#[test]
fn o20_no_more_than_a_third_of_the_pods_is_out_at_a_time() {
    let half = ["++++++", "+++...", "+++...", "+++...", "+++...", "+++...", "+++..."];
    assert_eq!(play(&half, QUESTIONS), lost(&[(3, "d"), (3, "e")]));
    let two = ["++++++", "+.++.+", "+.++.+", "+.++.+", "+.++.+"];
    assert_eq!(play(&two, QUESTIONS), lost(&[(3, "b"), (3, "e")]));
    let of_three = ["+++", "+..", "+..", "+..", "+..", "+..", "+.."];
    assert_eq!(play(&of_three, QUESTIONS), lost(&[(3, "b")]));
    // Ready pods, lost pods: how many more.
    for (ready, out, more) in [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 1),
        (3, 0, 1),
        (5, 0, 1),
        (6, 0, 2),
        (1, 1, 0),
        (2, 1, 0),
        (5, 1, 1),
        (4, 2, 0),
        (600, 0, 200),
    ] {
        assert_eq!(room(ready, out), more, "{ready} ready, {out} lost");
    }
}

#[test]
fn o20_a_pod_that_comes_and_goes_is_taken_out_once_a_minute_unless_it_answered() {
    // Its kubelet says ready again (`?` is a round in which it could not be asked), and it never answers.
    let again = ["+.", "+.", "+.", "+?", "+.", "+.", "+.", "+.", "+?", "+.", "+.", "+.", "+."];
    let rounds = [&["++"][..], &again].concat();
    assert_eq!(play(&rounds, QUESTIONS), lost(&[(3, "b")]));
    let later = [&rounds[..], &["+?"; 60], &["+."; 4]].concat();
    assert_eq!(play(&later, QUESTIONS), lost(&[(3, "b"), (76, "b")]), "a minute later");
    let answered = ["++", "+.", "+.", "+.", "++", "+.", "+.", "+."];
    assert_eq!(play(&answered, QUESTIONS), lost(&[(3, "b"), (7, "b")]));
}

#[test]
fn o20_a_pod_that_another_operator_took_out_is_left_alone_for_a_minute() {
    // Its kubelet sets it back with the old time, and it stays silent.
    for (shown, what) in [(1, "set back at once"), (31, "out for half a minute")] {
        let rounds = [&["++"][..], &vec!["out b"; shown], &vec!["+."; 61 - shown]].concat();
        assert_eq!(play(&rounds[..61], QUESTIONS_OF_STANDBY), [], "{what}");
        assert_eq!(play(&rounds, QUESTIONS_OF_STANDBY), lost(&[(61, "b")]), "{what}");
    }
    let answers = ["++", "out b", "++", "+.", "+.", "+.", "+.", "+."];
    assert_eq!(play(&answers, QUESTIONS_OF_STANDBY), lost(&[(7, "b")]), "it answered since");
    let long_out = [&["++"][..], &["out b"; 100], &["+."; 5]].concat();
    assert_eq!(play(&long_out, QUESTIONS_OF_STANDBY), lost(&[(105, "b")]));
}

#[test]
fn o20_an_operator_whose_own_node_is_cut_off_takes_out_no_pod() {
    for rounds in [
        &["+++", "+..", "+..", "+..", "+..", "+.."][..],
        // One more answer arrives before the cut.
        &["+++", "+.+", "+..", "+..", "+..", "+.."],
        &["++++++", "+.....", "+.....", "+.....", "+....."],
    ] {
        assert_eq!(play_beside_first(rounds), [], "{rounds:?}");
        assert!(!play(rounds, QUESTIONS).is_empty(), "its node is not known: {rounds:?}");
    }
    let one_left = ["++++", "+..+", "+..+", "+..+"];
    assert_eq!(play_beside_first(&one_left), lost(&[(3, "b")]), "another node answers");
    let own = ["+++", ".++", ".++", ".++"];
    assert_eq!(play_beside_first(&own), lost(&[(3, "a")]), "the pod beside the operator");
}

#[test]
fn o20_where_one_other_node_is_silent_its_pod_is_taken_out_once_until_it_answers() {
    // Its kubelet says ready again, which `?` is here.
    let rounds = [&["++"][..], &["+."; 7], &["+?"; 61], &["+."; 9]].concat();
    assert_eq!(play_beside_first(&rounds), lost(&[(7, "b")]));
    assert_eq!(play(&rounds, QUESTIONS), lost(&[(3, "b"), (71, "b")]), "its node is not known");
    let blink = [&rounds[..], &["forget"], &["+."; 9]].concat();
    assert_eq!(play_beside_first(&blink), lost(&[(7, "b")]));
    let answered = [&rounds[..], &["++"], &["+."; 7]].concat();
    assert_eq!(play_beside_first(&answered), lost(&[(7, "b"), (85, "b")]));
    assert_eq!(play_beside_first(&["+."; 20]), [], "this process never had an answer of it");
}

#[test]
fn o20_a_pod_that_a_third_place_hears_is_left_alone() {
    // Only the way between two nodes is broken.
    for round in ["+x+", "+x++++"] {
        let answers = "+".repeat(round.len());
        let rounds = [&[answers.as_str()][..], &[round; 20]].concat();
        assert_eq!(play_beside_first(&rounds), [], "{round}");
    }
    let then_our_node_is_cut_off = ["+++", "+x+", "+x+", "+x+", "+x.", "+x.", "+x.", "+x."];
    assert_eq!(play_beside_first(&then_our_node_is_cut_off), []);
    let way_of_another = [&["++++"][..], &["c+++"; 20]].concat();
    assert_eq!(play(&way_of_another, QUESTIONS), [], "one of three others does not hear it");
    let then_it_dies = [&way_of_another[..], &[".+++"; 3]].concat();
    assert_eq!(play(&then_it_dies, QUESTIONS), lost(&[(23, "a")]));
}

#[test]
fn o20_a_blink_of_the_policy_lets_no_pod_be_taken_out_again_within_a_minute() {
    let once = ["++", "+.", "+.", "+.", "+?"];
    let blink = ["forget", "+.", "+.", "+."];
    for (what, then, again) in [
        ("silent again", [&blink[..], &["+."; 9]].concat(), None),
        ("a minute later", [&["+?"; 60][..], &blink].concat(), Some(68)),
        ("it answered before the blink", [&["++"][..], &blink].concat(), Some(9)),
        ("it answered after the blink", [&["forget", "++"][..], &["+."; 3]].concat(), Some(9)),
    ] {
        let rounds = [&once[..], &then].concat();
        let expected: Vec<_> = [(3, "b")].into_iter().chain(again.map(|at| (at, "b"))).collect();
        assert_eq!(play(&rounds, QUESTIONS), lost(&expected), "{what}");
    }
    let heard = ["++", "+.", "+.", "forget", "+.", "+."];
    assert_eq!(play(&heard, QUESTIONS), [], "silence before a blink does not count");
}

/// A pod on a node of its own.
fn asked(uid: &str, heard: Heard, look: Option<Look>) -> Asked {
    Asked { uid: uid.to_owned(), node: format!("node-{uid}"), is_here: false, heard, look }
}

#[test]
fn o20_who_looks_is_on_another_node_and_answered_itself() {
    let one_node = |_| "node".to_owned();
    let frozen = ["+++", "++.", "++.", "++.", "++.", "++."];
    assert_eq!(play_on(&frozen, QUESTIONS, one_node), [], "no second vantage point");
    let two_nodes = |pod| format!("node-{}", pod / 2);
    // a and b are on the node that is frozen: c looks at a, and d at b.
    let frozen = ["++++++", "..++++", "..++++", "..++++"];
    assert_eq!(play_on(&frozen, QUESTIONS, two_nodes), lost(&[(3, "a"), (3, "b")]));
    let mut silences = Silences::default();
    let look = Some(Look { by: "b".to_owned(), heard: Heard::Silence });
    for witness in [Heard::Silence, Heard::Unknown] {
        for _ in 0..5 {
            let round = [asked("a", Heard::Silence, look.clone()), asked("b", witness, None)];
            assert!(silences.hear(&round, (2, 0), QUESTIONS, Instant::now()).is_empty());
        }
    }
}

#[test]
fn o20_a_pod_that_cannot_look_does_not_keep_a_dead_one_in_the_service() {
    let uids = ["dead", "b", "c", "d"];
    let ready: Vec<_> = uids.iter().map(|uid| ((*uid).to_owned(), format!("node-{uid}"))).collect();
    for cannot_look in ["b", "c", "d"] {
        let mut silences = Silences::default();
        let answers = |uid: &str| if uid == "dead" { Heard::Silence } else { Heard::Answer };
        let lost_after = (1..=5).find(|_| {
            let suspects = silences.suspects(&ready);
            let look = |suspect: &Suspect| Look {
                by: suspect.by.clone(),
                heard: if suspect.by == cannot_look { Heard::Unknown } else { Heard::Silence },
            };
            let asked: Vec<Asked> = ready
                .iter()
                .map(|(uid, node)| Asked {
                    uid: uid.clone(),
                    node: node.clone(),
                    is_here: false,
                    heard: answers(uid),
                    look: suspects.iter().find(|it| it.uid == *uid).map(look),
                })
                .collect();
            silences.hear(&asked, (4, 0), QUESTIONS, Instant::now()) == ["dead"]
        });
        assert!(lost_after.is_some_and(|round| round <= 4), "{cannot_look}: {lost_after:?}");
    }
}

#[test]
fn o20_pods_that_were_never_lost_keep_no_other_waiting() {
    let mut silences = Silences::default();
    // More than others look at in a round are deaf for the operator, and then a node dies.
    let deaf: Vec<String> = (0..=MAX_LOOKS).map(|number| format!("deaf-{number}")).collect();
    let asked = |uid: &str, heard| Asked {
        uid: uid.to_owned(),
        node: format!("node-{uid}"),
        is_here: false,
        heard,
        look: None,
    };
    for second in 0..12 {
        let mut round: Vec<Asked> = deaf.iter().map(|uid| asked(uid, Heard::Silence)).collect();
        round.push(asked("witness", Heard::Answer));
        let dead = if second < 10 { Heard::Answer } else { Heard::Silence };
        round.push(asked("dead", dead));
        assert!(silences.hear(&round, (20, 0), QUESTIONS, Instant::now()).is_empty());
    }
    assert!(
        silences.may_be_lost_soon("dead", QUESTIONS) && silences.may_any_be_lost_soon(QUESTIONS)
    );
    assert!(!silences.may_be_lost_soon(&deaf[0], QUESTIONS), "it is no reason to ask sooner");
    let all = deaf.iter().map(String::as_str).chain(["witness", "dead"]);
    let ready: Vec<_> = all.map(|uid| (uid.to_owned(), format!("node-{uid}"))).collect();
    let suspects = silences.suspects(&ready);
    assert!(suspects.iter().any(|it| it.uid == "dead"), "{suspects:?}");
}

#[test]
fn pods_that_are_gone_are_forgotten() {
    let (mut silences, now) = (Silences::default(), Instant::now());
    silences.taken_out("a", now);
    let gone = |_: &str| false;
    silences.keep(gone, now + AGAIN_AFTER / 2);
    assert_eq!(silences.pods.len(), 1);
    silences.keep(gone, now + AGAIN_AFTER);
    assert!(silences.pods.is_empty());
}
