//! Arguments as C passes them, checked.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;

use shmem_pmi::wire::{MAX_KEY, MAX_VALUE};

use crate::status::{Code, Fault};

fn missing(arg: &str) -> Fault {
    Fault::new(Code::InvalidArg, format_args!("{arg} is null"))
}

/// The bytes of a string.
///
/// # Safety
/// `at` is null, or leads to a string that ends with NUL and stays as it is.
pub(crate) unsafe fn bytes<'s>(arg: &str, at: *const c_char) -> Result<&'s [u8], Fault> {
    if at.is_null() {
        return Err(missing(arg));
    }
    // SAFETY: by the caller.
    Ok(unsafe { CStr::from_ptr(at) }.to_bytes())
}

/// A key, or the name of an attribute.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn key<'s>(arg: &str, at: *const c_char) -> Result<&'s str, Fault> {
    // SAFETY: by the caller.
    let key = unsafe { text(arg, at) }?;
    match key.len() {
        1..MAX_KEY => Ok(key),
        len => Err(Fault::new(
            Code::InvalidKeyLength,
            format_args!("{arg} has {len} bytes, expected 1 to {}", MAX_KEY - 1),
        )),
    }
}

/// A text of any length.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn text<'s>(arg: &str, at: *const c_char) -> Result<&'s str, Fault> {
    // SAFETY: by the caller.
    let bytes = unsafe { bytes(arg, at) }?;
    std::str::from_utf8(bytes)
        .map_err(|e| Fault::new(Code::InvalidKey, format_args!("{arg} is not UTF-8: {e}")))
}

/// A value that takes at most `room` bytes with its NUL.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn value<'s>(
    arg: &str,
    at: *const c_char,
    room: usize,
) -> Result<&'s [u8], Fault> {
    // SAFETY: by the caller.
    let value = unsafe { bytes(arg, at) }?;
    match value.len() < room.min(MAX_VALUE) {
        true => Ok(value),
        false => {
            let (len, most) = (value.len(), room.min(MAX_VALUE) - 1);
            Err(Fault::new(
                Code::InvalidValLength,
                format_args!("{arg} has {len} bytes, expected at most {most}"),
            ))
        }
    }
}

/// A length that C passes as an `int`, of at least one.
pub(crate) fn length(arg: &str, len: c_int) -> Result<usize, Fault> {
    match usize::try_from(len) {
        Ok(len @ 1..) => Ok(len),
        _ => Err(Fault::new(
            Code::InvalidLength,
            format_args!("{arg} = {len}, expected at least 1"),
        )),
    }
}

/// Where results go: elements of the caller's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out<T> {
    at: NonNull<T>,
    room: usize,
}

// SAFETY: it is the caller's memory, for whichever thread waits for the operation.
unsafe impl<T: Send> Send for Out<T> {}

impl<T: Copy> Out<T> {
    /// Room for `room` elements at `at`.
    ///
    /// # Safety
    /// `at` is null, or that many elements may be written there as long as this value is used.
    pub(crate) unsafe fn new(arg: &str, at: *mut T, room: usize) -> Result<Self, Fault> {
        let at = NonNull::new(at).ok_or_else(|| missing(arg))?;
        Ok(Self { at, room })
    }

    /// One variable.
    ///
    /// # Safety
    /// As [`Out::new`].
    pub(crate) unsafe fn one(arg: &str, at: *mut T) -> Result<Self, Fault> {
        // SAFETY: by the caller.
        unsafe { Self::new(arg, at, 1) }
    }

    /// Writes the first element.
    pub(crate) fn set(self, value: T) {
        self.write(0, &[value]);
    }

    /// Writes elements from number `first` on, and says whether all fit; those that do not are left out.
    pub(crate) fn write(self, first: usize, values: &[T]) -> bool {
        let first = first.min(self.room);
        let len = values.len().min(self.room - first);
        // SAFETY: `first + len` is not beyond the room, which whoever made this has promised; Rust has no
        // reference to memory of the caller's.
        unsafe { std::ptr::copy(values.as_ptr(), self.at.as_ptr().add(first), len) };
        len == values.len()
    }
}

impl Out<u8> {
    /// A buffer for text, whose length C passes as an `int`.
    ///
    /// # Safety
    /// As [`Out::new`].
    pub(crate) unsafe fn text(
        (arg, at): (&str, *mut c_char),
        (len_arg, len): (&str, c_int),
    ) -> Result<Self, Fault> {
        let room = length(len_arg, len)?;
        // SAFETY: by the caller.
        unsafe { Self::new(arg, at.cast(), room) }
    }

    /// Writes what fits of `text` and a NUL; says whether all did.
    pub(crate) fn write_text(self, text: &[u8]) -> bool {
        let len = text.len().min(self.room - 1);
        self.write(0, &text[..len]);
        self.write(len, &[0]);
        len == text.len()
    }

    /// As [`Out::write_text`], where it is an error if not all fits.
    pub(crate) fn set_text(self, what: &str, text: &[u8]) -> Result<(), Fault> {
        match self.write_text(text) {
            true => Ok(()),
            false => {
                let (len, room) = (text.len(), self.room);
                Err(Fault::new(
                    Code::NoMem,
                    format_args!("{what} has {len} bytes and a NUL, the buffer {room}"),
                ))
            }
        }
    }
}
