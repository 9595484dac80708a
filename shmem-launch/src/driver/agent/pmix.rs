//! The agent's process and its node's PMIx server.

use super::{AgentProcess, PMIX, TEMPLATE};
use crate::agent::Event;
use crate::driver::link::Got;
use crate::driver::pmix::{self, PmixIo};
use crate::exit::End;
use crate::frame::FromServer;
use crate::report::Moment;
use crate::sys::{Interest, monotonic_ns};
use std::os::fd::AsFd;

impl AgentProcess {
    /// Starts the server; the node's PEs wait for what it says.
    pub(super) fn start_pmix(&mut self) -> Result<(), String> {
        let starter = self.node.as_ref().and_then(|node| node.starter.as_ref());
        let Some(starter) = starter else {
            return Ok(());
        };
        // SAFETY: an agent has a single thread.
        let started = unsafe { PmixIo::start(&self.launch, starter.environment(), PMIX) };
        let started = started.and_then(|pmix| pmix.link.watch(&self.epoll).map(|()| pmix));
        self.pmix = Some(started.map_err(|e| e.to_string())?);
        Ok(())
    }

    /// When the server has taken too long to begin.
    pub(super) fn pmix_overdue(&self) -> Option<u64> {
        self.pmix.as_ref().and_then(|pmix| pmix.overdue)
    }

    pub(super) fn pmix_is_late(&mut self) {
        if let Some(pmix) = &mut self.pmix {
            pmix.overdue = None;
            pmix.may_end = true;
            let what = pmix.late();
            self.handle(Event::PmixFailed(what));
        }
    }

    /// Takes what the server says, as far as it is there.
    pub(super) fn read_pmix(&mut self) {
        let mut buf = std::mem::take(&mut self.sources.scratch);
        while let Some(pmix) = &mut self.pmix {
            let (mut reader, n) = match pmix.link.receive(&mut buf) {
                Got::Bytes(n) => (std::mem::take(&mut pmix.reader), n),
                Got::Nothing => break,
                Got::End => {
                    pmix.closed();
                    self.ending.search_due = true;
                    break;
                }
            };
            let mut bytes = &buf[..n];
            let broken = loop {
                match reader.next_frame(&mut bytes) {
                    Ok(None) => break None,
                    Ok(Some(content)) => match FromServer::decode(content) {
                        Ok(message) => self.pmix_said(message),
                        Err(e) => break Some(e.to_string()),
                    },
                    Err(e) => break Some(e.to_string()),
                }
            };
            if let Some(pmix) = &mut self.pmix {
                pmix.reader = reader;
            }
            if let Some(e) = broken {
                self.close_pmix();
                let what = format!("its PMIx server says what cannot be understood: {e}");
                self.handle(Event::PmixFailed(what));
                break;
            }
        }
        self.sources.scratch = buf;
    }

    fn pmix_said(&mut self, message: FromServer<'_>) {
        match message {
            FromServer::Ready { common, own } => self.pmix_is_ready(common, own),
            FromServer::Failed(what) => {
                let why = self.launch.pmix.as_ref().map_or("", |plan| &plan.why);
                let what = format!("{why}: {what}");
                self.close_pmix();
                self.handle(Event::PmixFailed(what));
            }
            message => self.handle(Event::FromPmix(message)),
        }
    }

    /// The server serves: what starts the PEs may be started.
    fn pmix_is_ready(&mut self, common: Vec<Vec<u8>>, own: Vec<Vec<Vec<u8>>>) {
        let starting = self.agent.is_starting();
        let (Some(pmix), Some(node)) = (&mut self.pmix, &mut self.node) else {
            return;
        };
        pmix.overdue = None;
        if !starting {
            return;
        }
        let yields = node.segment.view().spins() == 0;
        if let Some(starter) = &mut node.starter {
            let mut common = pmix::variables(common);
            common.extend(pmix.for_open_mpi(starter.environment(), yields));
            let own = own.into_iter().map(pmix::variables).collect();
            starter.add_environment(common, own);
        }
        // SAFETY: an agent has a single thread.
        let started = unsafe { node.start(&self.launch) };
        let watched = started.and_then(|()| match &node.template {
            Some(template) => {
                let watched = self.epoll.add(template.as_fd(), TEMPLATE, Interest::Read);
                watched.map_err(|e| e.to_string().into())
            }
            None => Ok(()),
        });
        match watched {
            Ok(()) => {
                self.handle(Event::Prepared);
                self.moment(Moment::Prepared, monotonic_ns());
            }
            Err(e) => self.handle(Event::Failed(e)),
        }
    }

    /// Whether a process that has ended was the server.
    pub(super) fn pmix_ended(&mut self, pid: i32, end: End) -> bool {
        let Some(pmix) = self.pmix.as_mut().filter(|pmix| pmix.pid == pid) else {
            return false;
        };
        pmix.pid = 0;
        let expected = pmix.may_end;
        self.close_pmix();
        if !expected {
            self.handle(Event::PmixFailed(format!("its PMIx server {end}")));
        }
        true
    }

    /// Sends what waits for the server.
    pub(super) fn flush_pmix(&mut self) {
        if let Some(pmix) = &mut self.pmix {
            // That it is broken shows when it is read.
            let _ = pmix.link.flush(&mut pmix.out, &self.epoll);
        }
    }

    /// Has the server end. Gives it time to tidy up.
    pub(super) fn close_pmix(&mut self) {
        if let Some(pmix) = &mut self.pmix {
            pmix.link.close();
            pmix.overdue = None;
            pmix.may_end = true;
        }
    }

    /// Removes what the server has left.
    pub(super) fn clean_up_pmix(&mut self) {
        if let Some(pmix) = self.pmix.take() {
            pmix.clean_up();
        }
    }
}
