//! What numbers, sizes, times and words look like in a setting's value.

use std::time::Duration;

use crate::layout::HEAP_GRAIN;

/// Why a value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// No number where one was expected.
    #[error("not a number")]
    NotANumber,
    /// A number outside of what makes sense.
    #[error("out of range")]
    OutOfRange,
    /// A unit that does not exist.
    #[error("unknown unit '{0}'")]
    Unit(String),
    /// A word that is not among the choices.
    #[error("not one of the choices")]
    Choice,
    /// Right by itself, but not together with another setting.
    #[error("not possible with {0}")]
    Conflict(&'static str),
    /// Of a setting that there was once; what to do instead.
    #[error("there is no such setting any more: {0}")]
    Dropped(&'static str),
}

/// Bytes: a non-negative decimal number, an optional unit of which only the first letter counts
/// (OpenSHMEM 1.6 section 8), rounded up.
pub(super) fn size(text: &str) -> Result<u64, ValueError> {
    let (number, unit) = split_number(text)?;
    let scale = match unit.chars().next().map(|c| c.to_ascii_lowercase()) {
        None => 1u64,
        Some('k') => 1 << 10,
        Some('m') => 1 << 20,
        Some('g') => 1 << 30,
        Some('t') => 1 << 40,
        Some(_) => return Err(ValueError::Unit(unit.to_owned())),
    };
    let bytes = (number * scale as f64).ceil();
    // 2^46 bytes is half of what a process can map.
    if bytes <= (1u64 << 46) as f64 {
        Ok(bytes as u64)
    } else {
        Err(ValueError::OutOfRange)
    }
}

/// Bytes of a heap: whole units of its allocator, so that a block of the size that is asked for fits.
pub(super) fn heap_size(text: &str) -> Result<u64, ValueError> {
    Ok(size(text)?.next_multiple_of(HEAP_GRAIN as u64))
}

/// A variable that counts when it is set, whatever to (OpenSHMEM 1.6 section 8). The default is the
/// word for one that is not.
pub(super) fn present(text: &str) -> Result<bool, ValueError> {
    Ok(text != "unset")
}

pub(super) fn count(text: &str) -> Result<u32, ValueError> {
    text.trim().parse().map_err(|_| ValueError::NotANumber)
}

pub(super) fn at_least_one(text: &str) -> Result<u32, ValueError> {
    match count(text)? {
        0 => Err(ValueError::OutOfRange),
        n => Ok(n),
    }
}

pub(super) fn yes_no(text: &str) -> Result<bool, ValueError> {
    choice(text, &[("yes", true), ("no", false)])
}

/// As [`yes_no`], also by the numbers that stand for it; `auto` leaves it open.
pub(super) fn yes_no_auto(text: &str) -> Result<Option<bool>, ValueError> {
    let words = [
        ("auto", None),
        ("yes", Some(true)),
        ("1", Some(true)),
        ("no", Some(false)),
        ("0", Some(false)),
    ];
    choice(text, &words)
}

pub(super) fn duration(text: &str) -> Result<Duration, ValueError> {
    let (number, unit) = split_number(text)?;
    let seconds = match unit {
        "us" => number * 1e-6,
        "ms" => number * 1e-3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(ValueError::Unit(unit.to_owned())),
    };
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|d| *d <= Duration::from_secs(1_000_000))
        .ok_or(ValueError::OutOfRange)
}

/// As [`duration`]; the default is the word for one that is not given.
pub(super) fn duration_or_unset(text: &str) -> Result<Option<Duration>, ValueError> {
    match text.trim() {
        "unset" => Ok(None),
        text => duration(text).map(Some),
    }
}

pub(super) fn split_number(text: &str) -> Result<(f64, &str), ValueError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| ValueError::NotANumber)?;
    Ok((number, text[end..].trim()))
}

pub(super) fn choice<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, ValueError> {
    let text = text.trim();
    choices
        .iter()
        .find(|(word, _)| word.eq_ignore_ascii_case(text))
        .map(|&(_, value)| value)
        .ok_or(ValueError::Choice)
}

pub(super) fn percent(text: &str) -> Result<u32, ValueError> {
    let (number, unit) = split_number(text)?;
    let ppm = match unit {
        "%" => number * 1e4,
        "ppm" => number,
        _ => return Err(ValueError::Unit(unit.to_owned())),
    };
    if ppm <= 1e6 {
        Ok(ppm.round() as u32)
    } else {
        Err(ValueError::OutOfRange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_follow_the_specification() {
        assert_eq!(size("20kk"), Ok(20 << 10));
        assert_eq!(size(".5m"), Ok(512 << 10));
        assert_eq!(size("1.5G"), Ok(3 << 29));
        assert_eq!(size("7"), Ok(7));
        assert_eq!(size("1.2"), Ok(2));
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("-1"), Err(ValueError::NotANumber));
        assert_eq!(size("many"), Err(ValueError::NotANumber));
        assert_eq!(size("1x"), Err(ValueError::Unit("x".into())));
        assert_eq!(size("1000t"), Err(ValueError::OutOfRange));
    }

    #[test]
    fn heaps_hold_a_block_of_their_size() {
        let found = ["0", "1", "4095", "64", "1048577"].map(heap_size);
        assert_eq!(found, [0, 64, 4096, 64, (1 << 20) + 64].map(Ok));
    }

    #[test]
    fn yes_and_no_have_numbers() {
        let found = ["auto", "1", "YES", "0", "no"].map(yes_no_auto);
        let expected = [None, Some(true), Some(true), Some(false), Some(false)];
        assert_eq!(found, expected.map(Ok));
        assert_eq!(yes_no_auto("2"), Err(ValueError::Choice));
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(duration("5 parsecs").is_err());
    }

    #[test]
    fn some_counts_are_not_0() {
        assert_eq!(at_least_one("0"), Err(ValueError::OutOfRange));
        assert_eq!((at_least_one("1"), count("0")), (Ok(1), Ok(0)));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (size(&text), duration(&text), percent(&text));
        }
    }
}
