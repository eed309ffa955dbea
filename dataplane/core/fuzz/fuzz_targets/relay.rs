//! See the README of this folder, and `relay` in tests/src/fuzzing.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = dataplane_core_fuzz::fuzzing::relay(input);
});
