//! Asynchronous events of a device: those that end the HCA become its
//! [`failure`](shmem_verbs::Hca::failure), the others show in completions.
//!
//! Whoever sleeps watches the device's descriptor, a napping thread included: while the application
//! polls, nobody else would look.

use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

use rdma_sys::{ibv_async_event, ibv_event_type as t};

use super::context::Context;
use shmem_verbs::provider::{Event, LASTING_NS};
use shmem_verbs::{Cq, Failure, Srq};

/// The events of a device, as far as they concern the HCA at one of its ports.
#[derive(Debug)]
pub(super) struct Events {
    context: Arc<Context>,
    port: u8,
    /// Held while events are taken, so that they count in their order.
    taking: Mutex<()>,
    failed: OnceLock<Failure>,
    /// When the port went down, in nanoseconds after `started`; [`UP`] if it is not.
    ///
    /// Relaxed: a reader that sees the older value sees the newer one at its next look.
    down_since: AtomicU64,
    started: Instant,
    /// On which sleepers of HCAs at this port wait: whoever takes a fatal event has the others look.
    sleepers: Mutex<Vec<Weak<Event>>>,
}

const UP: u64 = u64::MAX;

impl Events {
    pub(super) fn new(context: Arc<Context>, port: u8) -> Self {
        Self {
            context,
            port,
            taking: Mutex::default(),
            failed: OnceLock::new(),
            down_since: AtomicU64::new(UP),
            started: Instant::now(),
            sleepers: Mutex::default(),
        }
    }

    /// One more HCA is at this port, whose sleepers `event` wakes.
    pub(super) fn concern(&self, event: &Arc<Event>) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.retain(|other| other.strong_count() > 0);
        sleepers.push(Arc::downgrade(event));
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// How many nanoseconds are left to the port to come up again, if it is down. Then somebody has to
    /// look.
    pub(super) fn left(&self) -> Option<u64> {
        let since = self.down_since.load(Ordering::Relaxed);
        let over = || (since + LASTING_NS).saturating_sub(self.now());
        (since != UP && self.failed.get().is_none()).then(over)
    }

    /// The descriptor that is readable as long as there are events.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the context, which lives as long as this.
        unsafe { BorrowedFd::borrow_raw(self.context.async_fd()) }
    }

    /// The HCA serves nobody any more.
    #[cold]
    pub(super) fn fail(&self, reason: String) {
        let device = format!("RDMA device {}", self.context.name);
        let failure = Failure {
            device,
            peer: None,
            reason,
        };
        if self.failed.set(failure).is_err() {
            return;
        }
        let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        for event in sleepers.iter().filter_map(Weak::upgrade) {
            event.signal();
        }
    }

    /// See [`shmem_verbs::Hca::failure`].
    #[inline]
    pub(super) fn failed(&self) -> Option<&Failure> {
        if self.down_since.load(Ordering::Relaxed) != UP {
            self.look_at_port();
        }
        self.failed.get()
    }

    #[cold]
    fn look_at_port(&self) {
        let is_due = || self.left() == Some(0);
        // It may have come up again while nobody took events.
        if is_due() && (!self.take() || is_due()) {
            self.fail(format!(
                "port {} is down (IBV_EVENT_PORT_ERR), and has not come back: look at the cable, the \
                 switch, and with RoCE at the network interface",
                self.port
            ));
        }
    }

    /// Takes all events from the device; returns whether there were any.
    pub(super) fn take(&self) -> bool {
        let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut any = false;
        while let Some(happened) = next_event(&self.context) {
            any = true;
            match happened {
                Happened::Fatal => self.fail(
                    "it has reported a fatal error (IBV_EVENT_DEVICE_FATAL): see the kernel's log \
                     (`dmesg`)"
                        .to_owned(),
                ),
                Happened::PortDown(port) if port == self.port => {
                    let now = self.now();
                    // Told twice, it is down since the first time.
                    let (down, relaxed) = (&self.down_since, Ordering::Relaxed);
                    let _ = down.compare_exchange(UP, now, relaxed, relaxed);
                }
                Happened::PortUp(port) if port == self.port => {
                    self.down_since.store(UP, Ordering::Relaxed);
                }
                Happened::PortDown(_) | Happened::PortUp(_) | Happened::Other => {}
                Happened::CqErr(cq) => self.fail(format!(
                    "completion queue {cq} was full, and has lost completions (IBV_EVENT_CQ_ERR)"
                )),
                Happened::SrqErr(srq) => self.fail(format!(
                    "shared receive queue {srq} is in error (IBV_EVENT_SRQ_ERR)"
                )),
            }
        }
        any
    }
}

/// What an event says.
enum Happened {
    CqErr(Cq),
    SrqErr(Srq),
    Fatal,
    PortDown(u8),
    PortUp(u8),
    /// Of a queue pair, of the fabric, or of a kind that is not known here: what it means for queue pairs
    /// shows in their completions.
    Other,
}

/// The oldest event of a device.
fn next_event(context: &Context) -> Option<Happened> {
    let library = context.library;
    // SAFETY: a number, and a union of pointers and a number, for which zero is valid. Of some events only a
    // part is written.
    let mut raw: ibv_async_event = unsafe { mem::zeroed() };
    // SAFETY: the context is open.
    let rc = unsafe { (library.get_async_event)(context.raw.as_ptr(), &mut raw) };
    if rc != 0 {
        return None;
    }
    // SAFETY: until the event is acknowledged its object cannot be destroyed, so the pointer in it is
    // valid.
    let event = unsafe { event(&raw) };
    // SAFETY: taken and not acknowledged yet.
    unsafe { (library.ack_async_event)(&mut raw) };
    Some(event)
}

/// # Safety
/// The object that the event is about exists.
unsafe fn event(raw: &ibv_async_event) -> Happened {
    let element = &raw.element;
    // SAFETY: the kind says what the pointer is; each object exists by the caller's promise, and
    // bears the number that it was created with.
    let cq = || Cq(unsafe { (*element.cq).cq_context } as usize as u32);
    // SAFETY: as above.
    let srq = || Srq(unsafe { (*element.srq).srq_context } as usize as u32);
    // SAFETY: as above.
    let port = || unsafe { element.port_num } as u8;
    match raw.event_type {
        t::IBV_EVENT_DEVICE_FATAL => Happened::Fatal,
        t::IBV_EVENT_PORT_ERR => Happened::PortDown(port()),
        t::IBV_EVENT_PORT_ACTIVE => Happened::PortUp(port()),
        t::IBV_EVENT_CQ_ERR => Happened::CqErr(cq()),
        t::IBV_EVENT_SRQ_ERR => Happened::SrqErr(srq()),
        _ => Happened::Other,
    }
}
