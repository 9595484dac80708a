//! The driver's part in closing connections that make room for others: which was used last, and
//! when nothing is under way on one any more. Also the end of registrations that have successors.

use super::path::Path;
use crate::endpoint::driver::Driver;
use crate::manager::Usage;
use shmem_verbs::Hca;

impl<H: Hca> Driver<H> {
    /// Has the manager close connections for those who wait for a queue pair.
    pub(crate) fn make_room(&mut self) {
        let (hca, now) = (self.shared_hca(), self.now());
        let Path::Rc(manager) = &mut self.manager else {
            return;
        };
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

    /// Looks after connections whose drain, or whose acknowledgement of segments, waits for
    /// operations.
    pub(crate) fn attend(&mut self) {
        let mut list = std::mem::take(&mut self.attention);
        list.retain(|pe| {
            if let Some(peer) = self.peers.get_mut(pe)
                && let Some((mark, revision)) = peer.acknowledge
                && peer.has_reached(mark)
                && !self.ops.is_being_posted(*pe)
            {
                peer.acknowledge = None;
                let now = self.now();
                self.manager.rc(|m| m.segments_applied(now, *pe, revision));
            }
            let drained = self.drain_if_idle(*pe);
            let peer = self.peers.get(pe);
            !drained || peer.is_some_and(|p| p.acknowledge.is_some())
        });
        list.append(&mut self.attention);
        list.sort_unstable();
        list.dedup();
        self.attention = list;
        self.act();
    }

    /// Tells the manager when the drain of the connection to `pe` has come to its end; returns whether it
    /// has.
    pub(crate) fn drain_if_idle(&mut self, pe: u32) -> bool {
        let Some(sharers) = self.manager.draining(pe) else {
            return true;
        };
        // A thread that is about to post, or an operation that is posted in part, goes first.
        let busy = |pe: &u32| {
            let peer = self.peers.get(pe);
            peer.is_some_and(|peer| !peer.is_idle() || peer.entitled > 0)
                || self.ops.is_being_posted(*pe)
        };
        if sharers.iter().any(busy) {
            return false;
        }
        let now = self.now();
        self.manager.drained(now, pe);
        self.notify = true;
        true
    }

    /// Ends registrations that no peer can be using any more.
    pub(crate) fn end_retired(&mut self) {
        if self.manager.segments_known() {
            for mr in std::mem::take(&mut self.retired) {
                let _ = self.hca().dereg_mr(&mr);
            }
            self.notify = true;
        }
    }
}
