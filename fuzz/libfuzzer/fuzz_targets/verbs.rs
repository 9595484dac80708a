//! See `shmem_fuzz::verbs::verbs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::verbs::verbs(data));
