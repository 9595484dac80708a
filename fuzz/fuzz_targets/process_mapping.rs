//! See `shmem_fuzzing::pmi::process_mapping`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzzing::pmi::process_mapping(data));
