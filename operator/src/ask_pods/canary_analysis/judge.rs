//! Judges the canary by two replies to one question: would clients lose something that they have? Pure.

use crds::rcode;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RData, RecordType};
use hickory_proto::serialize::binary::BinDecodable;

use super::question::{Expects, Question};
use super::reply::{NoReply, Reply, is_prohibited};
use super::upstream_health::{UpstreamHealth, health, health_of_stable};
use crate::decide::plan::{Held, HeldBy};
use crate::observe::observed::{Check, CheckResult};
use crate::shortened::shortened;

/// Octets of a record that a message shows: a TXT may have 4 KiB.
const MAX_SHOWN: usize = 100;

/// A question and what both pods replied to each part of it.
#[derive(Debug)]
pub struct Asked {
    pub question: Question,
    /// One reply for each question of `Question::asked`, in order.
    pub canary: Vec<Reply>,
    /// As `canary`, from a pod that runs the stable configuration.
    pub stable: Vec<Reply>,
}

/// The result of one question for the canary.
pub(super) fn check(asked: &Asked) -> Check {
    let Asked { question, canary, stable } = asked;
    let outcome = match &question.expects {
        Expects::Server { group, is_new, has_other_servers } => {
            by_health(group, *is_new, health(canary), health_of_stable(*has_other_servers, stable))
        }
        Expects::Records | Expects::Hidden | Expects::Has(_) | Expects::Written(_) => {
            let kind = question.asked.first().map_or(RecordType::A, |(_, kind)| *kind);
            let read = |heard: &[Reply]| answer(&question.expects, kind, heard);
            by_answer(&question.expects, read(canary), read(stable))
        }
    };
    Check { what: question.what.clone(), outcome }
}

/// A worse answer about a Service that others own counts only if nothing about the Service has changed since before
/// the round. Two pods get a change at different moments, so its owner could otherwise fail every rollout by changing
/// it.
pub(super) fn settled(check: Check, before: &str, after: Option<&str>) -> Check {
    let outcome = match check.outcome {
        CheckResult::Worse(_) if after != Some(before) => CheckResult::Open,
        outcome => outcome,
    };
    Check { outcome, ..check }
}

/// Is this the name of a Service that others own, and did the canary answer it worse?
pub(super) fn is_doubtful(asked: &Asked) -> bool {
    asked.question.of.is_some() && matches!(check(asked).outcome, CheckResult::Worse(_))
}

/// How a pod answers from memory.
enum Answer {
    Right,
    Wrong(String),
    /// A name that the spec hides on purpose is not there: how the pod says so.
    Hidden(String),
    /// Nothing is known: it could not be sent, or the client list refuses the operator.
    Unknown,
}

fn answer(expects: &Expects, kind: RecordType, heard: &[Reply]) -> Answer {
    let reply = match heard.first() {
        None | Some(Err(NoReply::Unsent(_))) => return Answer::Unknown,
        Some(Err(unheard)) => return Answer::Wrong(unheard.why().to_owned()),
        Some(Ok(reply)) => reply,
    };
    if is_prohibited(reply) {
        return Answer::Unknown;
    }
    let absent = |how: String| match expects {
        Expects::Hidden => Answer::Hidden(how),
        Expects::Records | Expects::Has(_) | Expects::Written(_) | Expects::Server { .. } => {
            Answer::Wrong(how)
        }
    };
    match reply.metadata.response_code {
        ResponseCode::NoError => {}
        ResponseCode::NXDomain => return absent(rcode::text(ResponseCode::NXDomain.into())),
        other => return Answer::Wrong(rcode::text(other.into())),
    }
    match expects {
        Expects::Has(wanted) | Expects::Written(wanted) => {
            let is_missing = |it: &&RData| reply.answers.iter().all(|answer| answer.data != **it);
            match wanted.iter().find(is_missing) {
                Some(missing) => Answer::Wrong(format!("NOERROR without {}", shown(missing))),
                None => Answer::Right,
            }
        }
        Expects::Records | Expects::Hidden
            if reply.answers.iter().all(|it| it.data.record_type() != kind) =>
        {
            absent(format!("NOERROR without {kind}"))
        }
        Expects::Records | Expects::Hidden | Expects::Server { .. } => Answer::Right,
    }
}

/// A record as messages show it: an address, a target, a text.
fn shown(data: &RData) -> String {
    let text = match data {
        RData::Unknown { code, rdata } => match Name::from_bytes(&rdata.anything) {
            Ok(target) => target.to_string(),
            Err(_) => format!("data of type {}", u16::from(*code)),
        },
        known => known.to_string(),
    };
    shortened(&text, MAX_SHOWN)
}

/// Names in the spec must be answered; other names only if stable pods answer them.
fn by_answer(expects: &Expects, canary: Answer, stable: Answer) -> CheckResult {
    match (canary, stable, expects) {
        (Answer::Right, _, _) => CheckResult::Good,
        // Both hide it, as the spec asks: clients lose nothing. Where little is visible, no other name may be asked.
        (Answer::Hidden(_), Answer::Hidden(_), _) => CheckResult::Good,
        (Answer::Hidden(how), Answer::Right | Answer::Wrong(_) | Answer::Unknown, _) => {
            CheckResult::Warning(format!(
                "{how}, because spec.exposure hides this Service: programs in pods that find the API server by its name need it"
            ))
        }
        (Answer::Wrong(why), _, Expects::Written(wanted)) => {
            let wanted = wanted.first().map(shown).unwrap_or_default();
            CheckResult::Worse(format!("the pod answered {why}, and the spec has {wanted}"))
        }
        (Answer::Wrong(why), Answer::Right, _) => CheckResult::Worse(format!(
            "{why}, and pods with the current configuration answer this name correctly"
        )),
        (Answer::Wrong(_), Answer::Wrong(_) | Answer::Hidden(_) | Answer::Unknown, _)
        | (Answer::Unknown, _, _) => CheckResult::Open,
    }
}

/// A server that sends any reply is there. Silence fails only where clients lose servers that reply.
fn by_health(
    group: &str,
    is_new: bool,
    canary: UpstreamHealth,
    stable: UpstreamHealth,
) -> CheckResult {
    match (canary, stable) {
        (UpstreamHealth::Answered, _) => CheckResult::Good,
        (UpstreamHealth::Errors, UpstreamHealth::Answered) if !is_new => CheckResult::ErrorsOnly(
            format!("the servers of {group} reply only with errors, and those before gave answers"),
        ),
        (UpstreamHealth::Errors, _) => CheckResult::Good,
        (UpstreamHealth::Silent, _) if is_new => {
            CheckResult::Warning(format!("no server of {group} replies; the group is new"))
        }
        (UpstreamHealth::Silent, UpstreamHealth::Answered | UpstreamHealth::Errors) => {
            CheckResult::Worse(format!(
                "no server of {group} replies, and the servers that the other pods ask do"
            ))
        }
        (UpstreamHealth::Silent, UpstreamHealth::Silent | UpstreamHealth::Unknown)
        | (UpstreamHealth::Unknown, _) => CheckResult::Open,
    }
}

/// Why the canary cannot be judged: neither pod replies, or nothing can be sent to it.
pub(super) fn unreachable(asked: &[Asked]) -> Option<Held> {
    let of_canary = || asked.iter().flat_map(|asked| &asked.canary);
    let of_stable = || asked.iter().flat_map(|asked| &asked.stable);
    let first = of_canary().find_map(|heard| heard.as_ref().err())?;
    let is_unsent = |heard: &Reply| matches!(heard, Err(NoReply::Unsent(_)));
    if of_canary().all(is_unsent) {
        let why = format!("it cannot send to the pod: {}", first.why());
        return Some(HeldBy::Network.because(why));
    }
    let is_deaf = of_canary().chain(of_stable()).all(Result::is_err);
    let why = || format!("neither the pod nor a stable one replies to it: {}", first.why());
    is_deaf.then(|| HeldBy::Network.because(why()))
}

/// The client list refuses the operator, so its questions show nothing. The list itself is judged by the addresses of
/// pods.
pub(super) fn refused_operator(asked: &[Asked]) -> Option<Held> {
    let mut replies = asked.iter().flat_map(|asked| &asked.canary).flatten().peekable();
    replies.peek()?;
    let why = "the client list of the pod refuses the operator's own address";
    replies.all(is_prohibited).then(|| HeldBy::RefusedOperator.because(why))
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{Message, OpCode};

    use super::*;

    #[test]
    fn o17_a_response_code_has_the_name_that_dig_writes() {
        let long = Message::error_msg(1, OpCode::Query, ResponseCode::YXDomain);
        let Answer::Wrong(why) = answer(&Expects::Records, RecordType::A, &[Ok(long)]) else {
            panic!("a name that is too long is no answer");
        };
        assert_eq!(why, "YXDOMAIN");
    }
}
