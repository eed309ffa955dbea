//! The result of several rounds of questions. One round decides nothing: a datagram may be lost, a server may be
//! restarted. Only what is worse in two rounds apart fails a canary, and only one that was well in two of them
//! passes. Pure.

use jiff::{SignedDuration, Timestamp};

use crate::decide::plan::{Held, HeldBy, RolloutState};
use crate::observe::observed::{Check, CheckResult, Comparison, Observed};
use crate::observe::pods;
use crate::shortened::shortened;

/// Between two rounds that decide.
const APART: SignedDuration = SignedDuration::from_secs(4);
/// Checks of one round that are remembered when something was worse.
const MAX_WORSE: usize = 8;
/// Longest warning, in octets.
const MAX_WARNING: usize = 512;

pub(super) struct Tally {
    /// What is remembered for the next one.
    pub(super) state: RolloutState,
    /// Worse in two rounds apart: what, and how.
    pub(super) confirmed: Option<String>,
    /// Well now, and well in a round before.
    pub(super) is_well: bool,
}

/// Adds a round to what is remembered.
pub(super) fn add(before: &RolloutState, checks: &[Check], now: Timestamp) -> Tally {
    let mut state = before.clone();
    let worse: Vec<(&str, &str)> = checks
        .iter()
        .filter_map(|check| match &check.outcome {
            CheckResult::Worse(how) => Some((check.what.as_str(), how.as_str())),
            CheckResult::Good
            | CheckResult::Open
            | CheckResult::Warning(_)
            | CheckResult::ErrorsOnly(_) => None,
        })
        .collect();
    let is_good = checks.iter().any(|check| {
        matches!(
            check.outcome,
            CheckResult::Good | CheckResult::Warning(_) | CheckResult::ErrorsOnly(_)
        )
    });
    let mut confirmed = None;
    if worse.is_empty() {
        if is_good {
            (state.worse, state.worse_since) = (Vec::new(), String::new());
            if state.good_since.is_empty() || is_ahead(&state.good_since, now) {
                state.good_since = now.to_string();
            }
        }
    } else {
        state.good_since.clear();
        let again = worse.iter().find(|(what, _)| before.worse.iter().any(|it| it == what));
        match again {
            Some((what, how)) if is_apart(&before.worse_since, now) => {
                confirmed = Some(format!("{what}: {how}"));
            }
            Some(_) if is_ahead(&before.worse_since, now) => state.worse_since = now.to_string(),
            Some(_) => {}
            None => {
                let names = worse.iter().take(MAX_WORSE).map(|(what, _)| (*what).to_owned());
                (state.worse, state.worse_since) = (names.collect(), now.to_string());
            }
        }
    }
    if !checks.is_empty() {
        state.warning = warning(checks);
        state.has_errors_only =
            checks.iter().any(|check| matches!(check.outcome, CheckResult::ErrorsOnly(_)));
    }
    let is_well = is_good && worse.is_empty() && is_apart(&state.good_since, now);
    Tally { state, confirmed, is_well }
}

/// Everything that people are warned of.
fn warning(checks: &[Check]) -> String {
    let warnings = checks.iter().filter_map(|check| match &check.outcome {
        CheckResult::Warning(what) | CheckResult::ErrorsOnly(what) => {
            Some(format!("{}: {what}", check.what))
        }
        CheckResult::Good | CheckResult::Worse(_) | CheckResult::Open => None,
    });
    shortened(&warnings.collect::<Vec<_>>().join("; "), MAX_WARNING)
}

/// Changed hosts and groups that no round has asked yet, and their total.
pub(super) fn unasked(comparison: Option<&Comparison>) -> (usize, usize) {
    comparison.map_or((0, 0), |comparison| comparison.unasked)
}

/// The warning, and that not everything was asked.
pub(super) fn with_unasked(warning: String, (unasked, all): (usize, usize)) -> String {
    if unasked == 0 {
        return warning;
    }
    let words = format!("{unasked} of {all} changed hosts and stub domains were not asked in time");
    if warning.is_empty() { words } else { format!("{words}; {warning}") }
}

/// The clock of another operator wrote it, which is ahead of this one: it counts from now on.
fn is_ahead(since: &str, now: Timestamp) -> bool {
    since.parse::<Timestamp>().is_ok_and(|since| since > now)
}

fn is_apart(since: &str, now: Timestamp) -> bool {
    since.parse::<Timestamp>().is_ok_and(|since| now.duration_since(since) >= APART)
}

/// Why the operator can judge no pod: none of the ready pods answers it.
pub(super) fn no_pod_answers(observed: &Observed) -> Option<Held> {
    let answers: Vec<_> = pods::ready(observed)
        .filter_map(|pod| observed.pod_reports.get(pods::uid(pod)))
        .map(|answer| answer.reported.as_ref())
        .collect();
    let first = answers.first()?.as_ref().err()?;
    let is_silent = answers.iter().all(Result::is_err);
    let why = || format!("none of {} ready pods says what it runs: {first}", answers.len());
    is_silent.then(|| HeldBy::Network.because(why()))
}
