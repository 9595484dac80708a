//! Asking the template for PEs, a batch at a time.

use super::*;

impl Driver {
    pub(super) fn spawn(&mut self, first: u32, count: u32) {
        if let Err(e) = self.try_spawn(first, count) {
            let raise = if e.raw_os_error() == Some(libc::EMFILE) {
                " (ulimit -n)"
            } else {
                ""
            };
            for local in first..first + count {
                self.pes[local as usize].output = [None, None];
                for stream in Stream::ALL {
                    self.tell(Event::OutputClosed(local, stream));
                }
            }
            self.tell(Event::Spawned {
                pids: &[],
                error: Some(format!("{e}{raise}")),
            });
        }
    }

    /// Makes the descriptors of a batch of PEs and asks the template for them.
    pub(super) fn try_spawn(&mut self, first: u32, count: u32) -> io::Result<()> {
        let first_rank = self.first_rank;
        let mut specs = Vec::with_capacity(count as usize);
        let mut theirs: Vec<OwnedFd> = Vec::with_capacity(4 * count as usize);
        for local in first..first + count {
            let rank = first_rank + local;
            theirs.extend(self.make_ends(local)?);
            let input = self.make_input(local)?;
            specs.push(PeSpec {
                rank,
                local,
                has_stdin: input.is_some(),
            });
            theirs.extend(input);
        }
        if let Some(template) = self.node.as_ref().and_then(|n| n.template.as_ref()) {
            let fds: Vec<RawFd> = theirs.iter().map(AsRawFd::as_raw_fd).collect();
            match template.spawn(&specs, &fds) {
                Ok(()) => {}
                // Its end is noticed when it is read.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)) => {}
                Err(e) => return Err(e),
            }
        }
        drop(theirs);
        self.park(first..first + count);
        self.write_inputs();
        Ok(())
    }

    /// Makes the descriptors of a PE, keeps its agent's ends and gives its own: standard output and
    /// error, and its PMI socket.
    pub(super) fn make_ends(&mut self, local: u32) -> io::Result<[OwnedFd; 3]> {
        let mut output = |stream: Stream, kind| -> io::Result<OwnedFd> {
            let (read, write) = sys::pipe()?;
            self.outputs
                .add(&read, kind | u64::from(local), Interest::Read)?;
            self.pes[local as usize].output[stream as usize] = Some(read);
            Ok(write)
        };
        let (out, err) = (output(Stream::Out, STDOUT)?, output(Stream::Err, STDERR)?);
        let (ours, pmi) = sys::socketpair(libc::SOCK_STREAM)?;
        self.epoll
            .add(&ours, PMI | u64::from(local), Interest::Read)?;
        self.pes[local as usize].pmi = Some(ours);
        Ok([out, err, pmi])
    }

    pub(super) fn template_ready(&mut self) {
        loop {
            let Some(template) = self.node.as_ref().and_then(|n| n.template.as_ref()) else {
                return;
            };
            match template.receive() {
                Ok(Reply::NotYet) => return,
                Ok(Reply::Spawned(reply)) => {
                    let now = monotonic_ns();
                    self.moment(Moment::FirstPe, now);
                    self.moment(Moment::LastPe, now);
                    for &pid in &reply.pids {
                        if let Some(pe) = self.pes.get_mut(self.answered as usize) {
                            pe.pid = pid;
                            self.by_pid.insert(pid, self.answered);
                            self.answered += 1;
                        }
                    }
                    let error = (reply.errno != 0)
                        .then(|| io::Error::from_raw_os_error(reply.errno).to_string());
                    self.tell(Event::Spawned {
                        pids: &reply.pids,
                        error,
                    });
                    self.act();
                }
                Ok(Reply::Closed) | Err(_) => {
                    if let Some(node) = &mut self.node {
                        node.template = None;
                    }
                    self.tell(Event::TemplateClosed);
                    self.search_due = true;
                    return;
                }
            }
        }
    }
}
