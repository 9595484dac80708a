//! See `shmem_fuzzing::ib::packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzzing::ib::packet(data));
