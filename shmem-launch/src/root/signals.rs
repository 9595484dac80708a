//! Signals for the launcher: passed on to all processes, or the end of the job.

use super::census::Asker;
use super::{Root, SIGINT, SIGQUIT};
use crate::exit::{self, signal_name};
use crate::frame::Frame;

impl Root {
    pub(super) fn signal(&mut self, signal: u8, now: u64) {
        if i32::from(signal) == libc::SIGUSR1 && !self.setup.options.pass_usr1 {
            self.jobs.send(&Frame::Signal(signal));
            return self.ask_waits(Asker::User, now);
        }
        if !exit::ends(signal) {
            return self.pass_on(signal);
        }
        if self.is_over() {
            // Only text is left, and somebody does not want to wait for it to be written.
            for sink in self.output.sinks.iter_mut().filter(|s| !s.is_empty()) {
                (sink.taken, sink.closed) = (0, true);
                sink.clear();
                if self.outcome.status == 0 {
                    self.outcome.status = 128 + signal;
                }
            }
            return;
        }
        self.hurry(now);
        if signal == SIGINT || signal == SIGQUIT {
            self.times.interrupts += 1;
            if self.times.interrupts == 2 {
                self.end_with(128 + signal);
                self.print("killing the job");
                return self.stop(0, now);
            }
            if self.times.interrupts > 2 {
                // Whatever holds us up (a terminal that takes no output), the user wants to go.
                self.times.give_up_at = Some(now);
                return;
            }
        }
        if self.end_with(128 + signal) {
            self.print(&format!("received {}; ending the job", signal_name(signal)));
            if signal == SIGINT || signal == SIGQUIT {
                self.pass_on(signal);
                self.times.stop_at = Some(now.saturating_add(self.grace_ns()));
            } else {
                self.stop(self.grace_ns(), now);
            }
        }
    }
}
