//! Which faults a soak makes, and when: a pure function of the seed and the number of the cycle.
//!
//! A cycle begins and ends quietly. Between them are one or two faults, each over some rounds. The first cycles have each
//! kind of fault once, in an order that the seed chooses.

use crate::mutate::Random;

/// Rounds of a cycle in which nothing is wrong, at its begin and at its end.
pub const QUIET: usize = 2;
/// The pods of a soak. Pod 0 is never killed: its memory is compared over the whole run.
pub const PODS: usize = 2;
/// The pod that is killed.
pub const MORTAL: usize = 1;

/// What a run has as its control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A scripted API server, which can do what no real one does when it is asked.
    Scripted,
    /// etcd, kube-apiserver and two operators.
    Real,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The API server sends some hundred octets a second.
    ServerSlow,
    /// It answers 500.
    ServerFails,
    /// It answers 503.
    ServerUnavailable,
    /// It answers 429 with `Retry-After`.
    ServerBusy,
    /// Connections to it are reset.
    ServerStopped,
    /// Connections to it are accepted, and nothing comes.
    ServerSilent,
    /// Watches are reset once.
    WatchesReset,
    /// Watches end in order.
    WatchesEnded,
    /// Watches are open, and nothing comes.
    WatchesHung,
    /// A chunk of a watch is cut in the middle.
    WatchesCutShort,
    /// Watches say 410 in their stream.
    WatchesExpired,
    /// Every object comes once more.
    EventsTwice,
    /// Older versions of objects come after newer ones, and unknown objects are deleted.
    EventsLate,
    /// etcd is compacted, and watches end.
    Compacted,
    /// etcd is restored from a backup: versions go back.
    Restored,
    /// The watch cache of the API server lags behind.
    Lagging,
    UpstreamSilent,
    UpstreamSlow,
    /// Replies with another id, another question and forged addresses come before the right one.
    UpstreamLying,
    UpstreamFails,
    /// Over UDP each reply has TC.
    UpstreamTruncates,
    /// Datagrams are lost, in both directions.
    PacketsLost,
    /// SIGSTOP, then SIGCONT.
    ProcessStopped,
    /// SIGKILL, then another start with its snapshot.
    ProcessKilled,
    /// The same while the API server is away.
    KilledWithoutServer,
    /// The disk of the snapshots is full.
    DiskFull,
    /// kube-apiserver ends, and starts again.
    ServerRestarted,
    /// SIGKILL to one of two operators, then another start.
    OperatorKilled,
    /// SIGSTOP to one of two operators, then SIGCONT.
    OperatorStopped,
    /// A process is killed and starts again with other monotonic clocks.
    ClocksShifted,
}

use Kind::*;

impl Kind {
    pub const ALL: [Kind; 30] = [
        ServerSlow,
        ServerFails,
        ServerUnavailable,
        ServerBusy,
        ServerStopped,
        ServerSilent,
        WatchesReset,
        WatchesEnded,
        WatchesHung,
        WatchesCutShort,
        WatchesExpired,
        EventsTwice,
        EventsLate,
        Compacted,
        Restored,
        Lagging,
        UpstreamSilent,
        UpstreamSlow,
        UpstreamLying,
        UpstreamFails,
        UpstreamTruncates,
        PacketsLost,
        ProcessStopped,
        ProcessKilled,
        KilledWithoutServer,
        DiskFull,
        ServerRestarted,
        OperatorKilled,
        OperatorStopped,
        ClocksShifted,
    ];

    /// Those that a part has.
    pub fn of(part: Part) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| kind.is_in(part)).collect()
    }

    fn is_in(self, part: Part) -> bool {
        match self {
            EventsTwice | EventsLate | Compacted | Lagging => part == Part::Scripted,
            ServerRestarted | OperatorKilled | OperatorStopped | ClocksShifted => {
                part == Part::Real
            }
            ServerSlow | ServerFails | ServerUnavailable | ServerBusy | ServerStopped
            | ServerSilent | WatchesReset | WatchesEnded | WatchesHung | WatchesCutShort
            | WatchesExpired | Restored | UpstreamSilent | UpstreamSlow | UpstreamLying
            | UpstreamFails | UpstreamTruncates | PacketsLost | ProcessStopped | ProcessKilled
            | KilledWithoutServer | DiskFull => true,
        }
    }

    /// As the table of a run names it.
    pub fn name(self) -> &'static str {
        match self {
            ServerSlow => "API server slow",
            ServerFails => "API server: 500",
            ServerUnavailable => "API server: 503",
            ServerBusy => "API server: 429",
            ServerStopped => "API server stopped",
            ServerSilent => "API server silent",
            WatchesReset => "watches reset",
            WatchesEnded => "watches ended",
            WatchesHung => "watches hung",
            WatchesCutShort => "watches cut in a chunk",
            WatchesExpired => "watches expired (410)",
            EventsTwice => "events twice",
            EventsLate => "old events late",
            Compacted => "etcd compacted",
            Restored => "etcd restored, older",
            Lagging => "watch cache lags",
            UpstreamSilent => "upstream silent",
            UpstreamSlow => "upstream slow",
            UpstreamLying => "upstream with forged replies",
            UpstreamFails => "upstream: SERVFAIL",
            UpstreamTruncates => "upstream truncates",
            PacketsLost => "packets lost",
            ProcessStopped => "process stopped",
            ProcessKilled => "process killed",
            KilledWithoutServer => "process killed, API server away",
            DiskFull => "disk full",
            ServerRestarted => "kube-apiserver stopped and started",
            OperatorKilled => "operator killed",
            OperatorStopped => "operator stopped",
            ClocksShifted => "process killed, other clocks",
        }
    }

    /// Whether events may not arrive while it lasts.
    pub fn delays_events(self) -> bool {
        match self {
            ServerSlow | ServerFails | ServerUnavailable | ServerBusy | ServerStopped
            | ServerSilent | WatchesHung | Lagging | ProcessStopped | ProcessKilled
            | KilledWithoutServer | ServerRestarted | ClocksShifted => true,
            WatchesReset | WatchesEnded | WatchesCutShort | WatchesExpired | EventsTwice
            | EventsLate | Compacted | Restored | UpstreamSilent | UpstreamSlow | UpstreamLying
            | UpstreamFails | UpstreamTruncates | PacketsLost | DiskFull | OperatorKilled
            | OperatorStopped => false,
        }
    }

    /// Whether it is of the API server as a whole, so that every pod has it.
    pub fn is_of_all(self) -> bool {
        matches!(
            self,
            WatchesEnded
                | EventsTwice
                | EventsLate
                | Compacted
                | Restored
                | Lagging
                | PacketsLost
                | ServerRestarted
        )
    }

    /// Whether it happens to upstreams; [`Fault::on`] then names those.
    pub fn is_of_upstreams(self) -> bool {
        matches!(
            self,
            UpstreamSilent | UpstreamSlow | UpstreamLying | UpstreamFails | UpstreamTruncates
        )
    }

    /// Whether a process ends, and another one starts.
    pub fn ends_a_process(self) -> bool {
        matches!(self, ProcessKilled | KilledWithoutServer | ClocksShifted)
    }

    /// Whether an operator ends or stops; [`Fault::on`] then names which.
    pub fn is_of_operators(self) -> bool {
        matches!(self, OperatorKilled | OperatorStopped)
    }

    /// Whether the operator beside a data plane may be as blind as that: both have one way to the API server.
    pub fn blinds_operators(self) -> bool {
        self.delays_events() && !matches!(self, ProcessStopped | ProcessKilled | ClocksShifted)
    }

    fn is_of_a_process(self) -> bool {
        self == ProcessStopped || self.ends_a_process()
    }

    /// What a version means is unsure meanwhile: nothing else happens.
    fn is_alone(self) -> bool {
        matches!(self, Restored | Lagging | ServerRestarted)
    }

    /// Of two faults at once, no two may be of one family: the second would hide the first.
    fn family(self) -> usize {
        match self {
            _ if self.is_of_upstreams() => 0,
            _ if self.is_of_a_process() => 1,
            PacketsLost => 2,
            DiskFull => 3,
            _ if self.is_of_operators() => 4,
            _ => 5,
        }
    }
}

/// A fault that lasts from one round of its cycle to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    /// The first round.
    pub from: usize,
    /// The round in which it is over.
    pub to: usize,
    /// Which pods, or which upstreams: bit 0 is the first.
    pub on: u8,
}

impl Fault {
    /// Whether it happens to this pod, or to this upstream.
    pub fn is_on(&self, number: usize) -> bool {
        self.on >> number & 1 == 1
    }
}

/// Some rounds with their faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    pub rounds: usize,
    pub faults: Vec<Fault>,
}

/// Cycle `number` of the run of this part with this seed. No fault lasts longer than `longest` rounds.
pub fn cycle(part: Part, seed: u64, number: usize, longest: usize) -> Cycle {
    let mut random = of_cycle(seed, number);
    let all = Kind::of(part);
    let first = match number.checked_sub(1).filter(|place| *place < all.len()) {
        Some(place) => in_order_of(part, seed)[place],
        None => *random.choose(&all),
    };
    // The first cycle of all is quiet, and one in eight later.
    let is_quiet = number == 0 || (number > all.len() && random.below(8) == 0);
    let mut kinds = if is_quiet { Vec::new() } else { vec![first] };
    let second = *random.choose(&all);
    let may_pair = ![first, second].iter().any(|kind| kind.is_alone());
    let may_pair = may_pair && first.family() != second.family();
    if !is_quiet && number > all.len() && may_pair && random.below(2) == 0 {
        kinds.push(second);
    }
    let faults: Vec<Fault> =
        kinds.into_iter().map(|kind| fault(kind, longest, &mut random)).collect();
    let end = faults.iter().map(|fault| fault.to).max().unwrap_or(QUIET + 1);
    Cycle { rounds: end + QUIET, faults }
}

/// The random numbers of one cycle.
pub fn of_cycle(seed: u64, number: usize) -> Random {
    let mut mixed = Random::new(seed);
    Random::new(mixed.number() ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn in_order_of(part: Part, seed: u64) -> Vec<Kind> {
    let (mut kinds, mut random) = (Kind::of(part), Random::new(seed));
    for place in (1..kinds.len()).rev() {
        kinds.swap(place, random.below(place + 1));
    }
    match part {
        // There is nothing to restore before something has changed often.
        Part::Scripted => {
            if let Some(place) = kinds.iter().position(|kind| *kind == Restored) {
                let last = kinds.len() - 1;
                kinds.swap(place, last);
            }
        }
        // What only this part has comes first, for short runs.
        Part::Real => {
            let is_own = |kind: &Kind| !kind.is_in(Part::Scripted);
            kinds.sort_by_key(|kind| (!is_own(kind), *kind != Restored));
        }
    }
    kinds
}

fn fault(kind: Kind, longest: usize, random: &mut Random) -> Fault {
    let from = QUIET + random.below(2);
    let on = match kind {
        _ if kind.ends_a_process() => 1 << MORTAL,
        // One of them always answers, and one operator always acts.
        _ if kind == ProcessStopped || kind.is_of_operators() => 1 << random.below(PODS),
        _ if kind.is_of_all() => (1 << PODS) - 1,
        _ => 1 + random.below((1 << PODS) - 1) as u8,
    };
    Fault { kind, from, to: from + 1 + random.below(longest), on }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const PARTS: [Part; 2] = [Part::Scripted, Part::Real];

    #[test]
    fn l11_the_faults_of_a_soak_are_a_function_of_its_seed() {
        for part in PARTS {
            let of =
                |seed| (0..200).map(|number| cycle(part, seed, number, 12)).collect::<Vec<_>>();
            assert_eq!(of(7), of(7));
            assert_ne!(of(7), of(8));
        }
    }

    #[test]
    fn l11_each_kind_of_fault_comes_early_and_every_cycle_ends_quietly() {
        for (seed, part) in (0..50).flat_map(|seed| PARTS.map(|part| (seed, part))) {
            let cycles: Vec<Cycle> = (0..300).map(|number| cycle(part, seed, number, 12)).collect();
            let all: BTreeSet<Kind> = Kind::of(part).into_iter().collect();
            let first = cycles.iter().take(all.len() + 1).flat_map(|cycle| &cycle.faults);
            let kinds: BTreeSet<Kind> = first.map(|fault| fault.kind).collect();
            assert_eq!(kinds, all, "seed {seed}");
            assert!(cycles.iter().any(|cycle| cycle.faults.len() == 2));
            for cycle in &cycles {
                let ends = cycle.faults.iter().map(|fault| fault.to).max().unwrap_or(0);
                assert!(ends + QUIET <= cycle.rounds);
                assert!(cycle.faults.iter().all(|fault| fault.from >= QUIET && fault.on != 0));
            }
        }
    }

    #[test]
    fn l11_one_process_of_a_soak_always_lives() {
        for (number, part) in (0..3000).flat_map(|number| PARTS.map(|part| (number, part))) {
            let cycle = cycle(part, 1, number, 12);
            for of_processes in [Kind::is_of_a_process, Kind::is_of_operators] {
                let hit = cycle.faults.iter().filter(|fault| of_processes(fault.kind));
                let hit: u8 = hit.map(|fault| fault.on).sum();
                assert!(hit != (1 << PODS) - 1, "{cycle:?}");
            }
            let is_alone = cycle.faults.iter().any(|fault| fault.kind.is_alone());
            assert!(!is_alone || cycle.faults.len() == 1, "{cycle:?}");
        }
    }
}
