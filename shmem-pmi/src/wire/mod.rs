//! What goes over the wires: the PMI protocols between a PE and its node agent, and the messages
//! between node agents.
//!
//! Each submodule is a codec and nothing else: it turns bytes into values and back, holds at most
//! the bytes of one incomplete message, and knows nothing of jobs. [`v1`] and [`v2`] cut the streams
//! of PMI-1 and PMI-2 into messages; one table, of [`Command`] and [`Reply`], says what the messages
//! of both consist of. [`tree`] is the binary format of the agent tree, which is ours alone, and
//! [`data`] what both carry of data of any length.

mod codec;
pub mod data;
mod fields;
mod init;
mod messages;
mod spawn;
pub mod tree;
pub mod v1;
pub mod v2;
mod writer;

pub use fields::Fields;
pub use init::{InitLine, InitReply};
pub use messages::{Command, Fact, FullInitReply, Maxes, Reply, Verb};

/// The versions of PMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// PMI-1.
    V1,
    /// PMI-2.
    V2,
}

/// Longest key of the key-value space and of node attributes, in bytes (PMI's `MAX_KEYLEN`).
pub const MAX_KEY: usize = 64;

/// Longest value of the key-value space and of node attributes, in bytes (PMI's `MAX_VALLEN`).
pub const MAX_VALUE: usize = 1024;

/// Longest value that a PE may contribute to an allgather, in bytes before hexadecimal coding.
pub const MAX_ALLGATHER_VALUE: usize = 1024;

/// Name of the environment variable by which a launcher says that its server understands the
/// extension commands, which [`v2`] lists.
///
/// Any non-empty value other than `0` means yes. A client must never find out by trying: some
/// process managers kill the job on an unknown command, others never answer it.
pub const EXTENSIONS_ENV: &str = "SHMEM_PMI_EXTENSIONS";

/// Something that does not follow the protocol, or does not fit its limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The six bytes before a PMI-2 body are not a decimal length.
    #[error("PMI-2 length header `{header}` is not a decimal number padded with blanks")]
    BadHeader {
        /// The header as text.
        header: String,
    },
    /// A message announces or needs more bytes than the protocol allows.
    #[error("{what} of {len} bytes is longer than the limit of {max}")]
    TooLong {
        /// Which part of the message.
        what: &'static str,
        /// Length of that part in bytes, as announced or as needed.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A message or field that must not be empty is empty.
    #[error("{what} is empty")]
    Empty {
        /// Which part of the message.
        what: &'static str,
    },
    /// The first line of a connection is no PMI init line.
    #[error("expected a PMI init line, got `{line}`")]
    NotInit {
        /// The beginning of the line.
        line: String,
    },
    /// A message does not consist of `key=value` pairs of which the first is `cmd`.
    #[error("malformed PMI message at `{at}`: expected pairs `key=value`, beginning with `cmd=`")]
    Malformed {
        /// The beginning of the part that could not be read.
        at: String,
    },
    /// The command (or the reply) is not one that this end knows.
    #[error("unknown PMI command `{name}`")]
    UnknownCommand {
        /// The value of `cmd`.
        name: String,
    },
    /// A field that the command needs is absent.
    #[error("command `{command}` lacks the field `{field}`")]
    MissingField {
        /// The value of `cmd`.
        command: String,
        /// Name of the field.
        field: &'static str,
    },
    /// A PMI-1 line cannot carry this text: blanks and newlines end a value, and some clients drop
    /// backslashes.
    #[error(
        "PMI-1 cannot carry {what} `{text}`: it must not have blanks, newlines, backslashes or NUL"
    )]
    NotOneWord {
        /// Which part of the message.
        what: &'static str,
        /// The beginning of the text.
        text: String,
    },
    /// A field has a value that the command cannot have.
    #[error("field `{field}` of command `{command}` is `{value}`, expected {expected}")]
    BadField {
        /// The value of `cmd`.
        command: String,
        /// Name of the field.
        field: &'static str,
        /// The beginning of the offending value.
        value: String,
        /// What would have been accepted.
        expected: &'static str,
    },
}

/// The beginning of `bytes` as printable text, bounded so that an error never carries a flood.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const MAX: usize = 60;
    let head = &bytes[..bytes.len().min(MAX)];
    let mut text: String = String::from_utf8_lossy(head).escape_debug().collect();
    if bytes.len() > MAX {
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::excerpt;

    #[test]
    fn excerpt_is_bounded_and_printable() {
        assert_eq!(excerpt(b"cmd=x\n"), "cmd=x\\n");
        let long = excerpt(&[b'a'; 1000]);
        assert_eq!(long.len(), 63);
        assert!(long.ends_with("..."));
        assert!(!excerpt(&[0xff, 0, 1]).contains('\0'));
    }
}
