//! What flows from PEs to their agent, and the answers of PMI.
//!
//! Output pipes are in an epoll set of their own, nested in the main one: when the way up is
//! blocked, one change stops the reading of all of them. When only the one or two PEs whose lines are
//! open may be read, the main set gets copies of their descriptors instead.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::SocketType;

use super::{AgentProcess, KIND, OUTPUTS, PMI, PmiInterest, SHELL, STDERR, STDOUT};
use crate::agent::{Event, Reading};
use crate::driver::link::{self, Got};
use crate::frame::Stream;
use crate::sys::{self, Epoll, Interest, Ready};

/// Reads of what an ended process left in a pipe or in its PMI socket, at most.
pub(super) const LAST_READS: u32 = 64;

/// Replies to a PE, in bytes, that may wait for it to read while more of its requests are taken.
const PMI_BACKLOG: usize = 1 << 20;

/// The agent's ends of what leads to a PE: its standard output and error, and its PMI socket.
#[derive(Debug)]
pub(super) struct PePipes {
    pub(super) out: OwnedFd,
    pub(super) err: OwnedFd,
    pub(super) pmi: OwnedFd,
}

impl PePipes {
    /// They, and the PE's own, in this order.
    pub(super) fn pairs() -> io::Result<(Self, [OwnedFd; 3])> {
        let ((out, its_out), (err, its_err)) = (sys::pipe()?, sys::pipe()?);
        let (pmi, its_pmi) = sys::socketpair(SocketType::STREAM)?;
        Ok((Self { out, err, pmi }, [its_out, its_err, its_pmi]))
    }
}

/// What is read of PEs, and whether it is read now.
pub(super) struct Sources {
    /// The read ends of their output, and the standard error of remote shells.
    pub(super) outputs: Epoll,
    pub(super) reading: Reading,
    /// Further descriptors of the outputs that alone are read.
    watched: [Option<(u32, OwnedFd)>; 2],
    /// Whether messages of PEs are waited for.
    pub(super) messages: bool,
    /// PEs that have ended and whose pipes are to be read to their end, and how many reads of each that may
    /// take.
    pub(super) left: Vec<(u32, [u32; 2])>,
    /// Buffers of reads and of nested waits, taken while in use.
    pub(super) scratch: Vec<u8>,
    ready: Vec<Ready>,
}

impl Sources {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            outputs: Epoll::new()?,
            reading: Reading::All,
            watched: [None, None],
            messages: true,
            left: Vec::new(),
            scratch: vec![0; 64 << 10],
            ready: Vec::with_capacity(256),
        })
    }
}

impl AgentProcess {
    pub(super) fn outputs_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.sources.ready);
        if self
            .sources
            .outputs
            .wait(&mut ready, Some(Duration::ZERO))
            .is_err()
        {
            return;
        }
        let mut buf = std::mem::take(&mut self.sources.scratch);
        for &event in &ready {
            let local = (event.token & !KIND) as u32;
            if self.agent.reading() != Reading::All {
                continue;
            }
            if event.token & KIND == SHELL {
                self.read_shell(local as usize, &mut buf);
                continue;
            }
            let stream = if event.token & KIND == STDOUT {
                Stream::Out
            } else {
                Stream::Err
            };
            self.read_output(local, stream, &mut buf, event.hangup());
        }
        self.sources.scratch = buf;
        self.sources.ready = ready;
    }

    /// Waits for the outputs that may be read now.
    pub(super) fn watch_outputs(&mut self) {
        let reading = self.agent.reading();
        if reading == self.sources.reading {
            return;
        }
        let was = std::mem::replace(&mut self.sources.reading, reading);
        if (was == Reading::All) != (reading == Reading::All) {
            let interest = match reading {
                Reading::All => Interest::Read,
                _ => Interest::Nothing,
            };
            let _ = self.epoll.change(&self.sources.outputs, OUTPUTS, interest);
        }
        for stream in Stream::ALL {
            // Before it is closed: the registration is that of the pipe, not of the copy.
            if let Some((_, fd)) = self.sources.watched[stream as usize].take() {
                let _ = self.epoll.remove(&fd);
            }
            let Reading::Only(owners) = reading else {
                continue;
            };
            if let Some(local) = owners[stream as usize] {
                self.sources.watched[stream as usize] = self.watch(local, stream);
            }
        }
    }

    /// Where that is not possible, the PE counts as silent, and loses its turn in time.
    fn watch(&mut self, local: u32, stream: Stream) -> Option<(u32, OwnedFd)> {
        let output = self.pes[local as usize].output[stream as usize].as_ref()?;
        let copy = output.try_clone().ok()?;
        let kind = match stream {
            Stream::Out => STDOUT,
            Stream::Err => STDERR,
        };
        let token = kind | u64::from(local);
        self.epoll.add(&copy, token, Interest::Read).ok()?;
        Some((local, copy))
    }

    /// Output of a PE that alone is read.
    pub(super) fn watched_ready(&mut self, local: u32, stream: Stream) {
        let watched = self.sources.watched[stream as usize].as_ref();
        // Another event may have led to it being read.
        let readable = watched
            .is_some_and(|(of, fd)| *of == local && sys::poll_readable(fd.as_fd(), Duration::ZERO));
        if readable && self.agent.may_read_output() {
            let mut buf = std::mem::take(&mut self.sources.scratch);
            self.read_output(local, stream, &mut buf, false);
            self.sources.scratch = buf;
        }
    }

    /// Reads once; `last` says that no writer is left, so a short read is the end.
    pub(super) fn read_output(&mut self, local: u32, stream: Stream, buf: &mut [u8], last: bool) {
        let Some(fd) = &self.pes[local as usize].output[stream as usize] else {
            return;
        };
        let end = match rustix::io::read(fd, &mut *buf) {
            Ok(0) => true,
            Ok(n) => {
                self.handle(Event::Output(local, stream, &buf[..n]));
                last && n < buf.len()
            }
            Err(e) => !matches!(
                e.kind(),
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
            ),
        };
        if end {
            self.pes[local as usize].output[stream as usize] = None;
            self.handle(Event::OutputClosed(local, stream));
        }
    }

    /// Passes on what a failed PE wrote last, so that it stands before the message about it.
    pub(super) fn drain_output(&mut self, local: u32) {
        self.read_last(local, &mut [LAST_READS; 2]);
    }

    /// Reads what a PE that has ended has left, as far as output may be read. Others that hold its pipes may
    /// write for ever, so `reads` says how often at most. Whether nothing is left.
    fn read_last(&mut self, local: u32, reads: &mut [u32; 2]) -> bool {
        let mut buf = std::mem::take(&mut self.sources.scratch);
        let mut done = true;
        for stream in Stream::ALL {
            let reads = &mut reads[stream as usize];
            while *reads > 0 && self.is_readable(local, stream) {
                if !self.agent.may_read_output() {
                    done = false;
                    break;
                }
                *reads -= 1;
                self.read_output(local, stream, &mut buf, false);
            }
        }
        self.sources.scratch = buf;
        done
    }

    fn is_readable(&self, local: u32, stream: Stream) -> bool {
        let output = &self.pes[local as usize].output[stream as usize];
        let readable = |fd: &OwnedFd| sys::poll_readable(fd.as_fd(), Duration::ZERO);
        output.as_ref().is_some_and(readable)
    }

    /// Goes on reading what PEs have left whose pipes are to be closed. Whether there was something.
    pub(super) fn read_left(&mut self) -> bool {
        let mut told = false;
        for (local, before) in std::mem::take(&mut self.sources.left) {
            let mut reads = before;
            let done = self.read_last(local, &mut reads);
            match done {
                true => self.close_output_of(local),
                false => self.sources.left.push((local, reads)),
            }
            told |= done || reads != before;
        }
        told
    }

    fn close_output_of(&mut self, local: u32) {
        for stream in Stream::ALL {
            // Another process may have a copy for a moment, and the registration would live as long.
            if let Some(fd) = self.pes[local as usize].output[stream as usize].take() {
                let _ = self.sources.outputs.remove(&fd);
            }
        }
        for stream in Stream::ALL {
            self.handle(Event::OutputClosed(local, stream));
        }
    }

    /// Closes the read ends of one stream or of both; `tell` lets the agent know.
    pub(super) fn close_outputs(&mut self, only: Option<Stream>, tell: bool) {
        for local in 0..self.pes.len() as u32 {
            for stream in Stream::ALL
                .into_iter()
                .filter(|&s| only.is_none_or(|o| o == s))
            {
                let output = &mut self.pes[local as usize].output[stream as usize];
                if output.take().is_some() && tell {
                    self.handle(Event::OutputClosed(local, stream));
                }
            }
        }
    }

    pub(super) fn pmi_ready(&mut self, local: u32, event: Ready) {
        if event.writable() && self.pes[local as usize].pmi_interest != PmiInterest::Requests {
            self.write_pmi(local, &[]);
        }
        if event.readable() {
            self.read_pmi(local);
        }
    }

    /// Reads once what a PE says. False if there is nothing more for now.
    pub(super) fn read_pmi(&mut self, local: u32) -> bool {
        let Some(socket) = &self.pes[local as usize].pmi else {
            return false;
        };
        let mut buf = std::mem::take(&mut self.sources.scratch);
        let got = link::receive(socket, &mut buf);
        if let Got::Bytes(n) = got {
            self.handle(Event::FromPe(local, &buf[..n]));
        }
        // Before anybody is reaped, whose last words are read into it.
        self.sources.scratch = buf;
        if let Got::End = got {
            self.pes[local as usize].pmi = None;
            self.pes[local as usize].pmi_out = Vec::new();
            self.ending.leaving.push(local);
            self.handle(Event::PeClosed(local));
            self.reap_leaving();
        }
        matches!(got, Got::Bytes(_))
    }

    /// Reads the last that a PE has said to PMI.
    pub(super) fn drain_pmi(&mut self, local: u32) {
        for _ in 0..LAST_READS {
            if !self.read_pmi(local) {
                break;
            }
        }
    }

    /// Sends what waits for a PE and then `more`.
    pub(super) fn write_pmi(&mut self, local: u32, more: &[u8]) {
        let pe = &mut self.pes[local as usize];
        let Some(socket) = &pe.pmi else { return };
        pe.pmi_out.extend_from_slice(more);
        let mut sent = 0;
        while sent < pe.pmi_out.len() {
            match sys::send_now(socket.as_fd(), &pe.pmi_out[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // The PE is gone; reading will say so.
                Err(_) => sent = pe.pmi_out.len(),
            }
        }
        pe.pmi_out.drain(..sent);
        let (wanted, interest) = match pe.pmi_out.len() {
            0 => (PmiInterest::Requests, Interest::Read),
            n if n <= PMI_BACKLOG => (PmiInterest::Both, Interest::ReadWrite),
            _ => (PmiInterest::Room, Interest::Write),
        };
        if wanted != pe.pmi_interest {
            pe.pmi_interest = wanted;
            let _ = self.epoll.change(socket, PMI | u64::from(local), interest);
        }
        if wanted == PmiInterest::Requests {
            pe.pmi_out = Vec::new();
        }
    }
}
