//! The structures of `shmem.h`.
#![forbid(unsafe_code)]

use std::ffi::c_int;

/// `shmem_team_config_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct TeamConfig {
    pub(crate) num_contexts: c_int,
}

/// `shmemx_uniqueid_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct UniqueIdBytes {
    pub(crate) bytes: [u8; shmem::UniqueId::LEN],
}

/// `shmem_ctx_session_config_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SessionConfig {
    pub(crate) total_ops: usize,
}
