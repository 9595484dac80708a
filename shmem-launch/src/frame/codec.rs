//! Messages as bytes. Their types say what is in them (serde), and postcard how that lies in bytes; the
//! few that are hot are written by hand, beside the type ([`super::Frame`]).
//!
//! A decoder takes any bytes: it gives a message or an error, looks at nothing beyond their end, and
//! allocates no more than a small multiple of their number.

use serde::{Deserialize, Serialize, Serializer};
use shmem_node::text::beginning;

/// Version of the link protocol; the first field of the first frame, and in the greeting of an
/// agent on another host.
pub const LAUNCH_VERSION: u32 = 23;

/// Why bytes from a link could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// They end too early, or have a value that no sender writes.
    #[error("a message that is cut short or of another version ({0})")]
    Malformed(#[from] postcard::Error),
    /// Bytes remain after the last field.
    #[error("{0} bytes too many at the end of a frame")]
    Trailing(usize),
    /// A field has a value that no sender writes.
    #[error("{what} {value} is not known to this version")]
    Value {
        /// The field.
        what: &'static str,
        /// What it held.
        value: u64,
    },
    /// A frame is longer than any sender makes it.
    #[error("a frame of {0} bytes is longer than the limit")]
    TooLong(usize),
}

/// Appends a message.
pub(crate) fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) {
    // A vector takes all bytes, and the types have no length or name that postcard does not know.
    postcard::to_io(message, out).expect("messages can be written");
}

/// Reads a message, which takes all bytes.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CodecError> {
    match postcard::take_from_bytes(bytes)? {
        (message, []) => Ok(message),
        (_, rest) => Err(CodecError::Trailing(rest.len())),
    }
}

/// A message that begins with the version of the link protocol: the first of a link.
pub(crate) fn encode_first<T: Serialize>(message: &T) -> Vec<u8> {
    let mut out = LAUNCH_VERSION.to_le_bytes().to_vec();
    encode(message, &mut out);
    out
}

/// Reads it. Whatever another version has behind the number is not looked at.
pub(crate) fn decode_first<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CodecError> {
    let (version, message) = bytes
        .split_first_chunk::<4>()
        .ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
    match u32::from_le_bytes(*version) {
        LAUNCH_VERSION => decode(message),
        version => Err(CodecError::Value {
            what: "protocol version",
            value: version.into(),
        }),
    }
}

/// For fields of bytes: as one run, which is the same as byte by byte, and quicker.
pub(super) fn bytes<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

/// Longest text that travels with a failure, in bytes.
const TEXT_MAX: usize = 4096;

/// For fields of text that may be long: its beginning.
pub(crate) fn clipped<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(beginning(text, TEXT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Text(#[serde(serialize_with = "clipped")] String);

    #[test]
    fn a_long_text_is_clipped_at_a_character() {
        for (text, len) in [("ä", TEXT_MAX), ("aä", TEXT_MAX - 1)] {
            let tail = "ä".repeat(TEXT_MAX);
            let mut out = Vec::new();
            encode(&Text(format!("{text}{tail}")), &mut out);
            let Text(got) = decode(&out).unwrap();
            assert_eq!(got.len(), len);
        }
    }

    #[test]
    fn lengths_that_lie_reserve_nothing() {
        // 2^60 elements, and none of them.
        let bytes = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
        assert!(decode::<Vec<u64>>(&bytes).is_err());
        assert!(decode::<Vec<Vec<u8>>>(&bytes).is_err());
        assert!(decode::<String>(&bytes).is_err());
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = encode_first(&7u8);
        assert_eq!(decode_first::<u8>(&bytes), Ok(7));
        bytes[0] ^= 1;
        let told = decode_first::<u8>(&bytes).unwrap_err().to_string();
        assert!(told.starts_with("protocol version "), "{told}");
        assert!(decode_first::<u8>(&bytes[..3]).is_err());
    }
}
