//! See `shmem_fuzzing::settings::settings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzzing::settings::settings(data));
