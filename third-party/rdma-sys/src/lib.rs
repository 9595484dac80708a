//! Types and constants of libibverbs, as far as `shmem-device` names them, and the verbs that C has as inline functions.

#![allow(non_camel_case_types, non_snake_case, clippy::missing_safety_doc)]

use libc::{c_int, c_void, pthread_cond_t, pthread_mutex_t};

include!("bindings.rs");

#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    (*(*cq).context).ops.poll_cq.unwrap()(cq, num_entries, wc)
}

#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    (*(*cq).context).ops.req_notify_cq.unwrap()(cq, solicited_only)
}

#[inline]
pub unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    recv_wr: *mut ibv_recv_wr,
    bad_recv_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    (*(*srq).context).ops.post_srq_recv.unwrap()(srq, recv_wr, bad_recv_wr)
}

#[inline]
pub unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    (*(*qp).context).ops.post_send.unwrap()(qp, wr, bad_wr)
}

#[inline]
pub unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    (*(*qp).context).ops.post_recv.unwrap()(qp, wr, bad_wr)
}

// As C lays them out on 64-bit Linux; locks are as large as the C library has them.
const _: () = {
    use std::mem::{offset_of, size_of};
    let (mutex, cond) = (size_of::<pthread_mutex_t>(), size_of::<pthread_cond_t>());
    assert!(offset_of!(ibv_context, abi_compat) == 280 + mutex);
    assert!(offset_of!(verbs_context, query_device_ex) == 216);
    assert!(offset_of!(verbs_context, context) == 320);
    assert!(size_of::<ibv_qp>() == 72 + mutex + cond);
    assert!(size_of::<ibv_cq>() == 40 + mutex + cond);
    assert!(size_of::<ibv_srq>() == 40 + mutex + cond);
    assert!(size_of::<ibv_device_attr_ex>() == 400);
    assert!(size_of::<ibv_port_attr>() == 52);
    assert!(size_of::<ibv_qp_init_attr_ex>() == 136);
    assert!(size_of::<ibv_qp_attr>() == 144);
    assert!(size_of::<ibv_srq_init_attr_ex>() == 64);
    assert!(size_of::<ibv_async_event>() == 16);
    assert!(size_of::<ibv_send_wr>() == 128);
    assert!(size_of::<ibv_wc>() == 48);
};
