//! Deprecated: collectives of active sets, given by first PE, logarithm of the stride, and size.
//!
//! Old programs call them on all PEs, and other libraries let those outside of the set pass. So do
//! these: there the routines do nothing.

use std::ffi::{c_int, c_long};

use shmem::raw::{self, Blocks, Group, combine};
use shmem::{Datum, ReduceOp};

use crate::check;
use crate::collectives::at_least;
use crate::constants::SHMEM_SYNC_SIZE;

/// The active set, its size, and the rank of this PE in it; `None` if it is not in.
fn group(
    name: &str,
    start: c_int,
    log_stride: c_int,
    size: c_int,
    psync: *mut c_long,
) -> Option<(Group<'static>, usize, usize)> {
    check::collective(name);
    let number = |arg, value| check::count(name, arg, value);
    let (first, log, n) = (
        number("PE_start", start),
        number("logPE_stride", log_stride),
        number("PE_size", size),
    );
    let stride = 1usize.checked_shl(log as u32);
    let last = stride.and_then(|stride| n.checked_sub(1)?.checked_mul(stride)?.checked_add(first));
    let (Some(stride), true) = (stride, last.is_some_and(|last| last < shmem::n_pes())) else {
        check::refuse(
            name,
            format_args!(
                "PE_start = {start}, logPE_stride = {log_stride}, PE_size = {size}: not all of these \
                 PEs exist, there are {}",
                shmem::n_pes()
            ),
        );
    };
    let distance = shmem::my_pe().checked_sub(first)?;
    let rank = distance / stride;
    if !distance.is_multiple_of(stride) || rank >= n {
        return None;
    }
    let words = SHMEM_SYNC_SIZE as usize;
    let group = Group::ActiveSet {
        start: first,
        log_stride: log as u32,
        size: n,
        psync: check::symmetric(name, "pSync", psync, check::bytes::<c_long>(words)),
    };
    Some((group, n, rank))
}

pub(crate) unsafe fn barrier(name: &str, start: c_int, log: c_int, size: c_int, ps: *mut c_long) {
    if let Some((group, ..)) = group(name, start, log, size, ps) {
        // SAFETY: `group` has checked the array; its use by the caller.
        unsafe { raw::barrier(group) };
    }
}

pub(crate) unsafe fn sync(name: &str, start: c_int, log: c_int, size: c_int, ps: *mut c_long) {
    if let Some((group, ..)) = group(name, start, log, size, ps) {
        // SAFETY: as for a barrier.
        unsafe { raw::sync(group) };
    }
}

pub(crate) unsafe fn broadcast<T>(
    name: &str,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    root: c_int,
    start: c_int,
    log: c_int,
    size: c_int,
    ps: *mut c_long,
) {
    let Some((group, n, me)) = group(name, start, log, size, ps) else {
        return;
    };
    let number = root as usize;
    if number >= n {
        check::no_such_pe(name, root, n);
    }
    let bytes = check::bytes::<T>(nelems);
    let dest = check::symmetric(name, "dest", dest, bytes);
    // The source is of importance on the root only.
    let read = if number == me { bytes } else { 0 };
    let source = check::symmetric(name, "source", source, read);
    // SAFETY: the arrays were checked; their use by the caller.
    unsafe { raw::broadcast(group, dest, source, bytes, number, false) };
}

pub(crate) unsafe fn collect<T>(
    name: &str,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    start: c_int,
    log: c_int,
    size: c_int,
    ps: *mut c_long,
) {
    let Some((group, ..)) = group(name, start, log, size, ps) else {
        return;
    };
    let bytes = check::bytes::<T>(nelems);
    let dest = check::symmetric(name, "dest", dest, at_least(bytes, dest));
    let source = check::symmetric(name, "source", source, bytes);
    // SAFETY: the source was checked; the destination, whose length the members make together, by the
    // caller.
    unsafe { raw::collect(group, dest, source, bytes) };
}

pub(crate) unsafe fn fcollect<T>(
    name: &str,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    start: c_int,
    log: c_int,
    size: c_int,
    ps: *mut c_long,
) {
    let Some((group, n, _)) = group(name, start, log, size, ps) else {
        return;
    };
    let bytes = check::bytes::<T>(nelems);
    let dest = check::symmetric(name, "dest", dest, bytes.saturating_mul(n));
    let source = check::symmetric(name, "source", source, bytes);
    // SAFETY: the arrays were checked; their use by the caller.
    unsafe { raw::fcollect(group, dest, source, bytes) };
}

pub(crate) unsafe fn alltoall<T>(
    name: &str,
    dest: *mut T,
    source: *const T,
    nelems: usize,
    start: c_int,
    log: c_int,
    size: c_int,
    ps: *mut c_long,
) {
    let Some((group, n, _)) = group(name, start, log, size, ps) else {
        return;
    };
    let bytes = check::bytes::<T>(nelems);
    let dest = check::symmetric(name, "dest", dest, bytes.saturating_mul(n));
    let source = check::symmetric(name, "source", source, bytes.saturating_mul(n));
    // SAFETY: the arrays were checked; their use by the caller.
    unsafe { raw::alltoall(group, dest, source, bytes) };
}

pub(crate) unsafe fn alltoalls<T>(
    name: &str,
    dest: *mut T,
    source: *const T,
    dst: isize,
    sst: isize,
    nelems: usize,
    start: c_int,
    log: c_int,
    size: c_int,
    ps: *mut c_long,
) {
    let Some((group, n, _)) = group(name, start, log, size, ps) else {
        return;
    };
    let all = nelems.saturating_mul(n);
    let (blocks, to, from) = check::blocks::<T>(name, dst, sst, 1, all);
    let dest = check::symmetric(name, "dest", dest, to);
    let source = check::symmetric(name, "source", source, from);
    let pieces = Blocks {
        count: nelems,
        ..blocks
    };
    // SAFETY: the arrays were checked; their use by the caller.
    unsafe { raw::alltoalls(group, dest, source, pieces) };
}

/// The work array is not needed.
pub(crate) unsafe fn reduce<T: Datum, O: ReduceOp<T> + Default>(
    name: &str,
    dest: *mut T,
    source: *const T,
    nreduce: c_int,
    start: c_int,
    log: c_int,
    size: c_int,
    _pwrk: *mut T,
    ps: *mut c_long,
) {
    let Some((group, ..)) = group(name, start, log, size, ps) else {
        return;
    };
    let n = check::count(name, "nreduce", nreduce);
    check::aligned_to::<T>(name, dest, source);
    let bytes = check::bytes::<T>(n);
    let dest = check::symmetric(name, "dest", dest, bytes);
    let source = check::symmetric(name, "source", source, bytes);
    // SAFETY: the arrays were checked; overlap by the caller.
    unsafe {
        raw::reduce(
            group,
            dest,
            source,
            n,
            size_of::<T>(),
            combine::<T, O>(O::default()),
        )
    };
}
