//! See `shmem_fuzz::pmi1::pmi1`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::pmi1::pmi1(data));
