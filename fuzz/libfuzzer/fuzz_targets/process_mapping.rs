//! See `shmem_fuzz::pmi::process_mapping`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::pmi::process_mapping(data));
