//! The driver of connections over an [`Hca`]: one-sided operations that connect at first
//! contact.
//!
//! An [`Endpoint`] is what a PE has of the network: a UD queue pair for connection messages
//! from the start, and an RC queue pair per peer that it has been in contact with. All its
//! methods may be called from any thread.
//!
//! # Life
//! 1. [`Endpoint::new`] makes the UD queue pair; [`Endpoint::ud_address`] goes to the job's
//!    bootstrap. No message is sent.
//! 2. [`Endpoint::register`] registers the symmetric segment. Peers that ask before are told to
//!    wait, and answered then.
//! 3. [`Endpoint::set_directory`] says where peers are. Addresses may still be on their way.
//! 4. Operations connect when a peer is used for the first time ([`Endpoint::put`] and the
//!    others), or all at once before ([`Endpoint::connect_all`]).
//! 5. [`Endpoint::close`] after a barrier over the job: peers tell each other that nothing is
//!    under way between them any more, and only then take their queue pairs away.
//!
//! # Progress
//! Every waiting call makes progress for all connections. While the program computes, a
//! progress thread that calls [`Endpoint::progress_wait`] in a loop answers peers; it sleeps
//! when there is nothing to do.
//!
//! # Locking
//! One mutex protects everything; it is held for a few hundred nanoseconds
//! to post an operation, and never while waiting. Lock order: the endpoint's, then the
//! HCA's own. The [`Directory`] is asked for addresses without the lock.

mod buffers;
mod config;
mod driver;
mod error;
mod leave;
mod ops;
mod rma;
mod ud;
mod wait;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

pub use config::{Directory, EndpointConfig, Lookup};
pub use error::ConnError;

use self::buffers::LocalSegment;
use self::driver::{Driver, ud_recv_id};
use self::ud::{SEND_SLOTS, UdPort};
use self::wait::Locked;
use super::UdAddress;
use super::handshake::Local;
use super::manager::{Identity, Manager};
use super::message::Segment;
use super::stats::ConnectStats;
use crate::rng::Rng;
use crate::verbs::{Access, Counters, Hca};

/// Connections that [`Endpoint::connect_all`] has under way at a time: enough to hide the
/// round trips, few enough for the peers' receive queues.
const CONNECT_WINDOW: usize = 16;
/// How long one wait for the directory lasts. It wakes when the address is there; with thousands
/// of PEs waiting on few cores, looking more often would delay what they wait for.
const DIRECTORY_WAIT: Duration = Duration::from_millis(500);

/// The network side of one PE. See the [module](self).
pub struct Endpoint<H: Hca> {
    hca: Arc<H>,
    driver: Mutex<Driver<H>>,
    ud: UdAddress,
    /// Threads that sleep in the completion channel while they wait for something.
    sleepers: AtomicU32,
    /// Signalled when the endpoint is closed.
    gone: Condvar,
    /// Inbound operations that `progress_wait` has reported.
    inbound_seen: AtomicU64,
}

/// What an endpoint has done.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Connections that we may use.
    pub open: u32,
    /// Connections that only the peer has used so far.
    pub answered: u32,
    /// RC queue pairs that exist.
    pub queue_pairs: u32,
    /// RC queue pairs made since the beginning.
    pub queue_pairs_created: u64,
    /// Connection messages dropped because too many were on their way out.
    pub messages_dropped: u64,
    /// Operations under way.
    pub in_flight: u32,
    /// Of connection management, with the latencies of first contacts.
    pub connect: ConnectStats,
    /// Of the HCA.
    pub hca: Counters,
}

impl<H: Hca> Endpoint<H> {
    /// Makes an endpoint on `hca`.
    ///
    /// # Errors
    /// A setting is out of range, or the device refuses a queue.
    pub fn new(hca: Arc<H>, config: EndpointConfig) -> Result<Arc<Self>, ConnError> {
        let check = |what, value: u64, good, allowed| {
            if good {
                Ok(())
            } else {
                Err(ConnError::Config {
                    what,
                    value,
                    allowed,
                })
            }
        };
        let port = hca.port();
        let (pe, n_pes) = (u64::from(config.pe), config.n_pes);
        check("pe", pe, config.pe < n_pes, "below n_pes")?;
        let timeout = config.rc_timeout;
        check(
            "rc_timeout",
            timeout.into(),
            (1..=31).contains(&timeout),
            "1 to 31",
        )?;
        check(
            "rc_retry",
            config.rc_retry.into(),
            config.rc_retry <= 7,
            "0 to 7",
        )?;
        let sq = config.sq_depth;
        check(
            "sq_depth",
            sq.into(),
            sq > 0 && sq <= port.max_qp_wr,
            "1 to the device's limit",
        )?;
        let ud = config.ud_depth;
        check(
            "ud_depth",
            ud.into(),
            ud > 0 && ud <= port.max_qp_wr,
            "1 to the device's limit",
        )?;
        let least = u64::from(ud) + u64::from(SEND_SLOTS);
        let cq = config.cq_depth;
        let fits = u64::from(cq) > least && cq <= port.max_cqe;
        check(
            "cq_depth",
            cq.into(),
            fits,
            "above ud_depth + 16, up to the device's limit",
        )?;
        let rd = config.max_rd_atomic;
        check("max_rd_atomic", rd.into(), rd > 0, "at least 1")?;

        let mut rng = Rng::new(config.seed);
        let cq = hca
            .create_cq(cq, None)
            .map_err(ConnError::verbs("create a completion queue"))?;
        let ud = UdPort::new(&*hca, cq, &config, &mut rng, ud_recv_id)?;
        let address = ud.address;
        let identity = Identity {
            job_id: config.job_id,
            job_key: config.job_key,
            n_pes,
        };
        let local = Local {
            pe: config.pe,
            incarnation: config.incarnation,
            ud: address,
            mtu: port.active_mtu,
            max_rd_atomic: rd.min(port.max_rd_atomic).max(1),
            segments: None,
            leaving: false,
            retry: config.retry_policy(),
        };
        let manager = Manager::new(&identity, local, rng.next_u64());
        let driver = Driver::new(Arc::clone(&hca), cq, config, manager, ud);
        Ok(Arc::new(Self {
            hca,
            driver: Mutex::new(driver),
            ud: address,
            sleepers: AtomicU32::new(0),
            gone: Condvar::new(),
            inbound_seen: AtomicU64::new(0),
        }))
    }

    /// Where peers send connection messages to.
    #[must_use]
    pub const fn ud_address(&self) -> UdAddress {
        self.ud
    }

    /// Registers the symmetric segment, the memory that peers may access, and answers those
    /// who have asked for it already.
    ///
    /// # Errors
    /// There is one already, or the device refuses it.
    ///
    /// # Safety
    /// The memory stays mapped, readable and writable until [`close`](Self::close) has
    /// returned or the endpoint was dropped. Peers read and write it at any time: local code
    /// must access it through raw pointers or atomics only.
    pub unsafe fn register(&self, base: *mut u8, len: usize) -> Result<(), ConnError> {
        let mut locked = self.lock();
        if locked.closing {
            return Err(ConnError::Closed);
        }
        if locked.segment.is_some() {
            return Err(ConnError::AlreadyRegistered);
        }
        // SAFETY: by the caller's promise; `close` and `drop` end the registration.
        let mr = unsafe { self.hca.reg_mr(base, len, Access::ALL) }
            .map_err(ConnError::verbs("register the symmetric segment"))?;
        locked.segment = Some(LocalSegment(mr));
        let now = locked.now();
        let segment = Segment {
            address: mr.addr,
            size: mr.len,
            rkey: mr.rkey,
        };
        locked
            .manager
            .ready(now, std::iter::once(segment).collect());
        locked.act();
        Ok(())
    }

    /// Says where peers are. Until then only peers that contact us can be reached.
    pub fn set_directory(&self, directory: Arc<dyn Directory>) {
        self.lock().directory = Some(directory);
    }

    /// Connects to all of `peers` (this PE is skipped) and returns when every connection is
    /// open: the static mode, for comparison with connecting on demand.
    ///
    /// # Errors
    /// The first peer that cannot be reached.
    pub fn connect_all(&self, peers: impl Iterator<Item = u32>) -> Result<(), ConnError> {
        let mut locked = self.lock();
        let me = locked.config.pe;
        let mut under_way = VecDeque::with_capacity(CONNECT_WINDOW);
        for pe in peers.filter(|pe| *pe != me) {
            if under_way.len() == CONNECT_WINDOW
                && let Some(first) = under_way.pop_front()
            {
                locked.ensure_open(first)?;
            }
            if locked.usable(pe)?.is_none() {
                locked.begin_connect(pe)?;
                under_way.push_back(pe);
            }
        }
        under_way
            .into_iter()
            .try_for_each(|pe| locked.ensure_open(pe))
    }

    /// Handles what has arrived and what is due, without waiting. Returns whether there was
    /// anything.
    pub fn progress(&self) -> bool {
        self.lock().poll()
    }

    /// Sleeps until there is something to do, at most `max`, and does it. Returns whether
    /// operations of peers may have changed the memory since the last call.
    pub fn progress_wait(&self, max: Duration) -> bool {
        let mut locked = self.lock();
        if locked.closing && !locked.closed {
            // Whoever closes the endpoint serves it, and sleeps better alone.
            locked.until_closed(max);
            drop(locked);
        } else {
            let until = locked.until_timeout();
            drop(locked);
            self.hca.wait(until.map_or(max, |t| t.min(max)));
            self.lock().poll();
        }
        let inbound = self.hca.counters().rdma_inbound;
        self.inbound_seen.swap(inbound, Ordering::Relaxed) != inbound
    }

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        let locked = self.lock();
        let linked = locked.linked_peers().count() as u32;
        let open = locked.peers.values().filter(|p| p.open.is_some()).count() as u32;
        EndpointStats {
            open,
            answered: linked.saturating_sub(open),
            queue_pairs: locked.qps_alive,
            queue_pairs_created: locked.qps_created,
            messages_dropped: locked.ud.as_ref().map_or(0, |ud| ud.dropped),
            in_flight: locked.in_flight,
            connect: *locked.manager.stats(),
            hca: self.hca.counters(),
        }
    }

    /// The peers with which a connection exists, whoever asked for it, in ascending order.
    #[must_use]
    pub fn connected_peers(&self) -> Vec<u32> {
        let mut peers: Vec<u32> = self.lock().linked_peers().collect();
        peers.sort_unstable();
        peers
    }
}

impl<H: Hca> Drop for Endpoint<H> {
    fn drop(&mut self) {
        self.lock().end();
    }
}

impl<H: Hca> std::fmt::Debug for Endpoint<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("ud", &self.ud)
            .finish_non_exhaustive()
    }
}

impl<H: Hca> Locked<'_, H> {
    /// Starts connecting to `pe` unless that is under way, waiting for its address if need be.
    fn begin_connect(&mut self, pe: u32) -> Result<(), ConnError> {
        let (me, n_pes) = (self.config.pe, self.config.n_pes);
        if pe >= n_pes || pe == me {
            return Err(ConnError::NoSuchPeer { pe, me, n_pes });
        }
        let Some(directory) = self.directory.clone() else {
            return Err(ConnError::NoDirectory { pe });
        };
        let (began, deadline) = (Instant::now(), self.config.connect_deadline);
        let address = loop {
            match self.unlocked(|_| directory.lookup(pe)) {
                Lookup::Ready(address) => break address,
                Lookup::Unknown(why) => {
                    return Err(ConnError::AddressUnknown {
                        peer: self.describe(pe),
                        why,
                    });
                }
                Lookup::Pending => {}
            }
            let waited = began.elapsed();
            if waited >= deadline {
                return Err(ConnError::AddressLate {
                    peer: self.describe(pe),
                    waited,
                });
            }
            self.poll();
            self.unlocked(|_| directory.wait(pe, DIRECTORY_WAIT.min(deadline - waited)));
            if self.closing {
                return Err(ConnError::Closed);
            }
        };
        self.peers.entry(pe).or_default().address = Some(address);
        let now = self.now();
        self.manager.connect(now, pe, address);
        self.act();
        Ok(())
    }

    /// Returns when operations may be posted to `pe`.
    fn ensure_open(&mut self, pe: u32) -> Result<(), ConnError> {
        loop {
            if self.usable(pe)?.is_some() {
                return Ok(());
            }
            let before = self.peers.get(&pe).map_or(0, |p| p.failures);
            self.begin_connect(pe)?;
            let outcome = self.wait_until(|d| match d.usable(pe) {
                Err(e) => Some(Err(e)),
                Ok(Some(_)) => Some(Ok(true)),
                Ok(None) => {
                    let failed = d.peers.get(&pe).filter(|p| p.failures > before);
                    if let Some(error) = failed.and_then(|p| p.failure.clone()) {
                        return Some(Err(error));
                    }
                    // It was open, and the peer has replaced it already: ask again.
                    (!d.manager.is_wanted(pe)).then_some(Ok(false))
                }
            })?;
            if outcome {
                return Ok(());
            }
        }
    }
}
