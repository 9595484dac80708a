//! The template's end: a loop in a constructor that forks PEs.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::message::{MAX_MESSAGE, PeSpec, Request, Spawned};
use crate::contract::{self, FIRST_FREE_FD, PMI_FD};
use crate::sys;

/// To be called from an `.init_array` entry of the program. Returns at once in a program that was
/// executed in the ordinary way. In a template it serves spawn requests and returns only in the
/// forked PEs, with their descriptors and environment in place.
///
/// `warm_up` runs once in the template, before the first fork: for what is the same in all PEs and
/// costs time to find out.
///
/// Runs before `main`: there is one thread, and nothing of the program has happened yet.
pub fn constructor(warm_up: fn()) {
    // `std::env` works here (glibc sets `environ` before constructors), and without the variable
    // nothing is allocated.
    let Some(fd) = std::env::var_os(contract::ENV_TEMPLATE_FD) else {
        return;
    };
    let Some(fd) = fd.to_str().and_then(|s| s.parse::<RawFd>().ok()) else {
        return;
    };
    // SAFETY: one thread only, so nobody reads the environment meanwhile. PEs and their own
    // children must not take themselves for templates.
    unsafe { std::env::remove_var(contract::ENV_TEMPLATE_FD) };
    warm_up();
    match serve(fd) {
        Ok(Role::Pe) => {}
        Ok(Role::Finished) => exit(0),
        Err(e) => {
            eprintln!("shmem: the template of this program failed: {e}");
            exit(1)
        }
    }
}

enum Role {
    /// In a forked PE.
    Pe,
    /// In the template, with no more to start.
    Finished,
}

fn exit(status: i32) -> ! {
    // SAFETY: always allowed. `_exit` because the program's own exit handlers are not ours to run.
    unsafe { libc::_exit(status) }
}

fn serve(fd: RawFd) -> io::Result<Role> {
    // SAFETY: the launch agent left this descriptor open for us.
    let sock = unsafe { BorrowedFd::borrow_raw(fd) };
    // SAFETY: plain system calls. The PMI descriptor's number must be taken, or a received
    // descriptor could land on it and be overwritten while it is still needed.
    unsafe {
        if libc::fcntl(PMI_FD, libc::F_GETFD) == -1 {
            sys::cerr(libc::dup2(0, PMI_FD))?;
        }
    }
    let mut buf = [0; MAX_MESSAGE];
    loop {
        let (n, fds) = sys::recv_with_fds(sock, &mut buf)?;
        if n == 0 {
            return Ok(Role::Finished);
        }
        let request = Request::decode(&buf[..n])
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        let Request::Spawn(pes) = request else {
            return Ok(Role::Finished);
        };
        let mut fds = fds.into_iter();
        let mut reply = Spawned {
            errno: 0,
            pids: Vec::with_capacity(pes.len()),
        };
        for pe in &pes {
            let own: Vec<OwnedFd> = fds.by_ref().take(pe.fd_count()).collect();
            if own.len() != pe.fd_count() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "descriptors are missing",
                ));
            }
            // SAFETY: one thread only, so the child has everything that the parent has.
            match unsafe { libc::fork() } {
                -1 => {
                    reply.errno = io::Error::last_os_error()
                        .raw_os_error()
                        .unwrap_or(libc::EAGAIN);
                    break;
                }
                0 => {
                    if let Err(e) = become_pe(pe, &own) {
                        eprintln!("shmem: cannot start PE {}: {e}", pe.rank);
                        exit(1);
                    }
                    // `become_pe` has closed these, and those of the PEs after this one.
                    std::mem::forget(own);
                    fds.for_each(std::mem::forget);
                    return Ok(Role::Pe);
                }
                pid => reply.pids.push(pid),
            }
        }
        sys::send_with_fds(sock, &reply.encode(), &[])?;
    }
}

/// In a fresh child: descriptors, environment, random bytes.
fn become_pe(pe: &PeSpec, fds: &[OwnedFd]) -> io::Result<()> {
    let targets = [1, 2, PMI_FD, 0];
    for (fd, to) in fds.iter().zip(targets) {
        // SAFETY: plain system call on open descriptors.
        sys::cerr(unsafe { libc::dup2(fd.as_raw_fd(), to) })?;
    }
    // SAFETY: everything from here on belongs to the template or to other PEs. The owners of these
    // numbers in this process are forgotten by the caller.
    sys::cerr(unsafe { libc::close_range(FIRST_FREE_FD as u32, u32::MAX, 0) })?;
    for (name, value) in contract::pe_env(pe.rank, pe.local) {
        // SAFETY: one thread only.
        unsafe { std::env::set_var(name, value) };
    }
    renew_at_random()
}

/// Gives this process its own `AT_RANDOM` bytes, as exec would have: some programs seed from them.
fn renew_at_random() -> io::Result<()> {
    let mut fresh = [0; 16];
    sys::random(&mut fresh)?;
    // SAFETY: the kernel put 16 bytes at this address, on the writable initial stack; whoever
    // wanted the old value (stack protector, pointer guard) has taken it before constructors ran.
    unsafe {
        let at = libc::getauxval(libc::AT_RANDOM) as *mut u8;
        if !at.is_null() {
            at.copy_from_nonoverlapping(fresh.as_ptr(), fresh.len());
        }
    }
    Ok(())
}
