//! What the launcher writes: labels in front of lines, and line ends between sources of which one has
//! left its line open.

use crate::frame::Stream;

/// Whose line is open in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The PE of this rank.
    Pe(u32),
    /// The spawned job of this number, whose launcher has put labels already.
    Spawned(u32),
}

/// Writes the output of all PEs as one text per stream.
#[derive(Debug)]
pub struct Mixer {
    label: bool,
    /// Number of the job in labels, if another one has spawned it.
    job: Option<u32>,
    /// Whose line is open, per stream.
    open: [Option<Speaker>; 2],
}

impl Mixer {
    /// With `label` each line begins with `[rank] `, in the spawned job of number `job` with
    /// `[job:rank] `.
    pub fn new(label: bool, job: Option<u32>) -> Self {
        Self {
            label,
            job,
            open: [None; 2],
        }
    }

    /// Appends what somebody says to the text of a stream.
    pub fn add(&mut self, stream: Stream, from: Speaker, data: &[u8], text: &mut Vec<u8>) {
        let Some(&last) = data.last() else { return };
        let open = &mut self.open[stream as usize];
        let mut at_start = *open != Some(from);
        if at_start && open.is_some() {
            text.push(b'\n');
        }
        match from {
            Speaker::Pe(rank) if self.label => {
                for line in data.split_inclusive(|&b| b == b'\n') {
                    if at_start {
                        push_label(text, self.job, rank);
                    }
                    text.extend_from_slice(line);
                    at_start = true;
                }
            }
            _ => text.extend_from_slice(data),
        }
        *open = (last != b'\n').then_some(from);
    }

    /// Appends what the remote shell of a host said, in lines that begin with the host's name; empty
    /// ones are left out.
    pub fn add_of_host(&mut self, stream: Stream, host: &str, data: &[u8], text: &mut Vec<u8>) {
        self.end_line(stream, text);
        let lines = data
            .split(|&b| b == b'\n')
            .map(|line| line.trim_ascii_end());
        for line in lines.filter(|line| !line.is_empty()) {
            text.extend_from_slice(host.as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(line);
            text.push(b'\n');
        }
    }

    /// Ends a line that is open, for a text that follows and is no PE's.
    pub fn end_line(&mut self, stream: Stream, text: &mut Vec<u8>) {
        if self.open[stream as usize].take().is_some() {
            text.push(b'\n');
        }
    }

    /// Whether the last line has no end. It gets one only if something follows: a file that a PE
    /// writes to standard output has no byte more than the PE wrote.
    pub fn is_open(&self, stream: Stream) -> bool {
        self.open[stream as usize].is_some()
    }
}

fn push_label(text: &mut Vec<u8>, job: Option<u32>, rank: u32) {
    text.push(b'[');
    if let Some(job) = job {
        push_number(text, job);
        text.push(b':');
    }
    push_number(text, rank);
    text.extend_from_slice(b"] ");
}

fn push_number(text: &mut Vec<u8>, number: u32) {
    let mut digits = [0u8; 10];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hosts_have_lines_of_their_own() {
        let mut m = Mixer::new(false, None);
        let mut text = Vec::new();
        m.add(Stream::Err, Speaker::Pe(1), b"half", &mut text);
        m.add_of_host(Stream::Err, "b", b"one\r\n\ntwo", &mut text);
        m.add(Stream::Err, Speaker::Pe(1), b"more\n", &mut text);
        assert_eq!(text, b"half\nb: one\nb: two\nmore\n");
    }

    #[test]
    fn labels_stand_at_line_starts_only() {
        let mut m = Mixer::new(true, None);
        let mut text = Vec::new();
        m.add(Stream::Out, Speaker::Pe(3), b"a\nb\n", &mut text);
        m.add(Stream::Out, Speaker::Pe(12), b"long pi", &mut text);
        m.add(Stream::Out, Speaker::Pe(12), b"ece\n", &mut text);
        m.add(Stream::Out, Speaker::Pe(0), b"no end", &mut text);
        m.add(Stream::Out, Speaker::Pe(1), b"next\n", &mut text);
        m.add(Stream::Out, Speaker::Pe(1), b"tail", &mut text);
        let want = "[3] a\n[3] b\n[12] long piece\n[0] no end\n[1] next\n[1] tail";
        assert_eq!(String::from_utf8(text).unwrap(), want);
    }

    #[test]
    fn a_line_is_ended_only_for_what_follows() {
        let mut m = Mixer::new(false, None);
        let mut text = Vec::new();
        m.add(Stream::Out, Speaker::Pe(0), b"prompt> ", &mut text);
        m.add(Stream::Out, Speaker::Pe(0), b"again> ", &mut text);
        assert_eq!(text, b"prompt> again> ");
        assert!(m.is_open(Stream::Out) && !m.is_open(Stream::Err));
        m.end_line(Stream::Out, &mut text);
        m.end_line(Stream::Out, &mut text);
        assert_eq!(text, b"prompt> again> \n");
    }

    proptest! {
        #[test]
        fn without_labels_only_missing_line_ends_are_added(
            parts in proptest::collection::vec((0u32..4, "[ab\n]{1,6}"), 0..30)
        ) {
            let mut m = Mixer::new(false, None);
            let mut text = Vec::new();
            let mut want = String::new();
            let mut last = None;
            for (rank, part) in &parts {
                if last.is_some_and(|l| l != *rank) && !want.ends_with('\n') { want.push('\n'); }
                want.push_str(part);
                last = Some(*rank);
                m.add(Stream::Err, Speaker::Pe(*rank), part.as_bytes(), &mut text);
            }
            prop_assert_eq!(String::from_utf8(text).unwrap(), want);
        }
    }
}
