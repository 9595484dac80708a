//! A device that does as tests tell it: the functions of libibverbs and of a provider, as far as an
//! endpoint calls them. It takes every request and completes none, as one whose peers are silent; and
//! it fails in the ways in which devices fail. It keeps what queue pairs and address handles were told.
//!
//! A thread that has a [`Fake`] opens it by its name in place of what the machine has. [`Fake::describe`] writes what
//! the kernel would tell of it, so that it is found, judged and opened by the way of all devices.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use rdma_sys::{
    _compat_ibv_port_attr, ibv_ah, ibv_ah_attr, ibv_async_event, ibv_atomic_cap, ibv_comp_channel,
    ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_device_cap_flags, ibv_event_type,
    ibv_gid_entry, ibv_gid_type, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_srq_init_attr,
    ibv_wc, ibv_xrcd, ibv_xrcd_init_attr, verbs_context,
};

use super::library::Library;
use crate::sysfs::tests::Tree;
use shmem_verbs::Gid;

/// Its name.
pub(super) const NAME: &str = "fake0";

/// What its one port is like.
#[derive(Clone, Debug)]
pub(super) struct Port {
    /// On an InfiniBand fabric, or on Ethernet.
    pub(super) infiniband: bool,
    /// Its GID at index 0.
    pub(super) gid: Gid,
    pub(super) lid: u16,
    pub(super) lmc: u8,
    pub(super) needs_grh: bool,
    /// Its table of partitions.
    pub(super) pkeys: Vec<u16>,
    /// As the kernel tells it: number and word.
    pub(super) state: &'static str,
    pub(super) physical: &'static str,
}

impl Default for Port {
    fn default() -> Self {
        Self {
            infiniband: false,
            gid: std::net::Ipv4Addr::LOCALHOST.into(),
            lid: 0,
            lmc: 0,
            needs_grh: false,
            pkeys: vec![0xffff],
            state: "4: ACTIVE",
            physical: "5: LinkUp",
        }
    }
}

/// What a queue pair was told.
pub(super) struct Modified {
    pub(super) ty: u32,
    pub(super) attr: ibv_qp_attr,
    pub(super) mask: u32,
}

/// The device and its controls. Never freed: descriptors and pointers of it may outlive a test.
#[repr(C)]
pub(super) struct Fake {
    /// First, so that a pointer to its context leads to all.
    extended: verbs_context,
    device: ibv_device,
    library: Library,
    made: Port,
    /// In the order in which it came.
    modified: Mutex<Vec<Modified>>,
    handles: Mutex<Vec<ibv_ah_attr>>,
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
        Self::with(Port::default())
    }

    /// A device with this port for this thread.
    pub(super) fn with(made: Port) -> &'static Self {
        let mut fds = [0; 2];
        // SAFETY: room for two descriptors.
        let rc = unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        assert_eq!(rc, 0, "a pipe");
        // SAFETY: new descriptors that nobody else owns.
        let [out, events_in] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: pointers, numbers, and functions that may be missing, for which zero is valid.
        let (mut extended, device) = unsafe {
            (
                std::mem::zeroed::<verbs_context>(),
                std::mem::zeroed::<ibv_device>(),
            )
        };
        extended.sz = size_of::<verbs_context>();
        extended.open_xrcd = Some(open_xrcd);
        extended.close_xrcd = Some(close);
        extended.create_qp_ex = Some(create_qp_ex);
        let context = &mut extended.context;
        // The mark of contexts that are part of an extended one.
        context.abi_compat = ptr::without_provenance_mut(usize::MAX);
        context.async_fd = out.as_raw_fd();
        context.ops.poll_cq = Some(poll_cq);
        context.ops.req_notify_cq = Some(req_notify_cq);
        context.ops.post_send = Some(post_send);
        context.ops.post_recv = Some(post_recv);
        let fake = Box::leak(Box::new(Self {
            extended,
            device,
            library: functions(),
            made,
            modified: Mutex::default(),
            handles: Mutex::default(),
            polled: AtomicI32::new(0),
            newest_cq: AtomicPtr::new(ptr::null_mut()),
            numbers: AtomicU32::new(1),
            events_in: Mutex::new(Some(events_in)),
            _events_out: out,
        }));
        PRESENT.set(fake);
        fake
    }

    /// Writes what the kernel tells of it.
    pub(super) fn describe(&self, tree: &Tree) {
        let Port {
            infiniband,
            gid,
            lid,
            lmc,
            needs_grh: _,
            pkeys,
            state,
            physical,
        } = &self.made;
        let dir = format!("class/infiniband/{NAME}");
        let file = |name: &str, text: &str| tree.file(&format!("{dir}/{name}"), text);
        let (link, kind) = match infiniband {
            true => ("InfiniBand", "IB/RoCE v1"),
            false => ("Ethernet", "RoCE v2"),
        };
        let words: Vec<String> = gid
            .0
            .chunks(2)
            .map(|w| format!("{:02x}{:02x}", w[0], w[1]))
            .collect();
        file("node_type", "1: CA");
        file("ports/1/state", state);
        file("ports/1/phys_state", physical);
        file("ports/1/link_layer", link);
        file("ports/1/rate", "100 Gb/sec (4X EDR)");
        file("ports/1/lid", &format!("{lid:#x}"));
        file("ports/1/lid_mask_count", &lmc.to_string());
        file("ports/1/gids/0", &words.join(":"));
        file("ports/1/gid_attrs/types/0", kind);
        for (index, pkey) in pkeys.iter().enumerate() {
            file(&format!("ports/1/pkeys/{index}"), &format!("{pkey:#06x}"));
        }
        tree.file("class/infiniband_verbs/uverbs0/ibdev", NAME);
        tree.file("dev/uverbs0", "");
    }

    /// What queue pairs and address handles were told since the last call.
    pub(super) fn told(&self) -> (Vec<Modified>, Vec<ibv_ah_attr>) {
        let modified = std::mem::take(&mut *self.modified.lock().expect("no panics"));
        let handles = std::mem::take(&mut *self.handles.lock().expect("no panics"));
        (modified, handles)
    }

    fn tell(&self, element: *mut c_void, kind: u32) {
        let mut bytes = [0_u8; size_of::<ibv_async_event>()];
        bytes[..8].copy_from_slice(&element.expose_provenance().to_ne_bytes());
        bytes[8..12].copy_from_slice(&kind.to_ne_bytes());
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
    let offset = offset_of!(verbs_context, context);
    // SAFETY: the extended context around it is the first field.
    unsafe { &*context.byte_sub(offset).cast::<Fake>() }
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
    let offset = offset_of!(verbs_context, context);
    // SAFETY: the context lies there.
    unsafe { PRESENT.get().cast_mut().byte_add(offset).cast() }
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
    attr.device_cap_flags = ibv_device_cap_flags::IBV_DEVICE_XRC;
    attr.max_srq_wr = 1 << 15;
    attr.max_qp_rd_atom = 16;
    attr.max_qp_init_rd_atom = 16;
    attr.atomic_cap = ibv_atomic_cap::IBV_ATOMIC_GLOB;
    0
}

unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    _: u8,
    attr: *mut _compat_ibv_port_attr,
) -> c_int {
    // SAFETY: see above.
    let port = &unsafe { of(context) }.made;
    // SAFETY: see above; there is room for the whole structure.
    let attr = unsafe { &mut *attr.cast::<ibv_port_attr>() };
    attr.state = u32::from(port.state.as_bytes()[0] - b'0');
    attr.phys_state = port.physical.as_bytes()[0] - b'0';
    (attr.lid, attr.lmc) = (port.lid, port.lmc);
    attr.flags = port.needs_grh.into();
    attr.pkey_tbl_len = port.pkeys.len() as u16;
    (attr.max_mtu, attr.active_mtu) = (5, 5);
    attr.gid_tbl_len = 1;
    attr.max_msg_sz = 1 << 30;
    attr.link_layer = if port.infiniband { 1 } else { 2 };
    0
}

unsafe extern "C" fn query_pkey(
    context: *mut ibv_context,
    _: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    // SAFETY: see above.
    let found = unsafe { of(context) }.made.pkeys.get(index as usize);
    let Some(found) = found else { return -1 };
    // SAFETY: see above.
    unsafe { *pkey = found.to_be() };
    0
}

unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    _: usize,
    _: u32,
    _: usize,
) -> isize {
    // SAFETY: see above; there is room for one.
    let entry = unsafe { &mut *entries };
    // SAFETY: see above.
    let port = &unsafe { of(context) }.made;
    entry.gid.raw = port.gid.0;
    entry.port_num = 1;
    entry.gid_type = match port.infiniband {
        true => ibv_gid_type::IBV_GID_TYPE_IB,
        false => ibv_gid_type::IBV_GID_TYPE_ROCE_V2,
    };
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

unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    object(|qp: &mut ibv_qp| {
        qp.context = context;
        // SAFETY: see above.
        unsafe {
            qp.qp_type = (*init).qp_type;
            qp.qp_num = of(context).number();
        }
    })
}

unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    _: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    object(|xrcd: &mut ibv_xrcd| xrcd.context = context)
}

unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: see above; attributes are numbers.
    let (qp, attr) = unsafe { (&mut *qp, attr.read()) };
    qp.state = attr.qp_state;
    // SAFETY: see above.
    let fake = unsafe { of(qp.context) };
    fake.modified.lock().expect("no panics").push(Modified {
        ty: qp.qp_type,
        attr,
        mask: mask as u32,
    });
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

unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: see above.
    unsafe {
        let fake = of((*pd).context);
        fake.handles.lock().expect("no panics").push(*attr);
    }
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
        query_pkey,
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
