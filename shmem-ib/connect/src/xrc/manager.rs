//! The XRC machine behind the codec: takes and gives bytes, and counts what is refused.

use super::{Local, Machine};
use crate::admission::Admission;
use crate::handshake::Verdict;
use crate::manager::Identity;
use crate::message::{Body, DecodeError, MAX_LEN, Message};

/// All XRC connections of one PE, at the level of datagrams; everything else is the
/// [`Machine`]'s.
#[derive(Debug)]
pub struct Manager {
    admission: Admission,
    /// The connections.
    pub machine: Machine,
}

impl Manager {
    /// A manager without connections; everything random in it follows from `seed`.
    #[must_use]
    pub fn new(identity: &Identity, local: Local, seed: u64) -> Self {
        Self {
            admission: Admission::new(identity, local.pe),
            machine: Machine::new(local, seed),
        }
    }

    /// From here on `identity` is the job's. Only for a manager that has no connections.
    pub fn set_identity(&mut self, identity: &Identity) {
        self.admission = Admission::new(identity, self.admission.pe());
    }

    /// A datagram has arrived at the UD endpoint. Returns what became of it; the error tells
    /// why it was rejected. Both are counted.
    ///
    /// # Errors
    /// It is no message of this job for this PE, or not of this transport.
    pub fn handle_datagram(&mut self, now: u64, bytes: &[u8]) -> Result<Verdict, DecodeError> {
        let message = self.admission.admit(bytes, &mut self.machine.stats)?;
        match message.body {
            Body::Xrc(_) => {}
            Body::Wait => self.machine.stats.waits_received += 1,
            _ => {
                self.machine.stats.malformed += 1;
                return Err(DecodeError::Field("kind (this PE uses transport XRC)"));
            }
        }
        let verdict = self.machine.handle_message(now, &message);
        match verdict {
            Verdict::Accepted => {}
            Verdict::Duplicate => self.machine.stats.duplicates += 1,
            Verdict::Stale => self.machine.stats.stale += 1,
        }
        Ok(verdict)
    }

    /// Encodes a message of [`Action::Send`](super::Action::Send); returns its length in bytes.
    pub fn encode(&self, message: &Message, out: &mut [u8; MAX_LEN]) -> usize {
        self.admission.encode(message, out)
    }
}
