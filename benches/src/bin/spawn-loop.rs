//! The yardstick of start-up: a loop of `posix_spawn`, then a loop of `waitpid`.
//!
//! `spawn-loop 8192 /bin/true` starts 8192 copies and waits for all, as a C program would.

use std::ffi::CString;
use std::ptr;

fn main() {
    let mut args = std::env::args().skip(1);
    let count: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(1024);
    let program =
        CString::new(args.next().unwrap_or("/bin/true".into())).expect("no NUL in a path");
    let argv = [program.as_ptr().cast_mut(), ptr::null_mut()];
    let envp = [ptr::null_mut()];
    for i in 0..count {
        let mut pid = 0;
        // SAFETY: all pointers outlive the call; no file actions and no attributes.
        let errno = unsafe {
            let (path, argv, envp) = (program.as_ptr(), argv.as_ptr(), envp.as_ptr());
            libc::posix_spawn(&mut pid, path, ptr::null(), ptr::null(), argv, envp)
        };
        if errno != 0 {
            let why = std::io::Error::from_raw_os_error(errno);
            eprintln!("spawn-loop: cannot start process {i} of {count}: {why}");
            std::process::exit(1);
        }
    }
    let mut failed = 0;
    for _ in 0..count {
        let mut status = 0;
        // SAFETY: `status` is writable.
        if unsafe { libc::waitpid(-1, &mut status, 0) } == -1 || status != 0 {
            failed += 1;
        }
    }
    if failed > 0 {
        eprintln!("spawn-loop: {failed} of {count} processes failed");
        std::process::exit(1);
    }
}
