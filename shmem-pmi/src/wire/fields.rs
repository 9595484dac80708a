//! The `key=value` pairs of a message, of PMI-1 or PMI-2: reading them without copying.

use std::borrow::Cow;
use std::str::FromStr;

use smallvec::SmallVec;

use super::{MAX_ALLGATHER_VALUE, Version, WireError, excerpt};

/// Name and value; the value is copied only if a doubled `;` had to be made single. A word of a line
/// that has no `=` stands here without a name.
type Pair<'a> = (&'a [u8], Cow<'a, [u8]>);

/// The pairs of one message, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields<'a> {
    version: Version,
    /// The whole message.
    text: &'a [u8],
    pairs: SmallVec<[Pair<'a>; 10]>,
    /// Index of the pair that names the command.
    command: usize,
}

impl<'a> Fields<'a> {
    /// Splits a line of PMI-1 (without newline) into its words.
    ///
    /// # Errors
    ///
    /// [`WireError::Malformed`] if there is no `cmd`, or it is empty.
    pub fn of_line(line: &'a [u8]) -> Result<Self, WireError> {
        Self::split(line, b' ', b"cmd")
    }

    /// Splits a block of PMI-1 into its lines.
    ///
    /// # Errors
    ///
    /// [`WireError::Malformed`] if there is no `mcmd`, or it is empty.
    pub(super) fn of_block(block: &'a [u8]) -> Result<Self, WireError> {
        Self::split(block, b'\n', b"mcmd")
    }

    fn split(text: &'a [u8], separator: u8, command: &[u8]) -> Result<Self, WireError> {
        let parts = text.split(|&b| b == separator);
        let pair = |part: &'a [u8]| {
            let (name, value) = split_pair(part).unwrap_or((b"", part));
            (name, Cow::Borrowed(value))
        };
        let pairs = parts.filter(|part| !part.is_empty()).map(pair);
        Self::with(Version::V1, text, pairs.collect(), command)
    }

    /// Splits the body of a message of PMI-2 into its pairs.
    ///
    /// # Errors
    ///
    /// [`WireError::Malformed`] if a pair has no name or no end, or the first is not `cmd`.
    pub fn of_body(body: &'a [u8]) -> Result<Self, WireError> {
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
        let fields = Self::with(Version::V2, body, pairs, b"cmd")?;
        match fields.command {
            0 => Ok(fields),
            _ => Err(WireError::Malformed { at: excerpt(body) }),
        }
    }

    fn with(
        version: Version,
        text: &'a [u8],
        pairs: SmallVec<[Pair<'a>; 10]>,
        command: &[u8],
    ) -> Result<Self, WireError> {
        let at = pairs.iter().position(|(name, _)| *name == command);
        match at.filter(|&at| !pairs[at].1.is_empty()) {
            Some(command) => Ok(Self {
                version,
                text,
                pairs,
                command,
            }),
            None => Err(WireError::Malformed { at: excerpt(text) }),
        }
    }

    /// The version of PMI that the message is of.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The value of `cmd`.
    pub fn command(&self) -> &[u8] {
        &self.pairs[self.command].1
    }

    /// The value of `cmd` as bounded text, for messages.
    pub fn command_text(&self) -> String {
        excerpt(self.command())
    }

    /// The value of a field, or `None`; of equal names the first counts.
    pub fn get(&self, name: &str) -> Option<&Cow<'a, [u8]>> {
        self.position(name).map(|at| &self.pairs[at].1)
    }

    fn position(&self, name: &str) -> Option<usize> {
        let name = name.as_bytes();
        self.pairs.iter().position(|(key, _)| *key == name)
    }

    /// All pairs, in their order.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &Cow<'a, [u8]>)> {
        self.pairs.iter().map(|(key, value)| (*key, value))
    }

    /// The opaque mark of the client's thread, to be repeated in the reply.
    pub fn thread_id(&self) -> Option<Cow<'a, [u8]>> {
        self.get("thrid").cloned()
    }

    /// Of a line: all from the value of field `name` to the end, blanks included.
    pub(super) fn rest(&self, name: &str) -> Option<&'a [u8]> {
        self.get(name).map(|value| &self.text[self.offset(value)..])
    }

    /// Of a line: the value of field `name` with the words behind it, to the next pair or the end.
    pub(super) fn phrase(&self, name: &str) -> Option<&'a [u8]> {
        let at = self.position(name)?;
        let (first, behind) = self.pairs[at..].split_first()?;
        let words = behind.iter().take_while(|(name, _)| name.is_empty());
        let last = words.last().unwrap_or(first);
        let end = self.offset(&last.1) + last.1.len();
        Some(&self.text[self.offset(&first.1)..end])
    }

    /// Where in a line a value begins, which lies there.
    fn offset(&self, value: &[u8]) -> usize {
        (value.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }

    /// A value that has to be there. With PMI-1 it must not be empty.
    pub(super) fn need(&self, name: &'static str) -> Result<Cow<'a, [u8]>, WireError> {
        let value = self.get(name).ok_or_else(|| self.missing(name))?;
        if value.is_empty() && self.version == Version::V1 {
            return Err(self.bad(name, "a value that is not empty"));
        }
        Ok(value.clone())
    }

    /// As [`Fields::need`] for what a client of PMI-1 stores: a word without `=` behind it shows that
    /// the client meant a value with a blank, of which only the first part would be stored.
    pub(super) fn need_whole(&self, name: &'static str) -> Result<Cow<'a, [u8]>, WireError> {
        let value = self.need(name)?;
        let behind = self.position(name).map_or(&[][..], |at| &self.pairs[at..]);
        if behind.iter().any(|(name, _)| name.is_empty()) {
            return Err(self.bad(name, "a value without blanks"));
        }
        Ok(value)
    }

    pub(super) fn need_text(&self, name: &'static str) -> Result<Cow<'a, str>, WireError> {
        let text = match self.need(name)? {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
        };
        text.ok_or_else(|| self.bad(name, "text in UTF-8"))
    }

    pub(super) fn number<T: FromStr>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, WireError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = std::str::from_utf8(value.trim_ascii()).map(str::parse);
        match number {
            Ok(Ok(number)) => Ok(Some(number)),
            _ => Err(self.bad(name, expected)),
        }
    }

    pub(super) fn need_number<T: FromStr>(
        &self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<T, WireError> {
        self.number(name, expected)?
            .ok_or_else(|| self.missing(name))
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
        self.decode_hex(name, name, self.get(name).map_or(&[][..], |text| text), max)
    }

    pub(super) fn hex(&self, name: &'static str) -> Result<Vec<u8>, WireError> {
        let what = "the value of an allgather";
        let text = self.need(name)?;
        if text.is_empty() {
            return Err(WireError::Empty { what });
        }
        self.decode_hex(name, what, &text, MAX_ALLGATHER_VALUE)
    }

    fn decode_hex(
        &self,
        name: &'static str,
        what: &'static str,
        text: &[u8],
        max: usize,
    ) -> Result<Vec<u8>, WireError> {
        if text.len() > 2 * max {
            return Err(WireError::TooLong {
                what,
                len: text.len() / 2,
                max,
            });
        }
        decode_hex(text).ok_or_else(|| self.bad(name, "an even number of hexadecimal digits"))
    }

    pub(super) fn missing(&self, field: &'static str) -> WireError {
        WireError::MissingField {
            command: self.command_text(),
            field,
        }
    }

    pub(super) fn unknown(&self) -> WireError {
        WireError::UnknownCommand {
            name: self.command_text(),
        }
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

/// Key and value of a word, or of a line of a block.
fn split_pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = text.iter().position(|&b| b == b'=')?;
    (equals > 0).then(|| (&text[..equals], &text[equals + 1..]))
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn get(body: &str, name: &str) -> Option<String> {
        let fields = Fields::of_body(body.as_bytes()).unwrap();
        fields
            .get(name)
            .map(|v| String::from_utf8(v.to_vec()).unwrap())
    }

    #[test]
    fn words_of_a_line() {
        let fields = Fields::of_line(b"cmd=put  kvsname=k key=a-1 value=x=y=z").unwrap();
        assert_eq!(fields.command(), b"put");
        assert_eq!(fields.get("value").unwrap()[..], b"x=y=z"[..]);
        assert_eq!(fields.get("other"), None);
        assert_eq!(fields.pairs().count(), 4);
        assert_eq!(fields.rest("kvsname"), Some(&b"k key=a-1 value=x=y=z"[..]));
        for bad in ["", "cmd", "cmd=", "=cmd", "xcmd=a", "cmd key=1"] {
            assert!(Fields::of_line(bad.as_bytes()).is_err(), "{bad}");
        }
        let fields = Fields::of_line(b"cmd=x msg=two  words   rc=1 and more").unwrap();
        assert_eq!(fields.phrase("msg"), Some(&b"two  words"[..]));
        assert_eq!(fields.phrase("rc"), Some(&b"1 and more"[..]));
        assert!(fields.need_whole("msg").is_err());
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
                    Fields::of_body(body.as_bytes()),
                    Err(WireError::Malformed { .. })
                ),
                "{body}"
            );
        }
    }

    proptest! {
        #[test]
        fn random_messages_never_panic(
            text in prop_oneof![
                any::<Vec<u8>>(),
                "cmd=[a-z;=\n ]{0,30}[;=]{0,4}[a-z;= \n]{0,30}".prop_map(String::into_bytes),
            ],
        ) {
            for fields in [Fields::of_line(&text), Fields::of_block(&text), Fields::of_body(&text)] {
                let Ok(fields) = fields else { continue };
                let _ = (fields.need_whole("a"), fields.number::<i32>("b", "a number"), fields.hex("c"));
                if fields.version() == Version::V1 {
                    let _ = (fields.rest("a"), fields.phrase("a"));
                }
            }
        }
    }
}
