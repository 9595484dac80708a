//! The incremental decoder of a PMI-2 byte stream, and the init line before it.
//!
//! Bytes arrive in pieces that have nothing to do with messages: header and body in separate
//! reads, or ten messages in one. The decoder holds what is incomplete and lends out each message
//! once, without copying it again.

use std::fmt;

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

/// The line with which a client opens the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitLine {
    /// Major protocol version that the client wants.
    pub version: u32,
    /// Minor protocol version that the client wants.
    pub subversion: u32,
}

impl InitLine {
    /// The line of a PMI-2 client.
    pub const V2: Self = Self {
        version: 2,
        subversion: 0,
    };

    /// Reads the line (without newline).
    ///
    /// # Errors
    ///
    /// [`WireError::NotInit`] if it is not `cmd=init pmi_version=N pmi_subversion=N`.
    pub fn decode(line: &[u8]) -> Result<Self, WireError> {
        let fields = LineFields::decode(line, "init")?;
        Ok(Self {
            version: fields.version,
            subversion: fields.subversion,
        })
    }
}

impl fmt::Display for InitLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "cmd=init pmi_version={} pmi_subversion={}",
            self.version, self.subversion
        )
    }
}

/// The server's answer to an [`InitLine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitReply {
    /// Major protocol version that the server has.
    pub version: u32,
    /// Minor protocol version that the server has.
    pub subversion: u32,
    /// 0 if the client's version is served.
    pub rc: i32,
}

impl InitReply {
    /// Reads the line (without newline).
    ///
    /// # Errors
    ///
    /// [`WireError::NotInit`] if it is not a `response_to_init`.
    pub fn decode(line: &[u8]) -> Result<Self, WireError> {
        let fields = LineFields::decode(line, "response_to_init")?;
        Ok(Self {
            version: fields.version,
            subversion: fields.subversion,
            rc: fields.rc,
        })
    }
}

impl fmt::Display for InitReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "cmd=response_to_init pmi_version={} pmi_subversion={} rc={}",
            self.version, self.subversion, self.rc
        )
    }
}

struct LineFields {
    version: u32,
    subversion: u32,
    rc: i32,
}

impl LineFields {
    fn decode(line: &[u8], command: &str) -> Result<Self, WireError> {
        let not_init = || WireError::NotInit {
            line: excerpt(line),
        };
        let text = std::str::from_utf8(line).map_err(|_| not_init())?;
        let (mut cmd, mut version, mut subversion, mut rc) = (None, None, None, None);
        for word in text.split_ascii_whitespace() {
            match word.split_once('=').ok_or_else(not_init)? {
                ("cmd", value) => cmd = Some(value),
                ("pmi_version", value) => version = value.parse().ok(),
                ("pmi_subversion", value) => subversion = value.parse().ok(),
                ("rc", value) => rc = Some(value.parse().map_err(|_| not_init())?),
                _ => {}
            }
        }
        if cmd != Some(command) {
            return Err(not_init());
        }
        Ok(Self {
            version: version.ok_or_else(not_init)?,
            subversion: subversion.ok_or_else(not_init)?,
            rc: rc.unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn init_lines() {
        assert_eq!(
            InitLine::V2.to_string(),
            "cmd=init pmi_version=2 pmi_subversion=0\n"
        );
        assert_eq!(
            InitLine::decode(b"cmd=init  pmi_subversion=1 pmi_version=1 extra=7"),
            Ok(InitLine {
                version: 1,
                subversion: 1
            })
        );
        for bad in [
            "cmd=init pmi_version=2",
            "cmd=fini pmi_version=2 pmi_subversion=0",
            "",
            "x",
        ] {
            assert!(InitLine::decode(bad.as_bytes()).is_err(), "{bad}");
        }
        let reply = InitReply {
            version: 2,
            subversion: 0,
            rc: -1,
        };
        assert_eq!(
            InitReply::decode(reply.to_string().trim_end().as_bytes()),
            Ok(reply)
        );
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
            let mut stream = InitLine::V2.to_string().into_bytes();
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
