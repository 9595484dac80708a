//! What flows between an agent and its PEs: output, input, PMI.
//!
//! Output pipes are in an epoll set of their own, nested in the main one: when the way up is
//! blocked, one change stops the reading of all of them.

use super::*;

/// Reads of what an ended process left in its PMI socket, at most.
const LAST_READS: u32 = 64;

/// How a message of a PE to the user begins.
const TELL: &[u8] = b"cmd=tell;";

/// Replies to a PE, in bytes, that may wait for it to read while more of its requests are taken.
const PMI_BACKLOG: usize = 1 << 20;

impl Driver {
    pub(super) fn outputs_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready_outputs);
        if self.outputs.wait(&mut ready, Some(Duration::ZERO)).is_err() {
            return;
        }
        let mut buf = std::mem::take(&mut self.scratch);
        for &event in &ready {
            if !self.agent.may_read_output() {
                break;
            }
            let local = (event.token & !KIND) as u32;
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
        self.scratch = buf;
        self.ready_outputs = ready;
        self.park_overdue();
    }

    /// Brings a stream's descriptor back from where it is parked.
    pub(super) fn unpark(&mut self, local: u32) {
        if let Some(parking) = &mut self.parking
            && self.pes[local as usize].output[Stream::Err as usize].is_none()
        {
            for (local, fd) in parking.fetch(local) {
                self.pes[local as usize].output[Stream::Err as usize] = Some(fd);
            }
        }
    }

    pub(super) fn park(&mut self, locals: std::ops::Range<u32>) {
        let Some(parking) = &mut self.parking else {
            return;
        };
        let end = locals.end.min(self.pes.len() as u32);
        let fds = (locals.start..end)
            .filter_map(|l| Some((l, self.pes[l as usize].output[Stream::Err as usize].take()?)))
            .collect();
        // What cannot be parked stays in the table.
        if let Err((_, fds)) = parking.park(fds) {
            for (local, fd) in fds {
                self.pes[local as usize].output[Stream::Err as usize] = Some(fd);
            }
        }
    }

    pub(super) fn park_overdue(&mut self) {
        while let Some(lot) = self.parking.as_mut().and_then(Parking::overdue) {
            self.park(lot);
        }
    }

    /// Reads once; `last` says that no writer is left, so a short read is the end.
    pub(super) fn read_output(&mut self, local: u32, stream: Stream, buf: &mut [u8], last: bool) {
        if stream == Stream::Err {
            self.unpark(local);
        }
        let Some(fd) = &self.pes[local as usize].output[stream as usize] else {
            return;
        };
        let end = match sys::read(fd.as_fd(), buf) {
            Ok(0) => true,
            Ok(n) => {
                self.tell(Event::Output(local, stream, &buf[..n]));
                last && n < buf.len()
            }
            Err(e) => e.kind() != io::ErrorKind::Interrupted,
        };
        if end {
            self.pes[local as usize].output[stream as usize] = None;
            self.tell(Event::OutputClosed(local, stream));
        }
    }

    /// Passes on what a failed PE wrote last, so that it stands before the message about it.
    pub(super) fn drain_output(&mut self, local: u32) {
        let mut buf = std::mem::take(&mut self.scratch);
        self.unpark(local);
        for stream in Stream::ALL {
            while self.agent.may_read_output()
                && self.pes[local as usize].output[stream as usize]
                    .as_ref()
                    .is_some_and(|fd| sys::poll_readable(fd.as_fd(), Duration::ZERO))
            {
                self.read_output(local, stream, &mut buf, false);
            }
        }
        self.scratch = buf;
        self.park_overdue();
    }

    /// Closes the read ends of one stream or of both; `tell` lets the agent know.
    pub(super) fn close_outputs(&mut self, only: Option<Stream>, tell: bool) {
        for local in 0..self.pes.len() as u32 {
            for stream in Stream::ALL
                .into_iter()
                .filter(|&s| only.is_none_or(|o| o == s))
            {
                if stream == Stream::Err {
                    self.unpark(local);
                }
                if self.pes[local as usize].output[stream as usize]
                    .take()
                    .is_some()
                    && tell
                {
                    self.tell(Event::OutputClosed(local, stream));
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
        let mut buf = std::mem::take(&mut self.scratch);
        let got = link::receive(socket, &mut buf);
        if let Got::Bytes(n) = got {
            if buf[..n].windows(TELL.len()).any(|w| w == TELL) {
                // What it has written stands before what it tells.
                let bytes = buf[..n].to_vec();
                self.scratch = buf;
                self.drain_output(local);
                self.tell(Event::FromPe(local, &bytes));
                buf = std::mem::take(&mut self.scratch);
            } else {
                self.tell(Event::FromPe(local, &buf[..n]));
            }
        }
        // Before anybody is reaped, whose last words are read into it.
        self.scratch = buf;
        if let Got::End = got {
            self.pes[local as usize].pmi = None;
            self.pes[local as usize].pmi_out = Vec::new();
            self.leaving.push(local);
            self.tell(Event::PeClosed(local));
            self.reap_leaving();
        }
        matches!(got, Got::Bytes(_))
    }

    /// Reads the last that a PE has said.
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
            match sys::send(socket.as_fd(), &pe.pmi_out[sent..]) {
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

    pub(super) fn write_stdin(&mut self) {
        let Some(pipe) = &self.stdin else {
            // Before PE 0 exists input waits; after it has closed its end input is thrown away,
            // and without credit no more comes.
            if self.answered > 0 {
                self.stdin_queue.clear();
            }
            return;
        };
        let mut sent = 0;
        let mut broken = false;
        while sent < self.stdin_queue.len() {
            match sys::write(pipe.as_fd(), &self.stdin_queue[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        self.stdin_queue.drain(..sent);
        debug_assert!(self.stdin_queue.len() <= STDIN_WINDOW as usize);
        if broken || (self.stdin_ended && self.stdin_queue.is_empty()) {
            self.stdin_queue = Vec::new();
            self.stdin = None;
        } else if !self.stdin_queue.is_empty() {
            // Registered only while something waits: an idle pipe would always be writable.
            if self.epoll.change(pipe, STDIN, Interest::Write).is_err() {
                let _ = self.epoll.add(pipe, STDIN, Interest::Write);
            }
        } else {
            let _ = self.epoll.remove(pipe);
        }
        if sent > 0 && !broken {
            self.tell(Event::StdinTaken(sent as u32));
        }
    }
}
