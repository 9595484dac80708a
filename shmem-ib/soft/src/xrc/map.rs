//! Maps the file of a domain, and says which memory its processes share.
//!
//! All unsafe code for XRC domains is here.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use super::table::{WORDS, Words};

/// Memory that every process of an XRC domain maps, from the same file, though perhaps at different
/// addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedWindow {
    base: u64,
    len: u64,
}

impl SharedWindow {
    /// No memory at all: nothing of this process is reached through targets of others, nor the other
    /// way round.
    pub const NONE: Self = Self { base: 0, len: 0 };

    /// Describes `len` bytes at `base`.
    ///
    /// # Safety
    /// They stay mapped, readable and writable, until the HCA that is told of them is dropped. Every
    /// process of a domain gives a mapping of the same bytes, of the same length. As regions that are
    /// registered for remote access, they change at any time: local code must access them through raw
    /// pointers or atomics only.
    #[must_use]
    pub unsafe fn new(base: *mut u8, len: usize) -> Self {
        Self {
            base: base.expose_provenance() as u64,
            len: len as u64,
        }
    }

    /// All memory of this process, for HCAs that live in one process.
    ///
    /// # Safety
    /// All processes of the domains that HCAs with it open are this one.
    #[must_use]
    pub const unsafe fn everything() -> Self {
        Self {
            base: 0,
            len: u64::MAX,
        }
    }

    /// Where a range lies in the window, if it does as a whole.
    pub(super) fn offset(&self, addr: u64, len: u64) -> Option<u64> {
        let offset = addr.checked_sub(self.base)?;
        (offset <= self.len && len <= self.len - offset).then_some(offset)
    }

    /// The address of a range of the window.
    pub(super) fn address(&self, offset: u64, len: u64) -> Option<u64> {
        (offset <= self.len && len <= self.len - offset).then(|| self.base + offset)
    }
}

/// Names a file: device and inode.
pub type FileId = (u64, u64);

/// The table of a domain, in its file.
#[derive(Debug)]
pub(crate) struct MappedTable(NonNull<AtomicU64>);

// SAFETY: it is memory that is accessed through atomics only, and owned until it is dropped.
unsafe impl Send for MappedTable {}

/// Bytes of the file of a domain. Pages of it exist once they are used.
pub const FILE_LEN: usize = WORDS * size_of::<AtomicU64>();

impl MappedTable {
    /// Maps a file, and gives an empty one its size.
    ///
    /// # Errors
    /// The file has another size, cannot be written, or has no memory behind it.
    pub(crate) fn open(file: BorrowedFd<'_>) -> io::Result<Self> {
        let len = stat(file)?.st_size;
        if len == 0 {
            // SAFETY: a plain system call on an open descriptor.
            check(unsafe { libc::ftruncate(file.as_raw_fd(), FILE_LEN as libc::off_t) })?;
        } else if len != FILE_LEN as libc::off_t {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the file has {len} bytes, a domain's has {FILE_LEN}, or 0 when it is new"),
            ));
        }
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping anywhere, of a file that is as long as it.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), FILE_LEN, access, kind, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast())
            .map(Self)
            .ok_or_else(|| io::Error::other("mapped at address 0"))
    }
}

impl Words for MappedTable {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped with this length, aligned to a page, zeros or words written by other
        // processes, and every access is atomic. A process of the domain that made the file shorter
        // would break this; processes of a domain trust each other.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), WORDS) }
    }
}

impl Drop for MappedTable {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference to it is left.
        unsafe { libc::munmap(self.0.as_ptr().cast(), FILE_LEN) };
    }
}

/// Which file this is.
pub fn file_id(file: BorrowedFd<'_>) -> io::Result<FileId> {
    stat(file).map(|stat| (stat.st_dev, stat.st_ino))
}

fn stat(file: BorrowedFd<'_>) -> io::Result<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: room for one `stat`.
    check(unsafe { libc::fstat(file.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded, so it was filled in.
    Ok(unsafe { stat.assume_init() })
}

fn check(result: i32) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
