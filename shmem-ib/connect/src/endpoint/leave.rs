//! Closing an endpoint in order: nobody is left waiting for an acknowledgement of ours.
//!
//! All PEs close after a barrier over the job, and the last messages of that barrier may still
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

use std::time::{Duration, Instant};

use super::Endpoint;
use super::config::nanos;
use super::driver::Driver;
use super::wait::Locked;
use shmem_verbs::Hca;

/// Peers told between two looks at the completion queue: fewer than there are send slots.
const PORTION: usize = 8;
/// Operations under way are waited for at least so long, however short the retry budget.
const LEAST_WAIT: Duration = Duration::from_secs(1);

impl<H: Hca> Endpoint<H> {
    /// Leaves the job: completes operations under way, takes leave of every peer with which
    /// there is a connection, destroys all queue pairs, and ends all registrations. Operations
    /// that start later fail with [`ConnError::Closed`](super::ConnError::Closed); those of
    /// peers towards this PE with [`ConnError::PeerLeft`](super::ConnError::PeerLeft).
    ///
    /// Call it after a barrier over all PEs. It returns when each of those peers has called
    /// it, too, or has given no sign of life for [`EndpointConfig::linger`]; at once if there are
    /// none.
    ///
    /// [`EndpointConfig::linger`]: super::EndpointConfig::linger
    pub fn close(&self) {
        let mut locked = self.lock();
        if locked.closing {
            locked.until_closed(Duration::MAX);
            return;
        }
        locked.closing = true;
        locked.notify = true; // threads that connect or wait for room give up
        locked.complete_operations();
        locked.take_leave();
        locked.end();
    }

    /// Ends the endpoint at once and tells nobody, as if the process had died: for one that
    /// fails, and whose peers are not to wait for it. Operations under way are forgotten.
    pub fn abort(&self) {
        self.lock().end();
    }
}

impl<H: Hca> Locked<'_, H> {
    /// Waits until nothing is under way. The HCA ends every operation within its retry budget;
    /// should it not, this does not wait for ever.
    fn complete_operations(&mut self) {
        let patience = (self.config.rc_give_up() * 2).max(LEAST_WAIT);
        let under_way = |d: &Driver<H>| u64::from(d.in_flight) + d.unanswered + d.composed.get();
        let (mut left, mut since) = (under_way(self), Instant::now());
        self.wait_until(|d| {
            if under_way(d) != left {
                (left, since) = (under_way(d), Instant::now());
            }
            (left == 0 || d.closed || since.elapsed() >= patience).then_some(())
        });
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
        while !self.closed {
            let sent = self.ud.as_ref().is_none_or(|ud| ud.is_idle());
            if self.manager.has_left() && sent {
                return;
            }
            if !self.poll() {
                self.sleep(linger);
            }
        }
    }
}
