//! How values stand among the fields of a message. A codec reads and writes one of them, so a row of
//! a table ([`messages!`]) describes a command and its reply in both versions of PMI.

use std::borrow::Cow;
use std::str::FromStr;

use super::fields::Fields;
use super::writer::Writer;
use super::{Version, WireError};

/// Reads and writes a value.
pub(super) trait Codec<'a, T> {
    fn read(&self, fields: &Fields<'a>) -> Result<T, WireError>;
    fn write(&self, w: &mut Writer<'_>, value: &T);
}

/// One that has a field of its own.
pub(super) trait Named {
    fn name(&self) -> &'static str;
}

/// The first with PMI-1, the second with PMI-2.
pub(super) struct By<A, B>(pub(super) A, pub(super) B);

impl<'a, T, A: Codec<'a, T>, B: Codec<'a, T>> Codec<'a, T> for By<A, B> {
    fn read(&self, fields: &Fields<'a>) -> Result<T, WireError> {
        match fields.version() {
            Version::V1 => self.0.read(fields),
            Version::V2 => self.1.read(fields),
        }
    }

    fn write(&self, w: &mut Writer<'_>, value: &T) {
        match w.version() {
            Version::V1 => self.0.write(w, value),
            Version::V2 => self.1.write(w, value),
        }
    }
}

/// A value that a version does not carry; it is read as this one.
pub(super) struct Absent<T>(pub(super) T);

impl<'a, T: Clone> Codec<'a, T> for Absent<T> {
    fn read(&self, _: &Fields<'a>) -> Result<T, WireError> {
        Ok(self.0.clone())
    }

    fn write(&self, _: &mut Writer<'_>, _: &T) {}
}

/// Bytes that have to be there.
pub(super) struct Bytes(pub(super) &'static str);

impl Named for Bytes {
    fn name(&self) -> &'static str {
        self.0
    }
}

impl<'a> Codec<'a, Cow<'a, [u8]>> for Bytes {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        fields.need(self.0)
    }

    fn write(&self, w: &mut Writer<'_>, value: &Cow<'a, [u8]>) {
        w.field(self.0, value);
    }
}

/// Bytes that have to be there, and all of which have to be: with PMI-1 a blank would cut them.
pub(super) struct Whole(pub(super) &'static str);

impl<'a> Codec<'a, Cow<'a, [u8]>> for Whole {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        fields.need_whole(self.0)
    }

    fn write(&self, w: &mut Writer<'_>, value: &Cow<'a, [u8]>) {
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

    fn write(&self, w: &mut Writer<'_>, value: &Cow<'a, str>) {
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

    fn write(&self, w: &mut Writer<'_>, value: &T) {
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

    fn write(&self, w: &mut Writer<'_>, value: &bool) {
        w.flag(self.0, *value);
    }
}

/// TRUE, or not there.
pub(super) struct Mark(pub(super) &'static str);

impl<'a> Codec<'a, bool> for Mark {
    fn read(&self, fields: &Fields<'a>) -> Result<bool, WireError> {
        Flag(self.0).read(fields)
    }

    fn write(&self, w: &mut Writer<'_>, value: &bool) {
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

    fn write(&self, w: &mut Writer<'_>, value: &Cow<'a, [u8]>) {
        w.hex(self.0, value);
    }
}

/// Any number of bytes up to a limit, in hexadecimal digits; not there means none.
pub(super) struct HexUpTo(pub(super) &'static str, pub(super) usize);

impl<'a> Codec<'a, Cow<'a, [u8]>> for HexUpTo {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        fields.hex_up_to(self.0, self.1).map(Cow::Owned)
    }

    fn write(&self, w: &mut Writer<'_>, value: &Cow<'a, [u8]>) {
        if !value.is_empty() {
            w.hex(self.0, value);
        }
    }
}

/// What may be absent.
pub(super) struct Maybe<C>(pub(super) C);

impl<'a, T, C: Codec<'a, T> + Named> Codec<'a, Option<T>> for Maybe<C> {
    fn read(&self, fields: &Fields<'a>) -> Result<Option<T>, WireError> {
        let there = fields.get(self.0.name()).is_some();
        there.then(|| self.0.read(fields)).transpose()
    }

    fn write(&self, w: &mut Writer<'_>, value: &Option<T>) {
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

    fn write(&self, w: &mut Writer<'_>, value: &T) {
        self.0.write(w, value);
    }
}

/// Makes of a table the enums of commands and replies, their names and their codec. A row is a
/// command: its variant, its name with PMI-1 and that of its reply, its name with PMI-2 (which is
/// that of its reply, too), each `_` where there is none, and for each of its values the codec; then
/// the same of the reply. The enum `Verb` has the commands without their values. The replies in the head
/// answer no command of their own.
macro_rules! messages {
    (
        $(#[$command_meta:meta])*
        pub enum $commands:ident<$life:lifetime>;
        $(#[$reply_meta:meta])*
        pub enum $replies:ident { $($rest:tt)* }
        $(
            $(#[$doc:meta])*
            $verb:ident ($v1:tt $v1_reply:tt $v2:tt)
            $({ $($(#[$part_doc:meta])* $part:ident: $type:ty = $codec:expr),+ $(,)? })?
            $(($whole:ident: $whole_type:ty = $whole_codec:expr))?
            $(=> $reply:ident
                $({ $($(#[$r_doc:meta])* $r_part:ident: $r_type:ty = $r_codec:expr),+ $(,)? })?
                $(($r_whole:ident: $r_whole_type:ty = $r_whole_codec:expr))?
            )?;
        )+
    ) => {
        /// A command without what it is made of.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Verb {
            $($(#[$doc])* $verb,)+
        }

        /// Names of a command, in the versions that have it.
        #[derive(Clone, Copy)]
        struct Names {
            v1: Option<&'static str>,
            /// Of the reply with PMI-1.
            v1_reply: Option<&'static str>,
            v2: Option<&'static str>,
        }

        impl Verb {
            const ALL: &[Self] = &[$(Self::$verb,)+];

            const fn names(self) -> Names {
                match self {
                    $(Self::$verb => Names {
                        v1: name!($v1),
                        v1_reply: name!($v1_reply),
                        v2: name!($v2),
                    },)+
                }
            }
        }

        $(#[$command_meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $commands<$life> {
            $(
                $(#[$doc])*
                $verb $({ $($(#[$part_doc])* $part: $type),+ })? $(($whole_type))?,
            )+
        }

        impl<$life> $commands<$life> {
            /// The command without its values.
            pub const fn verb(&self) -> Verb {
                match self {
                    $(Self::$verb { .. } => Verb::$verb,)+
                }
            }

            fn read(verb: Verb, fields: &Fields<$life>) -> Result<Self, WireError> {
                Ok(match verb {
                    $(
                        Verb::$verb => Self::$verb
                            $({ $($part: $codec.read(fields)?),+ })?
                            $(($whole_codec.read(fields)?))?,
                    )+
                })
            }

            fn write(&self, w: &mut Writer<'_>) {
                match self {
                    $(
                        Self::$verb $({ $($part),+ })? $(($whole))? => {
                            $($($codec.write(w, $part);)+)?
                            $($whole_codec.write(w, $whole);)?
                        }
                    )+
                }
            }
        }

        $(#[$reply_meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $replies<$life> {
            $($(
                #[doc = concat!("To [`Command::", stringify!($verb), "`].")]
                $reply $({ $($(#[$r_doc])* $r_part: $r_type),+ })? $(($r_whole_type))?,
            )?)+
            $($rest)*
        }

        impl<$life> $replies<$life> {
            /// The command that it answers, if that has a row.
            fn row(&self) -> Option<Verb> {
                match self {
                    $($(Self::$reply { .. } => Some(Verb::$verb),)?)+
                    _ => None,
                }
            }

            /// Reads the reply to a command that has one.
            fn read(verb: Verb, fields: &Fields<$life>) -> Result<Self, WireError> {
                match verb {
                    $($(
                        Verb::$verb => Ok(Self::$reply
                            $({ $($r_part: $r_codec.read(fields)?),+ })?
                            $(($r_whole_codec.read(fields)?))?
                        ),
                    )?)+
                    _ => Err(fields.unknown()),
                }
            }

            fn write(&self, w: &mut Writer<'_>) {
                match self {
                    $($(
                        Self::$reply $({ $($r_part),+ })? $(($r_whole))? => {
                            $($($r_codec.write(w, $r_part);)+)?
                            $($r_whole_codec.write(w, $r_whole);)?
                        }
                    )?)+
                    _ => {}
                }
            }
        }
    };
}

macro_rules! name {
    (_) => {
        None
    };
    ($name:literal) => {
        Some($name)
    };
}

pub(super) use {messages, name};
