//! Problem classes: the sizes that the NAS benchmarks are defined for.

use std::fmt;
use std::str::FromStr;

/// A problem class, smallest first. `S` and `W` are for tests, `A` to `C` for one machine, `D`
/// to `F` for large ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Sample: a fraction of a second.
    S,
    /// Workstation of the nineties.
    W,
    /// The smallest class meant for measuring.
    A,
    /// About four times A.
    B,
    /// About four times B.
    C,
    /// About sixteen times C.
    D,
    /// About sixteen times D.
    E,
    /// About sixteen times E.
    F,
}

impl Class {
    /// Every class, smallest first; a class's position here is [`Class::index`].
    pub const ALL: [Self; 8] = [
        Self::S,
        Self::W,
        Self::A,
        Self::B,
        Self::C,
        Self::D,
        Self::E,
        Self::F,
    ];

    /// Position in [`Class::ALL`] and in the tables of parameters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The letter that names the class.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::S => 'S',
            Self::W => 'W',
            Self::A => 'A',
            Self::B => 'B',
            Self::C => 'C',
            Self::D => 'D',
            Self::E => 'E',
            Self::F => 'F',
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.letter(), f)
    }
}

/// A class name that is not one letter of S, W and A to F.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no problem class `{0}`: use one of S, W, A, B, C, D, E, F")]
pub struct UnknownClass(
    /// What was given.
    pub String,
);

impl FromStr for Class {
    type Err = UnknownClass;

    /// Parses one letter, in either case.
    fn from_str(name: &str) -> Result<Self, UnknownClass> {
        let mut letters = name.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) => Self::ALL
                .into_iter()
                .find(|class| class.letter() == letter.to_ascii_uppercase()),
            _ => None,
        }
        .ok_or_else(|| UnknownClass(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn letters_parse_in_both_cases() {
        for (i, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), i);
            assert_eq!(class.to_string().parse(), Ok(class));
            assert_eq!(class.to_string().to_lowercase().parse(), Ok(class));
        }
        assert_eq!(format!("{:>3}", Class::S), "  S");
    }

    #[test]
    fn what_is_no_class_is_named_in_the_error() {
        for bad in ["", " ", "G", "AA", "A ", "1", "ß", "class A"] {
            let error = bad.parse::<Class>().unwrap_err();
            assert_eq!(error, UnknownClass(bad.to_owned()));
            assert!(error.to_string().contains(&format!("`{bad}`")));
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_fails_without_panic(text in any::<String>()) {
            if let Ok(class) = text.parse::<Class>() {
                prop_assert!(text.eq_ignore_ascii_case(&class.to_string()));
            }
        }
    }
}
