//! A port of an RDMA device as an [`Hca`](shmem_verbs::Hca).
//!
//! Here are its objects, how they are made and destroyed; posting, polling and sleeping have
//! modules of their own. Checks come first, those that the software HCA makes, so that
//! mistakes get the same answer on all implementations; then the device is asked.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::context::Pd;
use super::datagrams::AddressHandles;
use super::error::{io_error, registration_advice};
use super::events::Events;
use super::map::{Origin, access_flags};
use super::objects::{Channel, CqObject, MrObject, SrqObject, XrcdObject};
use super::qp::{Held, Qp};
use super::sleepers::Sleepers;
use super::table::Table;
use crate::abilities::Abilities;
use crate::memlock::Memlock;
use shmem_verbs::provider::checks;
use shmem_verbs::provider::{MAX_SLOTS, Slots};
use shmem_verbs::{
    Access, Cq, Mr, MrHandle, PortInfo, QpInit, QpType, Qpn, Srq, SrqInit, SrqKind, VerbsError,
    Xrcd,
};
use shmem_verbs::{Lkey, Rkey};

/// A port of an RDMA device.
///
/// Closing it destroys whatever is still there. Memory that was registered is not accessed
/// afterwards.
pub struct VerbsHca {
    pub(super) qps: Table<Qp>,
    pub(super) srqs: Table<Arc<SrqObject>>,
    pub(super) cqs: Table<Arc<CqObject>>,
    numbers: Mutex<Numbers>,
    mrs: Mutex<Slots<MrObject>>,
    xrcds: Mutex<Slots<Arc<XrcdObject>>>,
    pub(super) address_handles: AddressHandles,
    /// The channel of all completion queues, which sleepers watch.
    pub(super) bell: Arc<Channel>,
    pub(super) sleepers: Sleepers,
    pub(super) found: Found,
    pub(super) port: Port,
}

/// An open port: HCAs that are [beside](VerbsHca::beside) each other have the same.
#[derive(Clone, Debug)]
pub(super) struct Port {
    /// Events of the device.
    pub(super) events: Arc<Events>,
    pub(super) info: PortInfo,
    pub(super) origin: Origin,
    /// What the driver says that the device can do.
    pub(super) told: Abilities,
    pub(super) on_demand: bool,
    pub(super) pd: Arc<Pd>,
}

/// What polls have found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Empty polls in a row. Relaxed: it decides about a courtesy.
    pub(super) empty: AtomicU32,
    /// Datagrams received. Relaxed: a statistic.
    pub(super) datagrams: AtomicU64,
    /// A failure has ended a sleep: that is enough, as who has slept tells the others. Relaxed: no other
    /// memory belongs to it.
    pub(super) failure_told: AtomicBool,
}

/// Numbers of those objects that have none from the device.
#[derive(Debug, Default)]
struct Numbers {
    cqs: Slots<()>,
    srqs: Slots<()>,
}

impl std::fmt::Debug for VerbsHca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerbsHca")
            .field("device", &self.port.pd.context.name)
            .field("port", &self.port.info)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these protect is changed by single calls.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take_number<T>(slots: &mut Slots<T>, value: T, what: &'static str) -> Result<u32, VerbsError> {
    let limit = MAX_SLOTS;
    slots
        .insert(value)
        .ok_or(VerbsError::Exhausted { what, limit })
}

impl VerbsHca {
    /// An HCA without objects. `bell` and `sleepers` are made on the device of the port.
    pub(super) fn new(port: Port, bell: Arc<Channel>, sleepers: Sleepers) -> Self {
        port.events.concern(&sleepers.event);
        Self {
            qps: Table::default(),
            srqs: Table::default(),
            cqs: Table::default(),
            numbers: Mutex::default(),
            mrs: Mutex::default(),
            xrcds: Mutex::default(),
            address_handles: AddressHandles::new(port.told.max_ah),
            bell,
            sleepers,
            found: Found::default(),
            port,
        }
    }

    fn cq(&self, cq: Cq) -> Result<Arc<CqObject>, VerbsError> {
        let found = self.cqs.get(cq.0).ok_or(VerbsError::NoSuchCq(cq))?;
        Ok(Arc::clone(&found))
    }

    fn xrcd(&self, xrcd: Xrcd) -> Result<Arc<XrcdObject>, VerbsError> {
        let xrcds = lock(&self.xrcds);
        let found = xrcds.get(xrcd.0).ok_or(VerbsError::NoSuchXrcd(xrcd))?;
        Ok(Arc::clone(found))
    }

    fn needs_xrc(&self, what: &'static str) -> Result<(), VerbsError> {
        match self.port.info.xrc {
            true => Ok(()),
            false => Err(VerbsError::Unsupported { what }),
        }
    }

    /// # Safety
    /// As [`shmem_verbs::Hca::reg_mr`].
    pub(super) unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Mr, VerbsError> {
        checks::check_registration(addr.addr() as u64, len as u64, access)?;
        // Buffers of our own are small and in use: they may as well be pinned.
        let shared = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let on_demand = match self.port.on_demand && access.intersects(shared) {
            true => rdma_sys::ibv_access_flags::IBV_ACCESS_ON_DEMAND,
            false => 0,
        };
        let flags = access_flags(access) | on_demand;
        // SAFETY: the caller's promise.
        let object = unsafe { MrObject::register(&self.port.pd, addr, len, flags) };
        let object = object.map_err(|errno| {
            let advice = registration_advice(errno, Memlock::current);
            VerbsError::Io {
                what: format!("cannot register {len} bytes at {addr:p} ({access:?}){advice}"),
                source: std::io::Error::from_raw_os_error(errno),
            }
        })?;
        let (lkey, rkey) = object.keys();
        let handle = take_number(&mut lock(&self.mrs), object, "memory regions")?;
        Ok(Mr {
            handle: MrHandle(handle),
            addr: addr.expose_provenance() as u64,
            len: len as u64,
            lkey: Lkey(lkey),
            rkey: Rkey(rkey),
        })
    }

    pub(super) fn deregister(&self, mr: &Mr) -> Result<(), VerbsError> {
        let mut mrs = lock(&self.mrs);
        let gone = VerbsError::NoSuchMr(mr.handle.0);
        let found = mrs.get_mut(mr.handle.0).ok_or(gone)?;
        found.close().map_err(|errno| {
            let what = format!("cannot deregister the {} bytes at {:#x}", mr.len, mr.addr);
            io_error(what, errno)
        })?;
        mrs.remove(mr.handle.0);
        Ok(())
    }

    pub(super) fn make_cq(&self, depth: u32) -> Result<Cq, VerbsError> {
        checks::check_cq(depth, &self.port.info)?;
        let number = take_number(&mut lock(&self.numbers).cqs, (), "completion queues")?;
        match CqObject::create(depth, number, &self.bell) {
            Ok(cq) => self.cqs.put(number, Arc::new(cq)),
            Err(errno) => {
                lock(&self.numbers).cqs.remove(number);
                let what = format!("cannot create a completion queue of {depth}");
                return Err(io_error(what, errno));
            }
        }
        self.sleepers.watch(number, &self.cqs);
        Ok(Cq(number))
    }

    pub(super) fn drop_cq(&self, cq: Cq) -> Result<(), VerbsError> {
        let mut found = self.cqs.alone(cq.0).ok_or(VerbsError::NoSuchCq(cq))?;
        let what = "the completion queue";
        let object = Arc::get_mut(&mut found).ok_or(VerbsError::Busy { what })?;
        object
            .close()
            .map_err(|errno| io_error("cannot destroy a completion queue", errno))?;
        found.take();
        // Only then may the number be given again.
        self.sleepers.remove(cq.0);
        lock(&self.numbers).cqs.remove(cq.0);
        Ok(())
    }

    pub(super) fn make_srq(&self, init: &SrqInit) -> Result<Srq, VerbsError> {
        checks::check_srq(init, &self.port.info)?;
        let xrc = match init.kind {
            SrqKind::Basic => None,
            SrqKind::Xrc { xrcd, cq } => {
                self.needs_xrc("XRC receive queues")?;
                Some((self.xrcd(xrcd)?, self.cq(cq)?))
            }
        };
        let cq = xrc.as_ref().map(|(_, cq)| Arc::clone(cq));
        let number = take_number(&mut lock(&self.numbers).srqs, (), "shared receive queues")?;
        let object = SrqObject::create(&self.port.pd, init, Srq(number), xrc).map_err(|errno| {
            lock(&self.numbers).srqs.remove(number);
            let what = format!("cannot create a shared receive queue of {}", init.max_wr);
            io_error(what, errno)
        })?;
        if let Some(cq) = cq {
            cq.xrc.begin(object.srqn);
        }
        self.srqs.put(number, Arc::new(object));
        Ok(Srq(number))
    }

    pub(super) fn drop_srq(&self, srq: Srq) -> Result<(), VerbsError> {
        let mut found = self.srqs.alone(srq.0).ok_or(VerbsError::NoSuchSrq(srq))?;
        let what = "the shared receive queue";
        let object = Arc::get_mut(&mut found).ok_or(VerbsError::Busy { what })?;
        object
            .close()
            .map_err(|errno| io_error("cannot destroy a shared receive queue", errno))?;
        if let (_, Some(cq)) = &object.held {
            cq.xrc.end(object.srqn);
        }
        found.take();
        lock(&self.numbers).srqs.remove(srq.0);
        Ok(())
    }

    pub(super) fn make_xrcd(&self, domain: Option<BorrowedFd<'_>>) -> Result<Xrcd, VerbsError> {
        self.needs_xrc("XRC domains")?;
        let object = XrcdObject::open(&self.port.pd.context, domain)
            .map_err(|errno| io_error("cannot open an XRC domain", errno))?;
        let number = take_number(&mut lock(&self.xrcds), Arc::new(object), "XRC domains")?;
        Ok(Xrcd(number))
    }

    pub(super) fn drop_xrcd(&self, xrcd: Xrcd) -> Result<(), VerbsError> {
        let mut xrcds = lock(&self.xrcds);
        let found = xrcds.get_mut(xrcd.0).ok_or(VerbsError::NoSuchXrcd(xrcd))?;
        let what = "the XRC domain";
        let object = Arc::get_mut(found).ok_or(VerbsError::Busy { what })?;
        object
            .close()
            .map_err(|errno| io_error("cannot close an XRC domain", errno))?;
        xrcds.remove(xrcd.0);
        Ok(())
    }

    pub(super) fn make_qp(&self, init: &QpInit) -> Result<Qpn, VerbsError> {
        checks::check_init(init, &self.port.info)?;
        let mut held = Held::default();
        if init.ty != QpType::XrcTgt {
            held.send_cq = Some(self.cq(init.send_cq)?);
        }
        match init.ty {
            QpType::Rc | QpType::Ud => {
                held.recv_cq = Some(self.cq(init.recv_cq)?);
                if let Some(srq) = init.srq {
                    let found = self.srqs.get(srq.0).ok_or(VerbsError::NoSuchSrq(srq))?;
                    held.srq = Some(Arc::clone(&found));
                }
            }
            QpType::XrcIni => self.needs_xrc("XRC queue pairs")?,
            QpType::XrcTgt => {
                self.needs_xrc("XRC queue pairs")?;
                held.xrcd = init.xrcd.map(|x| self.xrcd(x)).transpose()?;
            }
        }
        if init.ty == QpType::Ud {
            for cq in [&held.send_cq, &held.recv_cq].into_iter().flatten() {
                cq.datagrams.store(true, Ordering::Relaxed);
            }
        }
        let qp = Qp::create(&self.port.pd, init, held).map_err(|errno| {
            let what = format!(
                "cannot create a queue pair ({:?}, {} send and {} receive requests, {} bytes inline)",
                init.ty, init.max_send_wr, init.max_recv_wr, init.max_inline
            );
            io_error(what, errno)
        })?;
        let qpn = qp.qpn;
        self.qps.put(qpn.0, qp);
        Ok(qpn)
    }

    pub(super) fn drop_qp(&self, qpn: Qpn) -> Result<(), VerbsError> {
        let mut qp = self.qps.alone(qpn.0).ok_or(VerbsError::NoSuchQp(qpn))?;
        qp.close()
            .map_err(|errno| io_error(format!("cannot destroy QP {qpn}"), errno))?;
        qp.take();
        Ok(())
    }
}
