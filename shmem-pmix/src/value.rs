//! Values and lists of attributes, built for the library and read from what it gives.
//!
//! A value of the library is a number that says what it is, and a union that often only points to it.
//! [`Data`] is the same as a type of Rust; [`Packed`] and [`InfoArray`] are values of the library with
//! all that they point to, which live until they are dropped.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use crate::abi::{ByteObject, DataArray, Info, Proc, Rank, Value, field_text, kind, text_field};

/// Lists of attributes may hold lists; from outside no more than so many one in the other.
const DEPTH_MAX: usize = 8;

/// A value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the standard's names")]
pub enum Data {
    Bool(bool),
    Byte(u8),
    /// Ends at its first zero byte, if it has one.
    Text(String),
    Size(usize),
    Int(i32),
    I64(i64),
    U16(u16),
    U32(u32),
    U64(u64),
    Rank(Rank),
    Proc(Box<Proc>),
    Bytes(Vec<u8>),
    /// What `PMIx_generate_regex` and `PMIx_generate_ppn` give, with its zero.
    Regex(Vec<u8>),
    /// How long a published name stays: [`crate::abi::persistence`].
    Persistence(u8),
    /// To whom it is visible: [`crate::abi::range`].
    Range(u8),
    Infos(Vec<(String, Data)>),
    /// Something that has no use here, of a type of [`kind`].
    Other(u16),
}

impl Data {
    /// A number, of whatever type it is.
    pub fn number(&self) -> Option<i128> {
        Some(match *self {
            Self::Byte(n) => n.into(),
            Self::U16(n) => n.into(),
            Self::U32(n) | Self::Rank(n) => n.into(),
            Self::U64(n) => n.into(),
            Self::Size(n) => n as i128,
            Self::Int(n) => n.into(),
            Self::I64(n) => n.into(),
            _ => return None,
        })
    }

    /// A number of 32 bits without sign, of whatever type it is.
    pub fn u32(&self) -> Option<u32> {
        self.number().and_then(|n| n.try_into().ok())
    }

    /// Text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Bytes, or the bytes of a text: some servers carry the one as the other.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Text(text) => Some(text.into_bytes()),
            _ => None,
        }
    }

    /// As the library wants it.
    pub fn pack(self) -> Packed {
        let mut value = Value::UNDEFINED;
        let mut held = Held::Nothing;
        let data = &mut value.data;
        value.kind = match self {
            Self::Bool(flag) => {
                data.flag = flag;
                kind::BOOL
            }
            Self::Byte(byte) => {
                data.byte = byte;
                kind::BYTE
            }
            Self::Size(size) => {
                data.size = size;
                kind::SIZE
            }
            Self::Int(number) => {
                data.int32 = number;
                kind::INT
            }
            Self::I64(number) => {
                data.int64 = number;
                kind::INT64
            }
            Self::U16(number) => {
                data.uint16 = number;
                kind::UINT16
            }
            Self::U32(number) => {
                data.uint32 = number;
                kind::UINT32
            }
            Self::U64(number) => {
                data.uint64 = number;
                kind::UINT64
            }
            Self::Rank(rank) => {
                data.uint32 = rank;
                kind::RANK
            }
            Self::Persistence(byte) => {
                data.byte = byte;
                kind::PERSISTENCE
            }
            Self::Range(byte) => {
                data.byte = byte;
                kind::RANGE
            }
            Self::Text(text) => {
                data.string = held.text(text);
                kind::STRING
            }
            Self::Proc(proc) => {
                data.proc = held.proc(proc);
                kind::PROC
            }
            Self::Bytes(bytes) => {
                data.bo = held.bytes(bytes);
                kind::BYTE_OBJECT
            }
            Self::Regex(bytes) => {
                data.bo = held.bytes(bytes);
                kind::REGEX
            }
            Self::Infos(infos) => {
                data.darray = held.infos(infos.into_iter().collect());
                kind::DATA_ARRAY
            }
            Self::Other(_) => kind::UNDEFINED,
        };
        Packed { value, held }
    }

    /// What the library has given; copied.
    ///
    /// # Safety
    ///
    /// `value` is a value that the library or [`Data::pack`] has made, and what it points to is there.
    pub unsafe fn read(value: &Value) -> Self {
        // SAFETY: by the caller's promise.
        unsafe { read(value, 0) }
    }
}

/// Attributes that the library has given; copied.
///
/// # Safety
///
/// `infos` are `n` attributes that the library or an [`InfoArray`] has made, or null.
pub unsafe fn read_infos(infos: *const Info, n: usize) -> Vec<(String, Data)> {
    // SAFETY: by the caller's promise.
    unsafe { read_list(infos, n, 0) }
}

/// # Safety
///
/// As for [`read_infos`].
unsafe fn read_list(infos: *const Info, n: usize, depth: usize) -> Vec<(String, Data)> {
    if infos.is_null() {
        return Vec::new();
    }
    let mut list = Vec::with_capacity(n);
    for at in 0..n {
        // SAFETY: by the caller's promise there are n of them.
        let info = unsafe { &*infos.add(at) };
        // SAFETY: the value is as good as the attribute.
        list.push((field_text(&info.key), unsafe {
            read(&info.value, depth + 1)
        }));
    }
    list
}

/// # Safety
///
/// As for [`Data::read`].
unsafe fn read(value: &Value, depth: usize) -> Data {
    let data = &value.data;
    // SAFETY: the kind says which member is meant, and the caller promises that the two fit. Members that
    // are numbers have a value whatever their bits are. Pointers may be null, otherwise lead to what
    // the kind says.
    unsafe {
        match value.kind {
            // Any byte but zero is true; a bool of Rust may not be read from those.
            kind::BOOL => Data::Bool(data.byte != 0),
            kind::BYTE | kind::UINT8 => Data::Byte(data.byte),
            kind::STRING if !data.string.is_null() => {
                let text = CStr::from_ptr(data.string);
                Data::Text(text.to_string_lossy().into_owned())
            }
            kind::SIZE => Data::Size(data.size),
            kind::PID | kind::INT | kind::INT32 | kind::STATUS => Data::Int(data.int32),
            kind::INT8 => Data::Int(data.int8.into()),
            kind::INT16 => Data::Int(data.int16.into()),
            kind::INT64 => Data::I64(data.int64),
            kind::UINT | kind::UINT32 => Data::U32(data.uint32),
            kind::UINT16 => Data::U16(data.uint16),
            kind::UINT64 => Data::U64(data.uint64),
            kind::RANK => Data::Rank(data.uint32),
            kind::PERSISTENCE => Data::Persistence(data.byte),
            kind::RANGE => Data::Range(data.byte),
            kind::PROC if !data.proc.is_null() => Data::Proc(Box::new(*data.proc)),
            kind::BYTE_OBJECT => Data::Bytes(bytes_of(&data.bo)),
            kind::REGEX => Data::Regex(bytes_of(&data.bo)),
            kind::DATA_ARRAY if !data.darray.is_null() && depth < DEPTH_MAX => {
                let array = &*data.darray;
                match array.kind {
                    kind::INFO => Data::Infos(read_list(array.array.cast(), array.size, depth)),
                    _ => Data::Other(value.kind),
                }
            }
            other => Data::Other(other),
        }
    }
}

/// # Safety
///
/// The object's pointer is null or leads to as many bytes as it says.
unsafe fn bytes_of(object: &ByteObject) -> Vec<u8> {
    if object.bytes.is_null() {
        return Vec::new();
    }
    // SAFETY: by the caller's promise.
    unsafe { std::slice::from_raw_parts(object.bytes.cast(), object.size) }.to_vec()
}

/// A value as the library wants it, with what it points to.
pub struct Packed {
    value: Value,
    held: Held,
}

impl Packed {
    /// For a call that reads it. It points into this, so it is good for as long as this is there.
    pub fn as_mut_ptr(&mut self) -> *mut Value {
        &raw mut self.value
    }
}

/// What a value points to: freed with it, never read or written after it was made.
enum Held {
    Nothing,
    Text(*mut c_char),
    Bytes(*mut [u8]),
    Proc(*mut Proc),
    Infos(
        *mut DataArray,
        #[allow(dead_code, reason = "held")] InfoArray,
    ),
}

impl Held {
    fn text(&mut self, text: String) -> *mut c_char {
        let mut bytes = text.into_bytes();
        let end = bytes.iter().position(|&byte| byte == 0);
        bytes.truncate(end.unwrap_or(bytes.len()));
        let text = CString::new(bytes).unwrap_or_default().into_raw();
        *self = Self::Text(text);
        text
    }

    fn bytes(&mut self, bytes: Vec<u8>) -> ByteObject {
        let size = bytes.len();
        let bytes = Box::into_raw(bytes.into_boxed_slice());
        *self = Self::Bytes(bytes);
        ByteObject {
            bytes: bytes.cast(),
            size,
        }
    }

    fn proc(&mut self, proc: Box<Proc>) -> *mut Proc {
        let proc = Box::into_raw(proc);
        *self = Self::Proc(proc);
        proc
    }

    fn infos(&mut self, mut infos: InfoArray) -> *mut DataArray {
        let array = Box::into_raw(Box::new(DataArray {
            kind: kind::INFO,
            size: infos.len(),
            array: infos.as_mut_ptr().cast(),
        }));
        *self = Self::Infos(array, infos);
        array
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: each pointer is of the function above that made it, and is given back once.
        unsafe {
            match *self {
                Self::Nothing => {}
                Self::Text(text) => drop(CString::from_raw(text)),
                Self::Bytes(bytes) => drop(Box::from_raw(bytes)),
                Self::Proc(proc) => drop(Box::from_raw(proc)),
                Self::Infos(array, _) => drop(Box::from_raw(array)),
            }
        }
    }
}

// SAFETY: all that it points to belongs to it alone.
unsafe impl Send for Packed {}
// SAFETY: it is not changed through a shared reference.
unsafe impl Sync for Packed {}

/// A list of attributes as the library wants it.
#[derive(Default)]
pub struct InfoArray {
    infos: Vec<Info>,
    held: Vec<Held>,
}

impl InfoArray {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more.
    ///
    /// # Panics
    ///
    /// The key has [`crate::abi::KEY_LEN`] bytes or more, or a zero; those of [`crate::key`] have not,
    /// others are to be checked before.
    #[must_use]
    pub fn with(mut self, key: &str, data: Data) -> Self {
        let key = text_field(key.as_bytes()).expect("a key that fits");
        let Packed { value, held } = data.pack();
        self.infos.push(Info {
            key,
            flags: 0,
            value,
        });
        self.held.push(held);
        self
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.infos.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.infos.is_empty()
    }

    /// For a call that reads them: null if there are none. Good until this is changed or dropped.
    pub fn as_mut_ptr(&mut self) -> *mut Info {
        match self.infos.is_empty() {
            true => ptr::null_mut(),
            false => self.infos.as_mut_ptr(),
        }
    }
}

impl<K: AsRef<str>> FromIterator<(K, Data)> for InfoArray {
    fn from_iter<I: IntoIterator<Item = (K, Data)>>(list: I) -> Self {
        let with = |infos: Self, (key, data): (K, Data)| infos.with(key.as_ref(), data);
        list.into_iter().fold(Self::new(), with)
    }
}

// SAFETY: all that it points to belongs to it alone.
unsafe impl Send for InfoArray {}
// SAFETY: it is not changed through a shared reference.
unsafe impl Sync for InfoArray {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::ValueData;
    use proptest::prelude::*;

    fn again(data: Data) -> Data {
        let mut packed = data.pack();
        // SAFETY: it was packed just now.
        unsafe { Data::read(&*packed.as_mut_ptr()) }
    }

    fn data() -> impl Strategy<Value = Data> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Data::Bool),
            any::<u8>().prop_map(Data::Byte),
            "[^\0]{0,40}".prop_map(Data::Text),
            any::<usize>().prop_map(Data::Size),
            any::<i32>().prop_map(Data::Int),
            any::<i64>().prop_map(Data::I64),
            any::<u16>().prop_map(Data::U16),
            any::<u32>().prop_map(Data::U32),
            any::<u64>().prop_map(Data::U64),
            any::<u32>().prop_map(Data::Rank),
            ("[a-z.@0-9]{0,255}", any::<u32>())
                .prop_map(|(name, rank)| Data::Proc(Box::new(Proc::new(&name, rank).unwrap()))),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Data::Bytes),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Data::Regex),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop::collection::vec(("[a-z.]{1,511}", inner), 0..4).prop_map(Data::Infos)
        })
    }

    proptest! {
        #[test]
        fn what_is_packed_is_read_again(data in data()) {
            prop_assert_eq!(again(data.clone()), data);
        }
    }

    #[test]
    fn numbers_are_numbers_whatever_their_type() {
        let value = |kind, word: u64| {
            let data = ValueData {
                whole: [word, 0, 0],
            };
            // SAFETY: a number points to nothing.
            unsafe { Data::read(&Value { kind, data }) }
        };
        for kind in [
            kind::BYTE,
            kind::SIZE,
            kind::PID,
            kind::INT,
            kind::INT8,
            kind::INT16,
            kind::INT32,
            kind::INT64,
            kind::UINT,
            kind::UINT8,
            kind::UINT16,
            kind::UINT32,
            kind::UINT64,
            kind::RANK,
        ] {
            assert_eq!(value(kind, 7).u32(), Some(7), "{kind}");
        }
        assert_eq!(value(kind::INT, u64::MAX).number(), Some(-1));
        assert_eq!(value(kind::INT, u64::MAX).u32(), None);
        assert_eq!(value(kind::UINT64, u64::MAX).u32(), None);
        assert_eq!(value(kind::BOOL, 0xff), Data::Bool(true));
        // Nothing is behind the pointer of these.
        for kind in [
            kind::STRING,
            kind::PROC,
            kind::DATA_ARRAY,
            kind::UNDEFINED,
            999,
        ] {
            assert_eq!(value(kind, 0), Data::Other(kind));
        }
        assert_eq!(value(kind::BYTE_OBJECT, 0), Data::Bytes(Vec::new()));
    }

    #[test]
    fn texts_end_at_their_zero() {
        assert_eq!(again(Data::Text("a\0b".into())), Data::Text("a".into()));
    }

    #[test]
    fn lists_that_hold_too_many_lists_are_cut() {
        let nest = |data, _| Data::Infos(vec![("k".to_owned(), data)]);
        let deep = (0..2 * DEPTH_MAX).fold(Data::Int(1), nest);
        let text = format!("{:?}", again(deep));
        assert!(text.contains("Other(39)"), "{text}");
    }

    #[test]
    fn an_empty_list_is_null() {
        assert!(InfoArray::new().as_mut_ptr().is_null());
        let mut some: InfoArray = [("pmix.timeout", Data::Int(3))].into_iter().collect();
        // SAFETY: it is a list of one.
        let read = unsafe { read_infos(some.as_mut_ptr(), some.len()) };
        assert_eq!(read, [("pmix.timeout".to_owned(), Data::Int(3))]);
    }
}
