//! The connections of an HCA, and which of them can go on.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use hashbrown::HashMap;

use crate::stream::StreamId;

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) fd: OwnedFd,
    /// It is not connected yet.
    pub(super) connecting: bool,
    /// It takes nothing at present.
    pub(super) blocked: bool,
    /// It may have something, and is in the list of those.
    pub(super) readable: bool,
    /// It has an end, of which the kernel has told.
    pub(super) ends: bool,
}

impl Link {
    pub(super) const fn new(fd: OwnedFd, connecting: bool) -> Self {
        Self {
            fd,
            connecting,
            blocked: false,
            readable: false,
            ends: false,
        }
    }
}

/// The descriptors of an HCA's streams.
#[derive(Debug, Default)]
pub(in crate::driver) struct Links {
    pub(super) listener: Option<OwnedFd>,
    /// A peer may wait there that the kernel does not report again.
    pub(super) accept_due: bool,
    pub(super) links: HashMap<u32, Link>,
    pub(super) readable: VecDeque<StreamId>,
    pub(super) active_until: u64,
    pub(super) look_at: u64,
}

impl Links {
    /// Whether there is anything to look at.
    pub(in crate::driver) fn any(&self) -> bool {
        self.listener.is_some() || !self.links.is_empty()
    }

    /// Whether something has come that nobody has taken.
    pub(in crate::driver) fn pending(&self) -> bool {
        !self.readable.is_empty()
    }

    pub(super) fn mark_readable(&mut self, id: StreamId) {
        if let Some(link) = self.links.get_mut(&id.0)
            && !std::mem::replace(&mut link.readable, true)
        {
            self.readable.push_back(id);
        }
    }
}
