//! Writing a message of PMI-1 or PMI-2: the command, then the fields in the order of the calls.

use std::io::Write as _;

use super::v1::{MAX_BLOCK, MAX_SENT_LINE};
use super::v2::{HEADER_LEN, MAX_BODY};
use super::{Version, WireError, excerpt};

/// What errors call a line of a block.
const SPAWN_LINE: &str = "a line of spawn";

/// How the pairs of a message stand on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// PMI-1: words with blanks between them.
    Line,
    /// PMI-1: lines, up to `endcmd`.
    Block,
    /// PMI-2: pairs that end with `;`, behind a header.
    Body,
}

/// Writes one message. What cannot be sent is found at the end, and then taken back.
pub(super) struct Writer<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    layout: Layout,
    error: Option<WireError>,
}

impl<'o> Writer<'o> {
    fn new(out: &'o mut Vec<u8>, layout: Layout) -> Self {
        Self {
            start: out.len(),
            out,
            layout,
            error: None,
        }
    }

    /// A line of PMI-1.
    pub(super) fn line(out: &'o mut Vec<u8>, command: &str) -> Self {
        let w = Self::new(out, Layout::Line);
        w.out.extend_from_slice(b"cmd=");
        w.out.extend_from_slice(command.as_bytes());
        w
    }

    /// A block of PMI-1.
    pub(super) fn block(out: &'o mut Vec<u8>, command: &str) -> Self {
        let mut w = Self::new(out, Layout::Block);
        w.pair("mcmd", command.as_bytes());
        w
    }

    /// A message of PMI-2 with its header.
    pub(super) fn body(
        out: &'o mut Vec<u8>,
        command: &str,
        suffix: &str,
        thread_id: Option<&[u8]>,
    ) -> Self {
        let mut w = Self::new(out, Layout::Body);
        w.out.extend_from_slice(&[b' '; HEADER_LEN]);
        w.out.extend_from_slice(b"cmd=");
        w.escaped(command.as_bytes());
        w.out.extend_from_slice(suffix.as_bytes());
        w.out.push(b';');
        if let Some(id) = thread_id {
            w.field("thrid", id);
        }
        w
    }

    pub(super) fn version(&self) -> Version {
        match self.layout {
            Layout::Line | Layout::Block => Version::V1,
            Layout::Body => Version::V2,
        }
    }

    /// A value as somebody gave it. On a line it must be one word, and not be empty.
    pub(super) fn field(&mut self, name: &'static str, value: &[u8]) {
        self.checked(name, value, b"\\");
    }

    /// A value that a PE of the job put. It may have backslashes: the reader has to get what the
    /// other PE wrote.
    pub(super) fn stored(&mut self, name: &'static str, value: &[u8]) {
        self.checked(name, value, b"");
    }

    /// Nothing on a line may be empty or have what ends a word, or what is `forbidden` besides.
    fn checked(&mut self, name: &'static str, value: &[u8], forbidden: &[u8]) {
        if self.layout == Layout::Line {
            let breaks = |b: &u8| matches!(b, b' ' | b'\n' | 0) || forbidden.contains(b);
            if value.is_empty() {
                self.error = Some(WireError::Empty { what: name });
            } else if value.iter().any(breaks) {
                let text = excerpt(value);
                self.error = Some(WireError::NotOneWord { what: name, text });
            }
        }
        self.pair(name, value);
    }

    /// Text for people: on a line blanks become `_`, what cannot be printed or would be dropped `?`.
    pub(super) fn message(&mut self, name: &str, text: &str) {
        const MAX: usize = 400;
        let legible = |byte: u8| match byte {
            b' ' => b'_',
            b'!'..=b'~' if byte != b'\\' => byte,
            _ => b'?',
        };
        self.open(name);
        match self.layout {
            Layout::Line => self.out.extend(text.bytes().take(MAX).map(legible)),
            Layout::Block | Layout::Body => self.escaped(text.as_bytes()),
        }
        self.close();
    }

    pub(super) fn number(&mut self, name: &str, value: impl Into<i128>) {
        self.open(name);
        // Writing to a Vec cannot fail.
        let _ = write!(self.out, "{}", value.into());
        self.close();
    }

    pub(super) fn flag(&mut self, name: &str, value: bool) {
        self.pair(name, if value { b"TRUE" } else { b"FALSE" });
    }

    pub(super) fn hex(&mut self, name: &str, value: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.open(name);
        self.out.extend(value.iter().flat_map(|byte| {
            [
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]
        }));
        self.close();
    }

    /// The texts of a list, under a name with numbers from `first` on.
    pub(super) fn list(&mut self, name: &str, first: usize, texts: &[Vec<u8>]) {
        for (at, text) in (first..).zip(texts) {
            self.numbered(name, at, text);
        }
    }

    /// Pairs, under names with numbers from 0 on.
    pub(super) fn pairs(&mut self, [key, value]: [&str; 2], pairs: &[(Vec<u8>, Vec<u8>)]) {
        for (at, (k, v)) in pairs.iter().enumerate() {
            if self.layout == Layout::Block && (k.is_empty() || v.is_empty()) {
                self.error = Some(WireError::Empty { what: SPAWN_LINE });
            }
            self.numbered(key, at, k);
            self.numbered(value, at, v);
        }
    }

    fn numbered(&mut self, name: &str, number: usize, value: &[u8]) {
        self.pair(&format!("{name}{number}"), value);
    }

    fn pair(&mut self, name: &str, value: &[u8]) {
        if self.layout == Layout::Block {
            let len = name.len() + value.len() + 2;
            if len > MAX_SENT_LINE {
                self.error = Some(WireError::TooLong {
                    what: SPAWN_LINE,
                    len,
                    max: MAX_SENT_LINE,
                });
            } else if value.iter().any(|b| matches!(b, b'\n' | 0)) {
                self.error = Some(WireError::NotOneWord {
                    what: SPAWN_LINE,
                    text: excerpt(value),
                });
            }
        }
        self.open(name);
        self.escaped(value);
        self.close();
    }

    fn open(&mut self, name: &str) {
        if self.layout == Layout::Line {
            self.out.push(b' ');
        }
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(b'=');
    }

    fn close(&mut self) {
        match self.layout {
            Layout::Line => {}
            Layout::Block => self.out.push(b'\n'),
            Layout::Body => self.out.push(b';'),
        }
    }

    fn escaped(&mut self, value: &[u8]) {
        let mut rest = value;
        if self.layout == Layout::Body {
            while let Some(at) = rest.iter().position(|&b| b == b';') {
                self.out.extend_from_slice(&rest[..=at]);
                self.out.push(b';');
                rest = &rest[at + 1..];
            }
        }
        self.out.extend_from_slice(rest);
    }

    /// Whether `more` bytes still fit on a line.
    pub(super) fn fits(&self, more: usize) -> bool {
        self.layout != Layout::Line || self.out.len() - self.start + more < MAX_SENT_LINE
    }

    /// Ends the message. One that cannot be sent is taken back and reported.
    pub(super) fn finish(mut self) -> Result<(), WireError> {
        let (what, head, max) = match self.layout {
            Layout::Line => ("PMI-1 line", 0, MAX_SENT_LINE),
            Layout::Block => ("PMI-1 block", 0, MAX_BLOCK),
            Layout::Body => ("PMI-2 message body", HEADER_LEN, MAX_BODY),
        };
        if self.layout == Layout::Line {
            self.out.push(b'\n');
        }
        let len = self.out.len() - self.start - head;
        let too_long = (len > max).then_some(WireError::TooLong { what, len, max });
        if let Some(error) = self.error.take().or(too_long) {
            self.out.truncate(self.start);
            return Err(error);
        }
        match self.layout {
            Layout::Line => {}
            Layout::Block => self.out.extend_from_slice(b"endcmd\n"),
            // Six bytes hold every length up to MAX_BODY; the rest of the header stays blank.
            Layout::Body => {
                let header = &mut self.out[self.start..self.start + HEADER_LEN];
                let _ = write!(&mut *header, "{len}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fields;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_value_comes_back(values in prop::collection::vec("[a;=\\PC]{0,12}", 0..5), raw: Vec<u8>) {
            let names = ["a", "b", "c", "d", "e"];
            let mut out = Vec::new();
            let mut writer = Writer::body(&mut out, "x", "-response", Some(b"1;2"));
            for (name, value) in names.iter().zip(&values) {
                writer.field(name, value.as_bytes());
            }
            writer.hex("hex", &raw);
            prop_assume!(!raw.is_empty());
            writer.finish().unwrap();
            let fields = Fields::of_body(&out[HEADER_LEN..]).unwrap();
            prop_assert_eq!(fields.command(), b"x-response");
            let thread_id = fields.thread_id().unwrap();
            prop_assert_eq!(thread_id.as_ref(), b"1;2");
            for (name, value) in names.iter().zip(&values) {
                prop_assert_eq!(fields.get(name).unwrap().as_ref(), value.as_bytes());
            }
            prop_assert_eq!(fields.hex("hex").unwrap(), raw);
        }
    }
}
