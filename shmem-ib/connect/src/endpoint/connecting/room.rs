//! The driver's part in closing connections that make room for others: which was used last, and
//! when nothing is under way on one any more.

use crate::endpoint::driver::Driver;
use crate::manager::Usage;
use shmem_verbs::Hca;

impl<H: Hca> Driver<H> {
    /// Has the manager close connections for those who wait for a queue pair.
    pub(crate) fn make_room(&mut self) {
        let (hca, now) = (self.shared_hca(), self.now());
        let manager = &mut self.manager;
        self.posts += 1;
        for (pe, peer) in &mut self.peers {
            if let Some((qpn, _)) = manager.local_qp(*pe)
                && let Some(mark) = hca.inbound_mark(qpn)
                && std::mem::replace(&mut peer.inbound, mark) != mark
            {
                // Some time since the last look.
                peer.used = self.posts;
            }
        }
        let peers = &self.peers;
        manager.make_room(now, |pe| {
            peers.get(&pe).map_or_else(Usage::default, |peer| Usage {
                stamp: peer.used,
                busy: !peer.is_idle(),
                pinned: peer.entitled > 0,
            })
        });
    }

    /// Looks after connections whose drain waits for operations.
    pub(crate) fn attend(&mut self) {
        let mut list = std::mem::take(&mut self.attention);
        list.retain(|pe| !self.drain_if_idle(*pe));
        list.append(&mut self.attention);
        list.sort_unstable();
        list.dedup();
        self.attention = list;
        self.act();
    }

    /// Tells the manager when the drain of the connection to `pe` has come to its end; returns whether it
    /// has.
    pub(crate) fn drain_if_idle(&mut self, pe: u32) -> bool {
        let Some(way) = self.manager.way(pe).filter(|way| way.draining) else {
            return true;
        };
        // A thread that is about to post, or an operation that is posted in part, goes first.
        let peer = self.peers.get(&pe);
        let busy = peer.is_some_and(|peer| !peer.is_idle() || peer.entitled > 0);
        if busy || self.ops.is_being_posted(pe) {
            return false;
        }
        let (now, qpn) = (self.now(), way.qpn);
        self.manager.drained(now, pe, qpn);
        self.notify = true;
        true
    }
}
