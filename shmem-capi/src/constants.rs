//! The constants of `shmem.h`, from the table.
#![allow(dead_code, reason = "some are for programs only")]

use std::ffi::{c_int, c_long};

include!(concat!(env!("OUT_DIR"), "/constants.rs"));

const _: () = {
    use shmem::raw;
    assert!(SHMEM_CMP_EQ == raw::Cmp::Eq as c_int && SHMEM_CMP_NE == raw::Cmp::Ne as c_int);
    assert!(SHMEM_CMP_GT == raw::Cmp::Gt as c_int && SHMEM_CMP_GE == raw::Cmp::Ge as c_int);
    assert!(SHMEM_CMP_LT == raw::Cmp::Lt as c_int && SHMEM_CMP_LE == raw::Cmp::Le as c_int);
    assert!(SHMEM_THREAD_SINGLE == raw::ThreadLevel::Single as c_int);
    assert!(SHMEM_THREAD_FUNNELED == raw::ThreadLevel::Funneled as c_int);
    assert!(SHMEM_THREAD_SERIALIZED == raw::ThreadLevel::Serialized as c_int);
    assert!(SHMEM_THREAD_MULTIPLE == raw::ThreadLevel::Multiple as c_int);
    assert!(SHMEM_SYNC_SIZE as usize >= raw::SYNC_SIZE);
    assert!(SHMEM_MAJOR_VERSION as u32 == raw::SPEC_VERSION.0);
    assert!(SHMEM_MINOR_VERSION as u32 == raw::SPEC_VERSION.1);
    assert!(SHMEM_VENDOR_STRING.len() == raw::VENDOR.len());
};
