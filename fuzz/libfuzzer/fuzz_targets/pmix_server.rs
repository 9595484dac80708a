//! See `shmem_fuzz::launch::pmix_server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::launch::pmix_server(data));
