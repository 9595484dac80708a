//! What is made and destroyed on an HCA: memory regions, completion queues, shared receive queues, XRC
//! domains, queue pairs. Each knows how many others use it, and stays while there are any.

#![forbid(unsafe_code)]

use super::machine::Engine;
use crate::memory::mr::Memory;
use crate::qp::{Qp, Service};
use crate::queues::shared::SrqQueue;
use crate::xrc::{Domain, FileId};
use shmem_verbs::provider::{MAX_SLOTS, checks};
use shmem_verbs::{
    Access, Cq, Mr, QpInit, QpType, Qpn, Srq, SrqInit, SrqKind, SrqNum, VerbsError, Xrcd,
};

impl<M: Memory> Engine<M> {
    /// Registers memory. Whether it exists is the business of `M`.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::reg_mr`].
    pub fn reg_mr(&mut self, addr: u64, len: u64, access: Access) -> Result<Mr, VerbsError> {
        let mr = self.mrs.register(addr, len, access)?;
        self.xrcds.publish(&mr, access).or_else(|error| {
            self.mrs.deregister(mr.handle)?;
            Err(error)
        })?;
        Ok(mr)
    }

    /// Ends a registration.
    ///
    /// # Errors
    /// It does not exist.
    pub fn dereg_mr(&mut self, mr: &Mr) -> Result<(), VerbsError> {
        self.mrs.deregister(mr.handle)?;
        self.xrcds.withdraw(mr.rkey);
        Ok(())
    }

    /// Creates a completion queue.
    ///
    /// # Errors
    /// `depth` is 0 or above [`MAX_CQE`](crate::MAX_CQE).
    pub fn create_cq(&mut self, depth: u32) -> Result<Cq, VerbsError> {
        checks::check_cq(depth, &self.port)?;
        self.cqs.create(depth)
    }

    /// Destroys a completion queue.
    ///
    /// # Errors
    /// It does not exist or is in use.
    pub fn destroy_cq(&mut self, cq: Cq) -> Result<(), VerbsError> {
        self.cqs.destroy(cq)
    }

    /// Creates a queue pair in RESET.
    ///
    /// # Errors
    /// A limit is out of range, a CQ does not exist, or there are too many queue pairs.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, VerbsError> {
        checks::check_init(init, &self.port)?;
        for cq in reports_to(init) {
            self.cqs.check(cq)?;
        }
        if let Some(srq) = init.srq {
            self.srqs.find_basic(srq)?;
        }
        if let Some(xrcd) = init.xrcd {
            self.xrcds.check(xrcd)?;
        }
        let (what, limit) = ("queue pairs", MAX_SLOTS);
        let exhausted = VerbsError::Exhausted { what, limit };
        let qpn = self
            .qps
            .insert_with(|number| Box::new(Qp::new(Qpn(number), *init)));
        let qpn = qpn.map(Qpn).ok_or(exhausted)?;
        for cq in reports_to(init) {
            self.cqs.attach(cq);
        }
        if let Some(xrcd) = init.xrcd {
            self.xrcds.add_target(xrcd)?;
        }
        if let Some(queue) = init.srq.and_then(|srq| self.srqs.get_mut(srq)) {
            queue.users += 1;
        }
        Ok(qpn)
    }

    /// Destroys a queue pair.
    ///
    /// # Errors
    /// It does not exist.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), VerbsError> {
        let mut qp = self.qps.remove(qpn.0).ok_or(VerbsError::NoSuchQp(qpn))?;
        if let Service::Rc(rc) = &mut qp.service {
            self.streams.forget(rc);
        }
        for cq in reports_to(&qp.init) {
            self.cqs.detach(cq, qpn);
        }
        if let Some(xrcd) = qp.init.xrcd {
            self.xrcds.remove_target(xrcd);
        }
        if let Some(queue) = qp.init.srq.and_then(|srq| self.srqs.get_mut(srq)) {
            queue.users -= 1;
        }
        Ok(())
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::create_srq`].
    pub fn create_srq(&mut self, init: &SrqInit) -> Result<Srq, VerbsError> {
        checks::check_srq(init, &self.port)?;
        if let SrqKind::Xrc { xrcd, cq } = init.kind {
            self.cqs.check(cq)?;
            self.xrcds.check(xrcd)?;
        }
        let srq = self.srqs.create(init)?;
        if let SrqKind::Xrc { xrcd, cq } = init.kind {
            let srqn = self.xrcds.add_srq(xrcd, srq).inspect_err(|_| {
                self.srqs.remove(srq);
            })?;
            self.srqs.find(srq)?.srqn = Some(srqn);
            self.cqs.attach(cq);
        }
        Ok(srq)
    }

    /// The number on the wire.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::srq_num`].
    pub fn srq_num(&mut self, srq: Srq) -> Result<SrqNum, VerbsError> {
        self.srqs
            .find(srq)
            .map(|queue| queue.srqn.unwrap_or(SrqNum(srq.0)))
    }

    /// Destroys a shared receive queue.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::destroy_srq`].
    pub fn destroy_srq(&mut self, srq: Srq) -> Result<(), VerbsError> {
        if self.srqs.find(srq)?.users > 0 {
            let what = "a shared receive queue";
            return Err(VerbsError::Busy { what });
        }
        let queue = self.srqs.remove(srq);
        if let Some(SrqQueue { init, srqn, .. }) = queue
            && let (SrqKind::Xrc { xrcd, cq }, Some(srqn)) = (init.kind, srqn)
        {
            self.xrcds.remove_srq(xrcd, srqn);
            self.cqs.release(cq);
        }
        Ok(())
    }

    /// Opens once more the domain of a file that is open already.
    pub fn reopen_xrcd(&mut self, file: FileId) -> Option<Xrcd> {
        self.xrcds.reopen(file)
    }

    /// Opens a domain: that of `file`, or a private one.
    ///
    /// # Errors
    /// Too many are open, or the domain cannot list what is registered.
    pub fn open_xrcd(
        &mut self,
        mut domain: Box<dyn Domain>,
        file: Option<FileId>,
    ) -> Result<Xrcd, VerbsError> {
        for (mr, access) in self.mrs.all() {
            domain.publish(&mr, access)?;
        }
        self.xrcds.open(domain, file)
    }

    /// Closes a domain as often as it was opened.
    ///
    /// # Errors
    /// See [`shmem_verbs::Hca::close_xrcd`].
    pub fn close_xrcd(&mut self, xrcd: Xrcd) -> Result<(), VerbsError> {
        self.xrcds.close(xrcd)
    }
}

/// The completion queues of a queue pair. An XRC target has none: its receives report to that of the
/// shared receive queue.
fn reports_to(init: &QpInit) -> impl Iterator<Item = Cq> + use<> {
    let both = [init.send_cq, init.recv_cq];
    let has_queues = init.ty != QpType::XrcTgt;
    both.into_iter().filter(move |_| has_queues)
}
