//! Enumerations whose variants have numbers and texts, because other processes read the numbers.

macro_rules! numbered {
    ($(#[$about:meta])* $name:ident { $($variant:ident = $number:literal, $text:literal;)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[repr(u8)]
        pub enum $name { $( #[doc = $text] $variant = $number, )* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The one with this number, if there is one.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// What it is called.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
    };
}

/// An enumeration of some of another's variants, with their numbers and texts, under the same names or others.
macro_rules! some_of {
    ($(#[$about:meta])* $name:ident of $whole:ident { $($variant:ident),* $(,)? }) => {
        $crate::numbered::some_of! {
            $(#[$about])* $name of $whole { $($variant = $variant),* }
        }
    };
    ($(#[$about:meta])* $name:ident of $whole:ident { $($variant:ident = $of:ident),* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[repr(u8)]
        pub enum $name {
            $( #[doc = concat!("[`", stringify!($whole), "::", stringify!($of), "`]")] $variant = $whole::$of as u8, )*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The one with this number, if there is one.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match $whole::from_number(number) {
                    $(Some($whole::$of) => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// What it is called.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $whole::$of.text()),* }
            }
        }

        impl From<$name> for $whole {
            fn from(part: $name) -> Self {
                match part { $($name::$variant => Self::$of),* }
            }
        }
    };
}

pub(crate) use {numbered, some_of};
