//! The types of the specification's tables and the sets that its routines are defined for.

/// A type by which routines are named.
#[derive(Debug, PartialEq, Eq)]
pub struct Type {
    /// The `TYPENAME` in a routine's name.
    pub name: &'static str,
    /// How C spells it.
    pub c: &'static str,
    /// How the library's Rust spells it.
    pub rust: &'static str,
    /// The basic C type that it is on a machine with 64-bit `long`: `_Generic` takes only one of
    /// several names of one type.
    pub basic: &'static str,
}

/// Which types a routine exists for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// One routine, without a type in its name.
    None,
    /// A routine for each type.
    Set(&'static [&'static Type]),
    /// A routine for each width, in bits.
    Widths(&'static [u32]),
    /// A routine that counts bytes (`mem`).
    Bytes,
}

macro_rules! types {
    ($($id:ident $name:literal $c:literal $rust:literal $basic:literal;)*) => { $(
        #[doc = concat!("`", $name, "`")]
        pub static $id: Type = Type { name: $name, c: $c, rust: $rust, basic: $basic };
    )* };
}

types! {
    FLOAT "float" "float" "f32" "float";
    DOUBLE "double" "double" "f64" "double";
    LONGDOUBLE "longdouble" "long double" "LongDouble" "long double";
    COMPLEXF "complexf" "float SHMEM_IMPL_COMPLEX" "Complex<f32>" "float SHMEM_IMPL_COMPLEX";
    COMPLEXD "complexd" "double SHMEM_IMPL_COMPLEX" "Complex<f64>" "double SHMEM_IMPL_COMPLEX";
    CHAR "char" "char" "c_char" "char";
    SCHAR "schar" "signed char" "c_schar" "signed char";
    SHORT "short" "short" "c_short" "short";
    INT "int" "int" "c_int" "int";
    LONG "long" "long" "c_long" "long";
    LONGLONG "longlong" "long long" "c_longlong" "long long";
    UCHAR "uchar" "unsigned char" "c_uchar" "unsigned char";
    USHORT "ushort" "unsigned short" "c_ushort" "unsigned short";
    UINT "uint" "unsigned int" "c_uint" "unsigned int";
    ULONG "ulong" "unsigned long" "c_ulong" "unsigned long";
    ULONGLONG "ulonglong" "unsigned long long" "c_ulonglong" "unsigned long long";
    INT8 "int8" "int8_t" "i8" "signed char";
    INT16 "int16" "int16_t" "i16" "short";
    INT32 "int32" "int32_t" "i32" "int";
    INT64 "int64" "int64_t" "i64" "long";
    UINT8 "uint8" "uint8_t" "u8" "unsigned char";
    UINT16 "uint16" "uint16_t" "u16" "unsigned short";
    UINT32 "uint32" "uint32_t" "u32" "unsigned int";
    UINT64 "uint64" "uint64_t" "u64" "unsigned long";
    SIZE "size" "size_t" "usize" "unsigned long";
    PTRDIFF "ptrdiff" "ptrdiff_t" "isize" "long";
}

macro_rules! sets {
    ($($(#[$doc:meta])* $set:ident: $($ty:ident)*;)*) => { $(
        $(#[$doc])*
        pub const $set: Types = Types::Set(const { &[$(&$ty),*] });
    )* };
}

sets! {
    /// Standard RMA types, for copies and for collectives that only copy.
    RMA: FLOAT DOUBLE LONGDOUBLE CHAR SCHAR SHORT INT LONG LONGLONG UCHAR USHORT UINT ULONG
        ULONGLONG INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 SIZE PTRDIFF;
    /// Standard AMO types, also of waiting and testing.
    STANDARD: INT LONG LONGLONG UINT ULONG ULONGLONG INT32 INT64 UINT32 UINT64 SIZE PTRDIFF;
    /// Extended AMO types.
    EXTENDED: FLOAT DOUBLE INT LONG LONGLONG UINT ULONG ULONGLONG INT32 INT64 UINT32 UINT64 SIZE
        PTRDIFF;
    /// Bitwise AMO types.
    BITWISE: UINT ULONG ULONGLONG INT32 INT64 UINT32 UINT64;
    /// Types of minimum and maximum reductions.
    ORDERED: CHAR SCHAR SHORT INT LONG LONGLONG PTRDIFF UCHAR USHORT UINT ULONG ULONGLONG INT8 INT16
        INT32 INT64 UINT8 UINT16 UINT32 UINT64 SIZE FLOAT DOUBLE LONGDOUBLE;
    /// Types of sums, products and scans.
    ARITHMETIC: CHAR SCHAR SHORT INT LONG LONGLONG PTRDIFF UCHAR USHORT UINT ULONG ULONGLONG INT8
        INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 SIZE FLOAT DOUBLE LONGDOUBLE COMPLEXD COMPLEXF;
    /// Types of bitwise reductions.
    BITS: UCHAR USHORT UINT ULONG ULONGLONG INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 SIZE;
    /// Types of bitwise active-set reductions, and of the oldest waits.
    OLD_BITS: SHORT INT LONG LONGLONG;
    /// Types of active-set minima and maxima.
    OLD_ORDERED: SHORT INT LONG LONGLONG FLOAT DOUBLE LONGDOUBLE;
    /// Types of active-set sums and products.
    OLD_ARITHMETIC: SHORT INT LONG LONGLONG FLOAT DOUBLE LONGDOUBLE COMPLEXD COMPLEXF;
    /// Types of the old names of atomics.
    OLD_STANDARD: INT LONG LONGLONG;
    /// Types of the old names of atomic fetch, set and swap.
    OLD_EXTENDED: FLOAT DOUBLE INT LONG LONGLONG;
    /// Types that `wait_until` and `test` had before 1.5.
    OLD_WAITED: SHORT USHORT;
    /// All types of `wait_until` and `test`, for the type-generic names.
    WAITED: SHORT USHORT INT LONG LONGLONG UINT ULONG ULONGLONG INT32 INT64 UINT32 UINT64 SIZE
        PTRDIFF;
}

/// Widths of the copies that are named by them.
pub const WIDTHS: Types = Types::Widths(&[8, 16, 32, 64, 128]);
/// Widths of the active-set collectives.
pub const OLD_WIDTHS: Types = Types::Widths(&[32, 64]);
