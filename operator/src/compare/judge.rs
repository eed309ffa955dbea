//! Whether two replies to one question are right.

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RData;

use super::questions::{Expects, Question};
use crate::observed::Check;

/// What came back, or why nothing did.
pub(super) type Heard = Result<Message, String>;

/// Judges each; where the servers behind them decide, a denial is right if the other pod gets it too.
pub(super) fn judge(question: &Question, canary: Heard, stable: Heard) -> Check {
    let is_denied = |heard: &Heard| {
        heard.as_ref().is_ok_and(|reply| reply.metadata.response_code == ResponseCode::NXDomain)
    };
    // The canary may know more than the stable pod, which then asks elsewhere and is told that there is no such name.
    let stable_denial_is_right = is_denied(&stable);
    let canary_denial_is_right = is_denied(&canary) && stable_denial_is_right;
    Check {
        what: format!("{} {}", question.name, question.kind),
        canary: is_right(question, canary, canary_denial_is_right),
        stable: is_right(question, stable, stable_denial_is_right),
    }
}

fn is_right(question: &Question, heard: Heard, denial_is_right: bool) -> Result<(), String> {
    let reply = heard?;
    let code = reply.metadata.response_code;
    match (code, &question.expects) {
        (ResponseCode::Refused, _) if question.may_be_refused => Ok(()),
        (ResponseCode::NXDomain, Expects::Reply) if denial_is_right => Ok(()),
        (ResponseCode::NoError, Expects::Reply) => Ok(()),
        (ResponseCode::NoError, Expects::Records) => {
            match reply.answers.iter().any(|record| record.record_type() == question.kind) {
                true => Ok(()),
                false => Err(format!("NOERROR without {}", question.kind)),
            }
        }
        (ResponseCode::NoError, Expects::Address(ip)) => {
            let is_it = |data: &RData| data.ip_addr() == Some(*ip);
            match reply.answers.iter().any(|record| is_it(&record.data)) {
                true => Ok(()),
                false => Err(format!("NOERROR without {ip}")),
            }
        }
        _ => Err(rcode(code)),
    }
}

/// As `dig` writes it.
fn rcode(code: ResponseCode) -> String {
    match code {
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::NXDomain => "NXDOMAIN".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        ResponseCode::FormErr => "FORMERR".to_owned(),
        ResponseCode::NotImp => "NOTIMP".to_owned(),
        other => format!("RCODE {}", u16::from(other)),
    }
}
