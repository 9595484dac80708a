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
        let used = self.sends.used();
        for (pe, peer) in &mut self.peers {
            if let Some((qpn, _)) = manager.local_qp(*pe)
                && let Some(mark) = hca.inbound_mark(qpn)
                && std::mem::replace(&mut peer.inbound, mark) != mark
            {
                // Some time since the last look.
                peer.used = used;
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
        let Some(route) = self.manager.route(pe).filter(|route| route.draining) else {
            return true;
        };
        // A thread that is about to post, or an operation that is posted in part, goes first.
        let peer = self.peers.get(&pe);
        let busy = peer.is_some_and(|peer| !peer.is_idle() || peer.entitled > 0);
        if busy || self.ops.is_being_posted(pe) {
            return false;
        }
        let (now, qpn) = (self.now(), route.qpn);
        self.manager.drained(now, pe, qpn);
        // No action tells this while other peers use the queue pair.
        self.qps.changes += 1;
        self.notices.happened = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::endpoint::operations::post::Posted;
    use crate::endpoint::operations::table::{Op, OpKind};
    use crate::endpoint::{ContextId, Transport};
    use crate::job::Job;
    use crate::message::{Body, Generation, MAX_LEN, Message};
    use shmem_verbs::{SendOp, Sge};

    /// A thread waits for room after it has found the connection to PE 3 draining, which ends for PE 3 while
    /// operations towards the direct peer are still under way. Nothing of it may be posted behind those.
    #[test]
    fn nothing_is_posted_to_a_peer_whose_part_of_a_drain_is_over() {
        let job = Job::with(4, |config, _| {
            config.transport = Transport::Xrc { domain: None };
        });
        let endpoint = &job.pes[0].endpoint;
        endpoint.connect_all([2, 3].into_iter()).expect("both live");
        let bye = Message {
            src_pe: 2,
            dst_pe: 0,
            generation: Generation::NONE,
            echo: Some(Generation(1)),
            want_reply: true,
            ticket: 0,
            body: Body::Bye,
        };
        let mut bytes = [0; MAX_LEN];
        let len = job.pes[2].endpoint.lock().manager.encode(&bye, &mut bytes);
        let mut locked = endpoint.lock();
        locked.peers.get_mut(&2).expect("it is known").posted += 1;
        locked.peers.get_mut(&3).expect("it is known").entitled = 1;
        let now = locked.now();
        let heard = locked.manager.handle_datagram(now, &bytes[..len]);
        heard.expect("it is of this job");
        locked.act();
        assert!(locked.manager.route(3).is_some_and(|route| route.draining));
        let target = locked.target_anyway(3, 0, OpKind::Put, 0, 8);
        let target = target.expect("it is sound").expect("it is there");
        locked.peers.get_mut(&3).expect("it is known").entitled = 0;
        locked.attend();
        assert!(locked.manager.route(3).is_none() && locked.manager.route(2).is_some());
        let op = Op::new(ContextId::DEFAULT, OpKind::Put, 3, 0, 8);
        let id = locked.ops.insert(op);
        let write = SendOp::write(target.raddr, target.rkey);
        // SAFETY: inline data is copied while posting, there is no other buffer.
        let posted = unsafe { locked.post(id, &target, write, Sge::default(), Some(&[0; 8])) };
        assert_eq!(posted.expect("the endpoint is open"), Posted::Elsewhere);
        locked.abandon(id);
        locked.peers.get_mut(&2).expect("it is known").posted -= 1;
    }
}
