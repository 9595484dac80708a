//! `trait Hca` over a shared simulated network.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;

use super::net::{NetConfig, NetStats, SimNet};
use super::pipes::PipeConfig;
use shmem_soft::RawMemory;
use shmem_soft::xrc::{Anonymous, FileId, Member, Private, SharedWindow, file_id};
use shmem_verbs::{
    Access, Completion, Counters, Cq, Failure, Hca, Mr, PortInfo, QpAttr, QpInit, Qpn, RecvWr,
    SendWr, Srq, SrqInit, SrqNum, VerbsError, Wake, Xrcd,
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
    wakes: AtomicU64,
    /// How many there were when a wait last returned for one.
    answered: AtomicU64,
    /// In virtual time, `u64::MAX` if there is none.
    alarm: AtomicU64,
    tables: Tables,
    failed: OnceLock<Failure>,
}

/// The tables of XRC domains, by file.
type Tables = Arc<Mutex<HashMap<FileId, Anonymous>>>;

fn lock(net: &Mutex<SimNet<RawMemory>>) -> MutexGuard<'_, SimNet<RawMemory>> {
    net.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimFabric {
    /// `n` HCAs in one network.
    #[must_use]
    pub fn new(config: NetConfig, n: usize) -> Self {
        Self::of(config, n, None)
    }

    /// `n` HCAs in one network, with streams.
    #[must_use]
    pub fn with_streams(config: NetConfig, n: usize, pipes: PipeConfig) -> Self {
        Self::of(config, n, Some(pipes))
    }

    fn of(config: NetConfig, n: usize, pipes: Option<PipeConfig>) -> Self {
        // SAFETY: the engines access registered ranges only, and `SimHca::reg_mr` makes its
        // caller promise that these stay valid.
        let memories = (0..n).map(|_| unsafe { RawMemory::new() });
        let mut net = SimNet::new(config, memories);
        if let Some(pipes) = pipes {
            net.set_streams(pipes);
        }
        let net = Arc::new(Mutex::new(net));
        let tables = Tables::default();
        let hca = |index| {
            Arc::new(SimHca {
                net: Arc::clone(&net),
                index,
                wakes: AtomicU64::new(0),
                answered: AtomicU64::new(0),
                alarm: AtomicU64::new(u64::MAX),
                tables: Arc::clone(&tables),
                failed: OnceLock::new(),
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

    fn destroy_cq(&self, cq: Cq) -> Result<(), VerbsError> {
        lock(&self.net).engine(self.index).destroy_cq(cq)
    }

    fn create_srq(&self, init: &SrqInit) -> Result<Srq, VerbsError> {
        lock(&self.net).engine(self.index).create_srq(init)
    }

    fn srq_num(&self, srq: Srq) -> Result<SrqNum, VerbsError> {
        lock(&self.net).engine(self.index).srq_num(srq)
    }

    fn destroy_srq(&self, srq: Srq) -> Result<(), VerbsError> {
        lock(&self.net).engine(self.index).destroy_srq(srq)
    }

    unsafe fn post_srq_recv(&self, srq: Srq, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        lock(&self.net).engine(self.index).post_srq_recv(srq, wr)
    }

    /// The file only names the domain: its table is shared memory of this fabric, and all HCAs reach
    /// all registered memory of the process through it.
    fn open_xrcd(&self, domain: Option<BorrowedFd<'_>>) -> Result<Xrcd, VerbsError> {
        let mut net = lock(&self.net);
        let engine = net.engine(self.index);
        let Some(file) = domain else {
            return engine.open_xrcd(Box::<Private>::default(), None);
        };
        let id = file_id(file).map_err(|source| VerbsError::Io {
            what: "cannot open the file of an XRC domain".into(),
            source,
        })?;
        if let Some(xrcd) = engine.reopen_xrcd(id) {
            return Ok(xrcd);
        }
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let table = tables.entry(id).or_default().clone();
        // SAFETY: all HCAs of a fabric are in this process.
        let window = unsafe { SharedWindow::everything() };
        match Member::join(table, window)? {
            Some(member) => engine.open_xrcd(Box::new(member), Some(id)),
            None => Err(VerbsError::NoSuchXrcd(Xrcd(0))),
        }
    }

    fn close_xrcd(&self, xrcd: Xrcd) -> Result<(), VerbsError> {
        lock(&self.net).engine(self.index).close_xrcd(xrcd)
    }

    fn create_qp(&self, init: &QpInit) -> Result<Qpn, VerbsError> {
        lock(&self.net).engine(self.index).create_qp(init)
    }

    fn modify_qp(&self, qp: Qpn, attr: &QpAttr) -> Result<(), VerbsError> {
        lock(&self.net).engine(self.index).modify_qp(qp, attr)
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

    unsafe fn post_recv(&self, qp: Qpn, wr: &RecvWr<'_>) -> Result<(), VerbsError> {
        lock(&self.net).engine(self.index).post_recv(qp, wr)
    }

    fn poll_cq(&self, cq: Cq, out: &mut [Completion]) -> usize {
        lock(&self.net).engine(self.index).poll_cq(cq, out)
    }

    /// Lets virtual time pass, up to `max` or the alarm, or until this HCA has a completion.
    fn wait(&self, max: Duration) -> Wake {
        self.wait_since(self.answered.load(Ordering::Relaxed), max)
    }

    fn wait_since(&self, seen: u64, max: Duration) -> Wake {
        let mut net = lock(&self.net);
        let end = net
            .now()
            .saturating_add(u64::try_from(max.as_nanos()).unwrap_or(u64::MAX));
        loop {
            let wakes = self.wakes();
            if wakes != seen {
                self.answered.store(wakes, Ordering::Relaxed);
                return Wake::Woken;
            }
            let alarm = self.alarm.load(Ordering::Relaxed);
            if net.engine(self.index).unpolled() > 0 || net.now() >= alarm {
                return Wake::Work;
            }
            net.flush();
            let until = alarm.min(end);
            if net.next_event().is_some_and(|at| at <= until) {
                net.step();
                continue;
            }
            net.run_until(until);
            if until == end {
                return Wake::Timeout;
            }
        }
    }

    fn set_alarm(&self, after: Option<Duration>) {
        let now = lock(&self.net).now();
        let at = after.map_or(u64::MAX, |time| {
            now.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        });
        self.alarm.store(at, Ordering::Relaxed);
    }

    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }

    fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }

    fn failure(&self) -> Option<&Failure> {
        let overrun = lock(&self.net).engine(self.index).overrun();
        if let Some(cq) = overrun {
            let _ = self.failed.set(Failure {
                device: format!("simulated HCA {}", self.index),
                peer: None,
                reason: format!("completion queue {cq} was full, and has lost completions"),
            });
        }
        self.failed.get()
    }

    fn counters(&self) -> Counters {
        lock(&self.net).engine(self.index).counters()
    }
}
