//! `compare` as a program: reads the cluster or manifests and files, asks, and prints the report.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use super::ask::ask;
use super::captured::{self, Captured};
use super::names::{self, Objects, Questions};
use super::report::{Report, Tally};
use super::servers::{self, Server};
use crate::args::{self, CompareFormat};
use crate::offline::{Severity, on_streams};
use crate::printable::{json, plain};

/// Octets of a file with questions that are read: a capture may be much larger than what can be asked.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// `compare`, on standard output and standard error.
pub fn run(args: &args::Compare) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = writeln!(io::stderr(), "cannot start: {error}");
            return ExitCode::from(2);
        }
    };
    on_streams(|out, err| runtime.block_on(compared(args, out, err)))
}

/// Prints what differs to `out`, or why nothing was asked to `err`.
///
/// # Errors
/// Nothing can be written there any more.
pub async fn compared(
    args: &args::Compare,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Severity> {
    let report = match report(args).await {
        Ok(report) => report,
        Err(why) => {
            writeln!(err, "{}", plain(&why))?;
            return Ok(Severity::Unreadable);
        }
    };
    match args.output {
        CompareFormat::Text => out.write_all(report.text().as_bytes())?,
        CompareFormat::Json => out.write_all(json(&report).as_bytes())?,
    }
    Ok(report.severity())
}

async fn report(args: &args::Compare) -> Result<Report, String> {
    let (with, against) = (Server::read(&args.with), Server::read(&args.against));
    let are_addresses = matches!((&with, &against), (Server::At(_), Server::At(_)));
    let objects = match &args.manifests[..] {
        [] if args.no_names && are_addresses => Objects::default(),
        [] => {
            let client = servers::connect(&args.which).await?;
            servers::of_cluster(&client).await.map_err(|why| format!("the cluster: {why}"))?
        }
        files => servers::of_manifests(files)?,
    };
    let (with, against) = (with.address(&objects)?, against.address(&objects)?);
    let mut questions = Questions::default();
    let mut notes = objects.cut.clone();
    if !args.no_names {
        names::of_cluster(&objects, &args.domain, &mut questions);
    }
    let mut is_unread = false;
    for file in &args.questions {
        let (captured, is_cut) = read(file)?;
        is_unread |= noted(&file.display().to_string(), &captured, is_cut, &mut notes);
        questions.append(captured.questions);
    }
    let is_cut = is_unread || !objects.cut.is_empty() || questions.left_out > 0;
    if questions.left_out > 0 {
        notes.push(format!("{} more questions were not asked", questions.left_out));
    }
    if questions.list().is_empty() {
        notes.push("nothing was asked".to_owned());
    }
    let domain = names::absolute(&args.domain)
        .ok_or_else(|| format!("--domain {:?} is no name", args.domain))?;
    let mut tally = Tally::new(domain);
    ask(questions.list(), with, against, args.rate, |number, replies| tally.add(number, replies))
        .await;
    if tally.is_unheard() && !questions.list().is_empty() {
        return Err(format!("neither {with} nor {against} replied: are they reachable from here?"));
    }
    if !args.no_names && !tally.is_domain_found() {
        return Err(format!(
            "neither server has a name below {}: write the domain of the cluster with --domain",
            args.domain
        ));
    }
    Ok(Report { is_cut, ..tally.report(notes) })
}

/// Adds what is to say about a file of questions. Returns whether questions of it may be missing: then the two servers may
/// differ in others than those that were asked.
fn noted(name: &str, captured: &Captured, is_cut: bool, notes: &mut Vec<String>) -> bool {
    let Captured { questions: _, count, broken, passed_over } = captured;
    if is_cut {
        let most = MAX_FILE_BYTES >> 20;
        notes.push(format!("{name}: only its first {most} MiB were read"));
    } else if let Some(why) = broken {
        notes.push(format!("{name}: {why}; {count} questions were read before that"));
    } else if *count == 0 {
        notes.push(format!("{name}: no question of a client is in it"));
    }
    if *passed_over > 0 {
        notes.push(format!(
            "{name}: {passed_over} packets or lines are no question of a client that can be read"
        ));
    }
    is_cut || broken.is_some() || *count == 0
}

/// The questions of a file, and whether it is longer than what was read.
fn read(path: &Path) -> Result<(Captured, bool), String> {
    let unreadable = |error: io::Error| format!("{}: {error}", path.display());
    let mut octets = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut file = file.take(MAX_FILE_BYTES);
    file.read_to_end(&mut octets).map_err(unreadable)?;
    let is_cut = file.into_inner().read(&mut [0]).map_err(unreadable)? > 0;
    Ok((captured::read(&octets), is_cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &str = r#"{"message":"query","name":"a.","type":"A"}"#;

    #[test]
    fn questions_may_be_missing_of_a_file_that_was_not_read_to_its_end_or_has_none() {
        // Cut within the header of its first packet.
        let magic = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        let pcap = [&magic[..], &[0; 8], &[0, 0, 4, 0, 1, 0, 0, 0], &[0; 5]].concat();
        for (octets, is_cut, expected) in [
            (QUESTION.as_bytes(), false, false),
            (QUESTION.as_bytes(), true, true),
            (&pcap[..], false, true),
            (b"no question\n".as_slice(), false, true),
            (b"".as_slice(), false, true),
        ] {
            let mut notes = Vec::new();
            let captured = captured::read(octets);
            assert_eq!(noted("file", &captured, is_cut, &mut notes), expected, "{notes:?}");
            assert_eq!(!notes.is_empty(), expected, "{notes:?}");
        }
    }
}
