//! Which texts the versions of PMI carry unchanged, with every server and client in the field.

use super::ClientError;
use crate::wire::{MAX_KEY, MAX_VALUE, excerpt};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    V1,
    V2,
    /// As our own server reads it, which undoubles `;` as the first clients of PMI-2 double it.
    V2Escaped,
}

/// Checks a text of at most `max` bytes; `what` is `"key"` for keys.
pub(super) fn check<'t>(
    rule: Rule,
    what: &'static str,
    text: &'t [u8],
    max: usize,
) -> Result<&'t [u8], ClientError> {
    let bad = |rule: String| ClientError::BadText {
        what,
        text: excerpt(text),
        rule,
    };
    if text.is_empty() {
        return Err(bad("it is empty".into()));
    }
    if text.len() > max {
        return Err(bad(format!("it is longer than {max} bytes")));
    }
    let is_key = what == "key";
    let (forbidden, rule): (fn(u8, bool) -> bool, _) = match rule {
        Rule::V1 => (
            |byte, is_key| matches!(byte, b' ' | b'\t' | b'\r' | b'\\') || is_key && byte == b'=',
            "blanks, newlines, backslashes, NUL, and `=` in keys are not allowed; encode it",
        ),
        Rule::V2 => (
            |byte, _| byte == b';',
            "`;`, newline and NUL are not allowed; encode it",
        ),
        Rule::V2Escaped => (
            |byte, is_key| is_key && byte == b';',
            "newline, NUL, and `;` in keys are not allowed; encode it",
        ),
    };
    let mut bytes = text.iter();
    match bytes.any(|&byte| matches!(byte, b'\n' | 0) || forbidden(byte, is_key)) {
        true => Err(bad(rule.into())),
        false => Ok(text),
    }
}

/// Checks a pair as a plain PMI-2 client does, for a process that has no server.
pub(crate) fn check_pair(key: &str, value: &[u8]) -> Result<(), ClientError> {
    check(Rule::V2, "key", key.as_bytes(), MAX_KEY - 1)?;
    check(Rule::V2, "value", value, MAX_VALUE - 1).map(drop)
}
