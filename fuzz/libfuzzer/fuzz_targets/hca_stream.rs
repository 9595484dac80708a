//! See `shmem_fuzz::hca_stream::hca_stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::hca_stream::hca_stream(data));
