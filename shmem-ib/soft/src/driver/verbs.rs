//! [`SoftHca`] as an [`Hca`]: each verb goes to the engine, and what it lets out to the wire.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::domains;
use super::hca::{BYTES_PER_PUMP, Sleeper, SoftHca};
use crate::engine::Doorbell;
use shmem_verbs::provider::sleep;
use shmem_verbs::{
    Access, Completion, Counters, Cq, Fabric, Failure, Hca, Mr, PortInfo, QpAttr, QpInit, Qpn,
    RecvWr, SendWr, Srq, SrqInit, SrqNum, VerbsError, Wake, Xrcd,
};

impl Hca for SoftHca {
    fn port(&self) -> PortInfo {
        let port = *self.lock().engine.port();
        PortInfo {
            notices_inbound: port.notices_inbound && !self.silent,
            ..port
        }
    }

    fn fabric(&self) -> Fabric {
        self.fabric
    }

    fn set_key(&self, key: [u8; 16]) {
        self.lock().engine.set_key(key);
    }

    unsafe fn reg_mr(&self, addr: *mut u8, len: usize, access: Access) -> Result<Mr, VerbsError> {
        self.lock()
            .engine
            .reg_mr(addr.expose_provenance() as u64, len as u64, access)
    }

    fn dereg_mr(&self, mr: &Mr) -> Result<(), VerbsError> {
        self.lock().engine.dereg_mr(mr)
    }

    fn create_cq(&self, depth: u32) -> Result<Cq, VerbsError> {
        self.lock().engine.create_cq(depth)
    }

    fn destroy_cq(&self, cq: Cq) -> Result<(), VerbsError> {
        self.lock().engine.destroy_cq(cq)
    }

    fn create_srq(&self, init: &SrqInit) -> Result<Srq, VerbsError> {
        self.lock().engine.create_srq(init)
    }

    fn srq_num(&self, srq: Srq) -> Result<SrqNum, VerbsError> {
        self.lock().engine.srq_num(srq)
    }

    fn destroy_srq(&self, srq: Srq) -> Result<(), VerbsError> {
        self.lock().engine.destroy_srq(srq)
    }

    unsafe fn post_srq_recv(&self, srq: Srq, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        self.lock().engine.post_srq_recv(srq, wr)
    }

    fn open_xrcd(&self, domain: Option<BorrowedFd<'_>>) -> Result<Xrcd, VerbsError> {
        domains::open(&mut self.lock().engine, domain, self.window)
    }

    fn close_xrcd(&self, xrcd: Xrcd) -> Result<(), VerbsError> {
        self.lock().engine.close_xrcd(xrcd)
    }

    fn create_qp(&self, init: &QpInit) -> Result<Qpn, VerbsError> {
        self.lock().engine.create_qp(init)
    }

    fn modify_qp(&self, qp: Qpn, attr: &QpAttr) -> Result<(), VerbsError> {
        let mut inner = self.lock();
        let modified = inner.engine.modify_qp(qp, attr);
        self.tend_streams(&mut inner);
        modified
    }

    fn inbound_mark(&self, qp: Qpn) -> Option<u32> {
        if self.silent {
            return None;
        }
        self.lock().engine.inbound_mark(qp)
    }

    fn destroy_qp(&self, qp: Qpn) -> Result<(), VerbsError> {
        let mut inner = self.lock();
        // No request will take along what its peer waits for.
        inner.engine.polled();
        let now = self.now();
        self.transmit(&mut inner, now, &mut { BYTES_PER_PUMP });
        let gone = inner.engine.destroy_qp(qp);
        self.tend_streams(&mut inner);
        gone
    }

    unsafe fn post_send(&self, qp: Qpn, wr: &SendWr<'_>) -> Result<(), VerbsError> {
        let mut inner = self.lock();
        if inner.engine.post_send(qp, wr)? == Doorbell::Now {
            let now = self.now();
            self.transmit(&mut inner, now, &mut { BYTES_PER_PUMP });
            sleep::announce(&Sleeper(self), &mut inner, now);
        }
        Ok(())
    }

    unsafe fn post_recv(&self, qp: Qpn, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        self.lock().engine.post_recv(qp, wr)
    }

    fn poll_cq(&self, cq: Cq, out: &mut [Completion]) -> usize {
        self.polls.bump();
        let mut inner = self.lock();
        if inner.engine.cq_is_empty(cq) {
            self.pump(&mut inner);
            if inner.rest.anybody() {
                let now = self.now();
                sleep::announce(&Sleeper(self), &mut inner, now);
            }
        }
        inner.engine.poll_cq(cq, out)
    }

    fn wait(&self, max: Duration) -> Wake {
        self.timer(); // so that posters find it from the first sleep on
        sleep::wait(&Sleeper(self), None, max)
    }

    fn wakes(&self) -> u64 {
        sleep::wakes(&Sleeper(self))
    }

    fn wait_since(&self, wakes: u64, max: Duration) -> Wake {
        self.timer();
        sleep::wait(&Sleeper(self), Some(wakes), max)
    }

    fn set_alarm(&self, after: Option<Duration>) {
        sleep::set_alarm(&Sleeper(self), after);
    }

    fn wake(&self) {
        sleep::wake(&Sleeper(self));
    }

    fn counters(&self) -> Counters {
        let mut counters = self.lock().engine.counters();
        if self.silent {
            (counters.rdma_inbound, counters.packets_received) = (0, 0);
        }
        counters
    }

    fn inbound(&self) -> u64 {
        self.inbound.load(Ordering::Relaxed)
    }

    #[inline]
    fn failure(&self) -> Option<&Failure> {
        self.failed.get()
    }
}
