//! Nodes whose clocks differ: what a condition says of the time of a loss is by the clock of the operator that wrote it.

use super::*;

fn loss(uid: &str, at: &str) -> Loss {
    Loss { uid: uid.to_owned(), at: at.parse().unwrap() }
}

/// Noted as the watch shows it.
fn note(silences: &mut Silences, loss: &Loss, now: Instant) {
    silences.shown_out(&loss.uid, Some(loss.at), now);
}

fn after(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn o20_a_third_that_is_out_counts_for_two_minutes_by_our_own_clock() {
    // Six pods were ready. Another operator took e and f out; now c and d are silent.
    let silent = |uid| {
        let look = Look { by: "a".to_owned(), heard: Heard::Silence };
        asked(uid, Heard::Silence, Some(look))
    };
    let answers = |uid| asked(uid, Heard::Answer, None);
    let round = [answers("a"), answers("b"), silent("c"), silent("d")];
    for at in ["0001-01-01T00:00:00Z", "2026-01-01T09:50:00Z", "9999-12-30T21:59:30Z"] {
        let (mut silences, begun) = (Silences::default(), Instant::now());
        let out = ["e", "f"].map(|uid| loss(uid, at));
        let mut lost = |seconds: u64| {
            let now = begun + after(seconds);
            out.iter().for_each(|loss| note(&mut silences, loss, now));
            let counts = (round.len(), silences.count(&out, now));
            silences.hear(&round, counts, QUESTIONS, now)
        };
        for seconds in [0, 1, 5, 119] {
            assert_eq!(lost(seconds), [] as [&str; 0], "{seconds} s after it was seen: {at}");
        }
        assert_eq!(lost(120), ["c"], "one of four: {at}");
    }
}

#[test]
fn o20_a_loss_counts_until_this_process_has_seen_it_for_two_minutes() {
    let (mut silences, begun) = (Silences::default(), Instant::now());
    let long_ago = loss("a", "2026-01-01T09:50:00Z");
    let counts = |silences: &Silences, loss: &Loss, seconds| {
        silences.count(std::slice::from_ref(loss), begun + after(seconds)) == 1
    };
    assert!(counts(&silences, &long_ago, 0), "no watch has shown it yet");
    for second in 0..130 {
        note(&mut silences, &long_ago, begun + after(second));
    }
    assert!(counts(&silences, &long_ago, 119) && !counts(&silences, &long_ago, 120));
    assert!(silences.leaves("b", begun + after(119)).past.is_empty());
    assert_eq!(silences.leaves("b", begun + after(120)).past, [long_ago.clone()].into());
    silences.forget(begun + after(130));
    assert!(!counts(&silences, &long_ago, 130), "also after a blink of the policy");
    // It was back for less than a round, and out again.
    let again = loss("a", "2026-01-01T09:40:00Z");
    assert!(counts(&silences, &again, 130));
    note(&mut silences, &again, begun + after(130));
    assert!(counts(&silences, &again, 249) && !counts(&silences, &again, 250));
    // It was ready in between.
    silences.keep(|_| true, begun + after(260));
    note(&mut silences, &again, begun + after(261));
    assert!(counts(&silences, &again, 380) && !counts(&silences, &again, 381));
}
