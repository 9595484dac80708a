//! Pictures of a job, made of what its PEs recorded ([`shmem_node::recording`]): the timeline of `--trace`, and the
//! page of `--report FILE.html`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use shmem_node::recording::Recording;

use crate::cli::Cli;
use crate::report::{Launcher, Reduced};

/// Memory that the recorded calls of all PEs may take, where the user has not said how many there may be.
const BUDGET: u64 = 256 << 20;
/// About what one takes.
const CALL: u64 = 40;
/// The fewest and the most that a PE has room for then.
const FEWEST: u64 = 256;
const MOST: u64 = 1 << 20;

/// How many of its calls each PE has room to record: none, unless a picture was asked for.
pub(crate) fn room(cli: &Cli, n_pes: u32) -> u32 {
    if cli.trace.is_none() && !cli.report.iter().any(|file| is_page(file)) {
        return 0;
    }
    let share = (BUDGET / CALL / u64::from(n_pes)).clamp(FEWEST, MOST);
    cli.trace_calls.unwrap_or(share as u32).max(1)
}

/// Whether a report of this name is a page.
pub(crate) fn is_page(file: &OsStr) -> bool {
    let name = file.as_bytes();
    name.ends_with(b".html") || name.ends_with(b".htm")
}

/// A job that is over.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// What the launcher knows of it.
    pub launcher: &'a Launcher,
    /// What the agents told in the end.
    pub reduced: &'a Reduced,
    /// What the PEs recorded, in the order of their ranks.
    pub recordings: &'a [Recording],
}

impl Job<'_> {
    /// The moment from which others are counted: when `shmrun` began.
    fn base(&self) -> u64 {
        match self.launcher.start {
            0 => {
                let calls = self.recordings.iter().flat_map(|of| &of.events);
                calls.map(|call| call.begin).min().unwrap_or(0)
            }
            start => start,
        }
    }
}

mod analysis;
mod matching;
mod page;
#[cfg(test)]
mod testing;
mod timeline;

pub use page::page;
pub use timeline::timeline;
