//! C types that Rust has none for, and the structures of `shmem.h`.
#![forbid(unsafe_code)]

use std::ffi::c_int;

/// `long double`, of which Rust knows the size only; [`crate::long_double`] does its arithmetic.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(crate) struct LongDouble(pub(crate) [u8; 16]);

/// `float _Complex`: real and imaginary part.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct ComplexF(pub(crate) [f32; 2]);

/// `double _Complex`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct ComplexD(pub(crate) [f64; 2]);

/// `shmem_team_config_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct TeamConfig {
    pub(crate) num_contexts: c_int,
}

/// `shmem_ctx_session_config_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SessionConfig {
    pub(crate) total_ops: usize,
}
