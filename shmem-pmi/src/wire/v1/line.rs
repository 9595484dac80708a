//! Lines and spawn blocks out of a byte stream, the words of a line, and writing them.

use std::io::Write as _;

use super::{MAX_BLOCK, MAX_LINE, MAX_SENT_LINE};
use crate::wire::{WireError, excerpt};

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

/// The `key=value` words of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields<'a> {
    line: &'a [u8],
    command: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Takes a line (without newline) for such words.
    ///
    /// # Errors
    ///
    /// [`WireError::Malformed`] if there is no `cmd`, or it is empty.
    pub fn decode(line: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = Self { line, command: b"" };
        fields.command = fields.get("cmd").unwrap_or_default();
        match fields.command {
            b"" => Err(WireError::Malformed { at: excerpt(line) }),
            _ => Ok(fields),
        }
    }

    /// The value of `cmd`.
    pub fn command(&self) -> &'a [u8] {
        self.command
    }

    /// The value of `cmd` as bounded text, for messages.
    pub fn command_text(&self) -> String {
        excerpt(self.command)
    }

    /// All pairs in their order. Words without `=` are left out.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let words = self.line.split(|&b| b == b' ');
        words.filter_map(split_pair)
    }

    /// The value of a field, or `None`; of equal names the first counts.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        let name = name.as_bytes();
        self.pairs()
            .find_map(|(key, value)| (key == name).then_some(value))
    }

    /// All from the value of field `name` to the end of the line, blanks included.
    pub(super) fn rest(&self, name: &str) -> Option<&'a [u8]> {
        let value = self.get(name)?;
        let offset = value.as_ptr() as usize - self.line.as_ptr() as usize;
        Some(&self.line[offset..])
    }

    /// The value of field `name` with the words behind it, to the next pair or the end of the line.
    pub(super) fn phrase(&self, name: &str) -> Option<&'a [u8]> {
        let value = self.get(name)?;
        let mut len = value.len();
        for word in self.rest(name)?[len..].split(|&b| b == b' ').skip(1) {
            if split_pair(word).is_some() {
                break;
            }
            len += 1 + word.len();
        }
        Some(self.rest(name)?[..len].trim_ascii_end())
    }

    /// A value that must be there and not be empty, followed by another pair or the end.
    pub(super) fn need(&self, name: &'static str) -> Result<&'a [u8], WireError> {
        let value = self.get(name).ok_or_else(|| self.missing(name))?;
        if value.is_empty() {
            return Err(self.bad(name, "a value that is not empty"));
        }
        Ok(value)
    }

    /// As [`Fields::need`] for what a client stores: a word without `=` behind it shows that the
    /// client meant a value with a blank, of which only the first part would be stored.
    pub(super) fn need_whole(&self, name: &'static str) -> Result<&'a [u8], WireError> {
        let value = self.need(name)?;
        let mut behind = self.rest(name).unwrap_or_default()[value.len()..].split(|&b| b == b' ');
        if behind.any(|word| !word.is_empty() && split_pair(word).is_none()) {
            return Err(self.bad(name, "a value without blanks"));
        }
        Ok(value)
    }

    pub(super) fn number<T: std::str::FromStr>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, WireError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match std::str::from_utf8(value).map(str::parse) {
            Ok(Ok(number)) => Ok(Some(number)),
            _ => Err(self.bad(name, expected)),
        }
    }

    pub(super) fn need_number<T: std::str::FromStr>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<T, WireError> {
        self.number(name, expected)?
            .ok_or_else(|| self.missing(name))
    }

    fn missing(&self, field: &'static str) -> WireError {
        WireError::MissingField {
            command: self.command_text(),
            field,
        }
    }

    pub(super) fn bad(&self, field: &'static str, expected: &'static str) -> WireError {
        WireError::BadField {
            command: self.command_text(),
            field,
            value: self.get(field).map_or_else(String::new, excerpt),
            expected,
        }
    }
}

/// Key and value of a word, or of a line of a block.
pub(super) fn split_pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = text.iter().position(|&b| b == b'=')?;
    (equals > 0).then(|| (&text[..equals], &text[equals + 1..]))
}

/// Whether `text` is read back as it is from a value that ends at a blank.
fn is_word(text: &[u8]) -> bool {
    let breaks = |b: &u8| matches!(b, b' ' | b'\n' | b'\\' | 0);
    !text.iter().any(breaks)
}

/// Writes one line: `cmd`, then the fields in the order of the calls.
pub(super) struct LineWriter<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    error: Option<WireError>,
}

impl<'o> LineWriter<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, command: &'static str) -> Self {
        let start = out.len();
        out.extend_from_slice(b"cmd=");
        out.extend_from_slice(command.as_bytes());
        Self {
            out,
            start,
            error: None,
        }
    }

    /// A value as somebody gave it, which must be one word and not be empty.
    pub(super) fn word(&mut self, name: &'static str, value: &[u8]) {
        self.checked(name, value, is_word(value));
    }

    /// A value that a PE of the job put. It may have backslashes: the reader has to get what the
    /// other wrote.
    pub(super) fn stored(&mut self, name: &'static str, value: &[u8]) {
        let breaks = |b: &u8| matches!(b, b' ' | b'\n' | 0);
        self.checked(name, value, !value.iter().any(breaks));
    }

    /// Text for people: blanks become `_`, what cannot be printed or would be dropped `?`.
    pub(super) fn message(&mut self, name: &'static str, text: &str) {
        const MAX: usize = 400;
        self.name(name);
        let legible = |byte: u8| match byte {
            b' ' => b'_',
            b'!'..=b'~' if byte != b'\\' => byte,
            _ => b'?',
        };
        self.out.extend(text.bytes().take(MAX).map(legible));
    }

    pub(super) fn number(&mut self, name: &'static str, value: impl Into<i128>) {
        self.name(name);
        // Writing to a Vec cannot fail.
        let _ = write!(self.out, "{}", value.into());
    }

    fn checked(&mut self, name: &'static str, value: &[u8], is_word: bool) {
        if value.is_empty() {
            self.error = Some(WireError::Empty { what: name });
        } else if !is_word {
            self.error = Some(WireError::NotOneWord {
                what: name,
                text: excerpt(value),
            });
        }
        self.name(name);
        self.out.extend_from_slice(value);
    }

    fn name(&mut self, name: &str) {
        self.out.push(b' ');
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(b'=');
    }

    /// Whether `more` bytes still fit.
    pub(super) fn fits(&self, more: usize) -> bool {
        self.out.len() - self.start + more < MAX_SENT_LINE
    }

    /// Ends the line. One that cannot be sent is taken back and reported.
    pub(super) fn finish(self) -> Result<(), WireError> {
        self.out.push(b'\n');
        let len = self.out.len() - self.start;
        let error = self
            .error
            .or((len > MAX_SENT_LINE).then_some(WireError::TooLong {
                what: "PMI-1 line",
                len,
                max: MAX_SENT_LINE,
            }));
        match error {
            None => Ok(()),
            Some(error) => {
                self.out.truncate(self.start);
                Err(error)
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
    fn words_of_a_line() {
        let fields = Fields::decode(b"cmd=put  kvsname=k key=a-1 value=x=y=z").unwrap();
        assert_eq!(fields.command(), b"put");
        assert_eq!(fields.get("value"), Some(&b"x=y=z"[..]));
        assert_eq!(fields.get("other"), None);
        assert_eq!(fields.pairs().count(), 4);
        assert_eq!(fields.rest("kvsname"), Some(&b"k key=a-1 value=x=y=z"[..]));
        for bad in ["", "cmd", "cmd=", "=cmd", "xcmd=a", "cmd key=1"] {
            assert!(Fields::decode(bad.as_bytes()).is_err(), "{bad}");
        }
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
                while let Ok(Some(message)) = decoder.next_message() {
                    if let Incoming::Line(line) = message && let Ok(fields) = Fields::decode(line) {
                        let _ = (fields.need_whole("a"), fields.number::<i32>("b", "a number"));
                    }
                }
            }
        }
    }
}
