//! Samples, with where and of what they were taken: figures without that cannot be compared later.

use std::fmt::{Display, Write as _};
use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Writes samples as lines of JSON: objects, of which the first tells where they were taken.
#[derive(Debug)]
pub struct Samples<W>(W);

impl<W: Write> Samples<W> {
    /// Begins with the line that tells where.
    ///
    /// # Errors
    /// If nothing can be written.
    pub fn begin(mut out: W) -> io::Result<Self> {
        let facts = facts();
        let facts = facts.iter().map(|(name, value)| (*name, quoted(value)));
        write_line(&mut out, facts)?;
        Ok(Self(out))
    }

    /// Adds a sample: names, and values as JSON has them; see [`quoted`].
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, fields: &[(&str, &dyn Display)]) -> io::Result<()> {
        let fields = fields
            .iter()
            .map(|(name, value)| (*name, value.to_string()));
        write_line(&mut self.0, fields)
    }
}

/// A text as a value of JSON.
pub fn quoted(words: &str) -> String {
    let mut out = String::from("\"");
    for c in words.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

fn write_line<'a>(
    out: &mut impl Write,
    fields: impl Iterator<Item = (&'a str, String)>,
) -> io::Result<()> {
    let fields: Vec<_> = fields
        .map(|(name, value)| format!("{}:{value}", quoted(name)))
        .collect();
    writeln!(out, "{{{}}}", fields.join(","))
}

/// First line that a command prints, if it succeeds.
pub fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(|line| line.trim().to_owned())
}

/// The machine, its load now, and the commit of the checkout that this program was built in: one
/// `name: value` a line.
pub fn about() -> String {
    facts()
        .into_iter()
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect()
}

fn facts() -> [(&'static str, String); 8] {
    let commit = [
        "-C",
        env!("CARGO_MANIFEST_DIR"),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",
    ];
    let of_file = |path: &str, name: &str| field(&fs::read_to_string(path).ok()?, name);
    let load = fs::read_to_string("/proc/loadavg").ok();
    let cores = std::thread::available_parallelism();
    [
        ("commit", first_line("git", &commit)),
        ("date", first_line("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])),
        ("host", first_line("uname", &["-n"])),
        ("kernel", first_line("uname", &["-srm"])),
        ("processor", of_file("/proc/cpuinfo", "model name")),
        ("cores for this process", cores.ok().map(|n| n.to_string())),
        ("memory", of_file("/proc/meminfo", "MemTotal")),
        ("load", load.map(|l| l.trim().to_owned())),
    ]
    .map(|(name, value)| (name, value.unwrap_or_else(|| "unknown".to_owned())))
}

/// The first `name : value` of a file like `/proc/cpuinfo`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_lines_of_json_behind_one_that_tells_where() {
        let mut out = Vec::new();
        let mut samples = Samples::begin(&mut out).unwrap();
        let (case, seconds) = (quoted("a \"b\"\n"), 0.5);
        samples
            .add(&[("run", &1), ("case", &case), ("s", &seconds)])
            .unwrap();
        let out = String::from_utf8(out).unwrap();
        let (about, rest) = out.split_once('\n').unwrap();
        assert!(about.starts_with("{\"commit\":\""), "{about}");
        assert!(about.contains(",\"host\":\""), "{about}");
        assert_eq!(
            rest,
            "{\"run\":1,\"case\":\"a \\\"b\\\"\\u000a\",\"s\":0.5}\n"
        );
    }

    #[test]
    fn fields_are_found() {
        let text = "processor\t: 0\nmodel name\t: A: B\nmodel name\t: C\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A: B"));
        assert_eq!(field(text, "model"), None);
    }

    #[test]
    fn commands_that_fail_say_nothing() {
        assert_eq!(first_line("echo", &["a b"]).as_deref(), Some("a b"));
        assert_eq!(first_line("false", &[]), None);
        assert_eq!(first_line("no-such-program-anywhere", &[]), None);
    }
}
