//! What is made on a device: each object owns its pointer, destroys what it points to, and holds
//! those objects that have to outlive it.
//!
//! `close` is the verb that destroys, with its answer; dropping an object that is open closes it,
//! too, and nobody hears of a failure. An object that the device refuses to let go stays open.

use std::ffi::c_void;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rdma_sys::{
    ibv_ah, ibv_ah_attr, ibv_comp_channel, ibv_cq, ibv_mr, ibv_qp_init_attr_ex,
    ibv_qp_init_attr_mask, ibv_srq, ibv_srq_init_attr, ibv_srq_init_attr_ex,
    ibv_srq_init_attr_mask, ibv_srq_type, ibv_xrcd, ibv_xrcd_init_attr, ibv_xrcd_init_attr_mask,
};

use super::context::{Context, Pd, extended, set_nonblocking};
use super::error::last_errno;
use super::stash::Stash;
use shmem_verbs::{Srq, SrqInit, SrqNum};

/// Makes an object of a pointer: `open` until its destructor has succeeded.
macro_rules! owner {
    ($(#[$doc:meta])* $name:ident($raw:ty) { $($field:ident: $ty:ty),* $(,)? }
     closes with |$this:ident, $ptr:ident| $close:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name {
            raw: Option<std::ptr::NonNull<$raw>>,
            $(pub(super) $field: $ty,)*
        }

        // SAFETY: libibverbs allows its calls from all threads, and the pointer changes only under
        // an exclusive borrow.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            /// The pointer; null after it was closed, which ends its use.
            #[inline]
            pub(super) fn raw(&self) -> *mut $raw {
                self.raw.map_or(std::ptr::null_mut(), std::ptr::NonNull::as_ptr)
            }

            /// Destroys it.
            ///
            /// # Errors
            /// The number with which the device has refused; it goes on then.
            pub(super) fn close(&mut self) -> Result<(), i32> {
                let ($this, Some(raw)) = (&*self, self.raw) else {
                    return Ok(());
                };
                let $ptr = raw.as_ptr();
                // SAFETY: made by the verb that belongs to this one, not closed yet, and what
                // uses it holds a reference, so that nothing does under an exclusive borrow.
                match unsafe { $close } {
                    0 => {
                        self.raw = None;
                        Ok(())
                    }
                    // Some verbs give -1 and set the number aside.
                    errno => Err(if errno > 0 { errno } else { $crate::ibv::error::last_errno() }),
                }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                let _ = self.close();
            }
        }
    };
}
pub(super) use owner;

fn made<T>(raw: *mut T) -> Result<Option<NonNull<T>>, i32> {
    match NonNull::new(raw) {
        Some(raw) => Ok(Some(raw)),
        None => Err(last_errno()),
    }
}

owner! {
    /// A completion channel.
    Channel(ibv_comp_channel) { context: Arc<Context> }
    closes with |this, raw| (this.context.library.destroy_comp_channel)(raw)
}

impl Channel {
    /// A channel whose events are taken without waiting for them.
    pub(super) fn create(context: &Arc<Context>) -> Result<Self, i32> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.create_comp_channel)(context.raw.as_ptr()) };
        let this = Self {
            raw: made(raw)?,
            context: Arc::clone(context),
        };
        set_nonblocking(this.fd().as_raw_fd())?;
        Ok(this)
    }

    /// Readable when there is an event.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.raw()).fd) }
    }

    /// Takes an event and tells the device so: the number of the queue that it is for.
    pub(super) fn take_event(&self) -> Option<u32> {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        let library = self.context.library;
        // SAFETY: the channel is open and both results are written on success. A queue with an
        // event that was taken and not acknowledged cannot be destroyed, so its pointer is valid.
        unsafe {
            if (library.get_cq_event)(self.raw(), &mut cq, &mut context) != 0 {
                return None;
            }
            (library.ack_cq_events)(cq, 1);
        }
        Some(context as usize as u32)
    }
}

owner! {
    /// A completion queue.
    CqObject(ibv_cq) {
        channel: Arc<Channel>,
        // Asked for an announcement that has not come.
        armed: AtomicBool,
        // A UD queue pair reports to it.
        datagrams: AtomicBool,
        // Of such a queue: held from taking completions to the end of their bookkeeping, which has
        // to have the order of the queue.
        in_order: Mutex<()>,
        // The XRC receive queue that reports to it: see `ReportsOf`.
        xrc: ReportsOf,
        stash: Stash,
    }
    closes with |this, raw| (this.channel.context.library.destroy_cq)(raw)
}

/// The XRC receive queue that reports to a completion queue, if it is the only one: completions do not
/// say from which they come.
///
/// Relaxed throughout: it changes before a receive can be posted to a new queue, and after the old one
/// is destroyed.
#[derive(Debug)]
pub(super) struct ReportsOf(AtomicU32);

impl ReportsOf {
    const NONE: u32 = u32::MAX;
    const MANY: u32 = u32::MAX - 1;

    /// The one.
    pub(super) fn only(&self) -> Option<SrqNum> {
        let number = self.0.load(Ordering::Relaxed);
        (number < Self::MANY).then_some(SrqNum(number))
    }

    /// Another one reports from now on.
    pub(super) fn begin(&self, srqn: SrqNum) {
        let relaxed = Ordering::Relaxed;
        let first = (self.0).compare_exchange(Self::NONE, srqn.0, relaxed, relaxed);
        if first.is_err() {
            self.0.store(Self::MANY, relaxed);
        }
    }

    /// One is gone. Where there were many, nobody knows how many are left.
    pub(super) fn end(&self, srqn: SrqNum) {
        let relaxed = Ordering::Relaxed;
        let _ = (self.0).compare_exchange(srqn.0, Self::NONE, relaxed, relaxed);
    }
}

impl Default for ReportsOf {
    fn default() -> Self {
        Self(AtomicU32::new(Self::NONE))
    }
}

impl CqObject {
    /// A queue of at least `depth` completions; events on the channel name it by `number`.
    pub(super) fn create(depth: u32, number: u32, channel: &Arc<Channel>) -> Result<Self, i32> {
        let context = &channel.context;
        let name = ptr::without_provenance_mut::<c_void>(number as usize);
        // SAFETY: context and channel are open; the library only keeps the name.
        let raw = unsafe {
            let create = context.library.create_cq;
            create(context.raw.as_ptr(), depth as i32, name, channel.raw(), 0)
        };
        Ok(Self {
            raw: made(raw)?,
            channel: Arc::clone(channel),
            armed: AtomicBool::new(false),
            datagrams: AtomicBool::new(false),
            in_order: Mutex::new(()),
            xrc: ReportsOf::default(),
            stash: Stash::default(),
        })
    }
}

owner! {
    /// A memory region.
    MrObject(ibv_mr) { pd: Arc<Pd> }
    closes with |this, raw| (this.pd.context.library.dereg_mr)(raw)
}

impl MrObject {
    /// Registers memory.
    ///
    /// # Safety
    /// As [`shmem_verbs::Hca::reg_mr`].
    pub(super) unsafe fn register(
        pd: &Arc<Pd>,
        addr: *mut u8,
        len: usize,
        flags: u32,
    ) -> Result<Self, i32> {
        // SAFETY: the domain is open; the memory is valid by the caller's promise.
        let raw = unsafe {
            let register = pd.context.library.reg_mr;
            register(pd.raw.as_ptr(), addr.cast(), len, flags as i32)
        };
        Ok(Self {
            raw: made(raw)?,
            pd: Arc::clone(pd),
        })
    }

    /// Local and remote key.
    pub(super) fn keys(&self) -> (u32, u32) {
        // SAFETY: registered as long as `self`.
        unsafe { ((*self.raw()).lkey, (*self.raw()).rkey) }
    }
}

owner! {
    /// The way of datagrams to a port.
    Ah(ibv_ah) { pd: Arc<Pd> }
    closes with |this, raw| (this.pd.context.library.destroy_ah)(raw)
}

impl Ah {
    pub(super) fn create(pd: &Arc<Pd>, mut path: ibv_ah_attr) -> Result<Self, i32> {
        // SAFETY: the domain is open; the attributes are only read.
        let raw = unsafe { (pd.context.library.create_ah)(pd.raw.as_ptr(), &mut path) };
        Ok(Self {
            raw: made(raw)?,
            pd: Arc::clone(pd),
        })
    }
}

/// The verb that closes an XRC domain.
type CloseXrcd = unsafe extern "C" fn(*mut ibv_xrcd) -> i32;

owner! {
    /// An XRC domain.
    XrcdObject(ibv_xrcd) { close_verb: CloseXrcd, _context: Arc<Context> }
    closes with |this, raw| (this.close_verb)(raw)
}

impl XrcdObject {
    /// Opens the domain of a file, or a private one.
    pub(super) fn open(context: &Arc<Context>, file: Option<BorrowedFd<'_>>) -> Result<Self, i32> {
        let verbs = (
            extended!(context, open_xrcd),
            extended!(context, close_xrcd),
        );
        let (Some(open), Some(close_verb)) = verbs else {
            return Err(libc::EOPNOTSUPP);
        };
        use ibv_xrcd_init_attr_mask as m;
        let mut attr = ibv_xrcd_init_attr {
            comp_mask: m::IBV_XRCD_INIT_ATTR_FD | m::IBV_XRCD_INIT_ATTR_OFLAGS,
            // Minus one is a domain of this process alone.
            fd: file.map_or(-1, |fd| fd.as_raw_fd()),
            oflags: libc::O_CREAT,
        };
        // SAFETY: the context is open; the attributes are only read.
        let raw = unsafe { open(context.raw.as_ptr(), &mut attr) };
        Ok(Self {
            raw: made(raw)?,
            close_verb,
            _context: Arc::clone(context),
        })
    }
}

owner! {
    /// A shared receive queue.
    SrqObject(ibv_srq) {
        pd: Arc<Pd>,
        init: SrqInit,
        srqn: SrqNum,
        held: (Option<Arc<XrcdObject>>, Option<Arc<CqObject>>),
    }
    closes with |this, raw| (this.pd.context.library.destroy_srq)(raw)
}

impl SrqObject {
    /// A queue for queue pairs (with neither domain nor completion queue) or for XRC (with both).
    pub(super) fn create(
        pd: &Arc<Pd>,
        init: &SrqInit,
        number: Srq,
        xrc: Option<(Arc<XrcdObject>, Arc<CqObject>)>,
    ) -> Result<Self, i32> {
        let name = ptr::without_provenance_mut::<c_void>(number.0 as usize);
        // SAFETY: pointers and numbers, for which zero is valid.
        let mut attr: ibv_srq_init_attr_ex = unsafe { mem::zeroed() };
        attr.srq_context = name;
        attr.attr.max_wr = init.max_wr;
        attr.attr.max_sge = init.max_sge.max(1);
        let context = &pd.context;
        let raw = match &xrc {
            None => {
                let mut plain = ibv_srq_init_attr {
                    srq_context: name,
                    attr: attr.attr,
                };
                // SAFETY: the domain is open; the attributes are valid.
                unsafe { (context.library.create_srq)(pd.raw.as_ptr(), &mut plain) }
            }
            Some((xrcd, cq)) => {
                let Some(create) = extended!(context, create_srq_ex) else {
                    return Err(libc::EOPNOTSUPP);
                };
                use ibv_srq_init_attr_mask as m;
                attr.comp_mask = m::IBV_SRQ_INIT_ATTR_TYPE
                    | m::IBV_SRQ_INIT_ATTR_PD
                    | m::IBV_SRQ_INIT_ATTR_XRCD
                    | m::IBV_SRQ_INIT_ATTR_CQ;
                attr.srq_type = ibv_srq_type::IBV_SRQT_XRC;
                (attr.pd, attr.xrcd, attr.cq) = (pd.raw.as_ptr(), xrcd.raw(), cq.raw());
                // SAFETY: all objects are open, and the new one will hold them.
                unsafe { create(context.raw.as_ptr(), &mut attr) }
            }
        };
        let (xrcd, cq) = xrc.unzip();
        let mut this = Self {
            raw: made(raw)?,
            pd: Arc::clone(pd),
            init: *init,
            // Only XRC packets name a queue; where the device has no such numbers, its own do.
            srqn: SrqNum(number.0),
            held: (xrcd, cq),
        };
        if let Some(ask) = extended!(context, get_srq_num) {
            let mut srqn = 0;
            // SAFETY: the queue was made just now.
            if unsafe { ask(this.raw(), &mut srqn) } == 0 {
                this.srqn = SrqNum(srqn);
            }
        }
        Ok(this)
    }
}

/// What a new queue pair is made of, in the form of the extended verb, which serves all types.
pub(super) fn qp_attr(ty: u32) -> ibv_qp_init_attr_ex {
    // SAFETY: pointers and numbers, for which zero is valid.
    let mut attr: ibv_qp_init_attr_ex = unsafe { mem::zeroed() };
    attr.qp_type = ty;
    attr
}

pub(super) const PD: u32 = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD;
pub(super) const XRCD: u32 = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_XRCD;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_name_the_only_queue_that_reports() {
        let (reports, [one, two]) = (ReportsOf::default(), [SrqNum(5), SrqNum(6)]);
        assert_eq!(reports.only(), None);
        reports.begin(one);
        assert_eq!(reports.only(), Some(one));
        reports.end(one);
        reports.begin(two);
        assert_eq!(reports.only(), Some(two), "one after the other");
        reports.begin(one);
        assert_eq!(reports.only(), None);
        reports.end(two);
        assert_eq!(reports.only(), None, "it may be either");
    }
}
