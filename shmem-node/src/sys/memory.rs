//! Memory files, and mappings of them that stay until the process ends.

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::process::Resource;

use super::getrlimit;

/// Bytes of a page of this machine: what the kernel maps, protects and gives memory by. A power of two.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Rounds up to a whole page.
pub fn page_up(n: usize) -> usize {
    n.next_multiple_of(page_size())
}

/// A new anonymous memory file of `len` bytes, not backed by pages until touched.
pub fn memfd(name: &CStr, len: u64) -> io::Result<OwnedFd> {
    memfd_of(name, len, MemfdFlags::empty())
}

/// The same of the machine's default huge pages, of which `len` must be a multiple.
pub fn huge_memfd(name: &CStr, len: u64) -> io::Result<OwnedFd> {
    memfd_of(name, len, MemfdFlags::HUGETLB)
}

fn memfd_of(name: &CStr, len: u64, pages: MemfdFlags) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | pages;
    let fd = rustix::fs::memfd_create(name, flags)?;
    // The kernel would send SIGXFSZ, which ends the process.
    if file_size_limit().is_some_and(|limit| len > limit) {
        return Err(Errno::FBIG.into());
    }
    rustix::fs::ftruncate(&fd, len)?;
    Ok(fd)
}

/// Most bytes that a file of this process may have (`ulimit -f`), a memory file among them.
pub fn file_size_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Most bytes of addresses that this process may have (`ulimit -v`).
pub fn address_limit() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Length of a memory file in bytes.
pub fn file_len(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_size as u64)
}

/// Device and number of a file: no two files that exist have the same.
pub type FileId = [u64; 2];

/// Which file a descriptor refers to.
pub fn file_id(fd: impl AsFd) -> io::Result<FileId> {
    let stat = rustix::fs::fstat(fd)?;
    Ok([stat.st_dev, stat.st_ino])
}

/// Forbids resizing the memory file and, when `readonly`, any further writable mapping of it. A process that resizes or maps it by
/// mistake gets an error, instead of damaging the job. No promise depends on a seal: kernels before Linux 5.1 do not know the
/// one against writable mappings, and filters of some containers refuse all seals, which is no error here.
pub fn seal(fd: BorrowedFd<'_>, readonly: bool) -> io::Result<()> {
    let size = SealFlags::SHRINK | SealFlags::GROW;
    // Whether the kernel can set these seals.
    let add = |seals| match rustix::fs::fcntl_add_seals(fd, seals) {
        Err(Errno::INVAL | Errno::PERM | Errno::NOSYS) => Ok(false),
        result => result.map(|()| true),
    };
    if !(readonly && add(size | SealFlags::FUTURE_WRITE)?) {
        add(size)?;
    }
    Ok(())
}

/// Backs `len` bytes from `offset` with pages now, so that a full machine is an error here and
/// not a SIGBUS later.
pub fn reserve(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(
        fd,
        FallocateFlags::empty(),
        offset,
        len,
    )?)
}

/// A shared mapping of a whole memory file. It is never unmapped: pointers into it stay valid
/// until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: a `Mapping` is an address range; what is done with it is up to the unsafe code that
// dereferences it, which uses atomics or the copies described in the crate's Safety section.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd`, writable or for reading only.
    pub fn new(fd: BorrowedFd<'_>, len: usize, writable: bool) -> io::Result<Self> {
        Self::at_address(ptr::null_mut(), fd, len, writable, MapFlags::NORESERVE)
    }

    /// Maps `len` bytes of a file of huge pages and sets them aside for it, for as long as the file
    /// exists: an error of the kind `OutOfMemory` if there are too few.
    pub fn reserving(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::at_address(ptr::null_mut(), fd, len, true, MapFlags::empty())
    }

    /// Maps `len` bytes of `fd` for writing, at an address that is a multiple of `align`, which is one
    /// of the page size.
    pub fn aligned(fd: BorrowedFd<'_>, len: usize, align: usize) -> io::Result<Self> {
        let room = len.checked_add(align).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let taken = unsafe { mmap_anonymous(ptr::null_mut(), room, ProtFlags::empty(), flags)? };
        let from = taken as usize;
        let (start, end) = (from.next_multiple_of(align), from + room);
        // SAFETY: all of this lies in the mapping that was just made and is nobody's yet. What cannot
        // be given back is addresses alone.
        unsafe {
            if start > from {
                let _ = munmap(taken, start - from);
            }
            let kept_to = page_up(start + len);
            if end > kept_to {
                let _ = munmap(kept_to as *mut c_void, end - kept_to);
            }
        }
        let base = start as *mut c_void;
        let flags = MapFlags::NORESERVE | MapFlags::FIXED;
        Self::at_address(base, fd, len, true, flags).inspect_err(|_| {
            // SAFETY: as above.
            let _ = unsafe { munmap(base, len) };
        })
    }

    /// With `FIXED` among the flags, `at` is an address range of the caller's own.
    fn at_address(
        at: *mut c_void,
        fd: BorrowedFd<'_>,
        len: usize,
        writable: bool,
        flags: MapFlags,
    ) -> io::Result<Self> {
        let mut access = ProtFlags::READ;
        access.set(ProtFlags::WRITE, writable);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing, and one at a
        // fixed address only what is the caller's own.
        let base = unsafe { mmap(at, len, access, MapFlags::SHARED | flags, fd, 0)? };
        Ok(Self {
            base: base.cast(),
            len,
        })
    }

    /// First byte.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of `offset`, which must leave room for `len` more bytes.
    pub fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "offset {offset} + {len} lies outside a mapping of {} bytes",
            self.len
        );
        // SAFETY: the assertion keeps the address inside the mapping.
        unsafe { self.base.add(offset) }
    }

    /// Gives pages to a range that is about to be written, all at once. Where the kernel does not
    /// know how (before 5.14) or has none left, writing does it.
    pub fn populate(&self, offset: usize, len: usize) {
        let start = offset & !(page_size() - 1);
        let at = self.at(start, offset - start + len);
        // SAFETY: the range lies in the mapping by `at`; the pages keep their contents.
        let _ = unsafe { madvise(at.cast(), offset - start + len, Advice::LinuxPopulateWrite) };
    }

    /// Asks for huge pages when this process touches the mapping. A kernel without them does not mind.
    pub fn prefer_huge_pages(&self) {
        // SAFETY: the range is this mapping; only the size of pages to come changes.
        let _ = unsafe { madvise(self.base.cast(), self.len, Advice::LinuxHugepage) };
    }

    /// Leaves the mapping out of core files. The kernel would write all of it, also what nobody has
    /// touched, which takes memory then.
    pub fn keep_from_cores(&self) {
        // SAFETY: the range is this mapping, whose contents stay as they are.
        let _ = unsafe { madvise(self.base.cast(), self.len, Advice::LinuxDontDump) };
    }

    /// Takes [`keep_from_cores`](Self::keep_from_cores) back for a range that begins with a page.
    pub fn let_into_cores(&self, offset: usize, len: usize) {
        let at = self.at(offset, len);
        // SAFETY: as above; the range lies in the mapping by `at`.
        let _ = unsafe { madvise(at.cast(), len, Advice::LinuxDoDump) };
    }

    /// A shared object at `offset`.
    ///
    /// # Safety
    /// `T` consists of atomics, or of plain data that no process writes after this call; every bit
    /// pattern is a valid `T`; `offset` is aligned for it.
    pub unsafe fn get<T>(&self, offset: usize) -> &'static T {
        let at = self.at(offset, size_of::<T>());
        debug_assert_eq!(at as usize % align_of::<T>(), 0);
        // SAFETY: in bounds by `at`, aligned and valid by the caller, never unmapped.
        unsafe { &*at.cast::<T>() }
    }

    /// A shared array of `n` objects at `offset`.
    ///
    /// # Safety
    /// As for [`Mapping::get`].
    pub unsafe fn slice<T>(&self, offset: usize, n: usize) -> &'static [T] {
        let at = self.at(offset, size_of::<T>() * n);
        debug_assert_eq!(at as usize % align_of::<T>(), 0);
        // SAFETY: in bounds by `at`, aligned and valid by the caller, never unmapped.
        unsafe { std::slice::from_raw_parts(at.cast::<T>(), n) }
    }
}

/// Memory of this process's own for a secret, which no core file holds. It stays until the process ends.
///
/// # Errors
/// When there is no memory.
pub fn secret<const N: usize>(secret: &[u8; N]) -> io::Result<&'static [u8; N]> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing. It is ours alone,
    // large enough, and never unmapped.
    unsafe {
        let base = mmap_anonymous(ptr::null_mut(), N, access, MapFlags::PRIVATE)?;
        let _ = madvise(base, N, Advice::LinuxDontDump);
        ptr::copy_nonoverlapping(secret.as_ptr(), base.cast(), N);
        Ok(&*base.cast())
    }
}

/// Gives the pages of a shared mapping back, also to the file behind it: they are zero afterwards.
/// Whole pages from `at`, which is the start of one. False, and nothing has changed, where the
/// kernel does not do that.
///
/// # Safety
/// The range is mapped, and nobody needs what it holds.
pub unsafe fn give_back(at: *mut u8, len: usize) -> bool {
    // SAFETY: by the caller.
    len == 0 || unsafe { madvise(at.cast(), len, Advice::LinuxRemove) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{fcntl_add_seals, fcntl_get_seals};
    use std::os::fd::AsFd;

    #[test]
    fn files_have_the_seals_that_the_kernel_can_set() {
        let new = || memfd(c"shmem-sealed", 4096).unwrap();
        let can = |seals| fcntl_add_seals(new(), seals).is_ok();
        for (readonly, wanted) in [
            (false, SealFlags::SHRINK | SealFlags::GROW),
            (true, SealFlags::FUTURE_WRITE),
        ] {
            let file = new();
            seal(file.as_fd(), readonly).unwrap();
            let has = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(wanted));
            assert_eq!(has, can(wanted), "{wanted:?}");
        }
    }
}
