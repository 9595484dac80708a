//! What OpenSHMEM programs say, over the socket that the PEs of the node share.

use shmem_node::to_agent::{MESSAGE_MAX, ToAgent};

use super::*;

/// Messages that are read before something else is looked at.
pub(super) const WORDS_AT_A_TIME: u32 = 64;

impl AgentProcess {
    /// Reads the last of them: more than a message of each PE is not waited for.
    pub(super) fn read_last_words(&mut self) {
        self.read_words(WORDS_AT_A_TIME + self.pes.len() as u32);
    }

    /// Reads at most so many messages.
    pub(super) fn read_words(&mut self, most: u32) {
        // Beside the other buffer, which may be in use.
        let mut packet = [0; MESSAGE_MAX + 1];
        for _ in 0..most {
            if !self.read_word(&mut packet) {
                break;
            }
        }
    }

    /// Reads a message. False if there is none for now.
    fn read_word(&mut self, packet: &mut [u8]) -> bool {
        let Some(node) = self.node.as_mut() else {
            return false;
        };
        let Some(words) = &node.words else {
            return false;
        };
        let n = match sys::recv_now(words.as_fd(), packet) {
            Ok(0) => {
                // No PE is left, nor who would start one.
                node.words = None;
                return false;
            }
            Ok(n) => n,
            Err(e) => return e.kind() == io::ErrorKind::Interrupted,
        };
        match ToAgent::decode(&packet[..n], self.pes.len() as u32) {
            Ok(said) => {
                if let ToAgent::Tell { local, .. } | ToAgent::Abort { local, .. } = said {
                    // What it has written stands before what it says.
                    self.drain_output(local);
                }
                self.tell(Event::Said(said));
            }
            Err(e) => self.tell(Event::Failed(e.to_string())),
        }
        true
    }
}
