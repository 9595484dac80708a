//! What OpenSHMEM programs say, over the socket that the PEs of the node share.

use shmem_node::to_agent::{MESSAGE_MAX, NotUnderstood, ToAgent};

use super::*;

/// Messages that are read before something else is looked at.
pub(super) const WORDS_AT_A_TIME: u32 = 64;

/// Beside the other buffer, which may be in use. A byte more than a message may have shows one that is too long.
type Packet = [u8; MESSAGE_MAX + 1];

impl AgentProcess {
    /// Waits for words only while there is room for them.
    pub(super) fn watch_words(&mut self) {
        let hearing = self.agent.may_hear();
        if hearing == self.hearing {
            return;
        }
        self.hearing = hearing;
        if let Some(words) = self.node.as_ref().and_then(|node| node.words.as_ref()) {
            let interest = match hearing {
                true => Interest::Read,
                false => Interest::Nothing,
            };
            let _ = self.epoll.change(words, WORDS, interest);
        }
    }

    /// Reads all that has been said so far, the last of a PE that has ended with it: it may stand behind much
    /// that others have said. What they go on to say is not waited for.
    pub(super) fn read_last_words(&mut self) {
        let mut packet = [0; MESSAGE_MAX + 1];
        let words = self.node.as_ref().and_then(|node| node.words.as_ref());
        let mut left = words.map_or(0, |words| sys::bytes_waiting(words.as_fd()));
        while left > 0 {
            match self.read_word(&mut packet) {
                Some(n) => left = left.saturating_sub(n.max(1)),
                None => break,
            }
        }
    }

    /// Reads some messages, while there is room for what they say.
    pub(super) fn read_words(&mut self) {
        let mut packet = [0; MESSAGE_MAX + 1];
        for _ in 0..WORDS_AT_A_TIME {
            if !self.agent.may_hear() || self.read_word(&mut packet).is_none() {
                break;
            }
        }
    }

    /// Reads a message, of so many bytes. None if there is none for now.
    fn read_word(&mut self, packet: &mut Packet) -> Option<usize> {
        let node = self.node.as_mut()?;
        let words = node.words.as_ref()?.as_fd();
        let n = loop {
            match sys::recv_now(words, packet) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                got => break got.ok()?,
            }
        };
        // An empty packet looks like the end, but then somebody holds the other end, or there is more to read.
        if n == 0 && sys::is_hung_up(words) && sys::bytes_waiting(words) == 0 {
            // No PE is left, nor who would start one.
            node.words = None;
            return None;
        }
        match ToAgent::decode(&packet[..n], self.pes.len() as u32) {
            Ok(said) => {
                if let ToAgent::Tell { local, .. } | ToAgent::Abort { local, .. } = said {
                    // What it has written stands before what it says.
                    self.drain_output(local);
                }
                self.tell(Event::Said(said));
            }
            Err(NotUnderstood(n)) if n > MESSAGE_MAX => {
                let what = "a packet from a PE that is longer than any its agent understands";
                self.tell(Event::Failed(what.to_owned().into()));
            }
            Err(e) => self.tell(Event::Failed(e.to_string().into())),
        }
        Some(n)
    }
}
