//! See `shmem_fuzz::ib::ud_address`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::ib::ud_address(data));
