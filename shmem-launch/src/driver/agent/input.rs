//! Writing standard input to the PEs that get it: one copy of what has come, and a position in it for
//! each of them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::{AgentProcess, STDIN};
use crate::agent::Event;
use crate::frame::STDIN_WINDOW;
use crate::sys::{self, Interest};

#[derive(Debug, Default)]
enum InputPipe {
    /// The PE is not there yet: what comes waits.
    #[default]
    NotYet,
    Open {
        pipe: OwnedFd,
        /// Bytes that were written, since the beginning.
        at: u64,
    },
    /// The PE has closed its end, or was given all.
    Closed,
}

/// The input of a node's PEs.
#[derive(Debug, Default)]
pub(super) struct Input {
    first: u32,
    pipes: Vec<InputPipe>,
    queue: Vec<u8>,
    /// Where the queue begins.
    start: u64,
    ended: bool,
}

impl Input {
    pub(super) fn new(here: std::ops::Range<u32>) -> Self {
        Self {
            first: here.start,
            pipes: here.map(|_| InputPipe::NotYet).collect(),
            ..Self::default()
        }
    }

    /// Whether the PE of this local number gets input.
    pub(super) fn is_for(&self, local: u32) -> bool {
        let at = local.checked_sub(self.first);
        at.is_some_and(|at| (at as usize) < self.pipes.len())
    }
}

impl AgentProcess {
    /// Makes the way to a PE that gets input; gives the PE's end.
    pub(super) fn make_input(&mut self, local: u32) -> io::Result<Option<OwnedFd>> {
        if !self.input.is_for(local) {
            return Ok(None);
        }
        let (read, pipe) = sys::pipe()?;
        sys::set_nonblocking(pipe.as_fd())?;
        let at = local - self.input.first;
        self.input.pipes[at as usize] = InputPipe::Open { pipe, at: 0 };
        Ok(Some(read))
    }

    pub(super) fn add_input(&mut self, data: &[u8]) {
        // On its way before it was known that nobody takes it.
        if self.input.pipes.is_empty() {
            return;
        }
        self.input.queue.extend_from_slice(data);
        debug_assert!(self.input.queue.len() <= STDIN_WINDOW as usize);
        self.write_all_inputs();
    }

    pub(super) fn end_input(&mut self) {
        self.input.ended = true;
        self.write_all_inputs();
    }

    /// Writes what has come to all who have room for it.
    fn write_all_inputs(&mut self) {
        let first = self.input.first;
        self.write_inputs(first..first + self.input.pipes.len() as u32);
    }

    /// Writes what has come to those of these PEs who have room for it.
    pub(super) fn write_inputs(&mut self, locals: std::ops::Range<u32>) {
        for local in locals {
            self.write_input(local);
        }
        self.input_taken();
    }

    /// A PE has room, or takes no more.
    pub(super) fn input_ready(&mut self, local: u32) {
        self.write_input(local);
        self.input_taken();
    }

    fn write_input(&mut self, local: u32) {
        let Self { input, epoll, .. } = self;
        let Some(index) = local.checked_sub(input.first) else {
            return;
        };
        let Some(state) = input.pipes.get_mut(index as usize) else {
            return;
        };
        let InputPipe::Open { pipe, at } = state else {
            return;
        };
        let end = input.start + input.queue.len() as u64;
        let mut broken = false;
        while *at < end {
            let rest = &input.queue[(*at - input.start) as usize..];
            match rustix::io::write(&*pipe, rest) {
                Ok(n) => *at += n as u64,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        if broken || (input.ended && *at == end) {
            *state = InputPipe::Closed;
        } else if *at < end {
            // Registered only while something waits: an idle pipe would always be writable.
            let token = STDIN | u64::from(local);
            if epoll.change(&mut *pipe, token, Interest::Write).is_err() {
                let _ = epoll.add(pipe, token, Interest::Write);
            }
        } else {
            let _ = epoll.remove(pipe);
        }
    }

    /// Forgets what everybody has taken, and says so.
    fn input_taken(&mut self) {
        let Input {
            pipes,
            queue,
            start,
            ended,
            ..
        } = &mut self.input;
        if pipes.is_empty() {
            return;
        }
        let positions = pipes.iter().filter_map(|state| match state {
            InputPipe::NotYet => Some(*start),
            InputPipe::Open { at, .. } => Some(*at),
            InputPipe::Closed => None,
        });
        let taken = match positions.min() {
            Some(position) => (position - *start) as u32,
            None => {
                // Nobody is left, and nobody is waited for.
                pipes.clear();
                *queue = Vec::new();
                if !*ended {
                    self.handle(Event::StdinTaken(0));
                }
                return;
            }
        };
        if taken > 0 {
            queue.drain(..taken as usize);
            *start += u64::from(taken);
            self.handle(Event::StdinTaken(taken));
        }
    }
}
