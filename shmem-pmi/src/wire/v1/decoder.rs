//! Lines and spawn blocks out of a byte stream.

use super::{MAX_BLOCK, MAX_LINE};
use crate::wire::WireError;

/// A buffer larger than this is given back when it runs empty.
const KEEP_CAPACITY: usize = 4 * 1024;

/// One message out of a [`Decoder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Incoming<'a> {
    /// A line without its newline.
    Line(&'a [u8]),
    /// A block of several lines, from `mcmd=` to the newline before `endcmd`.
    Block(&'a [u8]),
}

/// Cuts a byte stream into lines and blocks.
///
/// Lines without any byte are skipped. After an error the stream has no message boundaries any
/// more: the decoder repeats the error.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Where the next message begins.
    start: usize,
    /// Where the line begins whose end is searched for; behind `start` only within a block.
    line: usize,
    /// Up to where that end has been searched for.
    seen: usize,
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

    /// Whether what comes next begins with `text`.
    pub(crate) fn next_begins_with(&self, text: &[u8]) -> bool {
        self.buffer[self.start..].starts_with(text)
    }

    /// The bytes that no message has been made of, for a decoder of another version.
    pub fn into_rest(mut self) -> Vec<u8> {
        self.buffer.split_off(self.start)
    }

    /// Takes in bytes. Call [`Decoder::next_message`] afterwards until it returns `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.line -= self.start;
            self.seen -= self.start;
            self.start = 0;
            if self.buffer.is_empty() && self.buffer.capacity() > KEEP_CAPACITY {
                self.buffer = Vec::new();
            }
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete message, or `None` until more bytes come.
    ///
    /// # Errors
    ///
    /// No newline within [`MAX_LINE`], or no `endcmd` within [`MAX_BLOCK`]. The error is permanent.
    pub fn next_message(&mut self) -> Result<Option<Incoming<'_>>, WireError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.scan() {
            Ok(None) => Ok(None),
            Ok(Some((from, to, block))) => {
                let bytes = &self.buffer[from..to];
                Ok(Some(match block {
                    true => Incoming::Block(bytes),
                    false => Incoming::Line(bytes),
                }))
            }
            Err(error) => {
                *self = Self {
                    failed: Some(error.clone()),
                    ..Self::default()
                };
                Err(error)
            }
        }
    }

    /// Finds the next message, moves `start` behind it and returns where it lies and whether it is
    /// a block.
    fn scan(&mut self) -> Result<Option<(usize, usize, bool)>, WireError> {
        loop {
            let newline = self.buffer[self.seen..].iter().position(|&b| b == b'\n');
            let end = newline.map_or(self.buffer.len(), |at| self.seen + at);
            let in_block = self.line > self.start;
            let too_long = |what, len, max| WireError::TooLong { what, len, max };
            if end - self.line >= MAX_LINE {
                return Err(too_long("PMI-1 line", end - self.line, MAX_LINE));
            }
            if in_block && end - self.start > MAX_BLOCK {
                return Err(too_long("PMI-1 block", end - self.start, MAX_BLOCK));
            }
            if newline.is_none() {
                self.seen = end;
                return Ok(None);
            }
            let (first, from) = (self.start, self.line);
            self.line = end + 1;
            self.seen = end + 1;
            let line = &self.buffer[from..end];
            if in_block {
                if line == b"endcmd" {
                    self.start = end + 1;
                    return Ok(Some((first, from, true)));
                }
            } else if !line.starts_with(b"mcmd=") {
                self.start = end + 1;
                if !line.is_empty() {
                    return Ok(Some((from, end, false)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(decoder: &mut Decoder) -> Vec<(bool, String)> {
        let mut seen = Vec::new();
        while let Some(message) = decoder.next_message().unwrap() {
            let (block, bytes) = match message {
                Incoming::Line(bytes) => (false, bytes),
                Incoming::Block(bytes) => (true, bytes),
            };
            seen.push((block, String::from_utf8(bytes.to_vec()).unwrap()));
        }
        seen
    }

    const STREAM: &str =
        "cmd=get_maxes\n\nmcmd=spawn\nnprocs=2\narg1=endcmd x\nendcmd\ncmd=finalize\n";

    fn messages() -> Vec<(bool, String)> {
        vec![
            (false, "cmd=get_maxes".into()),
            (true, "mcmd=spawn\nnprocs=2\narg1=endcmd x\n".into()),
            (false, "cmd=finalize".into()),
        ]
    }

    #[test]
    fn lines_and_blocks() {
        let mut decoder = Decoder::new();
        decoder.push(STREAM.as_bytes());
        decoder.push(b"cmd=half");
        assert_eq!(all(&mut decoder), messages());
        assert_eq!(decoder.pending(), 8);
        assert_eq!(decoder.into_rest(), b"cmd=half");
    }

    #[test]
    fn endless_messages_are_refused() {
        let mut decoder = Decoder::new();
        decoder.push(&[b'a'; MAX_LINE - 1]);
        assert_eq!(decoder.next_message(), Ok(None));
        decoder.push(b"a");
        assert!(decoder.next_message().is_err());
        decoder.push(b"\ncmd=x\n");
        assert!(decoder.next_message().is_err(), "the error is permanent");
        assert_eq!(decoder.pending(), 0);

        let mut decoder = Decoder::new();
        decoder.push(b"mcmd=spawn\n");
        let line = [&[b'a'; 999][..], b"\n"].concat();
        for _ in 0..65 {
            decoder.push(&line);
            assert_eq!(decoder.next_message(), Ok(None));
        }
        decoder.push(&line);
        assert!(decoder.next_message().is_err());
    }

    #[test]
    fn large_buffers_are_given_back() {
        let mut decoder = Decoder::new();
        decoder.push(&[b'a'; 60_000]);
        decoder.push(b"\n");
        assert!(matches!(decoder.next_message(), Ok(Some(_))));
        decoder.push(b"c");
        assert!(decoder.buffer.capacity() <= KEEP_CAPACITY);
    }

    proptest! {
        #[test]
        fn fragmentation_does_not_matter(cuts in prop::collection::vec(1usize..9, 1..40)) {
            let mut decoder = Decoder::new();
            let (mut seen, mut rest) = (Vec::new(), STREAM.as_bytes());
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                decoder.push(now);
                seen.extend(all(&mut decoder));
                if later.is_empty() {
                    break;
                }
                rest = later;
            }
            prop_assert_eq!(seen, messages());
            prop_assert_eq!(decoder.pending(), 0);
        }

        #[test]
        fn random_bytes_never_panic(chunks in prop::collection::vec(
            prop_oneof![any::<Vec<u8>>(), "(m?cmd=|endcmd|\n| |[a-c])*".prop_map(String::into_bytes)],
            0..9,
        )) {
            let mut decoder = Decoder::new();
            for chunk in chunks {
                decoder.push(&chunk);
                while let Ok(Some(_)) = decoder.next_message() {}
            }
        }
    }
}
