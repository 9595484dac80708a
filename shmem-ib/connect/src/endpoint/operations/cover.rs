//! What a thread posts before it waits: the requests that are held, and a request of no bytes behind silent ones, whose
//! completion the device reports.

use super::table::{Op, OpKind};
use crate::endpoint::driver::Driver;
use crate::endpoint::wr_id::Whose;
use shmem_verbs::{Hca, SendOp, SendWr, VerbsError};

impl<H: Hca> Driver<H> {
    /// Posts what is held, because a thread begins to wait. The device reports when the last request is complete.
    #[cold]
    pub(crate) fn let_go(&mut self) {
        if let Some((pe, last)) = self.sends.held.last()
            && !last.tells
            && let Some(op) = self.ops.get_mut(last.id)
            && let Some(peer) = self.peers.get_mut(&pe)
        {
            last.tells = true;
            op.silent = false;
            peer.silent.pop();
            op.covers = peer.silent.cover();
            self.sends.silent -= 1;
        }
        self.ring();
    }

    /// Tells the device of what is held. What finds no room stays.
    pub(crate) fn ring(&mut self) {
        if let Err(error) = self.sends.held.ring(&*self.hca) {
            self.life.fail(error);
        }
    }

    /// Has something tell of requests of which nothing does. Where there is no room for it, the next poll finds it.
    #[cold]
    pub(crate) fn cover(&mut self) {
        let mut uncovered = std::mem::take(&mut self.sends.uncovered);
        uncovered.retain(|pe| !self.cover_peer(*pe));
        uncovered.append(&mut self.sends.uncovered);
        self.sends.uncovered = uncovered;
    }

    /// Returns whether nothing is left to do for this peer.
    fn cover_peer(&mut self, pe: u32) -> bool {
        let Some(peer) = self.peers.get_mut(&pe) else {
            return true;
        };
        let Some(last) = peer.last.filter(|_| peer.silent.is_uncovered()) else {
            return true;
        };
        // As any operation, it leaves their places to answers.
        let full = self.owner.is_some() && peer.is_full(self.config.sq_depth);
        if full || self.sends.in_flight >= self.most_in_flight() {
            return false;
        }
        let write = SendOp::write(last.raddr, last.rkey);
        let id = self.ops.insert(Op::new(last.ctx, OpKind::Put, pe, 0, 0));
        let wr = SendWr {
            srqn: last.srqn,
            ..SendWr::new(Whose::Operation(id).to_wr_id(), write, &[])
        };
        // SAFETY: it has no buffer.
        let posted = unsafe { self.hca.post_send(last.qpn, &wr) };
        if let Err(error) = posted {
            self.ops.remove(id);
            let full = matches!(error, VerbsError::QueueFull { .. });
            if !full {
                self.lose_silent(pe);
            }
            return !full;
        }
        self.sends.posted();
        if let (Some(op), Some(peer)) = (self.ops.get_mut(id), self.peers.get_mut(&pe)) {
            peer.posted += 1;
            op.pending = 1;
            op.begun = true;
            op.posting = false;
            op.covers = peer.silent.cover();
        }
        true
    }

    /// Nothing can be posted behind the silent requests towards `pe`, so nobody would ever hear of them.
    #[cold]
    fn lose_silent(&mut self, pe: u32) {
        let Some(peer) = self.peers.get_mut(&pe) else {
            return;
        };
        let lost = peer.silent.retire_all();
        peer.completed += lost.len() as u64;
        self.sends.in_flight -= lost.len() as u32;
        for id in lost {
            self.lose(id);
        }
        self.notices.happened = true;
    }
}
