//! What the calls of libpmix answer.

use std::ffi::c_int;
use std::fmt;

/// A status of libpmix: zero is success, errors are negative.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Status(pub c_int);

macro_rules! statuses {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        #[allow(missing_docs, reason = "the standard's names")]
        impl Status {
            $(pub const $name: Self = Self($number);)*

            /// The standard's name without `PMIX_` and `ERR_`, and what it means.
            fn known(self) -> Option<(&'static str, &'static str)> {
                match self {
                    $(Self::$name => Some((stringify!($name), $text)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, "success";
    ERROR = -1, "an error that is not explained";
    PROC_ABORTED = -7, "a process has ended the job";
    PROC_REQUESTED_ABORT = -8, "a process has asked for the job's end";
    EXISTS = -11, "it is there already";
    INVALID_CRED = -12, "the server does not accept who this process is";
    WOULD_BLOCK = -15, "it would have to wait";
    UNKNOWN_DATA_TYPE = -16, "a kind of value that it does not know";
    TYPE_MISMATCH = -18, "a value of another kind";
    UNPACK_FAILURE = -20, "a message that cannot be read";
    PACK_FAILURE = -21, "a value that cannot be sent";
    NO_PERMISSIONS = -23, "not permitted";
    TIMEOUT = -24, "no answer in time";
    UNREACH = -25, "the server cannot be reached";
    BAD_PARAM = -27, "an argument that makes no sense to it";
    RESOURCE_BUSY = -28, "something is in use";
    OUT_OF_RESOURCE = -29, "something is used up";
    INIT = -31, "it is not initialised";
    NOMEM = -32, "no memory";
    INVALID_NAMESPACE = -44, "it does not know the job";
    NOT_FOUND = -46, "it is not there";
    NOT_SUPPORTED = -47, "the launcher does not offer it";
    COMM_FAILURE = -49, "the connection to the server failed";
    UNPACK_READ_PAST_END = -50, "a message is shorter than expected";
    PARTIAL_SUCCESS = -52, "done only in part";
    DUPLICATE_KEY = -53, "a key is there already";
    EMPTY = -60, "nothing is there";
    LOST_CONNECTION = -61, "the connection to the server is lost";
    EXISTS_OUTSIDE_SCOPE = -62, "it is there, but not for this process";
    LOST_CONNECTION_TO_SERVER = -101, "the connection to the server is lost";
    OPERATION_IN_PROGRESS = -156, "it is being done already";
    OPERATION_SUCCEEDED = -157, "done at once";
    INVALID_OPERATION = -158, "it makes no sense now";
    JOB_FAILED_TO_MAP = -179, "the launcher finds no place for the processes";
    JOB_FAILED_TO_LAUNCH = -181, "the processes cannot be started";
    JOB_EXE_NOT_FOUND = -190, "the program is not there";
    EVENT_ACTION_COMPLETE = -334, "the event has been dealt with";
    PROC_TERM_WO_SYNC = -200, "a process has ended without finalize";
    EVENT_PROC_TERMINATED = -201, "a process has ended";
}

impl Status {
    /// Whether the call has done, or begun, what it was asked for.
    pub fn is_ok(self) -> bool {
        matches!(self, Self::SUCCESS | Self::OPERATION_SUCCEEDED)
    }

    /// An error if the call has not.
    ///
    /// # Errors
    ///
    /// The status itself.
    pub fn ok(self) -> Result<(), Self> {
        match self.is_ok() {
            true => Ok(()),
            false => Err(self),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some((name, text)) => write!(f, "{text} (PMIx status {} {name})", self.0),
            None => write!(f, "PMIx status {}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_the_status() {
        let text = Status::NOT_FOUND.to_string();
        assert_eq!(text, "it is not there (PMIx status -46 NOT_FOUND)");
        assert_eq!(Status(-9999).to_string(), "PMIx status -9999");
        assert!(Status::OPERATION_SUCCEEDED.ok().is_ok());
        assert_eq!(Status::TIMEOUT.ok(), Err(Status::TIMEOUT));
    }
}
