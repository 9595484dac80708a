//! See `shmem_fuzzing::verbs::verbs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzzing::verbs::verbs(data));
