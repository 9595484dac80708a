//! The end of an endpoint: in order, at once, or because its HCA has failed.
//!
//! # In order
//! Nobody is left waiting for an acknowledgement of ours. All PEs close after a barrier over the job, and the last messages of that barrier may still
//! be unacknowledged: the acknowledgement was lost, or the peer did not get a core since.
//! Whoever goes away now makes its peer repeat them for the whole retry budget, half a
//! minute, and then fail. So each PE first completes what it has under way, then tells all
//! peers with which there is a connection (BYE), and serves them until they have said the same.
//! What that means for one connection is in [`handshake`](crate::handshake).
//!
//! A BYE can be lost for good, when the peer has gone right after it. That costs the linger time
//! ([`EndpointConfig::linger`](super::EndpointConfig::linger)), counted from the last sign of
//! life of anybody, and is no error.
//!
//! The thread that closes sleeps in the HCA until a packet or a timer; progress threads that
//! come by meanwhile sleep until it is done, so that packets wake one thread only. Thousands of
//! PEs may close at the same time on a few cores.
//!
//! # Failure
//! An HCA keeps its failure, whichever thread meets it ([`Hca::failure`]); every poll of the endpoint
//! looks. Whoever sees it first ends the endpoint as [`abort`](super::Endpoint::abort) does: queue pairs
//! are destroyed, so that no buffer is used any more, operations under way are over, and all waits end.
//! From then on every call gives the failure. A program that is in no call is told by
//! [`Endpoint::on_failure`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::atomics::lines::Composer;
use super::awaited::Awaited;
use super::config::nanos;
use super::driver::Driver;
use super::error::ConnError;
use super::lock::{Endpoint, Locked};
use super::peer::Peer;
use shmem_verbs::{AddressVector, Hca, WcStatus};

/// Peers told between two looks at the completion queue: fewer than there are send slots.
const PORTION: usize = 8;
/// Operations under way are waited for at least so long, however short the retry budget.
const LEAST_WAIT: Duration = Duration::from_secs(1);

impl<H: Hca> Endpoint<H> {
    /// Leaves the job: completes operations under way, takes leave of every peer with which
    /// there is a connection, destroys all queue pairs, and ends all registrations. Operations
    /// that start later fail with [`ConnError::Closed`]; those of
    /// peers towards this PE with [`ConnError::PeerLeft`].
    ///
    /// Call it after a barrier over all PEs. It returns when each of those peers has called
    /// it, too, or has given no sign of life for [`EndpointConfig::linger`]; at once if there are
    /// none.
    ///
    /// [`EndpointConfig::linger`]: super::EndpointConfig::linger
    ///
    /// Its [branches](Self::branch) are closed, too: by who makes progress on them, at the same time.
    pub fn close(&self) {
        let branches = self.part();
        for branch in &branches {
            // Their operations may use registrations of this endpoint.
            branch.lock().complete_operations();
        }
        self.close_alone();
        for branch in branches {
            // Waits for who does it, or does it if nobody came by.
            branch.close_alone();
        }
    }

    /// Has the branches closed by who makes progress on them. Two PEs that went through their endpoints one
    /// after the other could wait for each other.
    fn part(&self) -> Vec<Arc<Self>> {
        let branches = self.lock().branches().clone();
        for branch in &branches {
            // ORDERING(parting): pairs with `progress_wait`, which is woken after it.
            branch.parting.store(true, Ordering::Release);
            branch.hca.wake();
        }
        branches
    }

    fn close_alone(&self) {
        let mut locked = self.lock();
        if locked.life.closing {
            locked.until_closed(Duration::MAX);
            return;
        }
        locked.life.closing = true;
        locked.notices.happened = true; // threads that connect or wait for room give up
        locked.complete_operations();
        locked.take_leave();
        locked.end();
    }

    /// Ends the endpoint at once and tells nobody, as if the process had died: for one that
    /// fails, and whose peers are not to wait for it. Operations under way are forgotten. Its branches end, too.
    pub fn abort(&self) {
        let mut locked = self.lock();
        let branches = std::mem::take(locked.branches());
        locked.end();
        drop(locked);
        for branch in branches {
            branch.abort();
        }
    }
}

impl<H: Hca> Locked<'_, H> {
    /// Waits until nothing is under way. The HCA ends every operation within its retry budget;
    /// should it not, this does not wait for ever.
    fn complete_operations(&mut self) {
        let longest = (self.config.rc_give_up() * 2).max(LEAST_WAIT);
        let under_way =
            |d: &Driver<H>| u64::from(d.sends.in_flight) + d.unanswered + d.composed.get();
        let (mut left, mut since) = (under_way(self), Instant::now());
        self.wait_until(
            |_| Awaited::Close,
            |d| {
                if under_way(d) != left {
                    (left, since) = (under_way(d), Instant::now());
                }
                (left == 0 || d.life.closed || since.elapsed() >= longest).then_some(())
            },
        );
    }

    /// Says BYE to every peer and serves them until all have said it, or nobody needs us.
    fn take_leave(&mut self) {
        let (now, linger) = (self.now(), self.config.linger);
        self.manager.leave(now, nanos(linger));
        loop {
            let now = self.now(); // what comes in between has its own time
            let more = self.manager.say_bye(now, PORTION);
            self.act();
            if !more {
                break;
            }
            self.poll();
        }
        let mut told = None;
        while !self.life.closed {
            let sent = self.ud.as_ref().is_none_or(|ud| ud.is_idle());
            if self.manager.has_left() && sent {
                return;
            }
            if !self.poll() {
                told = told.or_else(|| self.tell(Awaited::Leave));
                self.sleep(linger);
            }
        }
    }
}

impl<H: Hca> Endpoint<H> {
    /// Has `tell` called once if the HCA fails, by whichever thread has noticed; without a lock of the
    /// endpoint. Only the first `tell` counts.
    pub fn on_failure(&self, tell: impl Fn(&ConnError) + Send + Sync + 'static) {
        let _ = self.on_failure.set(Box::new(tell));
    }
}

impl<H: Hca> Driver<H> {
    /// Ends everything if the HCA has failed.
    #[inline]
    pub(super) fn look_for_failure(&mut self) {
        if self.life.failure.is_some() || self.hca.failure().is_some() {
            self.end_failed();
        }
    }

    #[cold]
    fn end_failed(&mut self) {
        if self.life.closed {
            return;
        }
        let by_hca = || {
            let failure = self.hca.failure()?;
            let peer = failure.peer.and_then(|av| self.peer_at(av));
            Some(ConnError::device(failure, peer))
        };
        let error = self.life.failure.clone().or_else(by_hca);
        self.life.failure.clone_from(&error);
        self.notices.failure = error;
        self.tear_down();
    }

    /// Connection messages cannot be sent or received any more: their queue pair is in error. The
    /// poll that has found it ends everything.
    #[cold]
    pub(super) fn datagrams_failed(&mut self, what: &str, status: WcStatus) {
        let reason = format!("{what} a connection message ended with {status:?}");
        let device = format!("the network device at {}", self.hca.port().av);
        let peer = None;
        self.life.fail(ConnError::Device {
            device,
            peer,
            reason,
        });
    }

    /// Why nothing may be started any more.
    pub(super) fn over(&self) -> ConnError {
        self.life.failure.clone().unwrap_or(ConnError::Closed)
    }

    fn peer_at(&self, av: AddressVector) -> Option<String> {
        let at = |(_, peer): &(&u32, &Peer)| peer.address.is_some_and(|address| address.av() == av);
        let (pe, _) = self.peers.iter().find(at)?;
        Some(self.describe(*pe))
    }

    /// Destroys all queue pairs and registrations. Operations under way are forgotten.
    pub(super) fn tear_down(&mut self) {
        self.life.closing = true;
        self.life.closed = true;
        let mut quiet = true;
        for qpn in self.manager.queue_pairs() {
            // Without this the HCA might still use the buffers that are freed below.
            quiet &= self.destroy_qp(qpn);
        }
        if let Some(ud) = self.ud.take() {
            ud.release(&*self.hca);
        }
        for id in self.ops.unfinished() {
            self.lose(id);
        }
        if quiet {
            self.pool.release(&*self.hca);
            if let Some(owner) = self.owner.take() {
                owner.release(&*self.hca);
            }
        }
        for segment in self.segments.drain(..).filter(|segment| !segment.lent) {
            let _ = self.hca.dereg_mr(&segment.mr);
        }
        if let Some(xrc) = self.xrc.take() {
            xrc.release(&*self.hca);
        }
        // What still reports to it could not be destroyed, and ends with the HCA.
        let _ = self.hca.destroy_cq(self.completions.cq);
        self.peers.clear();
        (self.sends.in_flight, self.unanswered) = (0, 0);
        self.composer = Composer::default();
        self.notices.happened = true;
    }
}
