//! How calls end: with a code for the program, and a reason for its user.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::fmt::Display;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use shmem_pmi::client::ClientError;
use shmem_pmi::io::ConnectionError;
use shmem_pmi::process::{Cause, ProcessError};

use crate::state;

/// How many different reasons are told: a program that goes on in spite of them must not fill a disk.
const TOLD_MAX: usize = 64;

/// What functions return, with the numbers of `pmi2.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    Success = 0,
    Fail = -1,
    Init = 1,
    NoMem = 2,
    InvalidArg = 3,
    InvalidKey = 4,
    InvalidKeyLength = 5,
    InvalidVal = 6,
    InvalidValLength = 7,
    InvalidLength = 8,
    Other = 14,
}

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    /// Where the process does not know its rank yet, and the error does.
    rank: Option<u32>,
    /// `None` for what is an answer rather than a mistake.
    why: Option<String>,
}

impl Fault {
    pub(crate) fn new(code: Code, why: impl Display) -> Self {
        Self {
            code,
            rank: None,
            why: Some(why.to_string()),
        }
    }

    /// A failure of which the code says all.
    pub(crate) fn silent(code: Code) -> Self {
        Self {
            code,
            rank: None,
            why: None,
        }
    }
}

impl From<ProcessError> for Fault {
    fn from(error: ProcessError) -> Self {
        let code = match &*error.cause {
            Cause::Connection(ConnectionError::Client(client)) => match client {
                ClientError::BadText { what: "key", .. } => Code::InvalidKey,
                ClientError::BadText { .. } => Code::InvalidVal,
                ClientError::ValueLength { .. } => Code::InvalidValLength,
                ClientError::WrongState { .. } => Code::Init,
                _ => Code::Fail,
            },
            Cause::Length { .. } => Code::InvalidValLength,
            _ => Code::Fail,
        };
        let why = match error.server {
            Some(server) => format!("{} ({server})", error.cause),
            None => error.cause.to_string(),
        };
        Self {
            code,
            rank: error.rank,
            why: Some(why),
        }
    }
}

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
