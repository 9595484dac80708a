//! The template's end: a loop in a constructor that forks PEs, or executes them where forks would lose something.

use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::exec::{self, Program, Recipe};
use super::lost::Lost;
use super::message::{BIND, PeSpec, Refusal, Step, TemplateStart};
use super::requests::{Role, serve_requests};
use crate::contract::{self, Descriptors};
use crate::cpus::Bindings;
use crate::{sys, text};

/// To be called from an `.init_array` entry of the program. Returns at once in a program that was
/// executed in the ordinary way. In a template it serves spawn requests and returns only in the
/// forked PEs, with their descriptors and environment in place.
///
/// `warm_up` runs once in the template, before the first fork: for what is the same in all PEs and
/// costs time to find out.
///
/// Runs before `main`, but constructors of shared libraries may have run before it. If they have done what a fork
/// loses, PEs are executed.
pub fn constructor(warm_up: fn()) {
    // `std::env` works here (glibc sets `environ` before constructors), and without the variable
    // nothing is allocated.
    let Some(start) = std::env::var_os(contract::ENV_TEMPLATE) else {
        return;
    };
    let bindings = std::env::var(contract::ENV_BINDINGS).unwrap_or_default();
    let parsed = start.to_str().and_then(TemplateStart::parse);
    let Some((start, bindings)) = parsed.zip(Bindings::parse(&bindings)) else {
        tell(format_args!(
            "the template of this program cannot read {}={} or {}={bindings}",
            contract::ENV_TEMPLATE,
            start.display(),
            contract::ENV_BINDINGS
        ));
        sys::end_at_once(1)
    };
    let node = std::env::var(contract::ENV_NODE).unwrap_or_default();
    let fds = contract::offered(&node).unwrap_or_else(|other| {
        tell(format_args!("{other}"));
        sys::end_at_once(1)
    });
    let lost = Lost::look(fds.all());
    let served = match lost.is_nothing() {
        true => {
            // SAFETY: one thread only, as was seen, so nobody reads the environment meanwhile. PEs and their own
            // children must not take themselves for templates.
            unsafe {
                std::env::remove_var(contract::ENV_TEMPLATE);
                std::env::remove_var(contract::ENV_BINDINGS);
            }
            warm_up();
            // SAFETY: one thread only.
            let variables = unsafe { OwnVariables::set() };
            serve(start.socket, fds, &bindings, &variables)
        }
        false => execute(start, fds, bindings, lost),
    };
    match served {
        Ok(Role::Pe) => {}
        // The program's own exit handlers are not ours to run.
        Ok(Role::Finished) => sys::end_at_once(0),
        Err(e) => {
            tell(format_args!("the template of this program failed: {e}"));
            sys::end_at_once(1)
        }
    }
}

/// Executes the program for each PE instead of forking it, with the arguments and the environment with which it was
/// executed itself: libraries may have changed the present ones. Without permission all requests fail.
fn execute(
    start: TemplateStart,
    fds: Descriptors,
    bindings: Bindings,
    lost: Lost,
) -> io::Result<Role> {
    // SAFETY: the launch agent left this descriptor open for us.
    let sock = unsafe { BorrowedFd::borrow_raw(start.socket) };
    if !start.may_execute {
        let refusal = Refusal {
            step: Step::Start,
            errno: libc::ENOTSUP,
        };
        let refuse = |_: &PeSpec, _: &[OwnedFd]| Err(refusal);
        return serve_requests(sock, fds, lost, refuse);
    }
    sys::close_on_exec_between(3, fds.template());
    sys::close_on_exec_between(fds.agent() + 1, RawFd::MAX);
    // SAFETY: the default action is no function.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let strings = |file: &str| -> io::Result<Vec<CString>> {
        let bytes = std::fs::read(file)?;
        let strings = bytes
            .split_inclusive(|&b| b == 0)
            .map(CStr::from_bytes_with_nul);
        Ok(strings.flatten().map(CStr::to_owned).collect())
    };
    // SAFETY: the kernel puts the name with which the program was executed on its initial stack, and it stays there.
    let path = unsafe {
        let name = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        if name.is_null() {
            return Err(io::Error::other(
                "the kernel does not tell the name of its file",
            ));
        }
        CStr::from_ptr(name).to_owned()
    };
    let of_templates = |variable: &CString| {
        let name = variable.to_bytes().split(|&b| b == b'=').next();
        [contract::ENV_TEMPLATE, contract::ENV_BINDINGS]
            .iter()
            .any(|own| name == Some(own.as_bytes()))
    };
    let mut env = strings("/proc/self/environ")?;
    env.retain(|variable| !of_templates(variable));
    let recipe = Recipe {
        programs: vec![Program {
            first_rank: 0,
            path,
            args: strings("/proc/self/cmdline")?,
            dir: None,
            env: None,
        }],
        env,
        more_env: Vec::new(),
        own_env: Vec::new(),
        fds,
        pmi: true,
        n_local: start.n_local,
        bindings,
    };
    exec::serve_instead(sock, &recipe, lost).map(|()| Role::Finished)
}

/// Who cannot be told is not.
fn tell(what: fmt::Arguments<'_>) {
    text::say(format_args!("shmem: {what}"));
}

/// Forks PEs on request. Returns in each of them, and in the template when there are no more.
fn serve(
    fd: RawFd,
    fds: Descriptors,
    bindings: &Bindings,
    variables: &OwnVariables,
) -> io::Result<Role> {
    // SAFETY: the launch agent left this descriptor open for us.
    let sock = unsafe { BorrowedFd::borrow_raw(fd) };
    serve_requests(sock, fds, Lost::default(), |pe, own| {
        // SAFETY: one thread only, so the child has everything that the parent has.
        match unsafe { libc::fork() } {
            -1 => Err(Refusal::of(Step::Start, &io::Error::last_os_error())),
            0 => {
                let fail = |what: &str, e: io::Error| -> ! {
                    tell(format_args!("cannot {what} PE {}: {e}", pe.rank));
                    sys::end_at_once(1)
                };
                if let Err(e) = bindings.of(pe.local).map_or(Ok(()), sys::bind_to) {
                    fail(BIND, e);
                }
                if let Err(e) = become_pe(pe, own, fds, variables) {
                    fail("start", e);
                }
                Ok(None)
            }
            pid => Ok(Some(pid)),
        }
    })
}

/// In a fresh child: descriptors, environment, random bytes.
fn become_pe(
    pe: &PeSpec,
    own: &[OwnedFd],
    fds: Descriptors,
    variables: &OwnVariables,
) -> io::Result<()> {
    let targets = [1, 2, fds.pmi(), 0];
    for (fd, to) in own.iter().zip(targets) {
        // SAFETY: what was there was the template's.
        unsafe { sys::put(fd.as_raw_fd(), to)? };
    }
    // The kernel takes the lowest number that is free, so what has come here is below the PE's own descriptors.
    // SAFETY: up to the template's socket everything belongs to the template or to other PEs. The owners of these
    // numbers in this process are forgotten by the caller.
    unsafe { sys::close_between(3, fds.template())? };
    // SAFETY: one thread only.
    unsafe { variables.write(pe) };
    renew_at_random()
}

/// The variables that differ between PEs, which are numbers.
fn pe_env(rank: u32, local: u32) -> [(&'static str, u32); 3] {
    let [by_rank, by_id] = contract::rank_env(rank);
    [by_rank, by_id, contract::place_env(local)]
}

/// The variables that differ between the PEs of a node, already in the environment, with room for any
/// number: a forked PE writes its own there, which touches one page and allocates nothing.
struct OwnVariables([*mut u8; 3]);

impl OwnVariables {
    /// Puts them into the environment, as 0.
    ///
    /// # Safety
    /// This process has a single thread.
    unsafe fn set() -> Self {
        let variables = pe_env(0, 0);
        let room = |name: &str| name.len() + "=4294967295\0".len();
        let all = variables.iter().map(|(name, _)| room(name)).sum();
        // The environment refers to it from now on.
        let mut free = vec![0; all].leak();
        Self(variables.map(|(name, _)| {
            let (own, rest) = std::mem::take(&mut free).split_at_mut(room(name));
            free = rest;
            own[..name.len()].copy_from_slice(name.as_bytes());
            own[name.len()..][..2].copy_from_slice(b"=0");
            // SAFETY: text with its NUL that stays; one thread, by the caller.
            unsafe { libc::putenv(own.as_mut_ptr().cast()) };
            own[name.len() + 1..].as_mut_ptr()
        }))
    }

    /// Gives them the values of a PE.
    ///
    /// # Safety
    /// This process has a single thread.
    unsafe fn write(&self, pe: &PeSpec) {
        for (&at, (_, number)) in self.0.iter().zip(pe_env(pe.rank, pe.local)) {
            let (mut digits, mut rest) = ([0; 11], number);
            let mut first = digits.len() - 1;
            while first == digits.len() - 1 || rest > 0 {
                first -= 1;
                digits[first] = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            // SAFETY: there is room for ten digits and a NUL, which nobody else writes, by the caller.
            unsafe { at.copy_from_nonoverlapping(digits[first..].as_ptr(), digits.len() - first) };
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_are_written_into_the_environment() {
        // A child, whose environment nobody else reads.
        // SAFETY: the child calls nothing that other threads could have locked but the allocator, which the C
        // library keeps usable.
        match unsafe { libc::fork() } {
            -1 => panic!("{}", io::Error::last_os_error()),
            0 => {
                // SAFETY: a forked process has one thread.
                let good = unsafe {
                    let variables = OwnVariables::set();
                    [(0, 7), (10, 0), (u32::MAX, 4_000_000_000), (8191, 15)]
                        .into_iter()
                        .all(|(rank, local)| {
                            variables.write(&PeSpec {
                                rank,
                                local,
                                has_stdin: 0,
                            });
                            pe_env(rank, local).iter().all(|(name, n)| {
                                std::env::var(name).is_ok_and(|v| v == n.to_string())
                            })
                        })
                };
                sys::end_at_once(i32::from(!good));
            }
            child => {
                let mut status = 0;
                // SAFETY: `status` outlives the call.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
            }
        }
    }
}
