//! Protobuf as far as a timeline needs it: numbers, texts and messages within messages, written only.
//!
//! A crate would bring a code generator, or derives and the whole schema as types, for these few lines.

/// A message that is being written, field by field.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

/// How a field is written.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const DELIMITED: u64 = 2;

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u64, how: u64) {
        self.varint(field << 3 | how);
    }

    /// An integer without sign, an enumeration, or one with sign that is not below 0.
    pub(super) fn number(&mut self, field: u64, value: u64) -> &mut Self {
        self.tag(field, VARINT);
        self.varint(value);
        self
    }

    /// An integer of eight bytes.
    pub(super) fn fixed(&mut self, field: u64, value: u64) -> &mut Self {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A text.
    pub(super) fn text(&mut self, field: u64, value: &str) -> &mut Self {
        self.delimited(field, value.as_bytes())
    }

    /// A message within this one.
    pub(super) fn message(&mut self, field: u64, inner: &Self) -> &mut Self {
        self.delimited(field, &inner.0)
    }

    /// A message within this one that `fill` makes.
    pub(super) fn inner(&mut self, field: u64, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        fill(&mut inner);
        self.message(field, &inner)
    }

    fn delimited(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.tag(field, DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Makes it an empty one that keeps its memory.
    pub(super) fn clear(&mut self) -> &mut Self {
        self.0.clear();
        self
    }

    /// Its bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_as_protobuf_has_them() {
        let mut message = Message::default();
        // The examples of protobuf's own description of its encoding.
        message.number(1, 150).text(2, "testing");
        message.inner(3, |inner| {
            inner.number(1, 150);
        });
        let want = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01";
        assert_eq!(message.clear().0, []);
        message.number(1, 150).text(2, "testing");
        message.inner(3, |inner| {
            inner.number(1, 150);
        });
        assert_eq!(message.into_bytes(), want);
        let mut message = Message::default();
        message.fixed(47, 0x0102).number(1, u64::MAX);
        let mut want = b"\xf9\x02\x02\x01\0\0\0\0\0\0\x08".to_vec();
        want.extend([0xff; 9]);
        want.push(1);
        assert_eq!(message.into_bytes(), want);
    }
}
