//! The launcher in a test program: a process of that program whose name is `shmrun` never comes to `main`.
//!
//! The launcher forks, which takes a process with one thread; libtest has several. So it runs in a constructor,
//! before there is any. What of the standard library it uses does not depend on what the runtime does between
//! here and `main`, except that SIGPIPE must be ignored.
//!
//! The launcher executes itself for jobs that PEs spawn and for servers of PMIx, under the same name, and comes
//! here again.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// What the process is called that is the launcher: as everywhere.
pub(crate) const NAME: &str = "shmrun";

/// Not `#[used]`: it is part of a program only where [`keep`] is, so that programs without such a test do not
/// have the launcher in them.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn run() {
        be_it();
    }
    run
};

/// Refers to the constructor.
pub(crate) fn keep() {
    std::hint::black_box(&raw const CONSTRUCTOR);
}

/// Is the launcher, if this process was started as one.
fn be_it() {
    // Not every C library hands constructors the arguments.
    let Ok(words) = std::fs::read("/proc/self/cmdline") else {
        return;
    };
    let Some(rest) = words.strip_prefix(NAME.as_bytes()) else {
        return;
    };
    if rest.first() != Some(&0) {
        return;
    }
    let args = words
        .strip_suffix(b"\0")
        .unwrap_or(&words)
        .split(|&b| b == 0);
    let args: Vec<OsString> = args.map(|word| OsString::from_vec(word.to_vec())).collect();
    // In listings it would be `exe`, by the path that was executed.
    let _ = rustix::thread::set_name(c"shmrun");
    // SAFETY: a disposition without a handler, as the runtime sets it before `main`.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let status = match threads() {
        // SAFETY: there is one thread, as the kernel counts them, and it is here.
        1 => unsafe { shmem_launch::main(args) },
        n => {
            eprintln!(
                "shmrun: a constructor of the test program has started {} threads before main: no job can be started \
                 from it",
                n - 1
            );
            125
        }
    };
    std::process::exit(status.into())
}

/// Number of threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}
