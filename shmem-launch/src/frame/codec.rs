//! Little-endian primitives of the link protocol: a writer that appends to a byte vector and a
//! reader that checks every length before it looks.

/// Why bytes from a link could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// A field reaches beyond the end of its frame.
    #[error("a {what} of {need} bytes where only {have} are left")]
    Short {
        /// The field.
        what: &'static str,
        /// Its length in bytes.
        need: usize,
        /// Bytes left in the frame.
        have: usize,
    },
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

/// Appends fields to a byte vector.
#[derive(Debug)]
pub struct Writer<'a>(pub &'a mut Vec<u8>);

impl Writer<'_> {
    /// One byte.
    pub fn u8(&mut self, v: u8) -> &mut Self {
        self.0.push(v);
        self
    }

    /// Four bytes.
    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }

    /// Eight bytes.
    pub fn u64(&mut self, v: u64) -> &mut Self {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }

    /// Bytes whose number the reader knows.
    pub fn raw(&mut self, v: &[u8]) -> &mut Self {
        self.0.extend_from_slice(v);
        self
    }

    /// A length and as many bytes.
    pub fn bytes(&mut self, v: &[u8]) -> &mut Self {
        self.u32(v.len() as u32).raw(v)
    }
}

/// Takes fields from the front of a frame's body.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// A reader of `body`.
    pub fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// Exactly `need` bytes.
    ///
    /// # Errors
    /// When fewer are left; so for all other readers here.
    pub fn raw(&mut self, what: &'static str, need: usize) -> Result<&'a [u8], CodecError> {
        match self.0.split_at_checked(need) {
            Some((head, rest)) => {
                self.0 = rest;
                Ok(head)
            }
            None => Err(CodecError::Short {
                what,
                need,
                have: self.0.len(),
            }),
        }
    }

    /// Exactly `N` bytes.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], CodecError> {
        Ok(self.raw(what, N)?.try_into().expect("raw gives N bytes"))
    }

    /// One byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, CodecError> {
        Ok(self.array::<1>(what)?[0])
    }

    /// Four bytes.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, CodecError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// Eight bytes.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, CodecError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A byte that is 0 or 1.
    pub fn bool(&mut self, what: &'static str) -> Result<bool, CodecError> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            v => Err(CodecError::Value {
                what,
                value: v.into(),
            }),
        }
    }

    /// A length and as many bytes.
    pub fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], CodecError> {
        let n = self.u32(what)? as usize;
        self.raw(what, n)
    }

    /// A length and as many bytes of text; what is not UTF-8 is replaced.
    pub fn text(&mut self, what: &'static str) -> Result<String, CodecError> {
        Ok(String::from_utf8_lossy(self.bytes(what)?).into_owned())
    }

    /// A count and as many items, each at least `item_min` bytes long, which bounds what a
    /// malformed count can make us reserve.
    pub fn list<T>(
        &mut self,
        what: &'static str,
        item_min: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, CodecError>,
    ) -> Result<Vec<T>, CodecError> {
        let n = self.u32(what)? as usize;
        let need = n.saturating_mul(item_min);
        if need > self.0.len() {
            return Err(CodecError::Short {
                what,
                need,
                have: self.0.len(),
            });
        }
        (0..n).map(|_| item(self)).collect()
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Declares the frame complete.
    ///
    /// # Errors
    /// When bytes are left.
    pub fn end(self) -> Result<(), CodecError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(CodecError::Trailing(self.0.len()))
        }
    }
}
