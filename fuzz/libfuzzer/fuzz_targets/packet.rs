//! See `shmem_fuzz::ib::packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::ib::packet(data));
