//! See `shmem_fuzz::launch::launch_frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shmem_fuzz::launch::launch_frame(data));
