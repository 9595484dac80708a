//! A PE that speaks PMI-2.

use super::{NodeServer, Phase, rc};
use crate::server::operation::Contribution;
use crate::wire::{Command, Fields, Reply, WireError};

impl NodeServer {
    /// Serves one message. An error is fatal to the PE's connection.
    pub(super) fn body(&mut self, local: usize, body: &[u8]) -> Result<(), String> {
        let fields = Fields::of_body(body).map_err(|error| error.to_string())?;
        let name = || fields.command_text();
        match (self.sessions[local].phase, fields.command()) {
            (Phase::AwaitFullInit, b"fullinit" | b"abort") => {}
            (Phase::AwaitFullInit, _) => {
                return Err(format!("it sent `{}` before `fullinit`", name()));
            }
            (Phase::Finalized, _) => {
                return Err(format!("it sent `{}` after `finalize`", name()));
            }
            (_, b"fullinit") => return Err("it sent `fullinit` twice".to_owned()),
            _ => {}
        }
        let thread_id = fields.thread_id();
        let thread_id = thread_id.as_deref();
        let command = match Command::from_fields(&fields) {
            Ok(command) if command.is_extension() && !self.job.extensions => {
                Err(WireError::UnknownCommand { name: name() })
            }
            other => other,
        };
        let command = match command {
            Ok(command) => command,
            Err(error) => {
                let joins = match fields.command() {
                    b"iallgather" | b"allgather" | b"nla" => self.job.extensions,
                    name => name == b"ring",
                };
                if joins {
                    // The PE did join, so the operation is counted, and fails for all.
                    let reason = format!("PE {}: {error}", self.rank(local));
                    self.start(local, Contribution::Unusable(reason))?;
                }
                let refused = Reply::Refused {
                    command: name().into(),
                    rc: rc::INVALID_ARG,
                    message: error.to_string().into(),
                };
                self.reply(local, thread_id, refused);
                return Ok(());
            }
        };
        self.serve(local, thread_id, command)
    }
}
