//! `trait Hca` over a shared simulated network.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::net::{NetConfig, NetStats, SimNet};
use crate::soft::RawMemory;
use crate::verbs::{
    Access, Completion, Counters, Cq, Hca, Mr, PortInfo, QpAttr, QpInit, QpState, Qpn, RecvWr,
    SendWr, VerbsError, Wake,
};

/// A simulated network and its HCAs, which access the real memory of this process.
#[derive(Debug)]
pub struct SimFabric {
    net: Arc<Mutex<SimNet<RawMemory>>>,
    hcas: Vec<Arc<SimHca>>,
}

/// One HCA of a [`SimFabric`].
///
/// Posting and polling do not let time pass; [`SimFabric::step`] and [`Hca::wait`] do.
#[derive(Debug)]
pub struct SimHca {
    net: Arc<Mutex<SimNet<RawMemory>>>,
    index: usize,
    woken: AtomicBool,
}

fn lock(net: &Mutex<SimNet<RawMemory>>) -> MutexGuard<'_, SimNet<RawMemory>> {
    net.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimFabric {
    /// `n` HCAs in one network.
    #[must_use]
    pub fn new(config: NetConfig, n: usize) -> Self {
        // SAFETY: the engines access registered ranges only, and `SimHca::reg_mr` makes its
        // caller promise that these stay valid.
        let memories = (0..n).map(|_| unsafe { RawMemory::new() });
        let net = Arc::new(Mutex::new(SimNet::new(config, memories)));
        let hca = |index| {
            Arc::new(SimHca {
                net: Arc::clone(&net),
                index,
                woken: AtomicBool::new(false),
            })
        };
        let hcas = (0..n).map(hca).collect();
        Self { net, hcas }
    }

    /// The HCAs.
    #[must_use]
    pub fn hcas(&self) -> &[Arc<SimHca>] {
        &self.hcas
    }

    /// Lets the next event happen; returns whether there was one.
    pub fn step(&self) -> bool {
        lock(&self.net).step()
    }

    /// Virtual time in nanoseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        lock(&self.net).now()
    }

    /// Counts of the network.
    #[must_use]
    pub fn stats(&self) -> NetStats {
        lock(&self.net).stats()
    }
}

impl Hca for SimHca {
    fn port(&self) -> PortInfo {
        *lock(&self.net).engine(self.index).port()
    }

    unsafe fn reg_mr(&self, addr: *mut u8, len: usize, access: Access) -> Result<Mr, VerbsError> {
        let addr = addr.expose_provenance() as u64;
        lock(&self.net)
            .engine(self.index)
            .reg_mr(addr, len as u64, access)
    }

    fn dereg_mr(&self, mr: &Mr) -> Result<(), VerbsError> {
        lock(&self.net).engine(self.index).dereg_mr(mr)
    }

    fn create_cq(&self, depth: u32) -> Result<Cq, VerbsError> {
        lock(&self.net).engine(self.index).create_cq(depth)
    }

    fn create_qp(&self, init: &QpInit) -> Result<Qpn, VerbsError> {
        lock(&self.net).engine(self.index).create_qp(init)
    }

    fn modify_qp(&self, qp: Qpn, attr: &QpAttr) -> Result<(), VerbsError> {
        lock(&self.net).engine(self.index).modify_qp(qp, attr)
    }

    fn query_qp(&self, qp: Qpn) -> Result<QpState, VerbsError> {
        lock(&self.net).engine(self.index).query_qp(qp)
    }

    fn inbound_mark(&self, qp: Qpn) -> Option<u32> {
        lock(&self.net).engine(self.index).inbound_mark(qp)
    }

    fn destroy_qp(&self, qp: Qpn) -> Result<(), VerbsError> {
        lock(&self.net).engine(self.index).destroy_qp(qp)
    }

    unsafe fn post_send(&self, qp: Qpn, wr: &SendWr<'_>) -> Result<(), VerbsError> {
        let mut net = lock(&self.net);
        net.engine(self.index).post_send(qp, wr)?;
        net.flush();
        Ok(())
    }

    unsafe fn post_recv(&self, qp: Qpn, wr: &RecvWr) -> Result<(), VerbsError> {
        lock(&self.net).engine(self.index).post_recv(qp, wr)
    }

    fn poll_cq(&self, cq: Cq, out: &mut [Completion]) -> usize {
        lock(&self.net).engine(self.index).poll_cq(cq, out)
    }

    /// Lets virtual time pass, up to `max` or until this HCA has a completion.
    fn wait(&self, max: Duration) -> Wake {
        let mut net = lock(&self.net);
        let end = net
            .now()
            .saturating_add(u64::try_from(max.as_nanos()).unwrap_or(u64::MAX));
        loop {
            if self.woken.swap(false, Ordering::Relaxed) {
                return Wake::Woken;
            }
            if net.engine(self.index).unpolled() > 0 {
                return Wake::Work;
            }
            net.flush();
            if net.next_event().is_none_or(|at| at > end) {
                net.run_until(end);
                return Wake::Timeout;
            }
            net.step();
        }
    }

    fn wake(&self) {
        self.woken.store(true, Ordering::Relaxed);
    }

    fn counters(&self) -> Counters {
        lock(&self.net).engine(self.index).counters()
    }
}
