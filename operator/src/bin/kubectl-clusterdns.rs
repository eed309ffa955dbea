//! `kubectl clusterdns`: questions to the data planes of a cluster, with the rights of the person who asks.

use std::process::ExitCode;

fn main() -> ExitCode {
    operator::plugin::run()
}
