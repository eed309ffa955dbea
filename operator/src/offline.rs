//! What the program does without a cluster, for people and for the pipelines of GitOps repositories: `render` prints
//! what would be applied, `check` says what is wrong with what is written.

mod render;
mod assumed;
mod check;
mod warning;
mod aliases;
mod warnings;
mod conflicts;
mod kubelets;
mod beside_cluster;
mod named_files;
mod paged;
mod servers;
mod budget;
mod resources;
mod exposure;
mod helm;
mod output;

pub use check::check;
pub(crate) use check::{indexed, wrong};
pub(crate) use helm::is_template;
pub(crate) use kubelets::client;
pub(crate) use named_files::named_files;
pub use output::{Finding, Findings};
pub(crate) use paged::{PAGE, Paged, paged};
pub use render::{render, rendered};
pub use warning::Warning;
pub use warnings::unwise;

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use crds::manifest::{self, Found, ManifestError};

pub use crate::args::Format;
use crate::output_loss::Written;
use crate::printable::plain_value;
use crate::{args, output_loss};

/// The result of a run: the worst of all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// No finding, or warnings only.
    Fine,
    /// Something is wrong with a ClusterDNS.
    Wrong,
    /// Something could not be read.
    Unreadable,
}

impl From<Severity> for ExitCode {
    fn from(outcome: Severity) -> ExitCode {
        match outcome {
            Severity::Fine => ExitCode::SUCCESS,
            Severity::Wrong => ExitCode::from(1),
            Severity::Unreadable => ExitCode::from(2),
        }
    }
}

/// `render`, on standard output and standard error.
pub fn run_render(args: &args::Render) -> ExitCode {
    on_streams(|out, err| render(args, out, err))
}

/// Runs `check` and prints to standard output.
pub fn run_check(args: &args::CheckFlags) -> ExitCode {
    on_streams(|out, _| check(args, out))
}

/// Runs a command on standard output and standard error.
pub(crate) fn on_streams(
    command: impl FnOnce(&mut dyn Write, &mut dyn Write) -> io::Result<Severity>,
) -> ExitCode {
    on(command, &mut io::stdout().lock(), &mut io::stderr().lock())
}

/// What it finds is its status, also where its reader has closed the pipe.
fn on(
    command: impl FnOnce(&mut dyn Write, &mut dyn Write) -> io::Result<Severity>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> ExitCode {
    let failed = ExitCode::from(Severity::Unreadable);
    let (mut out, mut err) = (Written::to(out), Written::to(err));
    let found = command(&mut out, &mut err).map_or(failed, ExitCode::from);
    output_loss::ended(found, failed, out, err)
}

/// Larger manifests are not read: the API server would not take one object of this size.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The text of a file, `-` for standard input, and how to call it.
pub(crate) fn text_of(path: &Path) -> Result<(String, String), String> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
    let shown = plain_value(&name);
    if path.is_dir() {
        return Err(format!("{shown}: is a folder: name its files, such as {shown}/*.yaml"));
    }
    let read = if is_stdin {
        read_to_limit(io::stdin().lock())
    } else {
        std::fs::File::open(path).and_then(read_to_limit)
    };
    match read {
        Ok(text) if text.len() as u64 > MAX_FILE_BYTES => {
            Err(format!("{shown}: larger than {MAX_FILE_BYTES} bytes: split it"))
        }
        Ok(text) => Ok((name, text)),
        Err(error) => Err(format!("{shown}: {}", unreadable(&error))),
    }
}

fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidData => "is not text in UTF-8".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

/// Every ClusterDNS of a text. A text that names neither our group nor our kind is passed over unread: a template of Helm,
/// or what else is in a repository, need not be YAML.
fn cluster_dns(text: &str, name: &str) -> Result<Vec<Result<Found, ManifestError>>, String> {
    if !text.contains(crds::GROUP) && !names_our_kind(text) {
        return Ok(Vec::new());
    }
    manifest::read_all(text, &plain_value(name)).map_err(|error| error.to_string())
}

/// True if a line says `kind: ClusterDNS`, in any spelling.
fn names_our_kind(text: &str) -> bool {
    text.to_ascii_lowercase().match_indices("kind").any(|(at, kind)| {
        let rest = text[at + kind.len()..].trim_start_matches(['"', '\'', ' ', ':']);
        rest.get(..10).is_some_and(|value| value.eq_ignore_ascii_case("clusterdns"))
    })
}

fn read_to_limit(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::output_loss::tests::Broken;

    #[test]
    fn what_was_found_stays_the_status_where_the_reader_closed_the_pipe() {
        for (kind, status, says) in
            [(ErrorKind::StorageFull, 2, true), (ErrorKind::BrokenPipe, 1, false)]
        {
            let mut err = Vec::new();
            let command = |out: &mut dyn Write, _: &mut dyn Write| {
                writeln!(out, "an error")?;
                Ok(Severity::Wrong)
            };
            let ended = on(command, &mut Broken(kind), &mut err);
            assert_eq!((ended, !err.is_empty()), (ExitCode::from(status), says), "{kind}");
        }
    }
}
