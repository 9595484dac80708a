//! How values stand among the fields of a message. A codec reads and writes one of them, so what a
//! command or reply consists of is said once, as a row of a table ([`messages!`]).

use std::borrow::Cow;
use std::str::FromStr;

use super::fields::{BodyWriter, Fields};
use crate::wire::WireError;

/// Reads and writes a value.
pub(super) trait Codec<'a, T> {
    fn read(&self, fields: &Fields<'a>) -> Result<T, WireError>;
    fn write(&self, w: &mut BodyWriter<'_>, value: &T);
}

/// One that has a field of its own.
pub(super) trait Named {
    fn name(&self) -> &'static str;
}

/// Bytes that have to be there.
pub(super) struct Bytes(pub(super) &'static str);

impl<'a> Codec<'a, Cow<'a, [u8]>> for Bytes {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        fields.need(self.0)
    }

    fn write(&self, w: &mut BodyWriter<'_>, value: &Cow<'a, [u8]>) {
        w.field(self.0, value);
    }
}

/// Text that has to be there.
pub(super) struct Text(pub(super) &'static str);

impl Named for Text {
    fn name(&self) -> &'static str {
        self.0
    }
}

impl<'a> Codec<'a, Cow<'a, str>> for Text {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, str>, WireError> {
        fields.need_text(self.0)
    }

    fn write(&self, w: &mut BodyWriter<'_>, value: &Cow<'a, str>) {
        w.field(self.0, value.as_bytes());
    }
}

/// A number that has to be there: its name, and what it is, for errors.
pub(super) struct Number(pub(super) &'static str, pub(super) &'static str);

impl Named for Number {
    fn name(&self) -> &'static str {
        self.0
    }
}

impl<'a, T: FromStr + Copy + Into<i128>> Codec<'a, T> for Number {
    fn read(&self, fields: &Fields<'a>) -> Result<T, WireError> {
        fields.need_number(self.0, self.1)
    }

    fn write(&self, w: &mut BodyWriter<'_>, value: &T) {
        w.number(self.0, *value);
    }
}

/// TRUE or FALSE.
pub(super) struct Flag(pub(super) &'static str);

impl Named for Flag {
    fn name(&self) -> &'static str {
        self.0
    }
}

impl<'a> Codec<'a, bool> for Flag {
    fn read(&self, fields: &Fields<'a>) -> Result<bool, WireError> {
        Ok(fields.flag(self.0)?.unwrap_or(false))
    }

    fn write(&self, w: &mut BodyWriter<'_>, value: &bool) {
        w.flag(self.0, *value);
    }
}

/// TRUE, or not there.
pub(super) struct Mark(pub(super) &'static str);

impl<'a> Codec<'a, bool> for Mark {
    fn read(&self, fields: &Fields<'a>) -> Result<bool, WireError> {
        Flag(self.0).read(fields)
    }

    fn write(&self, w: &mut BodyWriter<'_>, value: &bool) {
        if *value {
            w.flag(self.0, true);
        }
    }
}

/// The value of an allgather, in hexadecimal digits.
pub(super) struct Hex(pub(super) &'static str);

impl<'a> Codec<'a, Cow<'a, [u8]>> for Hex {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        fields.hex(self.0).map(Cow::Owned)
    }

    fn write(&self, w: &mut BodyWriter<'_>, value: &Cow<'a, [u8]>) {
        w.hex(self.0, value);
    }
}

/// Any number of bytes up to a limit, in hexadecimal digits; not there means none.
pub(super) struct HexUpTo(pub(super) &'static str, pub(super) usize);

impl<'a> Codec<'a, Cow<'a, [u8]>> for HexUpTo {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        fields.hex_up_to(self.0, self.1).map(Cow::Owned)
    }

    fn write(&self, w: &mut BodyWriter<'_>, value: &Cow<'a, [u8]>) {
        w.hex_if_any(self.0, value);
    }
}

/// What may be absent.
pub(super) struct Maybe<C>(pub(super) C);

impl<'a, T, C: Codec<'a, T> + Named> Codec<'a, Option<T>> for Maybe<C> {
    fn read(&self, fields: &Fields<'a>) -> Result<Option<T>, WireError> {
        let there = fields.get(self.0.name()).is_some();
        there.then(|| self.0.read(fields)).transpose()
    }

    fn write(&self, w: &mut BodyWriter<'_>, value: &Option<T>) {
        if let Some(value) = value {
            self.0.write(w, value);
        }
    }
}

/// What means the second if it is absent.
pub(super) struct Or<C, T>(pub(super) C, pub(super) T);

impl<'a, T: Copy, C: Codec<'a, T> + Named> Codec<'a, T> for Or<C, T> {
    fn read(&self, fields: &Fields<'a>) -> Result<T, WireError> {
        match fields.get(self.0.name()) {
            Some(_) => self.0.read(fields),
            None => Ok(self.1),
        }
    }

    fn write(&self, w: &mut BodyWriter<'_>, value: &T) {
        self.0.write(w, value);
    }
}

/// Makes an enum of messages, and their codec, of a table: variant, name on the wire, and for each of its
/// values the codec. What follows the last row has no name of its own and a codec elsewhere.
macro_rules! messages {
    (
        $(#[$meta:meta])*
        pub enum $messages:ident<$life:lifetime> {
            $(
                $(#[$doc:meta])*
                $variant:ident $name:literal
                $({ $($(#[$part_doc:meta])* $part:ident: $type:ty = $codec:expr),+ $(,)? })?
                $(($whole:ident: $whole_type:ty = $whole_codec:expr))?
            ),+;
            $($rest:tt)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $messages<$life> {
            $(
                $(#[$doc])*
                $variant $({ $($(#[$part_doc])* $part: $type),+ })? $(($whole_type))?,
            )+
            $($rest)*
        }

        impl<$life> $messages<$life> {
            /// Its name, if it has a row.
            #[allow(unreachable_patterns, reason = "not all tables have something behind the last row")]
            fn row_name(&self) -> Option<&'static str> {
                match self {
                    $(Self::$variant { .. } => Some($name),)+
                    _ => None,
                }
            }

            /// Reads the one that has a name; `None` if there is none.
            fn read(name: &[u8], fields: &Fields<$life>) -> Result<Option<Self>, WireError> {
                $(
                    if name == $name.as_bytes() {
                        return Ok(Some(Self::$variant
                            $({ $($part: $codec.read(fields)?),+ })?
                            $(($whole_codec.read(fields)?))?
                        ));
                    }
                )+
                Ok(None)
            }

            #[allow(unreachable_patterns, reason = "not all tables have something behind the last row")]
            fn write(&self, w: &mut BodyWriter<'_>) {
                match self {
                    $(
                        Self::$variant $({ $($part),+ })? $(($whole))? => {
                            $($($codec.write(w, $part);)+)?
                            $($whole_codec.write(w, $whole);)?
                        }
                    )+
                    _ => {}
                }
            }
        }
    };
}

pub(super) use messages;
