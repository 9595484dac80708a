//! The `key=value;` pairs of a body: reading them without copying, and writing them.

use std::borrow::Cow;
use std::io::Write as _;

use smallvec::SmallVec;

use super::frame::{HEADER_LEN, MAX_BODY};
use crate::wire::{MAX_ALLGATHER_VALUE, WireError, excerpt};

/// Name and value; the value is copied only if a doubled `;` had to be made single.
type Pair<'a> = (&'a [u8], Cow<'a, [u8]>);

/// The pairs of one body, in their order. The first is always `cmd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields<'a> {
    pairs: SmallVec<[Pair<'a>; 10]>,
}

impl<'a> Fields<'a> {
    /// Splits a body into its pairs.
    ///
    /// # Errors
    ///
    /// [`WireError::Malformed`] if a pair has no name or no end, or the first is not `cmd`.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut pairs = SmallVec::new();
        let mut rest = body;
        while let Some(equals) = rest.iter().position(|&b| b == b'=') {
            let malformed = || WireError::Malformed { at: excerpt(rest) };
            let key = &rest[..equals];
            if key.is_empty() || key.contains(&b';') {
                return Err(malformed());
            }
            let (value, end) = value_at(&rest[equals + 1..]).ok_or_else(malformed)?;
            pairs.push((key, value));
            rest = &rest[equals + 1 + end..];
        }
        let fields = Self { pairs };
        match fields.pairs.first() {
            Some((b"cmd", value)) if !value.is_empty() => Ok(fields),
            _ => Err(WireError::Malformed { at: excerpt(body) }),
        }
    }

    /// The value of `cmd`.
    pub fn command(&self) -> &[u8] {
        self.pairs.first().map_or(b"", |(_, value)| value)
    }

    /// The value of `cmd` as bounded text, for messages.
    pub fn command_text(&self) -> String {
        excerpt(self.command())
    }

    /// The value of a field, or `None`; of equal names the first counts.
    pub fn get(&self, name: &str) -> Option<&Cow<'a, [u8]>> {
        let name = name.as_bytes();
        self.pairs
            .iter()
            .find_map(|(key, value)| (*key == name).then_some(value))
    }

    /// All pairs, in their order.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &Cow<'a, [u8]>)> {
        self.pairs.iter().map(|(key, value)| (*key, value))
    }

    /// The opaque mark of the client's thread, to be repeated in the reply.
    pub fn thread_id(&self) -> Option<Cow<'a, [u8]>> {
        self.get("thrid").cloned()
    }

    pub(super) fn need(&self, name: &'static str) -> Result<Cow<'a, [u8]>, WireError> {
        self.get(name)
            .cloned()
            .ok_or_else(|| WireError::MissingField {
                command: self.command_text(),
                field: name,
            })
    }

    pub(super) fn text(&self, name: &'static str) -> Result<Option<Cow<'a, str>>, WireError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let text = match value {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Cow::Owned(bytes) => String::from_utf8(bytes.clone()).ok().map(Cow::Owned),
        };
        text.map(Some)
            .ok_or_else(|| self.bad(name, "text in UTF-8"))
    }

    pub(super) fn need_text(&self, name: &'static str) -> Result<Cow<'a, str>, WireError> {
        self.text(name)?.ok_or_else(|| WireError::MissingField {
            command: self.command_text(),
            field: name,
        })
    }

    pub(super) fn number<T: std::str::FromStr>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, WireError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse().ok())
            .map(Some)
            .ok_or_else(|| self.bad(name, expected))
    }

    pub(super) fn need_number<T: std::str::FromStr>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<T, WireError> {
        self.number(name, expected)?
            .ok_or_else(|| WireError::MissingField {
                command: self.command_text(),
                field: name,
            })
    }

    pub(super) fn flag(&self, name: &'static str) -> Result<Option<bool>, WireError> {
        match self.get(name).map(|value| &value[..]) {
            None => Ok(None),
            Some(b"TRUE") => Ok(Some(true)),
            Some(b"FALSE") => Ok(Some(false)),
            Some(_) => Err(self.bad(name, "TRUE or FALSE")),
        }
    }

    /// Bytes in hexadecimal; no such field means none.
    pub(super) fn hex_up_to(&self, name: &'static str, max: usize) -> Result<Vec<u8>, WireError> {
        let text = self.get(name).map_or(&[][..], |text| text);
        if text.len() > 2 * max {
            return Err(WireError::TooLong {
                what: name,
                len: text.len() / 2,
                max,
            });
        }
        decode_hex(text).ok_or_else(|| self.bad(name, "an even number of hexadecimal digits"))
    }

    pub(super) fn hex(&self, name: &'static str) -> Result<Vec<u8>, WireError> {
        let text = self.need(name)?;
        if text.is_empty() {
            return Err(WireError::Empty {
                what: "the value of an allgather",
            });
        }
        if text.len() > 2 * MAX_ALLGATHER_VALUE {
            return Err(WireError::TooLong {
                what: "the value of an allgather",
                len: text.len() / 2,
                max: MAX_ALLGATHER_VALUE,
            });
        }
        decode_hex(&text).ok_or_else(|| self.bad(name, "an even number of hexadecimal digits"))
    }

    pub(super) fn bad(&self, field: &'static str, expected: &'static str) -> WireError {
        WireError::BadField {
            command: self.command_text(),
            field,
            value: self.get(field).map_or_else(String::new, |v| excerpt(v)),
            expected,
        }
    }
}

/// The value at the start of `rest` and the offset behind its `;`, with doubled `;` made single.
fn value_at(rest: &[u8]) -> Option<(Cow<'_, [u8]>, usize)> {
    let first = rest.iter().position(|&b| b == b';')?;
    if rest.get(first + 1) != Some(&b';') {
        return Some((Cow::Borrowed(&rest[..first]), first + 1));
    }
    let mut value = Vec::with_capacity(first + 16);
    let mut at = 0;
    loop {
        let semicolon = at + rest[at..].iter().position(|&b| b == b';')?;
        value.extend_from_slice(&rest[at..semicolon]);
        if rest.get(semicolon + 1) != Some(&b';') {
            return Some((Cow::Owned(value), semicolon + 1));
        }
        value.push(b';');
        at = semicolon + 2;
    }
}

fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    fn nibble(digit: u8) -> Option<u8> {
        match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            b'A'..=b'F' => Some(digit - b'A' + 10),
            _ => None,
        }
    }
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|&[high, low]| Some(nibble(high)? << 4 | nibble(low)?))
        .collect()
}

/// Writes one message: header, `cmd`, then the fields in the order of the calls.
pub(super) struct BodyWriter<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

impl<'o> BodyWriter<'o> {
    pub(super) fn new(
        out: &'o mut Vec<u8>,
        command: &str,
        suffix: &str,
        thread_id: Option<&[u8]>,
    ) -> Self {
        let start = out.len();
        out.extend_from_slice(b"      ");
        let mut writer = Self { out, start };
        writer.out.extend_from_slice(b"cmd=");
        writer.escaped(command.as_bytes());
        writer.out.extend_from_slice(suffix.as_bytes());
        writer.out.push(b';');
        if let Some(id) = thread_id {
            writer.field("thrid", id);
        }
        writer
    }

    pub(super) fn field(&mut self, name: &str, value: &[u8]) {
        self.name(name);
        self.escaped(value);
        self.out.push(b';');
    }

    pub(super) fn number(&mut self, name: &str, value: impl Into<i128>) {
        self.name(name);
        // Writing to a Vec cannot fail.
        let _ = write!(self.out, "{};", value.into());
    }

    pub(super) fn flag(&mut self, name: &str, value: bool) {
        self.field(name, if value { b"TRUE" } else { b"FALSE" });
    }

    pub(super) fn hex(&mut self, name: &str, value: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.name(name);
        self.out.extend(value.iter().flat_map(|byte| {
            [
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]
        }));
        self.out.push(b';');
    }

    /// As [`BodyWriter::hex`], where absence means that there are no bytes.
    pub(super) fn hex_if_any(&mut self, name: &str, value: &[u8]) {
        if !value.is_empty() {
            self.hex(name, value);
        }
    }

    fn name(&mut self, name: &str) {
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(b'=');
    }

    fn escaped(&mut self, value: &[u8]) {
        let mut rest = value;
        while let Some(at) = rest.iter().position(|&b| b == b';') {
            self.out.extend_from_slice(&rest[..=at]);
            self.out.push(b';');
            rest = &rest[at + 1..];
        }
        self.out.extend_from_slice(rest);
    }

    /// Fills in the header. A body over the limit is taken back and reported.
    pub(super) fn finish(self) -> Result<(), WireError> {
        let len = self.out.len() - self.start - HEADER_LEN;
        if len > MAX_BODY {
            self.out.truncate(self.start);
            return Err(WireError::TooLong {
                what: "PMI-2 message body",
                len,
                max: MAX_BODY,
            });
        }
        let header = &mut self.out[self.start..self.start + HEADER_LEN];
        // Six bytes hold every length up to MAX_BODY; the rest of the header stays blank.
        let _ = write!(&mut *header, "{len}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn get(body: &str, name: &str) -> Option<String> {
        let fields = Fields::decode(body.as_bytes()).unwrap();
        fields
            .get(name)
            .map(|v| String::from_utf8(v.to_vec()).unwrap())
    }

    #[test]
    fn pairs_and_padding() {
        let body = "cmd=kvs-put;thrid=7;key=a=b;value=;\0\0\0\0\0\0";
        assert_eq!(get(body, "cmd").as_deref(), Some("kvs-put"));
        assert_eq!(get(body, "thrid").as_deref(), Some("7"));
        assert_eq!(get(body, "key").as_deref(), Some("a=b"));
        assert_eq!(get(body, "value").as_deref(), Some(""));
        assert_eq!(get(body, "other"), None);
    }

    #[test]
    fn doubled_semicolons() {
        assert_eq!(get("cmd=x;v=a;;b;w=1;", "v").as_deref(), Some("a;b"));
        assert_eq!(get("cmd=x;v=a;;b;w=1;", "w").as_deref(), Some("1"));
        assert_eq!(get("cmd=x;v=;;;", "v").as_deref(), Some(";"));
        assert_eq!(get("cmd=x;v=a;;;w=1;", "v").as_deref(), Some("a;"));
    }

    #[test]
    fn malformed_bodies() {
        for body in [
            "",
            "x",
            "cmd=;",
            "cmd=a",
            "a=b;cmd=c;",
            "cmd=a;=b;",
            "cmd=a;x;y=1;",
        ] {
            assert!(
                matches!(
                    Fields::decode(body.as_bytes()),
                    Err(WireError::Malformed { .. })
                ),
                "{body}"
            );
        }
    }

    proptest! {
        #[test]
        fn random_bodies_never_panic(body: Vec<u8>) {
            let _ = Fields::decode(&body);
        }

        #[test]
        fn bodies_of_the_grammar_never_panic(body in "cmd=[a-z;=]{0,30}[;=]{0,4}[a-z;=]{0,30}") {
            let _ = Fields::decode(body.as_bytes());
        }

        #[test]
        fn any_value_comes_back(values in prop::collection::vec("[a;=\\PC]{0,12}", 0..5), raw: Vec<u8>) {
            let names = ["a", "b", "c", "d", "e"];
            let mut out = Vec::new();
            let mut writer = BodyWriter::new(&mut out, "x", "-response", Some(b"1;2"));
            for (name, value) in names.iter().zip(&values) {
                writer.field(name, value.as_bytes());
            }
            writer.hex("hex", &raw);
            prop_assume!(!raw.is_empty());
            writer.finish().unwrap();
            let fields = Fields::decode(&out[HEADER_LEN..]).unwrap();
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
