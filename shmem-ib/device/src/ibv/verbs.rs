//! [`VerbsHca`] as an [`Hca`]: each verb goes to where it is done.

use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rdma_sys::{ibv_req_notify_cq, ibv_srq_attr, ibv_srq_attr_mask};

use super::error::io_error;
use super::hca::VerbsHca;
use super::sleep::Sleeper;
use shmem_verbs::provider::checks::in_range;
use shmem_verbs::provider::sleep;
use shmem_verbs::{
    Access, AsyncEvent, CompChannel, Completion, Counters, Cq, Fabric, Failure, Hca, Mr, PortInfo,
    QpAttr, QpInit, QpState, Qpn, RecvWr, Rereg, SendWr, Srq, SrqInit, SrqNum, VerbsError, Wake,
    Xrcd,
};

impl Hca for VerbsHca {
    fn port(&self) -> PortInfo {
        self.port
    }

    fn fabric(&self) -> Fabric {
        match self.origin.ethernet {
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

    unsafe fn rereg_mr(&self, mr: &mut Mr, change: Rereg) -> Result<(), VerbsError> {
        // SAFETY: the caller's promise.
        unsafe { self.reregister(mr, change) }
    }

    fn create_cq(&self, depth: u32, channel: Option<CompChannel>) -> Result<Cq, VerbsError> {
        self.make_cq(depth, channel)
    }

    fn destroy_cq(&self, cq: Cq) -> Result<(), VerbsError> {
        self.drop_cq(cq)
    }

    fn create_comp_channel(&self) -> Result<CompChannel, VerbsError> {
        self.make_channel()
    }

    fn destroy_comp_channel(&self, channel: CompChannel) -> Result<(), VerbsError> {
        self.drop_channel(channel)
    }

    fn req_notify_cq(&self, cq: Cq, solicited_only: bool) -> Result<(), VerbsError> {
        let found = self.cqs.get(cq.0).ok_or(VerbsError::NoSuchCq(cq))?;
        if found.silent {
            return Err(VerbsError::InvalidAttr {
                what: "completion queue",
                value: cq.0.into(),
                allowed: "one that was created with a completion channel",
            });
        }
        // SAFETY: the queue is open while it is in use here.
        match unsafe { ibv_req_notify_cq(found.raw(), solicited_only.into()) } {
            0 => Ok(()),
            errno => Err(io_error(format!("cannot arm {cq:?}"), errno)),
        }
    }

    fn get_cq_event(&self, channel: CompChannel) -> Option<Cq> {
        self.channel(channel).ok()?.take_event().map(Cq)
    }

    fn comp_channel_fd(&self, channel: CompChannel) -> Result<BorrowedFd<'_>, VerbsError> {
        self.channel_fd(channel)
    }

    fn create_srq(&self, init: &SrqInit) -> Result<Srq, VerbsError> {
        self.make_srq(init)
    }

    fn arm_srq(&self, srq: Srq, limit: u32) -> Result<(), VerbsError> {
        let found = self.srqs.get(srq.0).ok_or(VerbsError::NoSuchSrq(srq))?;
        let allowed = "at most what the queue holds";
        in_range("limit", limit, 0, found.init.max_wr, allowed)?;
        // SAFETY: numbers only.
        let mut attr: ibv_srq_attr = unsafe { mem::zeroed() };
        attr.srq_limit = limit;
        let mask = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0 as i32;
        let modify = self.pd.context.library.modify_srq;
        // SAFETY: the queue is open while it is in use here.
        match unsafe { modify(found.raw(), &mut attr, mask) } {
            0 => Ok(()),
            errno => Err(io_error(format!("cannot arm {srq:?}"), errno)),
        }
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
        found.modify(attr, &self.port, &self.origin, self.told.quirks)
    }

    fn query_qp(&self, qp: Qpn) -> Result<QpState, VerbsError> {
        let found = self.qps.get(qp.0).ok_or(VerbsError::NoSuchQp(qp))?;
        found.query()
    }

    fn destroy_qp(&self, qp: Qpn) -> Result<(), VerbsError> {
        self.drop_qp(qp)
    }

    #[inline]
    unsafe fn post_send(&self, qp: Qpn, wr: &SendWr<'_>) -> Result<(), VerbsError> {
        // SAFETY: the caller's promise.
        unsafe { self.send(qp, wr) }
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

    fn poll_async(&self) -> Option<AsyncEvent> {
        self.next_async()
    }

    fn async_fd(&self) -> Result<BorrowedFd<'_>, VerbsError> {
        self.lend_async_fd()
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
        self.failed()
    }

    fn inbound(&self) -> u64 {
        0 // The device tells nobody: see `PortInfo::notices_inbound`.
    }
}
