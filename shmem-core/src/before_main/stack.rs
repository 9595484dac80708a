//! Where the main thread's stack is, for forked PEs.
//!
//! Before `main`, the Rust runtime asks for the main thread's stack to recognise its overflow. The
//! C library answers by reading and parsing `/proc/self/maps`, which is a tenth of a PE's whole
//! start-up. A forked PE has its template's stack at the same place, so the template asks once, and
//! this definition of the function returns what the template was given. The Rust runtime of each program or
//! shared library that is linked with this one calls it in place of the C library's.
//!
//! The symbol is hidden: no other file of the process finds it, and neither programs nor shared libraries export it. Rust has no
//! attribute for that, so that the symbol is defined in assembly.
//!
//! The answer has stack and guard; other attributes are the defaults, as for a new thread.

use std::cell::UnsafeCell;
use std::ffi::c_int;

use libc::{pthread_attr_t, pthread_t};

type Function = unsafe extern "C" fn(pthread_t, *mut pthread_attr_t) -> c_int;

#[derive(Clone, Copy)]
struct Stack {
    thread: pthread_t,
    base: *mut libc::c_void,
    size: usize,
    guard: usize,
}

/// Written by [`remember`], before any other thread exists; afterwards only read.
struct Remembered(UnsafeCell<Option<Stack>>);

// SAFETY: see the type: the only write comes before there is a second thread.
unsafe impl Sync for Remembered {}

static MAIN: Remembered = Remembered(UnsafeCell::new(None));

/// Asks for the calling thread's stack. For the constructor, in which one thread exists.
pub(super) fn remember() {
    // Linkers take from a static library the files with symbols that something refers to.
    std::hint::black_box(libc::pthread_getattr_np as Function);
    // SAFETY: the attribute object is initialised by the first call if that succeeds, and
    // destroyed; no other thread exists that could read `MAIN` meanwhile.
    unsafe {
        let thread = libc::pthread_self();
        let mut attr: pthread_attr_t = std::mem::zeroed();
        if real(thread, &mut attr) != 0 {
            return;
        }
        let mut stack = Stack {
            thread,
            base: std::ptr::null_mut(),
            size: 0,
            guard: 0,
        };
        let known = libc::pthread_attr_getstack(&attr, &mut stack.base, &mut stack.size) == 0
            && libc::pthread_attr_getguardsize(&attr, &mut stack.guard) == 0;
        libc::pthread_attr_destroy(&mut attr);
        if known {
            *MAIN.0.get() = Some(stack);
        }
    }
}

/// The C library's function of this name.
///
/// # Safety
/// As for that function.
unsafe fn real(thread: pthread_t, attr: *mut pthread_attr_t) -> c_int {
    // SAFETY: the name is NUL-terminated; a non-null result is the function of that name, which
    // has this type.
    unsafe {
        let found = libc::dlsym(libc::RTLD_NEXT, c"pthread_getattr_np".as_ptr());
        if found.is_null() {
            return libc::ENOSYS;
        }
        std::mem::transmute::<*mut libc::c_void, Function>(found)(thread, attr)
    }
}

/// Answers for the main thread of a forked PE; passes every other question on.
///
/// # Safety
/// `attr` points to room for an attribute object, as POSIX-like interfaces demand.
unsafe extern "C" fn answer(thread: pthread_t, attr: *mut pthread_attr_t) -> c_int {
    // SAFETY: `attr` by the caller; `MAIN` is only read once threads exist.
    unsafe {
        match *MAIN.0.get() {
            Some(stack) if stack.thread == thread => {
                let errno = libc::pthread_attr_init(attr);
                if errno != 0 {
                    return errno;
                }
                libc::pthread_attr_setguardsize(attr, stack.guard);
                libc::pthread_attr_setstack(attr, stack.base, stack.size)
            }
            _ => real(thread, attr),
        }
    }
}

/// Defines `pthread_getattr_np` by an instruction that jumps to [`answer`].
macro_rules! defined_by {
    ($jump:literal) => {
        std::arch::global_asm!(
            ".pushsection .text.pthread_getattr_np, \"ax\", @progbits",
            ".p2align 4",
            ".globl pthread_getattr_np",
            ".hidden pthread_getattr_np",
            ".type pthread_getattr_np, @function",
            "pthread_getattr_np:",
            $jump,
            ".size pthread_getattr_np, . - pthread_getattr_np",
            ".popsection",
            answer = sym answer,
        );
    };
}

#[cfg(target_arch = "x86_64")]
defined_by!("jmp {answer}");
#[cfg(target_arch = "aarch64")]
defined_by!("b {answer}");
#[cfg(target_arch = "riscv64")]
defined_by!("tail {answer}");

#[cfg(test)]
mod tests {
    use super::*;

    /// Stack base and size as the function in force tells them.
    fn told() -> (usize, usize) {
        let (mut base, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: the object is initialised by the first call, which is checked, and destroyed.
        unsafe {
            let mut attr: pthread_attr_t = std::mem::zeroed();
            assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attr), 0);
            assert_eq!(libc::pthread_attr_getstack(&attr, &mut base, &mut size), 0);
            libc::pthread_attr_destroy(&mut attr);
        }
        (base as usize, size)
    }

    #[test]
    fn a_threads_stack_contains_its_variables() {
        let here = 0u8;
        let (base, size) = told();
        assert!((base..base + size).contains(&(&raw const here as usize)));
    }
}
