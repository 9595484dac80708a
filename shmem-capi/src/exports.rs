//! The exported functions: each routine, and its twin for profiling with the same body.
#![allow(
    unused_unsafe,
    reason = "not all of what is called is unsafe, and the macro is one for all"
)]

use std::ffi::{
    c_char, c_int, c_long, c_longlong, c_schar, c_short, c_uchar, c_uint, c_ulong, c_ulonglong,
    c_ushort, c_void,
};

use shmem::{And, Complex, Max, Min, Or, Prod, Sum, Xor};

use crate::handles::{Ctx, Team};
use crate::long_double::LongDouble;
use crate::types::{SessionConfig, TeamConfig, UniqueIdBytes};
use crate::{
    active, atomics, collectives, contexts, memory, order, rma, setup, signal, sync, teams,
};

macro_rules! export {
    ($name:ident $twin:ident ($($arg:ident: $ty:ty),*) $(-> $ret:ty)? { $body:expr }) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: by the caller.
            unsafe { $body }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $twin($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: by the caller.
            unsafe { $body }
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
