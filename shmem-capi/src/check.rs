//! Checks of arguments, and what a program is told that fails one.
//!
//! The checks are inlined and cost a comparison each. Everything about a failure is found out when it
//! has happened: the message is for the programmer, and the job ends with it.

use std::ffi::c_int;
use std::fmt::{self, Display};
use std::fs;

use shmem::raw::{self, Sym};

/// Says what is wrong, and ends the job: the launcher does when a PE exits with a failure.
#[cold]
pub(crate) fn refuse(name: &str, what: fmt::Arguments<'_>) -> ! {
    say(name, what);
    std::process::exit(1)
}

/// Writes a message of this PE.
#[cold]
pub(crate) fn say(name: &str, what: fmt::Arguments<'_>) {
    eprintln!("shmem: {}{name}: {what}", Who);
}

/// This PE at the beginning of a message, if the process is one.
pub(crate) struct Who;

impl Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !raw::initialized() {
            return Ok(());
        }
        let me = shmem::my_pe();
        write!(f, "PE {me} (node {}): ", shmem::node_of(me))
    }
}

/// Ends the job unless this process is a PE.
#[inline]
pub(crate) fn running(name: &str) {
    if !raw::initialized() {
        not_running(name);
    }
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
pub(crate) fn symmetric<T>(name: &str, arg: &str, at: *const T, bytes: usize) -> Sym {
    match raw::symmetric(at.cast(), bytes) {
        Some(sym) => sym,
        None => unsymmetric(name, arg, at.cast(), bytes),
    }
}

#[cold]
fn unsymmetric(name: &str, arg: &str, at: *const u8, bytes: usize) -> Sym {
    running(name);
    if bytes == 0 {
        return Sym::new(0);
    }
    if raw::symmetric(at, 1).is_some() {
        refuse(
            name,
            format_args!(
                "{arg} = {at:p} is symmetric, but not all of the {bytes} bytes from there on are: \
                 they go past the end of the symmetric memory"
            ),
        );
    }
    refuse(
        name,
        format_args!(
            "{arg} = {at:p} is not symmetric: it {}. Use memory of shmem_malloc and its like, or \
             global and static variables of the main program",
            Location::of(at as usize)
        ),
    )
}

/// What lies at an address, as the kernel tells.
#[derive(Debug, PartialEq, Eq)]
enum Location {
    Null,
    Stack,
    Malloc,
    File(String),
    Other,
    Nothing,
}

impl Location {
    fn of(at: usize) -> Self {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Self::within(&maps, at)
    }

    /// `at` in the text of a `/proc/self/maps`.
    fn within(maps: &str, at: usize) -> Self {
        if at == 0 {
            return Self::Null;
        }
        let hit = maps.lines().find_map(|line| {
            let mut fields = line.splitn(6, ' ');
            let (from, to) = fields.next()?.split_once('-')?;
            let from = usize::from_str_radix(from, 16).ok()?;
            let to = usize::from_str_radix(to, 16).ok()?;
            let path = fields.nth(4).unwrap_or_default().trim();
            (from..to).contains(&at).then(|| path.to_owned())
        });
        match hit.as_deref() {
            None => Self::Nothing,
            Some("[stack]") => Self::Stack,
            Some("[heap]") => Self::Malloc,
            Some(path) if path.starts_with('/') => Self::File(path.to_owned()),
            Some(_) => Self::Other,
        }
    }
}

impl Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("is null"),
            Self::Stack => f.write_str("lies on the stack"),
            Self::Malloc => f.write_str("lies in memory of malloc"),
            Self::File(path) => write!(f, "belongs to {path}"),
            Self::Other => f.write_str("lies in private memory"),
            Self::Nothing => f.write_str("points to no memory"),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55e0c0000000-55e0c0001000 rw-p 00003000 08:01 1311 /usr/lib/a library.so
55e0c1000000-55e0c1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
";

    #[test]
    fn addresses_are_told_apart() {
        let at = |at| Location::within(MAPS, at);
        assert_eq!(at(0), Location::Null);
        assert_eq!(
            at(0x55e0_c000_0010),
            Location::File("/usr/lib/a library.so".to_owned())
        );
        assert_eq!(at(0x55e0_c100_0000), Location::Malloc);
        assert_eq!(at(0x7f00_0000_0000), Location::Other);
        assert_eq!(at(0x7ffd_0002_0fff), Location::Stack);
        assert_eq!(at(0x7ffd_0002_1000), Location::Nothing);
    }

    #[test]
    fn this_programs_stack_is_found() {
        // A test runs in a thread, whose stack is private memory like any other.
        let here = 0u8;
        assert_eq!(Location::of(&raw const here as usize), Location::Other);
    }
}
