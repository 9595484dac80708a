//! Who has written a line of a job's output, and what of it is the test's: pure.
//!
//! The launcher labels each line of a PE (`[3] text`). Lines without a label are its own. What a PE writes to standard
//! output before [`BEGIN`] is libtest's.

use std::collections::HashSet;

/// A line that a PE writes when its test begins.
pub(crate) const BEGIN: &str = "-- the PE's part of the test begins --";

/// The two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// What to do with a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A PE's words.
    Pe(&'a str),
    /// The launcher's.
    Launcher(&'a str),
    /// Nobody wants to see it.
    Noise,
}

/// What has been seen of a job's output.
#[derive(Debug)]
pub(crate) struct Output {
    labels: bool,
    begun: HashSet<u32>,
    /// What libtest says in a PE that takes long.
    slow: String,
}

impl Output {
    /// Of the job of a test with this name; `labels` leaves them in front of lines.
    pub(crate) fn new(name: &str, labels: bool) -> Self {
        Self {
            labels,
            begun: HashSet::new(),
            slow: format!("test {name} has been running for over "),
        }
    }

    /// How many PEs have begun.
    pub(crate) fn begun(&self) -> u32 {
        self.begun.len() as u32
    }

    /// Takes a line without its end.
    pub(crate) fn take<'a>(&mut self, stream: Stream, line: &'a str) -> Line<'a> {
        let Some((pe, text)) = labelled(line) else {
            return Line::Launcher(line);
        };
        let Some(pe) = pe else {
            return Line::Pe(line);
        };
        if stream == Stream::Out {
            if text == BEGIN {
                self.begun.insert(pe);
                return Line::Noise;
            }
            if !self.begun.contains(&pe) || text.starts_with(&self.slow) {
                return Line::Noise;
            }
        }
        Line::Pe(if self.labels { line } else { text })
    }
}

/// The rank in front of a line, and the line. A PE of a job that another one has spawned has its own numbers,
/// `[1:0] text`, and runs no test.
fn labelled(line: &str) -> Option<(Option<u32>, &str)> {
    let (label, text) = line.strip_prefix('[')?.split_once(']')?;
    let text = text.strip_prefix(' ').unwrap_or(text);
    if let Some((job, rank)) = label.split_once(':') {
        let [_, _]: [u32; 2] = [job.parse().ok()?, rank.parse().ok()?];
        return Some((None, text));
    }
    Some((Some(label.parse().ok()?), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_to_whom_they_are_of() {
        let mut output = Output::new("a::b", true);
        assert_eq!(output.take(Stream::Out, "[1] running 1 test"), Line::Noise);
        assert_eq!(
            output.take(Stream::Out, &format!("[1] {BEGIN}")),
            Line::Noise
        );
        assert_eq!(output.take(Stream::Out, "[1] hello"), Line::Pe("[1] hello"));
        // PE 0 has not begun, which does not matter for what goes wrong.
        assert_eq!(output.take(Stream::Out, "[0] hello"), Line::Noise);
        assert_eq!(output.take(Stream::Err, "[0] hello"), Line::Pe("[0] hello"));
        let slow = "[1] test a::b has been running for over 60 seconds";
        assert_eq!(output.take(Stream::Out, slow), Line::Noise);
        assert_eq!(output.begun(), 1);
        let spawned = "[1:0] hello";
        assert_eq!(output.take(Stream::Out, spawned), Line::Pe(spawned));
        let why = "shmrun: PE 1 on node 0 (pid 7) exited with status 1";
        assert_eq!(output.take(Stream::Err, why), Line::Launcher(why));
    }

    #[test]
    fn who_is_alone_has_no_label() {
        let mut output = Output::new("a", false);
        assert_eq!(output.take(Stream::Err, "[0] [x] y"), Line::Pe("[x] y"));
        assert_eq!(output.take(Stream::Err, "[0] "), Line::Pe(""));
        assert_eq!(output.take(Stream::Err, "[x] y"), Line::Launcher("[x] y"));
    }
}
