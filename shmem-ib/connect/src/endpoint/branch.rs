//! Branches: more endpoints of a PE, for contexts that are not to share connections with others.
//!
//! A branch has all that makes an endpoint on an HCA of its own: a lock, a completion queue, a UD queue pair and
//! a connection to each peer that is used over it. So its operations stand in no line behind those of other
//! endpoints of the PE, and threads that use different endpoints do not meet.
//!
//! It begins connections, and is asked for none: its address is not published, it offers no memory, and nobody
//! starts operations towards it. Its connections lead to the endpoints that PEs have published, for which it is one
//! more peer, with a number of its own ([`number_of`](crate::admission::number_of)); they learn its address
//! from its first message. Everything that holds of connections between PEs holds of these: repetition, making
//! room, leaving.
//!
//! Where peers are, the job's identity and memory come from the endpoint that it belongs to, which
//! also closes it. Somebody has to make progress on it while nobody waits in it, as for any endpoint.

use std::sync::Arc;

use super::buffers::LocalSegment;
use super::config::EndpointConfig;
use super::driver::Driver;
use super::error::ConnError;
use super::lock::Endpoint;
use crate::message::Memory;
use shmem_verbs::{Access, Hca, Mr, SrqNum};

impl<H: Hca> Endpoint<H> {
    /// Makes branch `number` of this endpoint, from 1 on, on an HCA of its own. It may have so many queue
    /// pairs at a time ([`EndpointConfig::max_qps`]), and its randomness follows from `seed`. Nothing is sent.
    ///
    /// [`close`](Self::close) and [`abort`](Self::abort) of this endpoint end it, too.
    ///
    /// # Errors
    /// The number is above [`MAX_BRANCHES`](crate::admission::MAX_BRANCHES), connections are over XRC, this
    /// endpoint is closed, or the device refuses a queue or the memory of this endpoint.
    pub fn branch(
        &self,
        hca: Arc<H>,
        number: u32,
        max_qps: u32,
        seed: u64,
    ) -> Result<Arc<Self>, ConnError> {
        let config = EndpointConfig {
            branch: number,
            max_qps,
            seed,
            // If it is there already, it is told in a moment.
            identity_later: true,
            ..self.lock().config.clone()
        };
        let branch = Self::new(hca, config)?;
        self.adopt(&branch)?;
        Ok(branch)
    }

    /// Opens a branch again, in another life of this endpoint: as [`reopen`](Self::reopen) does.
    ///
    /// # Errors
    /// As [`branch`](Self::branch).
    pub fn renew_branch(&self, branch: &Arc<Self>, seed: u64) -> Result<(), ConnError> {
        let life = self.lock().config.life;
        branch.reopen(life, seed)?;
        self.adopt(branch)
    }

    /// Gives a branch what it has from this endpoint.
    fn adopt(&self, branch: &Arc<Self>) -> Result<(), ConnError> {
        let mut own = self.lock();
        if own.life.closing {
            let over = own.over();
            drop(own);
            branch.abort();
            return Err(over);
        }
        // From here on it hears of what is new.
        if !own
            .branches()
            .iter()
            .any(|other| Arc::ptr_eq(other, branch))
        {
            own.branches().push(Arc::clone(branch));
        }
        let directory = own.directory.clone();
        let known = own.sealed.is_none();
        let identity = known.then_some((own.config.job_id, own.config.job_key));
        drop(own);
        if let Some((job_id, job_key)) = identity {
            branch.set_identity(job_id, job_key);
        }
        let mut locked = branch.lock();
        locked.directory = directory;
        locked.offer_nothing();
        drop(locked);
        // SAFETY: it is registered here until this endpoint is closed, and the branch with it.
        let used = unsafe { branch.use_segments_of(self) };
        used.inspect_err(|_| {
            self.lock()
                .branches()
                .retain(|other| !Arc::ptr_eq(other, branch));
            branch.abort();
        })
    }

    /// Has operations of this branch use the memory that `owner` has registered, in place.
    ///
    /// # Safety
    /// The memory stays registered with `owner`, and mapped, until this endpoint is closed.
    pub(super) unsafe fn use_segments_of(&self, owner: &Self) -> Result<(), ConnError> {
        let theirs = owner.lock().segments.clone();
        let shared = self.hca.shares_memory(&owner.hca);
        let mut locked = self.lock();
        for LocalSegment { id, mr, .. } in theirs {
            if locked.life.closing || locked.segments.iter().any(|own| own.id == id) {
                continue;
            }
            let mr = match shared {
                true => mr,
                // SAFETY: by the caller's promise.
                false => unsafe { locked.register_for_own_use(&mr)? },
            };
            locked.segments.push(LocalSegment {
                id,
                mr,
                lent: shared,
            });
        }
        Ok(())
    }
}

impl<H: Hca> Driver<H> {
    /// Peers are not to access this PE over this endpoint. That is all the memory that it will have.
    fn offer_nothing(&mut self) {
        let now = self.now();
        let memory = Memory {
            srqn: SrqNum(0),
            segments: Default::default(),
        };
        self.manager.ready(now, memory);
        self.act();
    }

    /// # Safety
    /// The memory stays mapped until this endpoint is closed.
    unsafe fn register_for_own_use(&self, mr: &Mr) -> Result<Mr, ConnError> {
        let base = std::ptr::with_exposed_provenance_mut(mr.addr as usize);
        // SAFETY: by the caller's promise.
        unsafe {
            self.hca()
                .reg_mr(base, mr.len as usize, Access::LOCAL_WRITE)
        }
        .map_err(ConnError::verbs("register a segment for a branch"))
    }

    /// The PEs with which there is a connection, in ascending order, those of other PEs' branches included.
    pub(super) fn linked_pes(&self) -> Vec<u32> {
        let mut all = self.manager.linked_peers();
        for number in &mut all {
            *number = self.config.pe_of(*number);
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}
