//! Which pods are asked in which round, so that a large cluster costs a bounded number of questions (O20). Pure.

/// Pods that are all asked in every round.
const SMALL: usize = 150;
/// Questions in one round of turns, and so in a second.
const MOST_ASKED: usize = 200;
/// Questions in a round of silent pods, with those to the pods that look at them. It comes between two rounds of turns.
const MOST_SILENT: usize = 40;

/// Rounds in a row in which only silent pods are asked: then comes a round of turns.
const MOST_IN_A_ROW: usize = 6;

/// Which pods one round asks, besides those that are silent and those that look at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Those whose turn it is in the round of this number.
    OfTurn(usize),
    /// Only pods that may be lost soon, and those that look at them.
    OfSilent,
}

/// Numbers the rounds.
#[derive(Debug, Default)]
pub(super) struct Order {
    number: usize,
    of_silent: usize,
}

impl Order {
    /// The next round, where a pod may be lost soon or not.
    pub(super) fn next(&mut self, is_soon: bool) -> Round {
        if is_soon && self.of_silent < MOST_IN_A_ROW {
            self.of_silent += 1;
            return Round::OfSilent;
        }
        self.of_silent = 0;
        self.number = self.number.wrapping_add(1);
        Round::OfTurn(self.number)
    }
}

impl Round {
    /// Is the pod at this place, of this many, asked? Up to 600 pods are asked at least every third round of turns.
    pub(super) fn asks(self, place: usize, pods: usize) -> bool {
        let turns = turns(pods);
        match self {
            Round::OfTurn(number) => place % turns == number % turns,
            Round::OfSilent => false,
        }
    }

    /// How many questions it has at most.
    pub(super) fn most(self) -> usize {
        match self {
            Round::OfTurn(_) => MOST_ASKED,
            Round::OfSilent => MOST_SILENT,
        }
    }
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
                .map(Round::OfTurn)
                .map(|round| (0..pods).filter(|place| round.asks(*place, pods)).count())
                .collect();
            assert_eq!(asked.iter().sum::<usize>(), pods, "each once in {rounds} rounds");
            assert!(asked.iter().all(|count| *count <= MOST_ASKED), "{asked:?}");
        }
    }

    #[test]
    fn o20_a_pod_that_may_be_lost_is_asked_soon_and_the_others_before_long() {
        let mut order = Order::default();
        assert_eq!(order.next(false), Round::OfTurn(1));
        assert_eq!(order.next(true), Round::OfSilent);
        assert_eq!(order.next(false), Round::OfTurn(2));
        let rounds: Vec<Round> = (0..14).map(|_| order.next(true)).collect();
        assert!(rounds.chunks(7).all(|seven| seven.iter().any(|it| it.asks(0, 1))), "{rounds:?}");
        assert!(!Round::OfSilent.asks(0, 1));
    }
}
