//! In which order one lookup asks the servers of its group (FW22). Pure: chance and turns come as arguments.

use crds::config::Policy;

use super::{Candidate, Standing};

/// One in this many lookups of the policy `Fastest` has a random order, to explore (FW22: 5 %).
const EXPLORE: u64 = 20;

/// The order for one lookup (FW22). `turn` counts the group's lookups, `random` is drawn for each.
pub(in crate::forward) fn order(
    mut order: Vec<Candidate>,
    policy: Policy,
    turn: usize,
    random: u64,
) -> Vec<Candidate> {
    match policy {
        Policy::Sequential => {}
        Policy::RoundRobin => {
            let first = turn % order.len().max(1);
            order.rotate_left(first);
        }
        Policy::Random => shuffle(&mut order, random),
        Policy::Fastest => {
            shuffle(&mut order, random / EXPLORE);
            if !random.is_multiple_of(EXPLORE) {
                // Servers without a measurement come first, so that they get one.
                order.sort_by_key(|candidate| candidate.latency);
            }
        }
    }
    order.sort_by_key(|candidate| match (policy, candidate.standing) {
        // The others may know other names, and say of those of the first that they do not exist. Who owns a name can make a
        // server answer it with errors, or not at all, and must not move other names by that. A spare has hardly any query to
        // reply to, so it is often silent for 20 names, and its turn must not put it first.
        (Policy::Sequential, Standing::InTurn | Standing::Avoided) => Standing::Healthy,
        (Policy::Sequential | Policy::RoundRobin | Policy::Random | Policy::Fastest, standing) => {
            standing
        }
    });
    order
}

/// For a client that wants signatures: in each standing, those come first that may give them (FW25). What `Sequential` has in
/// front stays there, because others may know other names.
pub(in crate::forward) fn signing_first(order: &mut [Candidate], policy: Policy) {
    if policy != Policy::Sequential {
        order
            .sort_by_key(|candidate| (candidate.standing, !candidate.has_opt(candidate.transport)));
    }
}

/// Fisher-Yates; 15! is below 2^41, so the bits that are left give every permutation nearly equally.
fn shuffle(order: &mut [Candidate], mut random: u64) {
    for last in (1..order.len()).rev() {
        let choices = last as u64 + 1;
        order.swap(last, (random % choices) as usize);
        random /= choices;
    }
}
