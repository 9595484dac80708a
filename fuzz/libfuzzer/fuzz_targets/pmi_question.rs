//! See `shmem_fuzz::pmi::pmi_question`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::pmi::pmi_question(data));
