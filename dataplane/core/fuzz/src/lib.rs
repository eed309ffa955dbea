//! The bodies of the targets: those that the mutation tests of the ordinary toolchain run, taken by path because the
//! package `tests` with all it depends on has no place in an instrumented build.

#[path = "../../../../tests/src/fuzzing.rs"]
pub mod fuzzing;
#[path = "../../../../tests/src/in_process.rs"]
mod in_process;
#[path = "../../../../tests/src/oracle.rs"]
mod oracle;
