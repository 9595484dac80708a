//! A child of a PE gets static data of its own.
//!
//! Shared memory stays shared over a fork, so without this a child's stores to its variables would be
//! the PE's. Before a fork the data is copied, as the forking thread sees it; the child moves the copy
//! to where the data was, the PE drops it. `vfork` and `posix_spawn` do not come by here, and need
//! not: their children execute another program.
//!
//! In a program with a static C library that library's own variables are static data, too, and it sets
//! some of them in the child before it calls anybody. There a child cannot be kept from changing
//! them for the PE: nothing but a warning helps.

use std::cell::Cell;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use shmem_node::sys;

use super::stretch::Stretch;
use crate::heap::access;

struct Shared {
    stretches: &'static [Stretch],
    /// The number of the file of the heap memory, and which file that was: the program may close it.
    file: RawFd,
    identity: sys::FileId,
    /// Where this PE's segment begins in it.
    in_file: u64,
    /// Whether the C library is part of the program.
    static_libc: bool,
    warned: AtomicBool,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

thread_local! {
    /// The copy that this thread has made for the fork that it is in.
    static COPY: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
}

/// Gives children that are forked from now on a private copy of these stretches.
pub(super) fn keep_private(
    stretches: &'static [Stretch],
    file: BorrowedFd<'_>,
    in_file: u64,
    static_libc: bool,
) {
    let Ok(identity) = sys::file_id(file) else {
        return;
    };
    let shared = Shared {
        stretches,
        file: file.as_raw_fd(),
        identity,
        in_file,
        static_libc,
        warned: AtomicBool::new(false),
    };
    if SHARED.set(shared).is_ok() {
        // SAFETY: the handlers are functions of this library, which is never unloaded: libraries
        // with thread-local destructors or atfork handlers stay.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
}

fn total(shared: &Shared) -> usize {
    shared.stretches.iter().map(Stretch::pages).sum()
}

impl Shared {
    /// Calls `copy` with the parts of a stretch, as offsets from its start, that may hold anything but
    /// zeros: what the file of the memory has pages for, or everything if it cannot be asked.
    fn parts(&self, stretch: &Stretch, mut copy: impl FnMut(usize, usize)) {
        let begin = self.in_file + stretch.at as u64;
        let end = begin + stretch.pages() as u64;
        // SAFETY: a number that was open. If the program has closed it meanwhile, or opened another file with it, the call
        // fails or says which file it is; it changes nothing, and nothing keeps what is borrowed.
        let file = unsafe { BorrowedFd::borrow_raw(self.file) };
        if sys::file_id(file).ok() != Some(self.identity) {
            return copy(0, stretch.pages());
        }
        let seek = |from: u64, whence| {
            // SAFETY: plain system call; nobody reads or writes the file by its position.
            let at = unsafe { libc::lseek(self.file, from as libc::off_t, whence) };
            u64::try_from(at).unwrap_or(end).clamp(from, end)
        };
        let mut at = begin;
        while at < end {
            let data = seek(at, libc::SEEK_DATA);
            let hole = seek(data, libc::SEEK_HOLE);
            copy((data - begin) as usize, (hole - begin) as usize);
            if hole <= at {
                return;
            }
            at = hole;
        }
    }
}

extern "C" fn before() {
    let Some(shared) = SHARED.get() else { return };
    if shared.static_libc && !shared.warned.swap(true, Ordering::Relaxed) {
        eprintln!(
            "shmem: this PE forks, but its program is linked with a static C library, whose state its \
             child can damage; use posix_spawn, or link the program with a shared C library"
        );
    }
    // SAFETY: a new mapping.
    let copy = unsafe {
        libc::mmap(
            ptr::null_mut(),
            total(shared),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if copy == libc::MAP_FAILED {
        COPY.set(ptr::null_mut());
        return;
    }
    let copy = copy.cast::<u8>();
    let mut at = 0;
    for stretch in shared.stretches {
        shared.parts(stretch, |from, to| {
            // SAFETY: the part lies in the stretch, which is mapped, and the copy has room for all of
            // them. Peers may write meanwhile, as they may at any time.
            unsafe {
                access::copy(
                    (stretch.start + from) as *const u8,
                    copy.add(at + from),
                    to - from,
                );
            }
        });
        at += stretch.pages();
    }
    COPY.set(copy);
}

extern "C" fn in_parent() {
    let copy = COPY.replace(ptr::null_mut());
    if let Some(shared) = SHARED.get()
        && !copy.is_null()
    {
        // SAFETY: the mapping of `before`, which nobody else knows.
        unsafe { libc::munmap(copy.cast(), total(shared)) };
    }
}

extern "C" fn in_child() {
    let Some(shared) = SHARED.get() else { return };
    let copy = COPY.replace(ptr::null_mut());
    let mut at = 0;
    for stretch in shared.stretches {
        // SAFETY: the child has one thread. What was mapped at the stretch is replaced by a copy of it,
        // or, if there was no memory for one or it cannot be moved, by a view of the same file that keeps what is
        // written to it for itself.
        unsafe {
            let moved = !copy.is_null()
                && libc::mremap(
                    copy.add(at).cast(),
                    stretch.pages(),
                    stretch.pages(),
                    libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                    stretch.start as *mut libc::c_void,
                ) != libc::MAP_FAILED;
            if !moved {
                libc::mmap(
                    stretch.start as *mut _,
                    stretch.pages(),
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE,
                    shared.file,
                    (shared.in_file + stretch.at as u64) as libc::off_t,
                );
            }
        }
        at += stretch.pages();
    }
}
