//! Runs a test as a job, for `#[shmem::test]`. Programs use that, not this crate.
//!
//! A test program is three things, all of the same file, so that nothing has to be installed:
//!
//! ```text
//! cargo test ── the test program: libtest calls the test, which calls `test` here
//!                 └── itself, named shmrun: the launcher, before `main` (launcher.rs)
//!                       ├── itself, told to run this test alone: PE 0, in which `test` calls the program (pe.rs)
//!                       └── ... PE 1
//! ```
//!
//! What the PEs write the launcher labels, so that the test knows who speaks and writes it where libtest
//! captures it (job.rs). What the launcher itself says is why the job failed.
//!
//! # Who dies with whom
//! The launcher gets SIGTERM from the kernel when the test's process ends, however it does, and ends the job as
//! it does for any SIGTERM. Ctrl-C reaches it as a process of the terminal's foreground.

mod job;
mod launcher;
mod output;
mod pe;

use std::panic::Location;

/// A test, as its attribute describes it.
#[derive(Debug)]
pub struct Test {
    /// Its path, with the crate.
    pub name: &'static str,
    /// Number of PEs.
    pub pes: u32,
    /// Number of emulated nodes.
    pub nodes: u32,
    /// Time limit of the job.
    pub seconds: u64,
    /// Variables of the PEs.
    pub env: &'static [(&'static str, &'static str)],
    /// That a PE is to panic, and what its message has to contain.
    pub panics: Option<&'static str>,
}

impl Test {
    /// Its name as libtest has it: without the crate.
    fn in_crate(&self) -> &'static str {
        self.name
            .split_once("::")
            .map_or(self.name, |(_, name)| name)
    }
}

/// Runs the test: the job, or in one of its PEs `program`.
///
/// # Panics
/// If the test fails. The message has been written then.
#[track_caller]
pub fn test(test: &Test, program: impl FnOnce()) {
    launcher::keep();
    if pe::is_one() {
        pe::run(test, program);
    }
    if let Err(why) = job::run(test) {
        let at = Location::caller();
        eprintln!("{}:{}: {}: {why}", at.file(), at.line(), test.in_crate());
        // Without a backtrace: it would be of this function. Those of PEs are told by the launcher.
        std::panic::resume_unwind(Box::new(why));
    }
}

/// The programs in the README and in the documentation of the macros are compiled and run as tests. They are here, because
/// some of them are tests that are jobs.
#[cfg(doctest)]
mod programs {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../shmem-macros/src/datum.md")]
    struct Datum;
    #[doc = include_str!("../../shmem-macros/src/main.md")]
    struct Main;
    #[doc = include_str!("../../shmem-macros/src/test.md")]
    struct Test;
}
