//! A soak: real data planes behind a scripted API server, or behind a real control plane with operators, and scripted
//! upstreams; changes and faults from a seed, and questions whose replies are held against the objects. docs/soak.md says
//! what must hold.
//!
//! Nothing is timed but the wait for events. A mark that is written behind changes shows that a pod has seen them; until it
//! shows, a reply may be any that the versions since the last mark allow.

pub mod api;
pub mod churn;
pub mod health;
pub mod history;
pub mod judge;
pub mod matters;
pub mod objects;
pub mod pod;
pub mod questions;
pub mod replies;
pub mod report;
pub mod schedule;
pub mod stage;
pub mod upstreams;
#[cfg(test)]
mod streams;

use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use dataplane_core::Object;

use crate::mutate::Random;
use crate::oracle::decode::decode;
use crate::oracle::expected::{Data, Expected, Question, rtype};
use api::Looked;
use health::{counters, gone_back, growth, sample, unsettled, windows};
use judge::{Judge, Verdict};
use replies::{Allowed, Reply};
use report::Report;
use schedule::{PODS, Part, cycle, of_cycle};
use stage::Stage;

/// Most changes of a round.
const CHANGES: usize = 6;
/// One in this many questions is for upstreams; one in this many while they are slow.
const FOREIGN: usize = 6;
const FOREIGN_WHILE_SLOW: usize = 150;
/// Between two looks for marks.
const POLL: Duration = Duration::from_millis(20);
/// Between two tries of a question that upstreams should have answered; tries.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_TIMES: usize = 60;

/// Prints lines that leave the namespace of the test at once.
pub fn say(text: &str) {
    for line in text.lines() {
        // A reader that has gone is no reason to stop.
        let _ = writeln!(std::io::stdout(), "{} {line}", crate::netns::MEASURED);
    }
}

/// What a run does, and when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub part: Part,
    pub seed: u64,
    /// It ends after this many cycles,
    pub cycles: usize,
    /// or with the cycle in which this time is over.
    pub time: Duration,
    /// Rounds that a fault lasts at most.
    pub longest: usize,
    /// Questions to each pod, before and after it has seen everything, in each round.
    pub questions: usize,
    /// A round takes at least this long.
    pub round: Duration,
    /// It ends after this many finds: the rest would be of the same kind.
    pub most_finds: usize,
    /// How long an event may take in a quiet cycle,
    pub event_within: Duration,
    /// and after a fault.
    pub recovery_within: Duration,
    /// Time between two lines that say how far it is.
    pub progress: Option<Duration>,
}

/// A run.
pub struct Soak {
    plan: Plan,
    stage: Stage,
    report: Report,
    started: Instant,
}

impl Soak {
    /// Starts everything, inside a network namespace of the test. Nothing where programs of the control plane have not
    /// been built; this is printed.
    pub async fn start(plan: Plan) -> Option<Soak> {
        let stage = Stage::start(plan.part).await?;
        let report = Report::new(plan.part, plan.seed, plan.most_finds);
        Some(Soak { plan, stage, report, started: Instant::now() })
    }

    /// Expects an object that the API server never has: a run must find it.
    pub fn believe(&mut self, object: Object) {
        self.stage.history.put(object);
    }

    /// Lets a process end, and expects it to answer: a run must find it.
    pub fn crash(&mut self) {
        self.stage.pods[0].crash();
    }

    /// Runs the plan.
    pub fn run(mut self) -> Report {
        let (mut said, mut finds_said) = (Instant::now(), 0);
        for number in 0..self.plan.cycles {
            if self.started.elapsed() >= self.plan.time || self.report.is_full() {
                break;
            }
            self.cycle(number);
            if self.plan.progress.is_some_and(|every| said.elapsed() >= every) {
                self.say_progress(number, finds_said);
                (said, finds_said) = (Instant::now(), self.report.finds.len());
            }
        }
        self.report.took = self.started.elapsed();
        if let Some((first, last)) = windows(&self.report.samples) {
            growth(&first, &last).iter().for_each(|grown| self.report.find(grown));
            unsettled(&self.stage.pods[0]).iter().for_each(|left| self.report.find(left));
        }
        self.report
    }

    fn say_progress(&self, cycle: usize, said: usize) {
        let (minutes, replies) = (self.started.elapsed().as_secs() / 60, self.report.replies());
        let finds = self.report.finds.len();
        say(&format!("soak: {minutes} min, cycle {cycle}, {replies} replies, {finds} finds"));
        self.report.finds.iter().skip(said).for_each(|find| say(find));
    }

    /// Rounds with faults, begun and ended quietly.
    fn cycle(&mut self, number: usize) {
        let cycle = cycle(self.plan.part, self.plan.seed, number, self.plan.longest);
        let mut random = of_cycle(self.plan.seed ^ 1, number);
        let mut had_faults = false;
        for round in 0..cycle.rounds {
            let began = Instant::now();
            self.report.at(number, round);
            for fault in cycle.faults.iter().filter(|fault| fault.to == round) {
                self.report.event(&format!("ends: {}", fault.kind.name()));
                self.stage.end(*fault);
            }
            for fault in cycle.faults.iter().filter(|fault| fault.from == round) {
                had_faults = true;
                self.report.event(&format!("begins: {} on {:#b}", fault.kind.name(), fault.on));
                let made = self.stage.begin(*fault, &mut random);
                self.report.starts += u64::from(fault.kind.ends_a_process());
                let count = if made { &mut self.report.faults } else { &mut self.report.left_out };
                *count.entry(fault.kind).or_default() += 1;
            }
            self.round(had_faults, &mut random);
            if self.report.is_full() {
                return;
            }
            std::thread::sleep(self.plan.round.saturating_sub(began.elapsed()));
        }
        self.look_at_processes();
        self.stage.tidy();
        self.report.cycles += 1;
    }

    /// Changes, questions, marks, questions.
    fn round(&mut self, had_faults: bool, random: &mut Random) {
        self.report.rounds += 1;
        self.look_at_control_plane();
        for _ in 0..1 + random.below(CHANGES) {
            // Drawn also where nothing may change, so that what follows is the same.
            let mut of_change = Random::new(random.number());
            if self.stage.may_change()
                && let Some(said) = self.stage.change(&mut of_change)
            {
                self.report.changes += 1;
                self.report.event(&said);
            }
        }
        let running = |soak: &Soak, pod: usize| soak.stage.pods[pod].is_running();
        for pod in 0..PODS {
            let mut of_pod = Random::new(random.number());
            if running(self, pod) {
                self.stage.pods[pod].look_whether_ready();
                self.ask_many(pod, &mut of_pod);
            }
            if self.report.is_full() {
                return;
            }
        }
        if (0..PODS).any(|pod| !self.stage.is_delayed(pod)) {
            self.stage.show_marks();
        }
        for pod in 0..PODS {
            let mut of_pod = Random::new(random.number());
            if !self.stage.is_delayed(pod) && self.wait_for_marks(pod, had_faults, &mut of_pod) {
                self.ask_many(pod, &mut of_pod);
            }
        }
    }

    fn look_at_control_plane(&mut self) {
        let Looked { refused, operator_starts, operator_mib, finds } = self.stage.look();
        (self.report.refused, self.report.operator_starts) = (refused, operator_starts);
        self.report.operator_mib = operator_mib;
        finds.iter().for_each(|find| self.report.find(find));
    }

    fn ask_many(&mut self, pod: usize, random: &mut Random) {
        let slow = self.stage.is_slow_for_others();
        let rare = if slow { FOREIGN_WHILE_SLOW } else { FOREIGN };
        for _ in 0..self.plan.questions {
            let question = match random.below(rare) {
                0 => questions::foreign(random),
                _ => questions::own(random),
            };
            self.check(pod, &question, random.number() as u16);
            if self.report.is_full() {
                return;
            }
        }
    }

    /// Asks one question, and holds the reply against the objects.
    fn check(&mut self, number: usize, question: &Question, id: u16) {
        let Soak { stage, report, .. } = self;
        let pod = &stage.pods[number];
        let mut judge = Judge::new(&stage.history, pod.seen, pod.name());
        let is_of_others = judge.is_of_others(question);
        let allowed = Allowed {
            not_ready: !pod.is_ready,
            snapshot: !pod.is_live,
            no_upstream: stage.has_no_upstream(),
        };
        let mut again = 0;
        loop {
            let Some(octets) = pod.ask(question, id, is_of_others) else {
                return report.find(&format!("{} does not answer {question:?}", pod.name()));
            };
            let decoded = match decode(&octets) {
                Ok(decoded) => decoded,
                Err(error) => return report.find(&format!("{question:?}: {error:#}")),
            };
            let reply = Reply { question, id, decoded: &decoded, pod_name: pod.name(), allowed };
            let differs =
                &mut |settings: &_, expected: &Expected| reply.differs(settings, expected);
            match judge.judge(question, differs) {
                Verdict::Right => return report.count(reply.outcome(is_of_others)),
                Verdict::Wrong(_) | Verdict::Undecided if pod.is_unknown => {
                    return report.count("not judged: an old snapshot");
                }
                Verdict::Undecided => return report.count("not judged: too many versions"),
                // A lookup may fail once on a busy machine, and a failure is remembered for some seconds.
                Verdict::Wrong(_) if decoded.rcode == 2 && is_of_others && again < AGAIN_TIMES => {
                    report.count("names of others: asked again after SERVFAIL");
                    again += 1;
                    std::thread::sleep(AGAIN);
                }
                Verdict::Wrong(found) => {
                    let log = pod.plane().map(|plane| plane.process.log_tail()).unwrap_or_default();
                    return report.find(&format!(
                        "{} answers {question:?}\n  {}\nits reply: {decoded:?}\nits state: seen {} of \
                         {}, ready {}, live {}\n{log}",
                        pod.name(),
                        found.join("\n  "),
                        pod.seen,
                        stage.history.number(),
                        pod.is_ready,
                        pod.is_live,
                    ));
                }
            }
        }
    }

    /// Waits until a pod has seen everything; whether it has. Questions are asked meanwhile.
    fn wait_for_marks(&mut self, pod: usize, had_faults: bool, random: &mut Random) -> bool {
        let (began, change) = (Instant::now(), self.stage.history.number());
        let within = match had_faults {
            true => self.plan.recovery_within,
            false => self.plan.event_within,
        };
        let (mark, config) = self.stage.marks();
        let mut proofs = objects::proofs(mark, config);
        loop {
            proofs.retain(|(name, address)| !self.shows(pod, name, *address));
            if proofs.is_empty() {
                break;
            }
            if began.elapsed() > within {
                let of = &self.stage.pods[pod];
                let log = of.plane().map(|plane| plane.process.log_tail()).unwrap_or_default();
                let text = format!("{} has not seen {proofs:?} after {within:?}\n{log}", of.name());
                self.report.find(&text);
                return false;
            }
            self.check(pod, &questions::own(random), random.number() as u16);
            std::thread::sleep(POLL);
        }
        self.stage.pods[pod].has_seen(change);
        self.report.marks += 1;
        let longest = &mut self.report.longest[usize::from(had_faults)];
        *longest = (*longest).max(began.elapsed());
        true
    }

    /// Whether a pod answers with this address, or with no data.
    fn shows(&self, pod: usize, name: &str, address: Option<IpAddr>) -> bool {
        let reply = self.stage.pods[pod].ask(&questions::plain(name, rtype::A), 7, false);
        let Some(Ok(reply)) = reply.as_deref().map(decode) else { return false };
        let data: Vec<&Data> = reply.answer.iter().map(|record| &record.data).collect();
        let wanted: Vec<Data> = address.into_iter().map(Data::Address).collect();
        reply.rcode == 0 && data == wanted.iter().collect::<Vec<_>>()
    }

    /// Memory, descriptors and counters, at the end of a cycle.
    fn look_at_processes(&mut self) {
        let Soak { stage, report, .. } = self;
        stage.inspect().iter().for_each(|find| report.find(find));
        report.samples.extend(sample(&stage.pods[0]));
        for pod in &mut stage.pods {
            let Some(plane) = pod.plane() else { continue };
            let after = counters(&plane.get("/metrics").1);
            if after.is_empty() || after.get("clusterdns_panics_total") != Some(&0.0) {
                let panics = after.get("clusterdns_panics_total");
                report.find(&format!("{}: {panics:?} panics", pod.name()));
            }
            for back in gone_back(&pod.counters, &after) {
                report.find(&format!("{}: {back}", pod.name()));
            }
            pod.counters = after;
        }
    }
}
