//! [`VerbsHca`] as an [`Hca`]: each verb goes to where it is done.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::hca::VerbsHca;
use super::sleep::Sleeper;
use shmem_verbs::provider::sleep;
use shmem_verbs::{
    Access, Completion, Counters, Cq, Fabric, Failure, Hca, Mr, PortInfo, QpAttr, QpInit, Qpn,
    RecvWr, SendWr, Srq, SrqInit, SrqNum, VerbsError, Wake, Xrcd,
};

impl Hca for VerbsHca {
    fn port(&self) -> PortInfo {
        self.port.info
    }

    fn fabric(&self) -> Fabric {
        match self.port.origin.ethernet {
            true => Fabric::Roce,
            false => Fabric::InfiniBand,
        }
    }

    unsafe fn reg_mr(&self, addr: *mut u8, len: usize, access: Access) -> Result<Mr, VerbsError> {
        // SAFETY: the caller's promise.
        unsafe { self.register(addr, len, access) }
    }

    fn dereg_mr(&self, mr: &Mr) -> Result<(), VerbsError> {
        self.deregister(mr)
    }

    fn shares_memory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.port.pd, &other.port.pd)
    }

    fn create_cq(&self, depth: u32) -> Result<Cq, VerbsError> {
        self.make_cq(depth)
    }

    fn destroy_cq(&self, cq: Cq) -> Result<(), VerbsError> {
        self.drop_cq(cq)
    }

    fn create_srq(&self, init: &SrqInit) -> Result<Srq, VerbsError> {
        self.make_srq(init)
    }

    fn srq_num(&self, srq: Srq) -> Result<SrqNum, VerbsError> {
        let found = self.srqs.get(srq.0).ok_or(VerbsError::NoSuchSrq(srq))?;
        Ok(found.srqn)
    }

    fn destroy_srq(&self, srq: Srq) -> Result<(), VerbsError> {
        self.drop_srq(srq)
    }

    unsafe fn post_srq_recv(&self, srq: Srq, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        // SAFETY: the caller's promise.
        unsafe { self.receive_shared(srq, wr) }
    }

    fn open_xrcd(&self, domain: Option<BorrowedFd<'_>>) -> Result<Xrcd, VerbsError> {
        self.make_xrcd(domain)
    }

    fn close_xrcd(&self, xrcd: Xrcd) -> Result<(), VerbsError> {
        self.drop_xrcd(xrcd)
    }

    fn create_qp(&self, init: &QpInit) -> Result<Qpn, VerbsError> {
        self.make_qp(init)
    }

    fn modify_qp(&self, qp: Qpn, attr: &QpAttr) -> Result<(), VerbsError> {
        let found = self.qps.get(qp.0).ok_or(VerbsError::NoSuchQp(qp))?;
        let port = &self.port;
        found.modify(attr, &port.info, &port.origin, port.told.quirks)
    }

    fn destroy_qp(&self, qp: Qpn) -> Result<(), VerbsError> {
        self.drop_qp(qp)
    }

    #[inline]
    unsafe fn post_send(&self, qp: Qpn, wr: &SendWr<'_>) -> Result<(), VerbsError> {
        // SAFETY: the caller's promise.
        unsafe { self.send(qp, wr) }
    }

    unsafe fn post_send_list(
        &self,
        qp: Qpn,
        wrs: &[SendWr<'_>],
    ) -> Result<(), (usize, VerbsError)> {
        // SAFETY: the caller's promise.
        unsafe { self.send_list(qp, wrs) }
    }

    unsafe fn post_recv(&self, qp: Qpn, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        // SAFETY: the caller's promise.
        unsafe { self.receive(qp, wr) }
    }

    #[inline]
    fn poll_cq(&self, cq: Cq, out: &mut [Completion]) -> usize {
        self.sleepers.polls.bump();
        self.poll(cq, out)
    }

    fn wait(&self, max: Duration) -> Wake {
        sleep::wait(&Sleeper(self), None, max)
    }

    fn set_alarm(&self, after: Option<Duration>) {
        sleep::set_alarm(&Sleeper(self), after);
    }

    fn wake(&self) {
        sleep::wake(&Sleeper(self));
    }

    fn wakes(&self) -> u64 {
        sleep::wakes(&Sleeper(self))
    }

    fn wait_since(&self, wakes: u64, max: Duration) -> Wake {
        sleep::wait(&Sleeper(self), Some(wakes), max)
    }

    /// A device keeps its counts of packets for all processes together; these are of this one.
    fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        counters.ud_received = self.found.datagrams.load(Ordering::Relaxed);
        counters
    }

    #[inline]
    fn failure(&self) -> Option<&Failure> {
        self.port.events.failed()
    }

    fn inbound(&self) -> u64 {
        0 // The device tells nobody: see `PortInfo::notices_inbound`.
    }
}
