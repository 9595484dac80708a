//! The symmetric heap. A call that cannot be served gives null, and PE 0 says why, once.

use std::ffi::{c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use shmem::{Error, raw};

use crate::check;

/// What `malloc` gives on this kind of machine; every block has it anyway.
const ALIGN: usize = 16;

fn allocate(name: &str, bytes: usize, align: usize, zeroed: bool) -> *mut c_void {
    check::collective(name);
    raw::allocate(bytes, align, zeroed)
        .map(<*mut u8>::cast)
        .unwrap_or_else(|e| none(name, &e))
}

/// All PEs fail alike, so one of them says why; and of a program that goes on, only once.
#[cold]
fn none(name: &str, error: &Error) -> *mut c_void {
    static SAID: AtomicBool = AtomicBool::new(false);
    if shmem::my_pe() == 0 && !SAID.swap(true, Ordering::Relaxed) {
        check::say(name, format_args!("{error}"));
    }
    ptr::null_mut()
}

pub(crate) fn malloc(name: &str, size: usize) -> *mut c_void {
    allocate(name, size, ALIGN, false)
}

/// Memory is the same whatever it is for.
pub(crate) fn malloc_with_hints(name: &str, size: usize, _hints: c_long) -> *mut c_void {
    malloc(name, size)
}

/// More than the address space is more than the heap, which says so.
pub(crate) fn calloc(name: &str, count: usize, size: usize) -> *mut c_void {
    allocate(name, count.saturating_mul(size), ALIGN, true)
}

pub(crate) fn align(name: &str, alignment: usize, size: usize) -> *mut c_void {
    if !alignment.is_power_of_two() {
        check::refuse(
            name,
            format_args!("alignment = {alignment} is not a power of two"),
        );
    }
    allocate(name, size, alignment, false)
}

pub(crate) unsafe fn free(name: &str, at: *mut c_void) {
    check::collective(name);
    if let Err(e) = raw::release(at.cast()) {
        check::refuse(name, format_args!("ptr = {at:p}: {e}"));
    }
}

pub(crate) unsafe fn realloc(name: &str, at: *mut c_void, size: usize) -> *mut c_void {
    check::collective(name);
    match raw::reallocate(at.cast(), size) {
        Ok(at) => at.cast(),
        Err(e @ Error::HeapExhausted { .. }) => none(name, &e),
        Err(e) => check::refuse(name, format_args!("ptr = {at:p}: {e}")),
    }
}
