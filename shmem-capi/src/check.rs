//! Checks of arguments, and what a program is told that fails one.
//!
//! The checks are inlined and cost a comparison each. Everything about a failure is found out when it
//! has happened: the message is for the programmer, and the job ends with it.

use std::ffi::c_int;
use std::fmt;

use shmem::raw::{self, Blocks, SymAddr};

use crate::place::Place;

/// Says what is wrong, and ends the job: the launcher does when a PE exits with a failure.
#[cold]
pub(crate) fn refuse(name: &str, what: fmt::Arguments<'_>) -> ! {
    say(name, what);
    std::process::exit(1)
}

/// Says something about this PE.
#[cold]
pub(crate) fn say(name: &str, what: fmt::Arguments<'_>) {
    raw::complain(&format!("{name}: {what}"));
}

/// Ends the job unless this process is a PE.
#[inline]
pub(crate) fn running(name: &str) {
    if !raw::initialized() {
        not_running(name);
    }
}

/// As [`running`], for a collective: where PEs compare what they call, it is told by its name.
#[inline]
pub(crate) fn collective(name: &str) {
    running(name);
    raw::named(name);
}

#[cold]
fn not_running(name: &str) -> ! {
    refuse(
        name,
        format_args!("called before shmem_init or after the last shmem_finalize"),
    )
}

/// Bytes of `nelems` elements. What no memory can hold is found out as a range that is not symmetric.
#[inline]
pub(crate) fn bytes<T>(nelems: usize) -> usize {
    nelems.saturating_mul(size_of::<T>())
}

/// The symmetric address of `bytes` bytes at `at`, which is argument `arg`. Of no bytes at no
/// symmetric address it is the segment's beginning: nobody follows it.
#[inline]
pub(crate) fn symmetric<T>(name: &str, arg: &str, at: *const T, bytes: usize) -> SymAddr {
    match raw::symmetric(at.cast(), bytes) {
        Some(sym) => sym,
        None => unsymmetric(name, arg, at.cast(), bytes),
    }
}

#[cold]
fn unsymmetric(name: &str, arg: &str, at: *const u8, bytes: usize) -> SymAddr {
    running(name);
    if bytes == 0 {
        return SymAddr::new(0);
    }
    let why = raw::why_not_symmetric(at, bytes);
    if raw::symmetric(at, 1).is_some() {
        refuse(
            name,
            format_args!("{arg} is not symmetric in all of its length: {why}"),
        );
    }
    let place = Place::of(at as usize);
    refuse(name, format_args!("{arg} {place}: {why}"))
}

/// A PE's number as the engines take it, if the context has such a PE.
#[inline]
pub(crate) fn pe(name: &str, ctx: &raw::Ctx, pe: c_int) -> usize {
    // A negative number becomes one that is too large.
    let number = pe as usize;
    match ctx.world_pe(number) {
        Some(_) => number,
        None => no_such_pe(name, pe, ctx.n_pes()),
    }
}

/// As [`pe`], for an operation on what lies at `sym`, which is argument `arg`.
#[inline]
pub(crate) fn target(name: &str, arg: &str, sym: SymAddr, ctx: &raw::Ctx, pe: c_int) -> usize {
    let number = self::pe(name, ctx, pe);
    let other = ctx
        .world_pe(number)
        .and_then(|pe| raw::why_other_statics(sym, pe));
    if let Some(why) = other {
        refuse(name, format_args!("{arg} is static data: {why}"));
    }
    number
}

#[cold]
pub(crate) fn no_such_pe(name: &str, pe: c_int, n: usize) -> ! {
    refuse(
        name,
        format_args!(
            "there is no PE {pe}: PEs are numbered from 0 to {} here",
            n.saturating_sub(1)
        ),
    )
}

/// Ends the job unless `at` is a multiple of the size of `T`.
#[inline]
pub(crate) fn aligned<T>(name: &str, arg: &str, at: *const T) {
    if !(at as usize).is_multiple_of(size_of::<T>()) {
        misaligned(name, arg, at.cast(), size_of::<T>());
    }
}

#[cold]
fn misaligned(name: &str, arg: &str, at: *const u8, to: usize) -> ! {
    refuse(
        name,
        format_args!("{arg} = {at:p} is misaligned: it must be a multiple of {to}"),
    )
}

/// Ends the job unless elements of type `T` can lie at both addresses.
pub(crate) fn aligned_to<T>(name: &str, dest: *const T, source: *const T) {
    for (arg, at) in [("dest", dest), ("source", source)] {
        if !at.is_aligned() {
            misaligned(name, arg, at.cast(), align_of::<T>());
        }
    }
}

/// A count that C passes as an `int`.
pub(crate) fn count(name: &str, arg: &str, value: c_int) -> usize {
    usize::try_from(value)
        .unwrap_or_else(|_| refuse(name, format_args!("{arg} = {value} is negative")))
}

/// `count` blocks of `block` elements, strides apart, and the bytes from the first to the last one at
/// destination and source.
pub(crate) fn blocks<T>(
    name: &str,
    dst: isize,
    sst: isize,
    block: usize,
    count: usize,
) -> (Blocks, usize, usize) {
    for (arg, stride) in [("dst", dst), ("sst", sst)] {
        if count > 1 {
            if stride < block.max(1) as isize {
                overlapping(name, arg, stride, block);
            }
            if stride.checked_mul(size_of::<T>() as isize).is_none() {
                refuse(
                    name,
                    format_args!("{arg} = {stride}: no memory has elements so far apart"),
                );
            }
        }
    }
    let extent = |stride: isize| match count.checked_sub(1) {
        None => 0,
        Some(last) => {
            let start = last.saturating_mul(stride.unsigned_abs());
            bytes::<T>(start.saturating_add(block))
        }
    };
    let blocks = Blocks {
        count,
        bytes: bytes::<T>(block),
        dest_stride: bytes::<T>(dst.unsigned_abs()),
        source_stride: bytes::<T>(sst.unsigned_abs()),
    };
    (blocks, extent(dst), extent(sst))
}

#[cold]
fn overlapping(name: &str, arg: &str, stride: isize, block: usize) -> ! {
    match block {
        0 | 1 => refuse(
            name,
            format_args!("{arg} = {stride}: a stride is at least 1"),
        ),
        _ => refuse(
            name,
            format_args!("{arg} = {stride}: blocks of {block} elements would overlap"),
        ),
    }
}
