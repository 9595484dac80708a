//! Init, finalize, thread levels, queries, exit.

use std::ffi::{c_char, c_int, c_void};

use shmem::raw::{self, ThreadLevel};
use shmem::{Error, UniqueId};

use crate::check;
use crate::constants::{SHMEM_MAJOR_VERSION, SHMEM_MAX_NAME_LEN, SHMEM_MINOR_VERSION};
use crate::handles;
use crate::types::UniqueIdBytes;

const _: () = assert!(raw::VENDOR.len() < SHMEM_MAX_NAME_LEN as usize);

pub(crate) fn init(name: &str) {
    raw::end_at_panic();
    if let Err(e) = raw::init(ThreadLevel::Single) {
        check::refuse(name, format_args!("{e}"));
    }
}

/// 0 if it went well.
pub(crate) unsafe fn init_thread(name: &str, requested: c_int, provided: *mut c_int) -> c_int {
    // SAFETY: by the caller.
    unsafe { init_by(name, requested, provided, raw::init) }
}

/// 0 if it went well: the id is there, and a thread of this process awaits the others.
pub(crate) unsafe fn get_uniqueid(name: &str, id: *mut UniqueIdBytes) -> c_int {
    match UniqueId::new() {
        Ok(made) => {
            let bytes = made.to_bytes();
            // SAFETY: by the caller.
            unsafe { id.write(UniqueIdBytes { bytes }) };
            0
        }
        Err(e) => {
            check::say(name, format_args!("{e}"));
            1
        }
    }
}

/// 0 if it went well. `provided` may be null.
pub(crate) unsafe fn init_from_uniqueid(
    name: &str,
    id: *const UniqueIdBytes,
    my_pe: c_int,
    n_pes: c_int,
    requested: c_int,
    provided: *mut c_int,
) -> c_int {
    let mut unwanted = 0;
    let provided = match provided.is_null() {
        true => &raw mut unwanted,
        false => provided,
    };
    // SAFETY: by the caller.
    let bytes = unsafe { (*id).bytes };
    let init = |level| {
        let (Ok(me), Ok(n)) = (my_pe.try_into(), n_pes.try_into()) else {
            return Err(Error::Launch(format!(
                "my_pe = {my_pe} and n_pes = {n_pes}: neither can be negative"
            )));
        };
        raw::init_from(&UniqueId::from_bytes(&bytes)?, me, n, level)
    };
    // SAFETY: by the caller, or this function's own.
    unsafe { init_by(name, requested, provided, init) }
}

unsafe fn init_by(
    name: &str,
    requested: c_int,
    provided: *mut c_int,
    init: impl FnOnce(ThreadLevel) -> Result<ThreadLevel, Error>,
) -> c_int {
    raw::end_at_panic();
    let level = u8::try_from(requested)
        .ok()
        .and_then(ThreadLevel::from_number);
    let Some(level) = level else {
        check::say(
            name,
            format_args!(
                "requested = {requested} is no thread level: use SHMEM_THREAD_SINGLE, FUNNELED, SERIALIZED or MULTIPLE"
            ),
        );
        return 1;
    };
    match init(level) {
        Ok(level) => {
            // SAFETY: by the caller.
            unsafe { provided.write(level as c_int) };
            0
        }
        Err(e) => {
            check::say(name, format_args!("{e}"));
            1
        }
    }
}

/// The argument has had no meaning since version 1.2.
pub(crate) fn start_pes(name: &str, _npes: c_int) {
    raw::end_at_panic();
    if let Err(e) = raw::start_pes() {
        check::refuse(name, format_args!("{e}"));
    }
}

/// Does nothing after the last one.
pub(crate) fn finalize(name: &str) {
    raw::named(name);
    raw::finalize();
    if !raw::initialized() {
        handles::clear();
    }
}

pub(crate) unsafe fn query_initialized(_name: &str, initialized: *mut c_int) {
    // SAFETY: by the caller.
    unsafe { initialized.write(raw::initialized().into()) };
}

/// May be called at any time. Outside of init and finalize the least is promised.
pub(crate) unsafe fn query_thread(_name: &str, provided: *mut c_int) {
    let level = raw::thread_level().unwrap_or(ThreadLevel::Single);
    // SAFETY: by the caller.
    unsafe { provided.write(level as c_int) };
}

pub(crate) fn my_pe(name: &str) -> c_int {
    check::running(name);
    shmem::my_pe() as c_int
}

pub(crate) fn n_pes(name: &str) -> c_int {
    check::running(name);
    shmem::n_pes() as c_int
}

pub(crate) fn pe_accessible(name: &str, pe: c_int) -> c_int {
    check::running(name);
    // A negative number becomes one that is too large.
    raw::pe_accessible(pe as usize).into()
}

pub(crate) fn addr_accessible(name: &str, addr: *const c_void, pe: c_int) -> c_int {
    check::running(name);
    raw::addr_accessible(addr.cast(), pe as usize).into()
}

/// Null for what is not symmetric, as for a PE that cannot be reached by loads and stores.
pub(crate) fn ptr(name: &str, dest: *const c_void, pe: c_int) -> *mut c_void {
    check::running(name);
    address(dest, pe as usize)
}

/// Where this PE sees `pe`'s copy of `dest`, or null.
pub(crate) fn address(dest: *const c_void, pe: usize) -> *mut c_void {
    raw::symmetric(dest.cast(), 1)
        .and_then(|sym| raw::ptr(sym, pe))
        .map_or(std::ptr::null_mut(), <*mut u8>::cast)
}

pub(crate) unsafe fn info_get_version(_name: &str, major: *mut c_int, minor: *mut c_int) {
    // SAFETY: by the caller.
    unsafe {
        major.write(SHMEM_MAJOR_VERSION);
        minor.write(SHMEM_MINOR_VERSION);
    }
}

pub(crate) unsafe fn info_get_name(_name: &str, name: *mut c_char) {
    let text = raw::info_name();
    // SAFETY: by the caller: room for SHMEM_MAX_NAME_LEN bytes, which is enough with the final NUL.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), text.len());
        name.add(text.len()).write(0);
    }
}

pub(crate) fn global_exit(_name: &str, status: c_int) -> ! {
    raw::global_exit(status)
}

/// For profiling tools: other libraries replace it, `shmrun --trace` obeys it. In C it takes any number of
/// arguments; what follows the first one is ignored, so a function that takes one will do under the calling
/// conventions of Linux.
pub(crate) fn pcontrol(_name: &str, level: c_int) {
    raw::pcontrol(level);
}

/// Caches have been coherent on all machines that this library runs on.
pub(crate) fn cache(_name: &str) {}

/// As [`cache`].
pub(crate) fn cache_line(_name: &str, _dest: *mut c_void) {}
