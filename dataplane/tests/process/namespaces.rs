//! Programs that run in namespaces of their own, where the kernel lets tests make them.

use std::io::Write;
use std::process::Command;
use std::{env, io};

/// The command that runs a script in namespaces of its own and then the program, where the kernel lets us.
pub(crate) fn in_namespaces(
    which: &'static str,
    script: &'static str,
) -> Option<[&'static str; 6]> {
    let by = ["unshare", which, "sh", "-c", script, "sh"];
    let probed = Command::new(by[0]).args(&by[1..]).arg("true").output();
    let is_possible = probed.is_ok_and(|output| output.status.success());
    if !is_possible {
        assert!(env::var_os("CI").is_none(), "no namespace can be made here");
        // The runner does not show what `eprintln!` writes.
        let _ = writeln!(io::stderr(), "NOT RUN: no namespace can be made here");
    }
    is_possible.then_some(by)
}
