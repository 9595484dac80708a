//! A device that does as tests tell it: the functions of libibverbs and of a provider, as far as an
//! endpoint calls them. It takes every request and completes none, as one whose peers are silent; and
//! it fails in the ways in which devices fail.
//!
//! A thread that has a [`Fake`] opens it by its name in place of what the machine has.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use rdma_sys::{
    _compat_ibv_port_attr, ibv_ah, ibv_ah_attr, ibv_async_event, ibv_atomic_cap, ibv_comp_channel,
    ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_event_type, ibv_gid_entry, ibv_mr,
    ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr,
    ibv_srq, ibv_srq_init_attr, ibv_wc,
};

use super::library::Library;

/// Its name.
pub(super) const NAME: &str = "fake0";

/// The device and its controls. Never freed: descriptors and pointers of it may outlive a test.
#[repr(C)]
pub(super) struct Fake {
    /// First, so that a pointer to the context is one to all.
    context: ibv_context,
    device: ibv_device,
    library: Library,
    /// What polls give.
    pub(super) polled: AtomicI32,
    /// The completion queue made last.
    newest_cq: AtomicPtr<ibv_cq>,
    numbers: AtomicU32,
    events_in: Mutex<Option<OwnedFd>>,
    _events_out: OwnedFd,
}

thread_local! {
    static PRESENT: Cell<*const Fake> = const { Cell::new(ptr::null()) };
}

/// The library of this thread's fake, if it has one.
pub(super) fn library() -> Option<&'static Library> {
    let fake = PRESENT.get();
    // SAFETY: null, or one that was leaked.
    unsafe { fake.as_ref() }.map(|fake| &fake.library)
}

impl Fake {
    /// A device for this thread.
    pub(super) fn new() -> &'static Self {
        let mut fds = [0; 2];
        // SAFETY: room for two descriptors.
        let rc = unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        assert_eq!(rc, 0, "a pipe");
        // SAFETY: new descriptors that nobody else owns.
        let [out, events_in] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: pointers, numbers, and functions that may be missing, for which zero is valid.
        let (mut context, device) = unsafe {
            (
                std::mem::zeroed::<ibv_context>(),
                std::mem::zeroed::<ibv_device>(),
            )
        };
        context.async_fd = out.as_raw_fd();
        context.ops.poll_cq = Some(poll_cq);
        context.ops.req_notify_cq = Some(req_notify_cq);
        context.ops.post_send = Some(post_send);
        context.ops.post_recv = Some(post_recv);
        let fake = Box::leak(Box::new(Self {
            context,
            device,
            library: functions(),
            polled: AtomicI32::new(0),
            newest_cq: AtomicPtr::new(ptr::null_mut()),
            numbers: AtomicU32::new(1),
            events_in: Mutex::new(Some(events_in)),
            _events_out: out,
        }));
        PRESENT.set(fake);
        fake
    }

    fn tell(&self, element: *mut c_void, kind: ibv_event_type) {
        let mut bytes = [0_u8; size_of::<ibv_async_event>()];
        bytes[..8].copy_from_slice(&element.expose_provenance().to_ne_bytes());
        bytes[8..12].copy_from_slice(&(kind as i32).to_ne_bytes());
        let events_in = self.events_in.lock().expect("no panics");
        let fd = events_in.as_ref().expect("it is there").as_raw_fd();
        // SAFETY: the bytes are alive.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        assert_eq!(written, bytes.len() as isize);
    }

    /// The device stops.
    pub(super) fn die(&self) {
        self.tell(ptr::null_mut(), ibv_event_type::IBV_EVENT_DEVICE_FATAL);
    }

    /// The device is taken away.
    pub(super) fn vanish(&self) {
        self.events_in.lock().expect("no panics").take();
    }

    /// Its port goes down or comes up.
    pub(super) fn port(&self, up: bool) {
        let one = ptr::without_provenance_mut(1);
        match up {
            true => self.tell(one, ibv_event_type::IBV_EVENT_PORT_ACTIVE),
            false => self.tell(one, ibv_event_type::IBV_EVENT_PORT_ERR),
        }
    }

    /// The completion queue made last overruns.
    pub(super) fn overrun(&self) {
        let cq = self.newest_cq.load(Ordering::Relaxed).cast();
        self.tell(cq, ibv_event_type::IBV_EVENT_CQ_ERR);
    }

    fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// # Safety
/// `context` is that of a fake.
unsafe fn of(context: *mut ibv_context) -> &'static Fake {
    // SAFETY: the context is the first field.
    unsafe { &*context.cast::<Fake>() }
}

/// An object of which only what the caller writes counts.
fn object<T>(write: impl FnOnce(&mut T)) -> *mut T {
    // SAFETY: structures of pointers and numbers, for which zero is valid.
    let mut object: Box<T> = Box::new(unsafe { std::mem::zeroed() });
    write(&mut object);
    Box::into_raw(object)
}

/// # Safety
/// Made by `object`, and not used any more.
unsafe extern "C" fn close<T>(object: *mut T) -> c_int {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(object) });
    0
}

// SAFETY of everything below: called as libibverbs is, with objects made here.

unsafe extern "C" fn get_device_list(len: *mut c_int) -> *mut *mut ibv_device {
    let fake = PRESENT.get();
    // SAFETY: see above.
    let device = unsafe {
        *len = 1;
        &raw const (*fake).device
    };
    Box::into_raw(Box::new(device.cast_mut()))
}

unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: see above.
    drop(unsafe { Box::from_raw(list) });
}

unsafe extern "C" fn get_device_name(_: *mut ibv_device) -> *const c_char {
    c"fake0".as_ptr()
}

unsafe extern "C" fn open_device(_: *mut ibv_device) -> *mut ibv_context {
    PRESENT.get().cast_mut().cast()
}

unsafe extern "C" fn close_device(_: *mut ibv_context) -> c_int {
    0
}

unsafe extern "C" fn query_device(_: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: see above.
    let attr = unsafe { &mut *attr };
    attr.phys_port_cnt = 1;
    attr.max_qp_wr = 1 << 15;
    attr.max_cqe = 1 << 22;
    attr.max_sge = 16;
    attr.max_ah = 1024;
    attr.max_srq_wr = 1 << 15;
    attr.max_qp_rd_atom = 16;
    attr.max_qp_init_rd_atom = 16;
    attr.atomic_cap = ibv_atomic_cap::IBV_ATOMIC_GLOB;
    0
}

unsafe extern "C" fn query_port(
    _: *mut ibv_context,
    _: u8,
    attr: *mut _compat_ibv_port_attr,
) -> c_int {
    // SAFETY: see above; there is room for the whole structure.
    let attr = unsafe { &mut *attr.cast::<ibv_port_attr>() };
    attr.state = 4;
    (attr.max_mtu, attr.active_mtu) = (5, 5);
    attr.gid_tbl_len = 1;
    attr.max_msg_sz = 1 << 30;
    attr.link_layer = 2;
    0
}

unsafe extern "C" fn query_gid_table(
    _: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    _: usize,
    _: u32,
    _: usize,
) -> isize {
    // SAFETY: see above; there is room for one.
    let entry = unsafe { &mut *entries };
    entry.gid.raw = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    (entry.port_num, entry.gid_type) = (1, rdma_sys::IBV_GID_TYPE_ROCE_V2);
    1
}

unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    object(|pd: &mut ibv_pd| pd.context = context)
}

unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    len: usize,
    _: c_int,
) -> *mut ibv_mr {
    object(|mr: &mut ibv_mr| {
        // SAFETY: see above.
        mr.context = unsafe { (*pd).context };
        (mr.addr, mr.length) = (addr, len);
        // SAFETY: see above.
        mr.lkey = unsafe { of(mr.context) }.number();
        mr.rkey = mr.lkey;
    })
}

unsafe extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    object(|channel: &mut ibv_comp_channel| {
        channel.context = context;
        // SAFETY: no pointers.
        channel.fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    })
}

unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: see above.
    unsafe {
        libc::close((*channel).fd);
        close(channel)
    }
}

unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    _: c_int,
    name: *mut c_void,
    channel: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    let cq = object(|cq: &mut ibv_cq| {
        cq.context = context;
        cq.channel = channel;
        cq.cq_context = name;
    });
    // SAFETY: see above.
    unsafe { of(context) }
        .newest_cq
        .store(cq, Ordering::Relaxed);
    cq
}

unsafe extern "C" fn get_cq_event(
    _: *mut ibv_comp_channel,
    _: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    -1
}

unsafe extern "C" fn ack_cq_events(_: *mut ibv_cq, _: c_uint) {}

unsafe extern "C" fn create_srq(pd: *mut ibv_pd, _: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    object(|srq: &mut ibv_srq| srq.pd = pd)
}

unsafe extern "C" fn create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    object(|qp: &mut ibv_qp| {
        // SAFETY: see above.
        unsafe {
            qp.context = (*pd).context;
            qp.qp_type = (*init).qp_type;
            qp.qp_num = of(qp.context).number();
        }
    })
}

unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, _: c_int) -> c_int {
    // SAFETY: see above.
    unsafe { (*qp).state = (*attr).qp_state };
    0
}

unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _: c_int,
    _: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: see above.
    unsafe { (*attr).qp_state = (*qp).state };
    0
}

unsafe extern "C" fn create_ah(pd: *mut ibv_pd, _: *mut ibv_ah_attr) -> *mut ibv_ah {
    object(|ah: &mut ibv_ah| ah.pd = pd)
}

unsafe extern "C" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let len = size_of::<ibv_async_event>();
    // SAFETY: see above.
    let got = unsafe { libc::read((*context).async_fd, event.cast(), len) };
    if got == len as isize { 0 } else { -1 }
}

unsafe extern "C" fn ack_async_event(_: *mut ibv_async_event) {}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, _: c_int, _: *mut ibv_wc) -> c_int {
    // SAFETY: see above.
    unsafe { of((*cq).context) }.polled.load(Ordering::Relaxed)
}

unsafe extern "C" fn req_notify_cq(_: *mut ibv_cq, _: c_int) -> c_int {
    0
}

unsafe extern "C" fn post_send(
    _: *mut ibv_qp,
    _: *mut ibv_send_wr,
    _: *mut *mut ibv_send_wr,
) -> c_int {
    0
}

unsafe extern "C" fn post_recv(
    _: *mut ibv_qp,
    _: *mut ibv_recv_wr,
    _: *mut *mut ibv_recv_wr,
) -> c_int {
    0
}

fn functions() -> Library {
    Library {
        get_device_list,
        free_device_list,
        get_device_name,
        open_device,
        close_device,
        query_device,
        query_port,
        alloc_pd,
        dealloc_pd: close,
        reg_mr,
        dereg_mr: close,
        create_comp_channel,
        destroy_comp_channel,
        create_cq,
        destroy_cq: close,
        get_cq_event,
        ack_cq_events,
        create_srq,
        destroy_srq: close,
        create_qp,
        modify_qp,
        query_qp,
        destroy_qp: close,
        create_ah,
        destroy_ah: close,
        get_async_event,
        ack_async_event,
        query_gid_table: Some(query_gid_table),
    }
}
