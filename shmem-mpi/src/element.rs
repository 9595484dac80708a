//! What messages are made of: plain numbers, of which every pattern of bits is one.

/// A number that MPI knows: `i8` to `i64`, `u8` to `u64`, `f32`, `f64`.
pub trait Element: Copy + Send + Sync + 'static + sealed::Sealed {}

/// The numbers, in the order of [`crate::abi::Constants::kinds`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
}

/// How many there are.
pub(crate) const KINDS: usize = 10;

pub(crate) mod sealed {
    pub trait Sealed {
        const KIND: super::Kind;
        const ZERO: Self;
    }
}

macro_rules! elements {
    ($($t:ty, $kind:ident;)*) => {
        $(
            impl Element for $t {}
            impl sealed::Sealed for $t {
                const KIND: Kind = Kind::$kind;
                const ZERO: Self = 0 as Self;
            }
        )*
    };
}

elements! {
    i8, I8; i16, I16; i32, I32; i64, I64;
    u8, U8; u16, U16; u32, U32; u64, U64;
    f32, F32; f64, F64;
}
