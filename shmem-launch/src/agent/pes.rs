//! The PEs of a node, as their agent keeps track of them: asked for, started, ended, silent.

use std::collections::VecDeque;

use crate::frame::Stream;
use crate::stdio::LineBuffer;

#[derive(Debug, Default)]
struct Pe {
    pid: u32,
    ended: bool,
    /// Whether a stream may still bring output.
    open: [bool; 2],
    lines: [LineBuffer; 2],
}

/// All of them.
#[derive(Debug)]
pub(super) struct Pes {
    pes: Vec<Pe>,
    /// PEs to start; less than all once starting was given up.
    wanted: u32,
    asked: u32,
    started: u32,
    /// Sizes of unanswered requests.
    in_flight: VecDeque<u32>,
    ended: u32,
    open: u32,
}

impl Pes {
    pub(super) fn new(n: u32) -> Self {
        Self {
            pes: (0..n).map(|_| Pe::default()).collect(),
            wanted: n,
            asked: 0,
            started: 0,
            in_flight: VecDeque::new(),
            ended: 0,
            open: 0,
        }
    }

    /// The next PEs to ask for, unless enough requests are unanswered. Their output counts as open
    /// from now on.
    pub(super) fn next_batch(&mut self, size: u32, in_flight: usize) -> Option<(u32, u32)> {
        let count = size.min(self.wanted - self.asked);
        if count == 0 || self.in_flight.len() >= in_flight {
            return None;
        }
        let first = self.asked;
        self.asked += count;
        self.in_flight.push_back(count);
        for pe in &mut self.pes[first as usize..(first + count) as usize] {
            pe.open = [true; 2];
        }
        self.open += 2 * count;
        Some((first, count))
    }

    /// Notes the answer to the oldest request; says how many PEs it asked for.
    pub(super) fn spawned(&mut self, pids: &[i32]) -> usize {
        let asked = self.in_flight.pop_front().unwrap_or(0) as usize;
        for (pe, pid) in self.pes[self.started as usize..]
            .iter_mut()
            .zip(pids)
            .take(asked)
        {
            pe.pid = *pid as u32;
        }
        self.started += pids.len().min(asked) as u32;
        asked
    }

    /// PEs that were started; they are the first ones.
    pub(super) fn started(&self) -> u32 {
        self.started
    }

    /// No more requests.
    pub(super) fn stop_asking(&mut self) {
        self.wanted = self.asked;
    }

    /// No more requests, and no answers to those that were made. Says how many PEs are missing.
    pub(super) fn give_up_starting(&mut self) -> u32 {
        self.stop_asking();
        self.in_flight.clear();
        self.pes.len() as u32 - self.started
    }

    /// Whether all requests that will ever be made are answered.
    pub(super) fn all_answered(&self) -> bool {
        self.asked == self.wanted && self.in_flight.is_empty()
    }

    pub(super) fn pid(&self, local: u32) -> u32 {
        self.pes[local as usize].pid
    }

    /// Notes a PE's end; false if it is known already.
    pub(super) fn ended(&mut self, local: u32) -> bool {
        let pe = &mut self.pes[local as usize];
        let news = !pe.ended;
        pe.ended = true;
        self.ended += u32::from(news);
        news
    }

    /// Whether the PE has ended, of those that have started.
    pub(super) fn has_ended(&self, local: u32) -> bool {
        self.pes[local as usize].ended
    }

    pub(super) fn any_ended(&self) -> bool {
        self.ended > 0
    }

    pub(super) fn all_ended(&self) -> bool {
        self.ended >= self.started
    }

    pub(super) fn line(&mut self, local: u32, stream: Stream) -> &mut LineBuffer {
        &mut self.pes[local as usize].lines[stream as usize]
    }

    /// Notes that a stream has ended; gives what was held back of it.
    pub(super) fn output_closed(&mut self, local: u32, stream: Stream) -> Vec<u8> {
        let pe = &mut self.pes[local as usize];
        if std::mem::take(&mut pe.open[stream as usize]) {
            self.open -= 1;
        }
        pe.lines[stream as usize].finish()
    }

    /// Whether no stream may bring output.
    pub(super) fn all_closed(&self) -> bool {
        self.open == 0
    }

    /// The streams that have not ended.
    pub(super) fn close_all_output(&self) -> Vec<(u32, Stream)> {
        (0u32..)
            .zip(&self.pes)
            .flat_map(|(local, pe)| {
                Stream::ALL
                    .into_iter()
                    .filter(|&s| pe.open[s as usize])
                    .map(move |s| (local, s))
            })
            .collect()
    }
}
