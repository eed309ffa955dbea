//! What a command prints. Pods, objects of tenants and replies of servers have a part in it:
//! what of that a terminal would obey is shown, not sent.

use std::io::Write;
use std::process::ExitCode;

use crate::output_loss::{self, Written};
pub(super) use crate::printable::json;
use crate::printable::plain;

/// What a command printed, and the status it ends with.
pub(super) type Printed = Result<(String, ExitCode), String>;

/// Writes what a command printed, or what is wrong, and says how the process ends; `failed` is the status of a failure of
/// this command.
pub(super) fn written(
    printed: Result<(String, ExitCode), (String, ExitCode)>,
    failed: ExitCode,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> ExitCode {
    let (mut out, mut err) = (Written::to(out), Written::to(err));
    let (said, status) = match printed {
        Ok((text, status)) => (out.write_all(plain(&text).as_bytes()), status),
        Err((why, status)) => (writeln!(err, "error: {}", plain(&why)), status),
    };
    // Streams that are lost are no errors here.
    if said.is_err() { failed } else { output_loss::ended(status, failed, out, err) }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::output_loss::tests::Broken;
    use crate::printable::is_obeyed;

    #[test]
    fn output_that_is_lost_is_no_success() {
        let differs = || Ok(("text".to_owned(), ExitCode::from(1)));
        let failed = ExitCode::from(2);
        for (kind, status, says) in [
            (ErrorKind::StorageFull, failed, true),
            (ErrorKind::BrokenPipe, ExitCode::from(1), false),
        ] {
            let mut err = Vec::new();
            let ended = written(differs(), failed, &mut Broken(kind), &mut err);
            assert_eq!((ended, !err.is_empty()), (status, says), "{kind}");
        }
    }

    #[test]
    fn a_terminal_obeys_nothing_of_what_others_wrote() {
        let hostile = "a\u{1b}]52;c;cm0=\u{7}\u{9b}2J\u{7f}\r\u{202e}b";
        let mut out = Vec::new();
        let printed = Ok((format!("{hostile}\n\tc\n"), ExitCode::SUCCESS));
        written(printed, ExitCode::FAILURE, &mut out, &mut Vec::new());
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "a\u{fffd}]52;c;cm0=\u{fffd}\u{fffd}2J\u{fffd}\u{fffd}\u{fffd}b\n\tc\n");
        let mut err = Vec::new();
        written(
            Err((hostile.to_owned(), ExitCode::FAILURE)),
            ExitCode::FAILURE,
            &mut Vec::new(),
            &mut err,
        );
        assert!(!String::from_utf8(err).unwrap().trim_end().chars().any(is_obeyed));
        let value = json(&hostile);
        assert!(!value.chars().any(is_obeyed), "{value}");
        assert_eq!(
            serde_json::from_str::<String>(&value).unwrap(),
            hostile,
            "programs read what was there"
        );
    }
}
