//! The two system calls that move bytes of streams between a socket and registered memory.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{Ordering, fence};

use rustix::io::Errno;
use smallvec::SmallVec;

use crate::driver::messages;
use crate::stream::{Output, Piece};

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

fn memory(piece: Piece) -> libc::iovec {
    libc::iovec {
        iov_base: ptr::with_exposed_provenance_mut(piece.addr as usize),
        iov_len: piece.len,
    }
}

fn message(parts: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = parts.len();
    header
}

fn answer(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

/// Sends as much as the socket takes.
///
/// # Safety
/// The pieces are mapped.
pub(super) unsafe fn send(fd: BorrowedFd<'_>, output: &Output<'_>) -> Result<usize, Errno> {
    let mut parts: SmallVec<[libc::iovec; 4]> = SmallVec::new();
    parts.push(part(output.head));
    parts.extend(output.pieces.iter().map(|piece| memory(*piece)));
    let header = message(&mut parts);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    messages::before_sending();
    // SAFETY: the head is borrowed, the pieces are mapped by the caller's promise, and the kernel only reads them. Threads may
    // write them meanwhile: the bytes are then any mixture, as with every RDMA device.
    answer(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) })
}

/// Receives to memory first, and what is more to `ahead`.
///
/// # Safety
/// The memory is mapped and writable, and no Rust reference to it is used meanwhile.
pub(super) unsafe fn receive(
    fd: BorrowedFd<'_>,
    direct: Option<(u64, usize)>,
    ahead: &mut [u8],
) -> Result<usize, Errno> {
    let ahead = libc::iovec {
        iov_base: ahead.as_mut_ptr().cast(),
        iov_len: ahead.len(),
    };
    let mut parts: SmallVec<[libc::iovec; 2]> = SmallVec::new();
    parts.extend(direct.map(|(addr, len)| memory(Piece { addr, len })));
    parts.push(ahead);
    let mut header = message(&mut parts);
    // What was written before is visible before this, as with every write of a peer.
    fence(Ordering::Release);
    // SAFETY: `ahead` is exclusively borrowed, the memory is writable by the caller's promise.
    let received = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    messages::after_receiving();
    answer(received)
}
