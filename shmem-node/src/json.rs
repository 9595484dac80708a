//! JSON for reports that programs read: values are built, then written. Nothing here reads any.

use std::fmt::{self, Write};

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// Nothing is known.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A count.
    Number(u64),
    /// A text.
    Text(String),
    /// Values in a row.
    Array(Vec<Json>),
    /// Values with names, which are written in this order.
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// All of it in one line, for where nobody reads it and much is written.
    #[must_use]
    pub fn compact(&self) -> String {
        let mut out = String::new();
        let _ = self.write(&mut out, None);
        out
    }

    /// In lines that are indented for this depth, or in one.
    fn write(&self, f: &mut impl Write, depth: Option<usize>) -> fmt::Result {
        let (open, close, len) = match self {
            Self::Null => return f.write_str("null"),
            Self::Bool(yes) => return write!(f, "{yes}"),
            Self::Number(n) => return write!(f, "{n}"),
            Self::Text(text) => {
                let mut out = String::new();
                string(&mut out, text);
                return f.write_str(&out);
            }
            Self::Array(values) => ('[', ']', values.len()),
            Self::Object(entries) => ('{', '}', entries.len()),
        };
        let inside = depth.map(|depth| depth + 1);
        let blank = if depth.is_some() { " " } else { "" };
        f.write_char(open)?;
        for at in 0..len {
            if at > 0 {
                f.write_char(',')?;
            }
            new_line(f, inside)?;
            match self {
                Self::Array(values) => values[at].write(f, inside)?,
                Self::Object(entries) => {
                    let (name, value) = &entries[at];
                    write!(f, "\"{name}\":{blank}")?;
                    value.write(f, inside)?;
                }
                _ => {}
            }
        }
        if len > 0 {
            new_line(f, depth)?;
        }
        f.write_char(close)
    }
}

fn new_line(f: &mut impl Write, depth: Option<usize>) -> fmt::Result {
    depth.map_or(Ok(()), |depth| {
        write!(f, "\n{:indent$}", "", indent = 2 * depth)
    })
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, Some(0))
    }
}

impl From<bool> for Json {
    fn from(yes: bool) -> Self {
        Self::Bool(yes)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

macro_rules! numbers {
    ($($ty:ty)*) => { $(
        impl From<$ty> for Json {
            fn from(n: $ty) -> Self {
                Self::Number(n.into())
            }
        }
    )* };
}
numbers!(u8 u16 u32 u64);

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Json>> From<Vec<T>> for Json {
    fn from(values: Vec<T>) -> Self {
        values.into_iter().collect()
    }
}

impl<T: Into<Json>> FromIterator<T> for Json {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self::Array(values.into_iter().map(Into::into).collect())
    }
}

/// Appends `text` in quotes.
pub fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        let mut out = String::new();
        string(&mut out, "a\"b\\c\nd");
        assert_eq!(out, r#""a\"b\\c\u000ad""#);
    }

    #[test]
    fn values_nest() {
        let list: Json = [1u32, 2].into_iter().collect();
        let value = Json::Object(vec![
            ("a", list),
            ("b", Json::Array(Vec::new())),
            ("c", Json::Object(vec![("d", None::<bool>.into())])),
            ("e", true.into()),
        ]);
        let want = "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": [],\n  \"c\": {\n    \"d\": \
                    null\n  },\n  \"e\": true\n}";
        assert_eq!(value.to_string(), want);
        let want = r#"{"a":[1,2],"b":[],"c":{"d":null},"e":true}"#;
        assert_eq!(value.compact(), want);
    }
}
