//! The driver of connections over an [`Hca`]: one-sided operations that connect at first
//! contact.
//!
//! # Map
//! * `connecting/`: from the first wish for a peer to an open queue pair, and to its end.
//! * `operations/`: puts and gets, posting, completion, contexts.
//! * `atomics/`: which of the three ways an atomic takes, and these ways.
//! * `branch.rs`: more endpoints of a PE, for contexts that do not share connections.
//! * `driver.rs`: connections and operations; `lock.rs`: the lock, what it protects, and how threads wait; `progress.rs`: what
//!   every poll does; `ending.rs`: how an endpoint ends.
//!
//! An [`Endpoint`] is what a PE has of the network: a UD queue pair for connection messages
//! from the start, and an RC queue pair per peer that it has been in contact with, or an XRC one
//! per node ([`Transport`]). All its methods may be called from any thread.
//!
//! # Life
//! 1. [`Endpoint::new`] makes the UD queue pair; [`Endpoint::published`] goes to the job's
//!    bootstrap. No message is sent.
//! 2. [`Endpoint::register`] registers the symmetric segment. Peers that ask before are told to
//!    wait, and answered then.
//! 3. [`Endpoint::set_directory`] says where peers are. Addresses may still be on their way.
//! 4. Operations connect when a peer is used for the first time ([`Context::put`] and the
//!    others), or all at once before ([`Endpoint::connect_all`]).
//! 5. [`Endpoint::close`] after a barrier over the job: peers tell each other that nothing is
//!    under way between them any more, and only then take their queue pairs away.
//! 6. [`Endpoint::reopen`], if the process joins its job again, makes everything anew in the same
//!    place.
//!
//! # Progress
//! Every waiting call makes progress for all connections. While the program computes, a
//! progress thread that calls [`Endpoint::progress_wait`] in a loop answers peers; it sleeps
//! when there is nothing to do.
//!
//! # Atomics
//! The HCA executes atomics of peers, or, where its atomics are not coherent with the processor's, the
//! PE that owns the memory does while it makes progress ([`Atomics`]).
//!
//! # Failure
//! A failed HCA ends the endpoint: all waits end, all calls give the reason, and who asked is told
//! ([`Endpoint::on_failure`]).
//!
//! # Contexts
//! Operations belong to a [`Context`], of which each completes by itself. Contexts of an endpoint share its
//! connections and its lock; those of a [branch](Endpoint::branch) have their own.
//!
//! # Locking
//! One mutex protects everything; it is held for a few hundred nanoseconds
//! to post an operation, and never while waiting. Lock order: the endpoint's, then the
//! HCA's own. The [`Directory`] is asked for addresses without the lock.

mod asleep;
mod atomics;
mod awaited;
mod branch;
mod buffers;
mod completions;
mod config;
mod connecting;
mod driver;
mod ending;
mod error;
mod life;
mod lock;
mod notices;
mod operations;
mod peer;
mod progress;
mod queue_pairs;
mod segments;
mod wr_id;

use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use atomics::by_owner::message::Refusal;
#[doc(hidden)]
pub use atomics::by_owner::message::recode_message;
pub use awaited::{Awaited, LinkChange, Watch};
pub use config::{Atomics, Directory, EndpointConfig, Lookup, Transport};
pub use error::ConnError;
pub use lock::Endpoint;
pub use operations::accounts::ContextId;
pub use operations::context::Context;
pub use operations::point::Point;
pub use operations::put_get::Source;

use self::driver::Driver;
use self::operations::accounts::Gauge;
use super::stats::ConnectStats;
use super::{Published, UdAddress};
use crate::spin::SpinLimit;
use shmem_verbs::{Counters, Hca};

/// What an endpoint has done.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Peers that we may use.
    pub open: u32,
    /// Others whose connection to us only they have used so far.
    pub answered: u32,
    /// Connected queue pairs that exist.
    pub queue_pairs: u32,
    /// Of those, XRC initiators: one for each node that we use.
    pub xrc_initiators: u32,
    /// Of those, XRC targets: one for each PE that reaches our node through us.
    pub xrc_targets: u32,
    /// Connected queue pairs made since the beginning.
    pub queue_pairs_created: u64,
    /// Connection messages dropped because too many were on their way out.
    pub messages_dropped: u64,
    /// Operations under way.
    pub in_flight: u32,
    /// Work requests of operations posted since the beginning.
    pub requests: u64,
    /// Of those, the ones that do not tell of their completion.
    pub silent: u64,
    /// Atomics that this PE, as owner of the memory, has executed for peers.
    pub atomics_served: u64,
    /// Of connection management, with the latencies of first contacts.
    pub connect: ConnectStats,
    /// Of the HCA.
    pub hca: Counters,
}

impl<H: Hca> Endpoint<H> {
    /// Makes an endpoint on `hca`, which serves one at a time: two would answer each other's wake-ups.
    /// More endpoints of the same PE are [branches](Self::branch) of this one.
    ///
    /// # Errors
    /// A setting is out of range, or the device refuses a queue.
    pub fn new(hca: Arc<H>, config: EndpointConfig) -> Result<Arc<Self>, ConnError> {
        if let Some(failure) = hca.failure() {
            return Err(ConnError::device(failure, None));
        }
        let port = hca.port();
        config.check(&port)?;
        let by_owner = config.atomics.by_owner(&port);
        let spin_limit = SpinLimit::new(config.spin_rounds);
        let composed = Gauge::default();
        let driver = Driver::open(&hca, config, composed.clone())?;
        let coherent = port.atomics_coherent;
        let endpoint = Self::with(hca, driver, composed, by_owner, coherent, spin_limit);
        Ok(Arc::new(endpoint))
    }

    /// Opens an endpoint again that was closed, with its settings and another seed, for the `life`th
    /// life after the first ([`EndpointConfig::life`]). It has another address, and neither memory nor
    /// directory; what was done with it before has no effect any more. One that is open is
    /// [aborted](Self::abort) before.
    ///
    /// No call may be under way: one that waits in the endpoint meanwhile panics when its wait is over.
    ///
    /// # Errors
    /// The device refuses a queue; the endpoint is closed then.
    pub fn reopen(&self, life: u32, seed: u64) -> Result<(), ConnError> {
        self.abort();
        let mut locked = self.lock();
        let config = EndpointConfig {
            life,
            seed,
            ..locked.config.clone()
        };
        let next = Driver::open(&self.hca, config, self.composed.clone())?;
        locked.replace(next);
        // Relaxed: nobody else uses the endpoint now.
        self.parting.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Where peers send connection messages to.
    #[must_use]
    pub fn ud_address(&self) -> UdAddress {
        self.lock().address
    }

    /// The same with its fabric and its way of atomics: what the job's bootstrap tells the peers.
    #[must_use]
    pub fn published(&self) -> Published {
        Published {
            ud: self.ud_address(),
            fabric: self.hca.fabric(),
            pkey: self.hca.port().lane.pkey,
            by_owner: self.by_owner,
            checks: false,
            statics: 0,
            heap_start: 0,
        }
    }

    /// Says where peers are. Until then only peers that contact us can be reached.
    pub fn set_directory(&self, directory: Arc<dyn Directory>) {
        self.lock().directory = Some(directory);
    }

    /// Says what job this is, if [`EndpointConfig::identity_later`] left that open; else, and when it is
    /// said again, without effect. Until then connection messages of peers are kept unread, and no peer
    /// may be contacted: the directory answers [`Lookup::Pending`].
    pub fn set_identity(&self, job_id: [u8; 16], job_key: &'static [u8; 32]) {
        let mut locked = self.lock();
        locked.set_identity(job_id, job_key);
        let branches = locked.branches().clone();
        drop(locked);
        for branch in branches {
            branch.set_identity(job_id, job_key);
        }
    }

    /// Has `tell` called whenever a thread, in whichever call, has found that operations of peers may
    /// have changed the memory: for those who sleep until it changes. It is called under the
    /// endpoint's lock, and must not call the endpoint.
    pub fn on_inbound(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.lock().inbound.tell = Some(Box::new(tell));
    }

    /// Has `tell` called whenever a thread, in whichever call, has found that operations of this endpoint have
    /// written local memory: gets, and atomics that bring the old value. It is called without the endpoint's lock. Only
    /// the first `tell` counts: an endpoint that is opened again keeps it.
    pub fn on_fetch(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_fetch.set(Box::new(tell));
    }

    /// Has `tell` called, under the endpoint's lock, when a connection opens or closes: with the peer, what became of
    /// it, and the number of queue pairs that exist then.
    pub fn on_link(&self, tell: impl Fn(u32, LinkChange, u32) + Send + Sync + 'static) {
        self.lock().on_link = Some(Box::new(tell));
    }

    /// Has `watch` told of waits that take longer than a few polls. Only the first counts: an endpoint that
    /// is opened again keeps it.
    pub fn on_wait(&self, watch: impl Watch + 'static) {
        let _ = self.on_wait.set(Box::new(watch));
    }

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        let locked = self.lock();
        let linked = locked.linked_pes().len() as u32;
        let open = locked.manager.open_peers() as u32;
        let (xrc_initiators, xrc_targets) = locked.manager.xrc_queue_pairs();
        EndpointStats {
            open,
            xrc_initiators,
            xrc_targets,
            answered: linked.saturating_sub(open),
            queue_pairs: locked.qps.alive,
            queue_pairs_created: locked.qps.created,
            messages_dropped: locked.ud.as_ref().map_or(0, |ud| ud.dropped),
            in_flight: locked.sends.in_flight,
            requests: locked.sends.requests,
            silent: locked.sends.silent,
            atomics_served: locked.owner.as_ref().map_or(0, |owner| owner.served),
            connect: *locked.manager.stats(),
            hca: self.hca.counters(),
        }
    }

    /// The peers with which a connection exists, whoever asked for it, in ascending order.
    #[must_use]
    pub fn connected_peers(&self) -> Vec<u32> {
        self.lock().linked_pes()
    }
}

impl<H: Hca> Drop for Endpoint<H> {
    fn drop(&mut self) {
        self.abort();
    }
}

impl<H: Hca> std::fmt::Debug for Endpoint<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("by_owner", &self.by_owner)
            .finish_non_exhaustive()
    }
}
