//! From the words that were typed to those that clap reads, one list for each program of the job.
//!
//! mpiexec's long options have a single dash (`-np`, `-genv`), two of them take two words (`-genv NAME
//! VALUE`), some have another name here
//! ([`SAME`]), a lone `:` begins the next program, and a file (`--configfile`) may hold what would be typed.
//! All of that holds only in front of a program: what follows it belongs to it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Command;

use crate::given_file;

/// Those whose value may be two words, NAME VALUE; one with a = in it is both. With two dashes `--env` takes
/// one word always.
fn is_pair(arg: &[u8]) -> bool {
    matches!(arg, b"-env" | b"-genv" | b"--genv")
}

/// Options of other launchers that are another one here; one that ends with = takes the value along.
const SAME: [(&str, &str); 5] = [
    ("genvall", "--export=all"),
    ("genvnone", "--export=none"),
    ("genvlist", "--export="),
    ("print-all-exitcodes", "--verbose"),
    ("report-bindings", "--verbose"),
];

/// Options that earlier versions had, and what replaces them.
const DROPPED: [(&str, &str); 5] = [
    ("allocation", "--genv SHMEM_ALLOCATION=WHICH"),
    ("no-progress", "--quiet"),
    ("report-json", "--report FILE.json"),
    ("spawn", "--genv SHMEM_SPAWN=HOW"),
    ("tree-degree", "--genv SHMEM_TREE_DEGREE=K"),
];

/// The other of a pair of which a long option, with one dash or two, is the first.
fn listed(pairs: &[(&str, &'static str)], word: &[u8]) -> Option<&'static str> {
    let name = word.strip_prefix(b"--").or(word.strip_prefix(b"-"))?;
    let name = name.split(|&b| b == b'=').next()?;
    let found = pairs.iter().find(|(option, _)| option.as_bytes() == name);
    found.map(|&(_, other)| other)
}

/// The option of this long name.
fn long<'a>(command: &'a Command, name: &[u8]) -> Option<&'a clap::Arg> {
    let is = |a: &&clap::Arg| {
        let names = a.get_long_and_visible_aliases().unwrap_or_default();
        names.iter().any(|long| long.as_bytes() == name)
    };
    command.get_arguments().find(is)
}

/// Whether this is a long option with a single dash.
fn is_single_dash(command: &Command, word: &[u8]) -> bool {
    let name = word.split(|&b| b == b'=').next().unwrap_or_default();
    name.len() > 2 && long(command, &name[1..]).is_some()
}

/// Whether the value of an option is the next word.
fn takes_next(command: &Command, word: &[u8]) -> bool {
    let takes = |arg: Option<&clap::Arg>| {
        arg.is_some_and(|a| a.get_action().takes_values() && !a.is_require_equals_set())
    };
    if let Some(name) = word.strip_prefix(b"--") {
        return takes(long(command, name));
    }
    // The first of several short ones that takes a value takes the rest.
    let shorts = &word[1..];
    let short = |of: u8| {
        let is = |a: &&clap::Arg| a.get_short() == Some(of.into());
        command.get_arguments().find(is)
    };
    let at = shorts.iter().position(|&of| takes(short(of)));
    at.is_some_and(|at| at + 1 == shorts.len())
}

/// The words of each program, the first list beginning with the name of shmrun.
///
/// # Errors
/// What is wrong with a file of them.
pub(super) fn by_program(
    command: &Command,
    words: impl IntoIterator<Item = OsString>,
) -> Result<Vec<Vec<OsString>>, String> {
    let mut words = words.into_iter();
    let mut all = vec![words.next().into_iter().collect()];
    loop {
        let part = all.last_mut().expect("there is one");
        match take_program(command, &mut words, true, part)? {
            Next::Nothing => return Ok(all),
            Next::Program => all.push(vec![OsString::from("shmrun")]),
            Next::File(file) => {
                add_file(command, &file, &mut all)?;
                if let Some(word) = words.next() {
                    return Err(format!(
                        "--configfile {}: it holds the programs, so nothing can follow it; '{}' does",
                        file.display(),
                        word.display()
                    ));
                }
                return Ok(all);
            }
        }
    }
}

/// What comes behind a program.
enum Next {
    Nothing,
    Program,
    /// A file with the programs, instead of one.
    File(OsString),
}

/// Adds the options of a program to `out`, as clap reads them, and the program with its arguments, which
/// end at a lone `:` if `colons`, unless a `--` stands before the program.
fn take_program(
    command: &Command,
    words: &mut impl Iterator<Item = OsString>,
    colons: bool,
    out: &mut Vec<OsString>,
) -> Result<Next, String> {
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            out.push(word);
            out.extend(words);
            return Ok(Next::Nothing);
        }
        if colons && bytes == b":" {
            return Ok(Next::Program);
        }
        if bytes.len() < 2 || bytes[0] != b'-' {
            out.push(word);
            for arg in words.by_ref() {
                if colons && arg == ":" {
                    return Ok(Next::Program);
                }
                out.push(arg);
            }
            return Ok(Next::Nothing);
        }
        if let Some(other) = listed(&DROPPED, bytes) {
            let typed = word.display();
            return Err(format!("{typed}: this version has {other} instead"));
        }
        if let Some(ours) = listed(&SAME, bytes) {
            let mut ours = OsString::from(ours);
            let value = bytes.iter().position(|&b| b == b'=');
            let value = value.map(|at| OsStr::from_bytes(&bytes[at + 1..]).to_owned());
            if ours.as_bytes().ends_with(b"=") {
                ours.extend(value.or_else(|| words.next()));
            } else if value.is_some() {
                return Err(format!("{}: this option has no value", word.display()));
            }
            out.push(ours);
            continue;
        }
        let pair = is_pair(bytes);
        let mut word = match is_single_dash(command, bytes) {
            true => [OsStr::new("-"), &word].into_iter().collect(),
            false => word,
        };
        if word == "--configfile" {
            if let Some(file) = words.next() {
                return Ok(Next::File(file));
            }
        } else if let Some(file) = word.as_bytes().strip_prefix(b"--configfile=") {
            return Ok(Next::File(OsString::from_vec(file.to_vec())));
        } else if pair {
            let value = words.next();
            let both = value.as_ref().is_some_and(|v| v.as_bytes().contains(&b'='));
            let second = (!both).then(|| words.next()).flatten();
            for part in value.into_iter().chain(second) {
                word.push("=");
                word.push(part);
            }
            out.push(word);
        } else {
            let takes_next = takes_next(command, word.as_bytes());
            out.push(word);
            if takes_next {
                out.extend(words.next());
            }
        }
    }
    Ok(Next::Nothing)
}

/// Adds the programs of a file to `all`, whose last list has the options before it. Each line is one; lines
/// and arguments that a `:` would end need none.
fn add_file(command: &Command, file: &OsStr, all: &mut Vec<Vec<OsString>>) -> Result<(), String> {
    let told = |e: &dyn std::fmt::Display| format!("--configfile {}: {e}", file.display());
    let text = given_file::read(file.as_ref()).map_err(|e| told(&e))?;
    let mut first = true;
    for (number, line) in lines(&text) {
        let at = |e: &dyn std::fmt::Display| told(&format!("line {number}: {e}"));
        let words = split(&line).map_err(|e| at(&e))?;
        if words.is_empty() {
            continue;
        }
        if !std::mem::take(&mut first) {
            all.push(vec![OsString::from("shmrun")]);
        }
        let part = all.last_mut().expect("there is one");
        if let Next::File(_) =
            take_program(command, &mut words.into_iter(), false, part).map_err(|e| at(&e))?
        {
            return Err(at(&"such a file cannot name another"));
        }
    }
    match first {
        true => Err(told(&"there is no program in it")),
        false => Ok(()),
    }
}

/// The lines of a file with their numbers; one that ends with a backslash goes on in the next.
fn lines(text: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut out: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.split(|&b| b == b'\n')) {
        let (line, more) = match line.strip_suffix(b"\\") {
            Some(line) => (line, true),
            None => (line, false),
        };
        match out.last_mut().filter(|_| goes_on) {
            Some((_, before)) => {
                before.push(b' ');
                before.extend_from_slice(line);
            }
            None => out.push((number, line.to_vec())),
        }
        goes_on = more;
    }
    out
}

/// The words of a line, as a shell without variables takes them: with quotes, backslashes, and a comment
/// from a `#` that begins a word.
fn split(line: &[u8]) -> Result<Vec<OsString>, &'static str> {
    let mut out = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = line.iter().copied();
    while let Some(b) = bytes.next() {
        match (quote, b) {
            (Some(q), b) if q == b => quote = None,
            (Some(b'\''), b) => word.get_or_insert_default().push(b),
            (_, b'\\') => {
                let next = bytes.next().ok_or("a backslash with nothing behind it")?;
                word.get_or_insert_default().push(next);
            }
            (Some(_), b) => word.get_or_insert_default().push(b),
            (None, b'\'' | b'"') => {
                quote = Some(b);
                word.get_or_insert_default();
            }
            (None, b'#') if word.is_none() => break,
            (None, b) if b.is_ascii_whitespace() => {
                out.extend(word.take().map(OsString::from_vec));
            }
            (None, b) => word.get_or_insert_default().push(b),
        }
    }
    match quote {
        Some(_) => Err("a quote that does not end"),
        None => {
            out.extend(word.map(OsString::from_vec));
            Ok(out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_does() {
        for (line, words) in [
            ("a  b\t c", &["a", "b", "c"][..]),
            ("'a b' \"c 'd\" e\\ f", &["a b", "c 'd", "e f"]),
            ("a # b", &["a"]),
            ("a#b ''", &["a#b", ""]),
            ("  # only this", &[]),
            ("\"a\\\"b\" 'a\\b'", &["a\"b", "a\\b"]),
        ] {
            assert_eq!(split(line.as_bytes()).unwrap(), words, "{line}");
        }
        assert!(split(b"'a").is_err() && split(b"a\\").is_err());
    }

    #[test]
    fn lines_go_on_behind_a_backslash() {
        let lines = lines(b"a \\\nb\n\nc");
        let want = [(1, &b"a  b"[..]), (3, b""), (4, b"c")];
        assert_eq!(lines.len(), want.len());
        for ((number, line), (at, text)) in lines.iter().zip(want) {
            assert_eq!((*number, &line[..]), (at, text));
        }
    }
}
