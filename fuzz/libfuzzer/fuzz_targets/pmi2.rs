//! See `shmem_fuzz::pmi::pmi2`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::pmi::pmi2(data));
