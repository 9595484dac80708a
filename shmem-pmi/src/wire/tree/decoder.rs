//! Cutting a link's bytes into messages, without copying large ones and without waiting for the end
//! of an allgather's result.

use super::{
    Direction, GATHER_VALUES, HEADER_LEN, Kind, ResultHeader, TreeWireError, body_len,
    gather_fields, kind_byte, request_of,
};

/// Cuts the byte stream of a link into messages.
///
/// Memory grows with the bytes that came, never with a length that was merely announced.
#[derive(Debug, Default)]
pub struct Decoder {
    pub(super) buffer: Vec<u8>,
    start: usize,
    failed: Option<TreeWireError>,
}

impl Decoder {
    /// A decoder for the beginning of a link.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of bytes that wait for the rest of their message.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// How many bytes complete the header of the message that is coming, or, where the header is
    /// here, the whole message; 0 while a message waits to be taken.
    ///
    /// # Errors
    ///
    /// As for [`Decoder::next_message`].
    pub(crate) fn missing(&mut self) -> Result<usize, TreeWireError> {
        let rest = &self.buffer[self.start..];
        let Some(header) = rest.first_chunk::<HEADER_LEN>() else {
            return match &self.failed {
                Some(error) => Err(error.clone()),
                None => Ok(HEADER_LEN - rest.len()),
            };
        };
        let whole = match body_len(header) {
            Ok(len) => HEADER_LEN + len,
            // Permanent, which is noted there.
            Err(error) => return self.next_message().and(Err(error)),
        };
        let result = header[1] == kind_byte(Kind::Gather, Direction::Down);
        let want = if result && rest.len() < GATHER_VALUES {
            whole.min(GATHER_VALUES)
        } else {
            whole
        };
        Ok(want.saturating_sub(rest.len()))
    }

    /// Takes the header of an allgather's result, if exactly that is here; the values are then the
    /// next bytes of the link.
    ///
    /// # Errors
    ///
    /// The header contradicts itself.
    pub(crate) fn take_result_header(&mut self) -> Result<Option<ResultHeader>, TreeWireError> {
        let Ok(bytes) = <[u8; GATHER_VALUES]>::try_from(&self.buffer[self.start..]) else {
            return Ok(None);
        };
        let (Some(header), Some(fields)) = (
            bytes.first_chunk::<HEADER_LEN>(),
            bytes.last_chunk::<{ GATHER_VALUES - HEADER_LEN }>(),
        ) else {
            return Ok(None);
        };
        if header[1] != kind_byte(Kind::Gather, Direction::Down) {
            return Ok(None);
        }
        let whole = HEADER_LEN + body_len(header)?;
        let request = request_of(header);
        let bad = |what| TreeWireError::Body { request, what };
        let Some(len) = whole.checked_sub(GATHER_VALUES) else {
            return Ok(None);
        };
        let (value_len, count) = gather_fields(fields).map_err(bad)?;
        if len as u64 != u64::from(count) * value_len as u64 {
            return Err(bad("length differs from count and value length"));
        }
        self.buffer.clear();
        self.start = 0;
        Ok(Some(ResultHeader {
            request,
            value_len,
            len,
            bytes,
        }))
    }

    /// Takes in bytes. Call [`Decoder::next_message`] afterwards until it returns `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message with its header, for [`super::Message::decode`] and for forwarding.
    ///
    /// # Errors
    ///
    /// The header is impossible; the error is permanent, since the stream has lost its step.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, TreeWireError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let rest = &self.buffer[self.start..];
        let Some(header) = rest.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let len = match body_len(header) {
            Ok(len) => HEADER_LEN + len,
            Err(error) => {
                self.failed = Some(error.clone());
                self.buffer = Vec::new();
                self.start = 0;
                return Err(error);
            }
        };
        if rest.len() < len {
            return Ok(None);
        }
        if self.start == 0 && len >= rest.len() / 2 {
            // A large message is handed over in its buffer; only what follows it is copied.
            let rest = self.buffer.split_off(len);
            return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
        }
        let message = rest[..len].to_vec();
        self.start += len;
        Ok(Some(message))
    }
}
