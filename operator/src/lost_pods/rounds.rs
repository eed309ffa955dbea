//! Which pods are asked in which round, so that a large cluster costs a bounded number of questions (O20). Pure.

/// Pods that are all asked in every round.
const SMALL: usize = 150;
/// Questions in one round.
pub(super) const MOST_ASKED: usize = 200;

/// Is the pod at this place, of this many, asked in the round of this number? Up to 600 pods are asked at least every third
/// round, those that are silent in every one.
pub(super) fn is_asked(place: usize, pods: usize, round: usize) -> bool {
    let turns = turns(pods);
    place % turns == round % turns
}

fn turns(pods: usize) -> usize {
    if pods <= SMALL { 1 } else { pods.div_ceil(MOST_ASKED).max(2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o20_large_clusters_are_asked_in_turns() {
        for (pods, rounds) in [(1, 1), (150, 1), (151, 2), (400, 2), (600, 3), (2_000, 10)] {
            let asked: Vec<usize> = (0..rounds)
                .map(|round| (0..pods).filter(|place| is_asked(*place, pods, round)).count())
                .collect();
            assert_eq!(asked.iter().sum::<usize>(), pods, "each once in {rounds} rounds");
            assert!(asked.iter().all(|count| *count <= MOST_ASKED), "{asked:?}");
        }
    }
}
