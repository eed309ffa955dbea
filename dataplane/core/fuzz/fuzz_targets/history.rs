//! See the README of this folder, and `history` in tests/src/fuzzing/history.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = dataplane_core_fuzz::fuzzing::history(input);
});
