//! See `shmem_fuzzing::ib::owner_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzzing::ib::owner_message(data));
