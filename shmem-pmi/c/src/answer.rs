//! Runs the functions of the library: each answers with a code, and tells the reason of a failure.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use crate::state;
use crate::status::{Code, Fault};

/// Number of different reasons that are printed. A program that continues after errors must not fill a disk.
const TOLD_MAX: usize = 64;

/// Runs the function `name`. No panic leaves it.
pub(crate) fn answer(name: &'static str, run: impl FnOnce() -> Result<(), Fault>) -> c_int {
    let told = || match run() {
        Ok(()) => Code::Success,
        Err(fault) => {
            tell(name, &fault);
            fault.code
        }
    };
    // What has panicked is abandoned; that there was a panic, and where, its hook has told.
    let code = catch_unwind(AssertUnwindSafe(told)).unwrap_or(Code::Other);
    code as c_int
}

/// Tells a reason on standard error, once: nothing else has a place for it, and the code does not say which
/// argument or peer it was.
fn tell(name: &str, fault: &Fault) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Some(why) = &fault.why else { return };
    let rank = fault
        .rank
        .or_else(|| Some(state::current()?.process.rank()));
    let line = match rank {
        Some(rank) => format!("PE {rank}: {name}: {why}\n"),
        None => format!("{name}: {why}\n"),
    };
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.len() < TOLD_MAX && !told.contains(&line) {
        // Where nobody listens, the code has to do.
        let _ = std::io::stderr().write_all(line.as_bytes());
        told.insert(line);
    }
}
