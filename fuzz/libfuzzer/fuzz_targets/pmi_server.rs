//! See `shmem_fuzz::pmi_server::pmi_server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::pmi_server::pmi_server(data));
