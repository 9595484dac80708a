//! The incremental decoder of a PMI-2 byte stream.
//!
//! Bytes arrive in pieces that have nothing to do with messages: header and body in separate
//! reads, or ten messages in one. The decoder holds what is incomplete and lends out each message
//! once, without copying it again.

use crate::wire::{WireError, excerpt};

/// Length of the header before each body, in bytes.
pub const HEADER_LEN: usize = 6;

/// Longest body that either end may send, in bytes: the buffer of the common C clients.
pub const MAX_BODY: usize = 64 * 1024;

/// Longest init line, in bytes with its newline.
pub const MAX_LINE: usize = 1024;

/// A buffer larger than this is given back when it runs empty, since a node agent has one for each
/// of its PEs.
const KEEP_CAPACITY: usize = 4 * 1024;

/// One message out of a [`Decoder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Incoming<'a> {
    /// The line that opens the connection, without its newline. Always the first, and only once.
    Line(&'a [u8]),
    /// The body of a message.
    Body(&'a [u8]),
}

/// Cuts a byte stream into the init line and message bodies.
///
/// After an error the stream has no message boundaries any more: the decoder repeats the error.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    framed: bool,
    failed: Option<WireError>,
}

impl Decoder {
    /// A decoder for the beginning of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder for a connection whose init line has been read; `rest` are the bytes behind it.
    pub fn behind_init(rest: Vec<u8>) -> Self {
        Self {
            buffer: rest,
            framed: true,
            ..Self::default()
        }
    }

    /// Number of bytes that wait for the rest of their message.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Takes in bytes. Call [`Decoder::next_message`] afterwards until it returns `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        self.compact();
        self.buffer.extend_from_slice(bytes);
    }

    fn compact(&mut self) {
        if self.start == self.buffer.len() {
            self.start = 0;
            if self.buffer.capacity() > KEEP_CAPACITY {
                self.buffer = Vec::new();
            } else {
                self.buffer.clear();
            }
        } else if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }

    /// The next complete message, or `None` until more bytes come.
    ///
    /// # Errors
    ///
    /// The stream is not PMI-2: no newline within [`MAX_LINE`], no decimal header, a body that is
    /// empty or longer than [`MAX_BODY`]. The error is permanent.
    pub fn next_message(&mut self) -> Result<Option<Incoming<'_>>, WireError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.scan() {
            Ok(None) => Ok(None),
            Ok(Some((from, to))) => {
                let bytes = &self.buffer[from..to];
                Ok(Some(if self.framed {
                    Incoming::Body(bytes)
                } else {
                    self.framed = true;
                    Incoming::Line(bytes)
                }))
            }
            Err(error) => {
                self.failed = Some(error.clone());
                self.buffer = Vec::new();
                self.start = 0;
                Err(error)
            }
        }
    }

    /// Finds the next message, moves `start` behind it and returns where it lies.
    fn scan(&mut self) -> Result<Option<(usize, usize)>, WireError> {
        let rest = &self.buffer[self.start..];
        if !self.framed {
            let window = &rest[..rest.len().min(MAX_LINE)];
            let Some(newline) = window.iter().position(|&b| b == b'\n') else {
                return if rest.len() >= MAX_LINE {
                    Err(WireError::TooLong {
                        what: "init line",
                        len: rest.len(),
                        max: MAX_LINE,
                    })
                } else {
                    Ok(None)
                };
            };
            let from = self.start;
            self.start += newline + 1;
            return Ok(Some((from, from + newline)));
        }
        let Some(header) = rest.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let len = parse_length(header)?;
        if rest.len() < HEADER_LEN + len {
            return Ok(None);
        }
        let from = self.start + HEADER_LEN;
        self.start = from + len;
        Ok(Some((from, from + len)))
    }
}

fn parse_length(header: &[u8; HEADER_LEN]) -> Result<usize, WireError> {
    let digits = header.trim_ascii();
    let bad = || WireError::BadHeader {
        header: excerpt(header),
    };
    if digits.is_empty() {
        return Err(bad());
    }
    let mut len = 0usize;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return Err(bad());
        }
        len = len * 10 + usize::from(digit - b'0');
    }
    match len {
        0 => Err(WireError::Empty {
            what: "PMI-2 message body",
        }),
        len if len > MAX_BODY => Err(WireError::TooLong {
            what: "PMI-2 message body",
            len,
            max: MAX_BODY,
        }),
        len => Ok(len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::InitLine;
    use proptest::prelude::*;

    fn framed(bytes: &[u8]) -> Decoder {
        let mut decoder = Decoder::new();
        decoder.push(b"cmd=init pmi_version=2 pmi_subversion=0\n");
        assert!(matches!(
            decoder.next_message(),
            Ok(Some(Incoming::Line(_)))
        ));
        decoder.push(bytes);
        decoder
    }

    #[test]
    fn both_paddings_are_read() {
        for text in [
            "6     cmd=x;",
            "     6cmd=x;",
            "  6   cmd=x;",
            "000006cmd=x;",
        ] {
            let mut decoder = framed(text.as_bytes());
            assert_eq!(
                decoder.next_message(),
                Ok(Some(Incoming::Body(b"cmd=x;"))),
                "{text}"
            );
            assert_eq!(decoder.next_message(), Ok(None));
            assert_eq!(decoder.pending(), 0);
        }
    }

    #[test]
    fn bad_headers_are_permanent_errors() {
        for text in [
            "      cmd",
            "-6    cmd=x;",
            "6 6   cmd=x;",
            "abcdefcmd=x;",
            "0x0006",
        ] {
            let mut decoder = framed(text.as_bytes());
            assert!(
                matches!(decoder.next_message(), Err(WireError::BadHeader { .. })),
                "{text}"
            );
            decoder.push(b"6     cmd=x;");
            assert!(decoder.next_message().is_err());
            assert_eq!(decoder.pending(), 0);
        }
        assert!(matches!(
            framed(b"0     ").next_message(),
            Err(WireError::Empty { .. })
        ));
        assert!(matches!(
            framed(b"65537 ").next_message(),
            Err(WireError::TooLong { len: 65537, .. })
        ));
        assert_eq!(framed(b"65536 ").next_message(), Ok(None));
    }

    #[test]
    fn endless_line_is_refused() {
        let mut decoder = Decoder::new();
        decoder.push(&[b'a'; MAX_LINE - 1]);
        assert_eq!(decoder.next_message(), Ok(None));
        decoder.push(b"a\n");
        assert!(decoder.next_message().is_err());
    }

    #[test]
    fn large_buffers_are_given_back() {
        let mut body = b"60000 ".to_vec();
        body.resize(60_006, b'x');
        let mut decoder = framed(&body);
        assert!(matches!(decoder.next_message(), Ok(Some(_))));
        decoder.push(b"6");
        assert!(decoder.buffer.capacity() <= KEEP_CAPACITY);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(chunks: Vec<Vec<u8>>) {
            let mut decoder = Decoder::new();
            for chunk in chunks {
                decoder.push(&chunk);
                while let Ok(Some(_)) = decoder.next_message() {}
            }
        }

        #[test]
        fn fragmentation_does_not_matter(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            cuts in prop::collection::vec(1usize..9, 1..40),
        ) {
            let mut stream = Vec::new();
            InitLine::V2.encode(&mut stream);
            for (i, body) in bodies.iter().enumerate() {
                let header = if i % 2 == 0 {
                    format!("{:<6}", body.len())
                } else {
                    format!("{:>6}", body.len())
                };
                stream.extend_from_slice(header.as_bytes());
                stream.extend_from_slice(body);
            }
            let mut decoder = Decoder::new();
            let mut seen = Vec::new();
            let mut rest = &stream[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                rest = later;
                decoder.push(now);
                while let Some(message) = decoder.next_message().unwrap() {
                    if let Incoming::Body(body) = message {
                        seen.push(body.to_vec());
                    }
                }
            }
            prop_assert_eq!(seen, bodies);
            prop_assert_eq!(decoder.pending(), 0);
        }
    }
}
