//! Whether worse answers about Services of others count. Who may edit a namespace can make two pods differ in its names, for
//! example with more objects at one address than are kept, or with edits that reach pods at different times. So what is worse
//! in a few namespaces only warns, unless the configuration itself hides the Service. Pure.

use std::collections::BTreeSet;

use hickory_proto::rr::RecordType;

use super::question::{OfService, Question};
use crate::observe::observed::{Check, CheckResult};

/// Least number of namespaces with worse answers that fail a trial; it is also half of those that can be compared.
const LEAST: usize = 2;

/// The namespaces of one sort of questions.
#[derive(Default)]
struct Namespaces<'a> {
    compared: BTreeSet<&'a str>,
    worse: BTreeSet<&'a str>,
}

impl Namespaces<'_> {
    fn agree(&self) -> bool {
        self.worse.len() >= LEAST && self.worse.len() * 2 >= self.compared.len()
    }
}

/// The checks, with those that only a few namespaces show replaced by one warning.
pub(super) fn agreed(checks: Vec<(&Question, Check)>) -> Vec<Check> {
    let (mut addresses, mut pointers) = (Namespaces::default(), Namespaces::default());
    for (question, check) in &checks {
        let Some(of) = of_others(question) else { continue };
        let sort = if is_pointer(question) { &mut pointers } else { &mut addresses };
        let is_worse = matches!(check.outcome, CheckResult::Worse(_));
        if is_worse || check.outcome == CheckResult::Good {
            sort.compared.insert(&of.namespace);
        }
        if is_worse {
            sort.worse.insert(&of.namespace);
        }
    }
    let counts = |question: &Question| {
        let sort = if is_pointer(question) { &pointers } else { &addresses };
        of_others(question).is_none() || sort.agree()
    };
    let mut warning = None;
    let mut all = Vec::with_capacity(checks.len());
    for (question, mut check) in checks {
        if let CheckResult::Worse(how) = &check.outcome
            && !counts(question)
        {
            let sort = if is_pointer(question) { &pointers } else { &addresses };
            let words = format!(
                "{how}; it is so in {} of {} namespaces that were compared, whose owners can cause it, so it fails no trial",
                sort.worse.len(),
                sort.compared.len()
            );
            let what = check.what.clone();
            warning.get_or_insert(Check { what, outcome: CheckResult::Warning(words) });
            check.outcome = CheckResult::Open;
        }
        all.push(check);
    }
    all.extend(warning);
    all
}

/// The Service of others whose answer its owner can change.
fn of_others(question: &Question) -> Option<&OfService> {
    question.of.as_ref().filter(|of| !of.is_hidden)
}

fn is_pointer(question: &Question) -> bool {
    question.asked.first().is_some_and(|(_, kind)| *kind == RecordType::PTR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask_pods::canary_analysis::question::{Expects, question};

    /// Names of Services of these namespaces, and whether each is worse, of one sort.
    fn outcome(kind: RecordType, of: &[(&str, bool)], is_hidden: bool) -> Vec<CheckResult> {
        let asked = |(namespace, _): &(&str, bool)| {
            let name = format!("a.{namespace}.svc.cluster.local");
            let (namespace, name_of) = ((*namespace).to_owned(), "a".to_owned());
            let of = Some(OfService { namespace, name: name_of, is_hidden });
            Question { of, ..question(&name, kind, Expects::Records).unwrap() }
        };
        let questions: Vec<Question> = of.iter().map(asked).collect();
        let worse = || CheckResult::Worse("NXDOMAIN".to_owned());
        let check = |(question, (_, is_worse)): (&Question, &(&str, bool))| Check {
            what: question.what.clone(),
            outcome: if *is_worse { worse() } else { CheckResult::Good },
        };
        let checks =
            questions.iter().zip(of).map(|(question, it)| (question, check((question, it))));
        agreed(checks.collect()).into_iter().map(|check| check.outcome).collect()
    }

    fn fails(kind: RecordType, of: &[(&str, bool)]) -> bool {
        let outcome = outcome(kind, of, false);
        let is_warning = |it: &CheckResult| matches!(it, CheckResult::Warning(_));
        let is_worse = |it: &CheckResult| matches!(it, CheckResult::Worse(_));
        let fails = outcome.iter().any(is_worse);
        let has_worse = of.iter().any(|(_, is_worse)| *is_worse);
        assert_eq!(outcome.iter().any(is_warning), has_worse && !fails, "{outcome:?}");
        fails
    }

    #[test]
    fn o17_who_edits_one_namespace_fails_no_trial() {
        for kind in [RecordType::A, RecordType::PTR] {
            assert!(!fails(kind, &[("a", true), ("a", true), ("b", false)]));
            assert!(!fails(kind, &[("a", true), ("a", true)]), "no other namespace is known");
            assert!(!fails(
                kind,
                &[("a", true), ("b", true), ("c", false), ("d", false), ("e", false)]
            ));
            assert!(fails(kind, &[("a", true), ("b", true), ("c", false), ("d", false)]));
            assert!(fails(kind, &[("a", true), ("a", false), ("b", true)]));
            assert!(!fails(kind, &[("a", false), ("b", false)]));
        }
    }

    #[test]
    fn o17_what_the_configuration_hides_by_mistake_counts_in_one_namespace() {
        let outcome = outcome(RecordType::A, &[("a", true), ("b", false)], true);
        assert_eq!(outcome, [CheckResult::Worse("NXDOMAIN".to_owned()), CheckResult::Good]);
    }
}
