//! How calls end: with a code for the program, and a reason for its user.

use std::fmt::Display;

use shmem_pmi::client::ClientError;
use shmem_pmi::io::ConnectionError;
use shmem_pmi::process::{Cause, ProcessError};

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
    pub(crate) rank: Option<u32>,
    /// `None` for what is an answer rather than a mistake.
    pub(crate) why: Option<String>,
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
