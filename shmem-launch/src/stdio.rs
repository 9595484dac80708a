//! Lines of PEs: put together at the agent, labelled at the launcher.
//!
//! Output of different PEs is mixed by whole lines. An agent therefore holds back the beginning of
//! a line until its end has come ([`LineBuffer`]); what is complete travels in one frame however
//! many lines it has. A line longer than [`LINE_MAX`] is passed on in pieces: memory stays bounded
//! and binary output works. When a PE ends, the rest of its last line is passed on, too. The
//! launcher writes it all ([`Mixer`]): it puts labels in front of lines, and should a line still be
//! open when another PE's output comes (the pieces of a long line, the unterminated last line of a
//! PE) it ends that line first.

use crate::frame::Stream;

/// Longest line in bytes that is passed on in one piece.
pub const LINE_MAX: usize = 64 << 10;

/// The beginning of a line whose end has not come yet.
#[derive(Debug, Default)]
pub struct LineBuffer {
    partial: Vec<u8>,
}

impl LineBuffer {
    /// Adds what a PE wrote. Calls `emit(head, tail)` at most once, with bytes that are to be
    /// passed on now: what was held back before, and the part of `data` that belongs with it.
    pub fn feed(&mut self, data: &[u8], emit: impl FnOnce(&[u8], &[u8])) {
        let complete = match memrchr(b'\n', data) {
            Some(at) => at + 1,
            None if self.partial.len() + data.len() > LINE_MAX => data.len(),
            None => 0,
        };
        let (now, later) = data.split_at(complete);
        if !now.is_empty() {
            emit(&self.partial, now);
            self.partial.clear();
        }
        self.partial.extend_from_slice(later);
        // Long partial lines are rare: most PEs never hold a byte back, so none is reserved.
        if self.partial.is_empty() && self.partial.capacity() > 0 {
            self.partial = Vec::new();
        }
    }

    /// Takes what was held back: the PE writes nothing more.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }
}

fn memrchr(needle: u8, hay: &[u8]) -> Option<usize> {
    hay.iter().rposition(|&b| b == needle)
}

/// Writes the output of all PEs as one text per stream.
#[derive(Debug)]
pub struct Mixer {
    label: bool,
    several: bool,
    /// Number of the job in labels, if another one has spawned it.
    job: Option<u32>,
    /// The PE whose line is open, per stream.
    open: [Option<u32>; 2],
}

impl Mixer {
    /// For a job of `n_pes` PEs; `label` puts `[rank] ` in front of every line, in a spawned job of
    /// number `job` `[job:rank] `.
    pub fn new(n_pes: u32, label: bool, job: Option<u32>) -> Self {
        Self {
            label,
            job,
            several: n_pes > 1,
            open: [None; 2],
        }
    }

    /// Appends a PE's output to the text of its stream.
    pub fn add(&mut self, stream: Stream, rank: u32, data: &[u8], text: &mut Vec<u8>) {
        let open = &mut self.open[stream as usize];
        let mut at_start = *open != Some(rank);
        if at_start && open.is_some() {
            text.push(b'\n');
        }
        if self.label {
            for line in data.split_inclusive(|&b| b == b'\n') {
                if at_start {
                    push_label(text, self.job, rank);
                }
                text.extend_from_slice(line);
                at_start = true;
            }
        } else {
            text.extend_from_slice(data);
        }
        *open = match data.last() {
            None => *open,
            Some(b'\n') => None,
            Some(_) => self.several.then_some(rank),
        };
        // A single PE's output goes out unchanged, but labels need to know where a line begins.
        if self.label && !self.several {
            *open = data.last().is_some_and(|&b| b != b'\n').then_some(rank);
        }
    }

    /// Appends what the remote shell of a host said, in lines that begin with the host's name; empty
    /// ones are left out.
    pub fn add_of_host(&mut self, stream: Stream, host: &str, data: &[u8], text: &mut Vec<u8>) {
        if self.open[stream as usize].take().is_some() {
            text.push(b'\n');
        }
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

    /// Appends lines that are ready to be written as they are, in several parts.
    pub fn add_lines(&mut self, stream: Stream, parts: &[&[u8]], text: &mut Vec<u8>) {
        if self.open[stream as usize].take().is_some() {
            text.push(b'\n');
        }
        for part in parts {
            text.extend_from_slice(part);
        }
    }

    /// Ends a line that is still open, if the job has several PEs.
    pub fn finish(&mut self, stream: Stream, text: &mut Vec<u8>) {
        if self.open[stream as usize].take().is_some() && self.several {
            text.push(b'\n');
        }
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

    fn feed(buffer: &mut LineBuffer, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        buffer.feed(data, |head, tail| out = [head, tail].concat());
        out
    }

    #[test]
    fn only_whole_lines_pass() {
        let mut b = LineBuffer::default();
        assert_eq!(feed(&mut b, b"he"), b"");
        assert_eq!(feed(&mut b, b"llo\nwor"), b"hello\n");
        assert_eq!(feed(&mut b, b"ld\n"), b"world\n");
        assert_eq!(feed(&mut b, b"a\nb\nc"), b"a\nb\n");
        assert_eq!(b.finish(), b"c");
        assert_eq!(b.finish(), b"");
    }

    #[test]
    fn hosts_have_lines_of_their_own() {
        let mut m = Mixer::new(2, false, None);
        let mut text = Vec::new();
        m.add(Stream::Err, 1, b"half", &mut text);
        m.add_of_host(Stream::Err, "b", b"one\r\n\ntwo", &mut text);
        m.add(Stream::Err, 1, b"more\n", &mut text);
        assert_eq!(text, b"half\nb: one\nb: two\nmore\n");
    }

    #[test]
    fn a_line_too_long_passes_in_pieces() {
        let mut b = LineBuffer::default();
        assert_eq!(feed(&mut b, &[b'x'; LINE_MAX]), b"");
        assert_eq!(feed(&mut b, b"yz").len(), LINE_MAX + 2);
        assert_eq!(feed(&mut b, b"end\n"), b"end\n");
    }

    #[test]
    fn labels_stand_at_line_starts_only() {
        let mut m = Mixer::new(20, true, None);
        let mut text = Vec::new();
        m.add(Stream::Out, 3, b"a\nb\n", &mut text);
        m.add(Stream::Out, 12, b"long pi", &mut text);
        m.add(Stream::Out, 12, b"ece\n", &mut text);
        m.add(Stream::Out, 0, b"no end", &mut text);
        m.add(Stream::Out, 1, b"next\n", &mut text);
        m.add(Stream::Out, 1, b"tail", &mut text);
        m.finish(Stream::Out, &mut text);
        let want = "[3] a\n[3] b\n[12] long piece\n[0] no end\n[1] next\n[1] tail\n";
        assert_eq!(String::from_utf8(text).unwrap(), want);
    }

    #[test]
    fn a_single_pe_is_left_alone() {
        let mut m = Mixer::new(1, false, None);
        let mut text = Vec::new();
        m.add(Stream::Out, 0, b"prompt> ", &mut text);
        m.add(Stream::Out, 0, b"again> ", &mut text);
        m.finish(Stream::Out, &mut text);
        assert_eq!(text, b"prompt> again> ");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_only_line_ends_pass(parts in proptest::collection::vec("[ab\n]{0,9}", 0..30)) {
            let mut b = LineBuffer::default();
            let mut out = Vec::new();
            for part in &parts {
                let now = feed(&mut b, part.as_bytes());
                prop_assert!(now.is_empty() || now.ends_with(b"\n"));
                out.extend(now);
            }
            out.extend(b.finish());
            prop_assert_eq!(out, parts.concat().into_bytes());
        }

        #[test]
        fn without_labels_only_missing_line_ends_are_added(
            parts in proptest::collection::vec((0u32..4, "[ab\n]{1,6}"), 0..30)
        ) {
            let mut m = Mixer::new(4, false, None);
            let mut text = Vec::new();
            let mut want = String::new();
            let mut last = None;
            for (rank, part) in &parts {
                if last.is_some_and(|l| l != *rank) && !want.ends_with('\n') { want.push('\n'); }
                want.push_str(part);
                last = Some(*rank);
                m.add(Stream::Err, *rank, part.as_bytes(), &mut text);
            }
            m.finish(Stream::Err, &mut text);
            if !want.is_empty() && !want.ends_with('\n') { want.push('\n'); }
            prop_assert_eq!(String::from_utf8(text).unwrap(), want);
        }
    }
}
