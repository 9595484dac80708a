//! See `shmem_fuzz::ib::owner_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::ib::owner_message(data));
