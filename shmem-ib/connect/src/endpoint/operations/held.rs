//! Work requests that wait for more of their kind, so that the device is told of all at once.
//!
//! Telling a device of a request (ringing its doorbell) costs a write across its bus, of an emulated device a
//! system call, and it takes a list as well as one. So puts of few bytes that nobody waits for one by one gather while earlier
//! requests towards the same peer are under way, some of which tell of their completion: who waits for
//! anything polls, and every poll lets them go, after it has taken completions, which make room; and if the program
//! computes instead, the completion of an earlier one wakes the thread that makes progress, which polls. A list also goes when it is long enough,
//! and before or with whatever else is posted.
//!
//! What is held counts as posted. Where the queue has no room for it after all (over XRC all PEs of a node share one), it
//! stays until there is. If the device refuses it otherwise, it can give no completion, and so the endpoint has failed.

use std::slice;

use smallvec::SmallVec;

use super::silent::FIRST;
use super::table::OpId;
use crate::endpoint::buffers::INLINE_MAX;
use crate::endpoint::error::ConnError;
use crate::endpoint::wr_id::Whose;
use shmem_verbs::memory::copy;
use shmem_verbs::{Hca, Qpn, SendOp, SendWr, Sge, SrqNum, VerbsError};

/// Longest payload of a request that is held: for a longer one the bell does not count.
pub(crate) const HELD_BYTES: usize = 4096;
/// Most requests that a device is told of at once.
const LIST: usize = 16;

/// A request that is held. Its source is the program's, which keeps it until quiet, or until its release, before which
/// the device is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) id: OpId,
    pub(crate) what: SendOp,
    pub(crate) source: Sge,
    /// The device copies the source while it is told.
    pub(crate) inline: bool,
    pub(crate) tells: bool,
    pub(crate) srqn: Option<SrqNum>,
}

/// The requests that are held, all for one queue pair and one peer.
#[derive(Debug)]
pub(crate) struct Held {
    list: Vec<Request>,
    pe: u32,
    qpn: Qpn,
    /// As long a list goes; 1: nothing is held.
    most: usize,
    /// Copies of sources that the device takes at once: others may write the program's memory meanwhile. There is
    /// room for a list of them, from the first one on.
    inline: Vec<[u8; INLINE_MAX]>,
}

impl Held {
    pub(crate) const fn new(most: u32) -> Self {
        let most = if most as usize > LIST {
            LIST
        } else {
            most as usize
        };
        Self {
            list: Vec::new(),
            pe: 0,
            qpn: Qpn(0),
            most,
            inline: Vec::new(),
        }
    }

    /// Whether a request may be held while so many are under way.
    pub(crate) fn may_wait(under_way: u64, sq_depth: u32) -> bool {
        (FIRST..u64::from(sq_depth)).contains(&under_way)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether one more for this peer can be held.
    pub(crate) fn takes(&self, pe: u32, qpn: Qpn) -> bool {
        let its = self.list.is_empty() || self.is_for(pe, qpn);
        its && self.list.len() + 1 < self.most
    }

    pub(crate) fn push(&mut self, pe: u32, qpn: Qpn, request: Request) {
        (self.pe, self.qpn) = (pe, qpn);
        self.list.push(request);
    }

    /// Whether what is held is for this peer.
    pub(crate) fn is_for(&self, pe: u32, qpn: Qpn) -> bool {
        (self.pe, self.qpn) == (pe, qpn)
    }

    /// The last one, and its peer.
    pub(super) fn last(&mut self) -> Option<(u32, &mut Request)> {
        Some((self.pe, self.list.last_mut()?))
    }

    /// Takes the last one back.
    pub(crate) fn pop(&mut self) {
        self.list.pop();
    }

    /// Tells the HCA of the list. What finds no room stays; after an error nothing does.
    pub(crate) fn ring<H: Hca>(&mut self, hca: &H) -> Result<(), ConnError> {
        if self.inline.len() < self.list.len() {
            self.inline.resize(LIST, [0; INLINE_MAX]);
        }
        for (held, room) in self.list.iter().zip(&mut self.inline) {
            let Sge { addr, len, .. } = held.source;
            if held.inline {
                let (from, len) = (
                    std::ptr::with_exposed_provenance(addr as usize),
                    len as usize,
                );
                // SAFETY: the caller of the post promises that the source stays until the operation completes, or, where it is copied
                // now, as long as it may be held: until its release, which rings before it returns.
                unsafe { copy(from, room[..len].as_mut_ptr(), len) };
            }
        }
        let requests = self.list.iter().zip(&self.inline).map(|(held, room)| {
            let data = || &room[..held.source.len as usize];
            SendWr {
                inline: held.inline.then(data),
                signaled: held.tells,
                srqn: held.srqn,
                ..SendWr::new(
                    Whose::Operation(held.id).to_wr_id(),
                    held.what,
                    slice::from_ref(&held.source),
                )
            }
        });
        let requests: SmallVec<[SendWr<'_>; LIST]> = requests.collect();
        // SAFETY: as above.
        let rung = unsafe { hca.post_send_list(self.qpn, &requests) };
        drop(requests);
        match rung {
            Ok(()) => self.list.clear(),
            Err((posted, VerbsError::QueueFull { .. })) => drop(self.list.drain(..posted)),
            Err((_, error)) => {
                self.list.clear();
                return Err(ConnError::verbs("post operations")(error));
            }
        }
        Ok(())
    }

    /// The queue pair is gone, and nothing of it is to be told to anybody.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        if self.qpn == qpn {
            self.list.clear();
        }
    }
}
