//! What OpenSHMEM programs say, over the socket that the PEs of the node share.

use std::io;
use std::os::fd::AsFd;

use shmem_node::to_agent::{MESSAGE_MAX, NotUnderstood, ToAgent};

use super::{AgentProcess, MESSAGES};
use crate::agent::Event;
use crate::sys::{self, Interest};

/// Messages that are read before something else is looked at.
pub(super) const MESSAGES_AT_A_TIME: u32 = 64;

/// Beside the other buffer, which may be in use. A byte more than a message may have shows one that is too long.
type Packet = [u8; MESSAGE_MAX + 1];

impl AgentProcess {
    /// Waits for messages only while there is room for them.
    pub(super) fn watch_messages(&mut self) {
        let hearing = self.agent.may_read_messages();
        if hearing == self.sources.messages {
            return;
        }
        self.sources.messages = hearing;
        if let Some(messages) = self.node.as_ref().and_then(|node| node.messages.as_ref()) {
            let interest = match hearing {
                true => Interest::Read,
                false => Interest::Nothing,
            };
            let _ = self.epoll.change(messages, MESSAGES, interest);
        }
    }

    /// Reads all that has been said so far, the last of a PE that has ended with it: it may stand behind much
    /// that others have said. What they go on to say is not waited for.
    pub(super) fn read_last_messages(&mut self) {
        let mut packet = [0; MESSAGE_MAX + 1];
        let messages = self.node.as_ref().and_then(|node| node.messages.as_ref());
        let mut left = messages.map_or(0, |messages| sys::bytes_waiting(messages.as_fd()));
        while left > 0 {
            match self.read_message(&mut packet) {
                Some(n) => left = left.saturating_sub(n.max(1)),
                None => break,
            }
        }
    }

    /// Reads some messages, while there is room for what they say.
    pub(super) fn read_messages(&mut self) {
        let mut packet = [0; MESSAGE_MAX + 1];
        for _ in 0..MESSAGES_AT_A_TIME {
            if !self.agent.may_read_messages() || self.read_message(&mut packet).is_none() {
                break;
            }
        }
    }

    /// Reads a message, of so many bytes. None if there is none for now.
    fn read_message(&mut self, packet: &mut Packet) -> Option<usize> {
        let node = self.node.as_mut()?;
        let messages = node.messages.as_ref()?.as_fd();
        let n = loop {
            match sys::recv_now(messages, packet) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                got => break got.ok()?,
            }
        };
        // An empty packet looks like the end, but then somebody holds the other end, or there is more to read.
        if n == 0 && sys::is_hung_up(messages) && sys::bytes_waiting(messages) == 0 {
            // No PE is left, nor who would start one.
            node.messages = None;
            return None;
        }
        match ToAgent::decode(&packet[..n], self.pes.len() as u32) {
            Ok(said) => {
                if let ToAgent::Tell { local, .. } | ToAgent::Abort { local, .. } = said {
                    // What it has written stands before what it says.
                    self.drain_output(local);
                }
                self.handle(Event::Message(said));
            }
            Err(NotUnderstood(n)) if n > MESSAGE_MAX => {
                let what = "a packet from a PE that is longer than any its agent understands";
                self.handle(Event::Failed(what.to_owned().into()));
            }
            Err(e) => self.handle(Event::Failed(e.to_string().into())),
        }
        Some(n)
    }
}
