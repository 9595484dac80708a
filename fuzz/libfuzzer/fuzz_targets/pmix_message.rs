//! See `shmem_fuzz::pmi::pmix_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::pmi::pmix_message(data));
