//! `kubectl clusterdns`: why a name is answered as it is, and the state of DNS; the data planes themselves are asked.
//! It reads only, with the rights of its user: their pages are for loopback, so it comes by a port-forward of the API
//! server.
//!
//! `args` is what people write, `lookups` what the API server knows, `data_plane` one data plane and its pages. Each
//! subcommand is a module; what it decides and prints is pure, and tested with recorded pages.

mod args;
mod explain;
mod status;
mod top;
mod diff;
mod complete;
mod asker;
mod lookups;
mod data_plane;
mod pages;
mod search;
mod resolv_conf;
mod hosts;
mod output;
mod table;

use std::io;
use std::process::ExitCode;

use clap::Parser;

pub use args::{
    Args, Command, Completion, Diff, Explain, Libc, Output, Shell, Status, Top, TopKind, Which,
};
pub use diff::{Changes, NameChange, SettingChange};
pub use explain::{Asked, Explained, questions};
pub use hosts::Hosts;
use output::Printed;
pub use pages::{Answer, Pages};
pub use resolv_conf::{ResolvConf, of_pod};
pub use search::{Outcome, Search};
pub use status::Screen;
pub use top::{Heaviest, TopPage, TopRow};

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    // A word may be the name of any file, so it need not be UTF-8.
    let words = std::env::args_os().skip(1);
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let asks = words.first().is_some_and(|word| word == complete::WORD);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (printed, failed) = match runtime {
        Ok(runtime) => {
            let done = if asks {
                let text = runtime.block_on(complete::completed(&words[1..]));
                (Ok((text, ExitCode::SUCCESS)), ExitCode::FAILURE)
            } else {
                let args = Args::parse();
                (runtime.block_on(printed(&args)), failed(&args.command))
            };
            // A credential plugin may not have ended.
            runtime.shutdown_background();
            done
        }
        Err(error) => {
            (Err((format!("cannot start: {error}"), ExitCode::FAILURE)), ExitCode::FAILURE)
        }
    };
    output::written(printed, failed, &mut io::stdout().lock(), &mut io::stderr().lock())
}

/// The status of a command that fails. 1 says that something would change, as of `kubectl diff`.
fn failed(command: &Command) -> ExitCode {
    match command {
        Command::Diff(_) => diff::FAILED.into(),
        Command::Explain(_) | Command::Status(_) | Command::Top(_) | Command::Completion(_) => {
            ExitCode::FAILURE
        }
    }
}

/// Output and status, or what is wrong and the status of that.
async fn printed(args: &Args) -> Result<(String, ExitCode), (String, ExitCode)> {
    let Args { which, command } = args;
    let printed: Printed = match command {
        Command::Explain(asked) => explain::run(which, asked).await,
        Command::Status(asked) => status::run(which, asked).await,
        Command::Top(asked) => top::run(which, asked).await,
        Command::Diff(asked) => diff::run(which, asked).await,
        Command::Completion(asked) => {
            Ok((complete::script(asked.shell).to_owned(), ExitCode::SUCCESS))
        }
    };
    printed.map_err(|why| (why, failed(command)))
}
