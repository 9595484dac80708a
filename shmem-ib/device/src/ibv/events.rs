//! Asynchronous events of a device: taken from it as soon as anybody looks, kept for
//! [`poll_async`](shmem_verbs::Hca::poll_async), and those that end the HCA understood at once.
//!
//! Whoever sleeps watches the device's descriptor, a napping thread included: while the application
//! polls, nobody else would look. The descriptor that [`async_fd`](shmem_verbs::Hca::async_fd) lends
//! is therefore another one, which is also readable for events that a sleeper has taken.

use std::mem::{MaybeUninit, align_of, offset_of, size_of};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use rdma_sys::{ibv_async_event, ibv_cq, ibv_event_type as t, ibv_qp, ibv_srq};

use super::context::Context;
use super::error::io_error;
use super::hca::VerbsHca;
use shmem_verbs::provider::{Epoll, Event, EventQueue, LASTING_NS};
use shmem_verbs::{AsyncEvent, Cq, Failure, Qpn, Srq, VerbsError};

/// An event as it is in memory. The bindings have an enum for its kind, which must not hold a kind
/// that only a newer library knows.
#[repr(C)]
struct RawEvent {
    element: *mut std::ffi::c_void,
    kind: i32,
}

const _: () = assert!(
    size_of::<RawEvent>() == size_of::<ibv_async_event>()
        && align_of::<RawEvent>() == align_of::<ibv_async_event>()
        && offset_of!(RawEvent, kind) == offset_of!(ibv_async_event, event_type)
        && size_of::<t>() == 4
);

/// What an HCA knows of events.
#[derive(Debug)]
pub(super) struct Events {
    kept: Mutex<EventQueue>,
    failed: OnceLock<Failure>,
    /// The failure has ended a sleep: that is enough, as who has slept tells the others. Relaxed: no
    /// other memory belongs to it.
    told: AtomicBool,
    /// When the port went down, in nanoseconds after `started`; [`UP`] if it is not.
    ///
    /// Relaxed: a reader that sees the older value sees the newer one at its next look.
    down_since: AtomicU64,
    started: Instant,
    /// Up while events are kept that the device does not tell of any more.
    sign: Event,
    lent: OnceLock<Epoll>,
}

const UP: u64 = u64::MAX;

impl Events {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            kept: Mutex::default(),
            failed: OnceLock::new(),
            told: AtomicBool::new(false),
            down_since: AtomicU64::new(UP),
            started: Instant::now(),
            sign: Event::new()?,
            lent: OnceLock::new(),
        })
    }

    fn kept(&self) -> MutexGuard<'_, EventQueue> {
        // Every change is complete by itself.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object is gone, and so are its events.
    pub(super) fn forget(&self, of_this: impl Fn(&AsyncEvent) -> bool) {
        self.kept().forget(of_this);
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// How many nanoseconds are left to the port to come up again, if it is down.
    fn left(&self) -> Option<u64> {
        let since = self.down_since.load(Ordering::Relaxed);
        let over = || (since + LASTING_NS).saturating_sub(self.now());
        (since != UP && self.failed.get().is_none()).then(over)
    }
}

impl VerbsHca {
    /// This HCA serves nobody any more.
    #[cold]
    pub(super) fn fail(&self, reason: String) {
        let device = format!("RDMA device {}", self.pd.context.name);
        let _ = self.events.failed.set(Failure {
            device,
            peer: None,
            reason,
        });
    }

    /// See [`shmem_verbs::Hca::failure`].
    #[inline]
    pub(super) fn failed(&self) -> Option<&Failure> {
        if self.events.down_since.load(Ordering::Relaxed) != UP {
            self.look_at_port();
        }
        self.events.failed.get()
    }

    /// Whether a failure has to end this sleep.
    pub(super) fn failure_is_news(&self) -> bool {
        self.failed().is_some() && !self.events.told.swap(true, Ordering::Relaxed)
    }

    #[cold]
    fn look_at_port(&self) {
        let is_due = || self.events.left() == Some(0);
        // It may have come up again while nobody took events.
        if is_due() && (!self.take_events() || is_due()) {
            self.fail(format!(
                "port {} is down (IBV_EVENT_PORT_ERR), and has not come back: look at the cable, the \
                 switch, and with RoCE at the network interface",
                self.origin.port
            ));
        }
    }

    /// When somebody has to look whether the port is up again, in nanoseconds from now.
    pub(super) fn port_is_due_in(&self) -> Option<u64> {
        self.events.left()
    }

    /// Takes all events from the device; returns whether there were any.
    pub(super) fn take_events(&self) -> bool {
        let mut kept = self.events.kept();
        let (mut any, mut news) = (false, false);
        while let Some(happened) = next_event(&self.pd.context) {
            any = true;
            match happened {
                Happened::Fatal => self.fail(
                    "it has reported a fatal error (IBV_EVENT_DEVICE_FATAL): see the kernel's log \
                     (`dmesg`)"
                        .to_owned(),
                ),
                Happened::PortDown(port) if port == self.origin.port => {
                    let now = self.events.now();
                    // Told twice, it is down since the first time.
                    let (down, relaxed) = (&self.events.down_since, Ordering::Relaxed);
                    let _ = down.compare_exchange(UP, now, relaxed, relaxed);
                }
                Happened::PortUp(port) if port == self.origin.port => {
                    self.events.down_since.store(UP, Ordering::Relaxed);
                }
                Happened::PortDown(_) | Happened::PortUp(_) | Happened::Other => {}
                Happened::ToObject(event) => {
                    match event {
                        AsyncEvent::CqErr(cq) => self.fail(format!(
                            "completion queue {cq} was full, and has lost completions \
                             (IBV_EVENT_CQ_ERR)"
                        )),
                        AsyncEvent::SrqErr(srq) => self.fail(format!(
                            "shared receive queue {srq} is in error (IBV_EVENT_SRQ_ERR)"
                        )),
                        _ => {}
                    }
                    kept.push(event);
                    news = true;
                }
            }
        }
        if news {
            self.events.sign.signal();
        }
        any
    }

    /// See [`shmem_verbs::Hca::poll_async`].
    pub(super) fn next_async(&self) -> Option<AsyncEvent> {
        self.take_events();
        let mut kept = self.events.kept();
        let event = kept.pop();
        if kept.is_empty() {
            self.events.sign.take();
        }
        event
    }

    /// See [`shmem_verbs::Hca::async_fd`].
    pub(super) fn lend_async_fd(&self) -> Result<BorrowedFd<'_>, VerbsError> {
        if self.events.lent.get().is_none() {
            let make = || {
                let epoll = Epoll::new()?;
                epoll.add(self.event_fd())?;
                epoll.add(self.events.sign.as_fd())?;
                Ok(epoll)
            };
            let made = make().map_err(|e: std::io::Error| {
                let errno = e.raw_os_error().unwrap_or(libc::EIO);
                io_error("cannot make the descriptor of events", errno)
            })?;
            // Should another thread be faster, its descriptor is the one.
            let _ = self.events.lent.set(made);
        }
        match self.events.lent.get() {
            Some(epoll) => Ok(epoll.as_fd()),
            None => Err(VerbsError::Unsupported {
                what: "a descriptor for asynchronous events",
            }),
        }
    }
}

/// What an event says.
enum Happened {
    ToObject(AsyncEvent),
    Fatal,
    PortDown(u8),
    PortUp(u8),
    /// Of the fabric, or of a kind that is not known here: what it means for queue pairs shows there.
    Other,
}

/// The oldest event of a device.
fn next_event(context: &Context) -> Option<Happened> {
    let library = context.library;
    // Of some events only a part is written.
    let mut raw = MaybeUninit::<RawEvent>::zeroed();
    // SAFETY: the context is open.
    let rc = unsafe { (library.get_async_event)(context.raw.as_ptr(), raw.as_mut_ptr().cast()) };
    if rc != 0 {
        return None;
    }
    // SAFETY: zeroes are an event, too. Until the event is acknowledged its object cannot be
    // destroyed, so the pointer in it is valid.
    let event = unsafe { event(raw.assume_init_ref()) };
    // SAFETY: taken and not acknowledged yet.
    unsafe { (library.ack_async_event)(raw.as_mut_ptr().cast()) };
    Some(event)
}

/// # Safety
/// The object that the event is about exists.
unsafe fn event(raw: &RawEvent) -> Happened {
    // SAFETY: the kind says what the pointer is; each object exists by the caller's promise, and
    // bears the number that it was created with.
    let qp = || Qpn(unsafe { (*raw.element.cast::<ibv_qp>()).qp_num });
    // SAFETY: as above.
    let cq = || Cq(unsafe { (*raw.element.cast::<ibv_cq>()).cq_context } as usize as u32);
    // SAFETY: as above.
    let srq = || Srq(unsafe { (*raw.element.cast::<ibv_srq>()).srq_context } as usize as u32);
    const fn is(kind: t) -> i32 {
        kind as i32
    }
    const CQ_ERR: i32 = is(t::IBV_EVENT_CQ_ERR);
    const QP_FATAL: i32 = is(t::IBV_EVENT_QP_FATAL);
    const QP_REQ_ERR: i32 = is(t::IBV_EVENT_QP_REQ_ERR);
    const QP_ACCESS_ERR: i32 = is(t::IBV_EVENT_QP_ACCESS_ERR);
    const COMM_EST: i32 = is(t::IBV_EVENT_COMM_EST);
    const SQ_DRAINED: i32 = is(t::IBV_EVENT_SQ_DRAINED);
    const SRQ_ERR: i32 = is(t::IBV_EVENT_SRQ_ERR);
    const SRQ_LIMIT_REACHED: i32 = is(t::IBV_EVENT_SRQ_LIMIT_REACHED);
    const QP_LAST_WQE_REACHED: i32 = is(t::IBV_EVENT_QP_LAST_WQE_REACHED);
    const DEVICE_FATAL: i32 = is(t::IBV_EVENT_DEVICE_FATAL);
    const PORT_ERR: i32 = is(t::IBV_EVENT_PORT_ERR);
    const PORT_ACTIVE: i32 = is(t::IBV_EVENT_PORT_ACTIVE);
    // Of an event of a port the union has its number in place of a pointer.
    // SAFETY: as above.
    let port = || unsafe { ptr::from_ref(&raw.element).cast::<i32>().read() } as u8;
    Happened::ToObject(match raw.kind {
        DEVICE_FATAL => return Happened::Fatal,
        PORT_ERR => return Happened::PortDown(port()),
        PORT_ACTIVE => return Happened::PortUp(port()),
        CQ_ERR => AsyncEvent::CqErr(cq()),
        QP_FATAL => AsyncEvent::QpFatal(qp()),
        QP_REQ_ERR => AsyncEvent::QpReqErr(qp()),
        QP_ACCESS_ERR => AsyncEvent::QpAccessErr(qp()),
        COMM_EST => AsyncEvent::CommEst(qp()),
        SQ_DRAINED => AsyncEvent::SqDrained(qp()),
        QP_LAST_WQE_REACHED => AsyncEvent::QpLastWqeReached(qp()),
        SRQ_ERR => AsyncEvent::SrqErr(srq()),
        SRQ_LIMIT_REACHED => AsyncEvent::SrqLimitReached(srq()),
        _ => return Happened::Other,
    })
}
