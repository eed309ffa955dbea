//! What a command writes, and what becomes of its status where that is lost: on a full disk, or in a pipe that its reader
//! closed.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// Standard output or standard error of a command. What comes after a failure is lost too, and the command continues: what it
/// finds is its status.
pub(crate) struct Written<'a> {
    to: &'a mut dyn Write,
    lost: Option<io::Error>,
}

impl Written<'_> {
    pub(crate) fn to(to: &mut dyn Write) -> Written<'_> {
        Written { to, lost: None }
    }

    /// Why something of it is lost.
    fn loss(mut self) -> Option<io::Error> {
        self.flush().ok()?;
        // As `| head` makes one: the reader has what it wants, so that is no failure.
        self.lost.filter(|error| error.kind() != ErrorKind::BrokenPipe)
    }

    fn kept<T>(&mut self, result: io::Result<T>, if_lost: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                self.lost = Some(error);
                Ok(if_lost)
            }
            kept => kept,
        }
    }
}

impl Write for Written<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        if self.lost.is_some() {
            return Ok(octets.len());
        }
        let result = self.to.write(octets);
        self.kept(result, octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.lost.is_some() {
            return Ok(());
        }
        let result = self.to.flush();
        self.kept(result, ())
    }
}

/// The status of a command that found `found`: `failed` where a part of what it wrote is lost, and then why.
pub(crate) fn ended(
    found: ExitCode,
    failed: ExitCode,
    out: Written<'_>,
    mut err: Written<'_>,
) -> ExitCode {
    let lost = out.loss();
    if let Some(why) = &lost {
        let _ = writeln!(err, "error: the output could not be written: {why}");
    }
    // Where standard error is lost, nothing can be said.
    if lost.is_some() || err.loss().is_some() { failed } else { found }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A file on a disk that is full, or a pipe that was closed.
    pub(crate) struct Broken(pub(crate) ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_keeps_the_status_and_another_loss_is_a_failure_that_is_said() {
        let (found, failed) = (ExitCode::from(1), ExitCode::from(2));
        for (kind, status, says) in
            [(ErrorKind::StorageFull, failed, true), (ErrorKind::BrokenPipe, found, false)]
        {
            let (mut broken, mut said) = (Broken(kind), Vec::new());
            let mut out = Written::to(&mut broken);
            // The command continues.
            writeln!(out, "text").and_then(|()| writeln!(out, "more")).unwrap();
            let ends = ended(found, failed, out, Written::to(&mut said));
            assert_eq!((ends, !said.is_empty()), (status, says), "{kind}");
            let (mut broken, mut out) = (Broken(kind), Vec::new());
            let mut err = Written::to(&mut broken);
            writeln!(err, "a report").unwrap();
            assert_eq!(ended(found, failed, Written::to(&mut out), err), status, "{kind}");
        }
    }
}
