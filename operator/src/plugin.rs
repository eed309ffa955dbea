//! `kubectl clusterdns`: why a name is answered as it is, and how DNS is, asked of the data planes themselves. It reads
//! only, with the rights of its user: their pages are for loopback, so it comes by a port-forward of the API server.
//!
//! `args` is what people write, `cluster` what the API server knows, `data_plane` one data plane and its pages. Each
//! subcommand is a module; what it decides and prints is pure, and tested with recorded pages.

mod args;
mod explain;
mod status;
mod cluster;
mod data_plane;
mod pages;
mod search;
mod resolv_conf;
mod hosts;
mod output;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

pub use args::{Args, Command, Explain, Libc, Output, Status, Which};
pub use explain::{Asked, Explained, questions};
pub use hosts::Hosts;
use output::Printed;
pub use pages::{Answer, Pages};
pub use resolv_conf::{ResolvConf, of_pod};
pub use search::{Outcome, Search};
pub use status::Screen;

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let printed = match runtime {
        Ok(runtime) => runtime.block_on(printed(&args)),
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match printed {
        // A closed pipe, as `| head` makes one, is no failure.
        Ok((text, status)) => match io::stdout().lock().write_all(text.as_bytes()) {
            Ok(()) => status,
            Err(_) => ExitCode::SUCCESS,
        },
        Err(why) => {
            let _ = writeln!(io::stderr(), "error: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn printed(args: &Args) -> Printed {
    let Args { which, command } = args;
    match command {
        Command::Explain(asked) => explain::run(which, asked).await,
        Command::Status(asked) => status::run(which, asked).await,
    }
}
