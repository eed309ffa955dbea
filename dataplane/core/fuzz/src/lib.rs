//! The bodies of the targets: those that the mutation tests of the ordinary toolchain run. They are included by path,
//! because the package `tests` with all its dependencies has no place in an instrumented build.

#[path = "../../../../tests/src"]
mod harness {
    pub mod fuzzing;
    pub mod in_process;
    pub mod oracle;
}

use harness::in_process;
pub use harness::{fuzzing, oracle};
