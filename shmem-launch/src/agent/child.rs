//! What an agent knows of a child agent: how far it is, and whether it is lost.

use crate::exit::{Cause, End, Fault};
use crate::frame::{FrameReader, OutBuf};
use crate::remote::Contact;

use super::AGENT_DEATH_NS;
use super::event::ChildSetup;

#[derive(Debug, Default)]
pub(super) struct Child {
    pub(super) node: u32,
    pub(super) pid: u32,
    /// How it was called, if it is on another host.
    pub(super) contact: Option<Contact>,
    pub(super) reader: FrameReader,
    pub(super) out: OutBuf,
    pub(super) ready: bool,
    pub(super) spawned: bool,
    pub(super) exited: bool,
    /// None of its PEs will join an operation any more.
    pub(super) deaf: bool,
    pub(super) done: bool,
    pub(super) closed_at: Option<u64>,
    pub(super) end: Option<End>,
    pub(super) mourned: bool,
}

impl Child {
    pub(super) fn new(setup: &ChildSetup) -> Self {
        Self {
            node: setup.node,
            pid: setup.pid,
            contact: setup.contact.clone(),
            ..Self::default()
        }
    }

    /// Nothing more can be said to it. The link of a remote shell that has ended may be open still, if
    /// it has left it to another process.
    pub(super) fn gone(&self) -> bool {
        self.closed_at.is_some() || (self.end.is_some() && self.contact.is_none())
    }

    /// Whether it has begun to work: one that was forked has, another says so first.
    pub(super) fn answered(&self) -> bool {
        self.contact.as_ref().is_none_or(Contact::greeted)
    }

    /// When the next look at it is due.
    pub(super) fn deadline(&self) -> Option<u64> {
        if self.mourned || self.done {
            return None;
        }
        match (self.closed_at, self.end) {
            (Some(at), None) => Some(at + AGENT_DEATH_NS),
            (Some(_), Some(_)) => None,
            (None, _) => self.contact.as_ref().and_then(Contact::deadline),
        }
    }

    /// Says once that it was lost, and its subtree with it: its link has ended without `Done`, and
    /// how its process ended is known or will not be.
    pub(super) fn mourn(&mut self, now: u64) -> Option<Fault> {
        if self.mourned || self.done {
            return None;
        }
        // The link may still hold frames after the process has ended, so it decides.
        let closed_at = self.closed_at?;
        if self.end.is_none() && now < closed_at + AGENT_DEATH_NS {
            return None;
        }
        self.mourned = true;
        let cause = match &self.contact {
            Some(contact) => Cause::Node {
                what: contact.lost(self.end),
            },
            None => Cause::Agent { end: self.end },
        };
        Some(Fault {
            node: self.node,
            pid: self.pid,
            cause,
        })
    }

    /// Nothing more is expected of it, and nothing has to be said.
    pub(super) fn forget(&mut self, now: u64) {
        self.closed_at.get_or_insert(now);
        self.mourned = true;
        self.out.clear();
    }
}
