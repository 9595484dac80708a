//! Asynchronous events of a device.

use std::mem::{MaybeUninit, align_of, offset_of, size_of};

use rdma_sys::{ibv_async_event, ibv_cq, ibv_event_type as t, ibv_qp, ibv_srq};

use super::context::Context;
use crate::verbs::{AsyncEvent, Cq, Qpn, Srq};

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

/// The oldest event that is about an object of ours. Those of the port (down, up, new LID) are
/// passed over: what they mean for queue pairs shows there.
pub(super) fn next_event(context: &Context) -> Option<AsyncEvent> {
    let library = context.library;
    loop {
        let mut raw = MaybeUninit::<RawEvent>::uninit();
        // SAFETY: the context is open; the structure is written on success.
        let rc =
            unsafe { (library.get_async_event)(context.raw.as_ptr(), raw.as_mut_ptr().cast()) };
        if rc != 0 {
            return None;
        }
        // SAFETY: the call has succeeded. Until the event is acknowledged its object cannot be
        // destroyed, so the pointer in it is valid.
        let event = unsafe { event(raw.assume_init_ref()) };
        // SAFETY: taken and not acknowledged yet.
        unsafe { (library.ack_async_event)(raw.as_mut_ptr().cast()) };
        if event.is_some() {
            return event;
        }
    }
}

/// # Safety
/// The object that the event is about exists.
unsafe fn event(raw: &RawEvent) -> Option<AsyncEvent> {
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
    Some(match raw.kind {
        CQ_ERR => AsyncEvent::CqErr(cq()),
        QP_FATAL => AsyncEvent::QpFatal(qp()),
        QP_REQ_ERR => AsyncEvent::QpReqErr(qp()),
        QP_ACCESS_ERR => AsyncEvent::QpAccessErr(qp()),
        COMM_EST => AsyncEvent::CommEst(qp()),
        SQ_DRAINED => AsyncEvent::SqDrained(qp()),
        QP_LAST_WQE_REACHED => AsyncEvent::QpLastWqeReached(qp()),
        SRQ_ERR => AsyncEvent::SrqErr(srq()),
        SRQ_LIMIT_REACHED => AsyncEvent::SrqLimitReached(srq()),
        _ => return None,
    })
}
