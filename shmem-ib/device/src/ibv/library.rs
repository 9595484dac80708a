//! libibverbs, loaded when it is first needed.
//!
//! A program that was linked against libibverbs does not start where that is missing. This one
//! loads it while it runs, so the same binary serves machines with RDMA devices and without.
//! The functions that libibverbs exports are in the table [`Library`]; those that its header
//! defines in terms of a device's own operations (posting, polling) come from `rdma_sys`, which
//! needs no symbol for them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use rdma_sys::{
    _compat_ibv_port_attr, ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context,
    ibv_cq, ibv_device, ibv_device_attr, ibv_gid_entry, ibv_mr, ibv_pd, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr, ibv_srq, ibv_srq_init_attr,
};

use super::SysError;

/// The name under which the dynamic linker knows libibverbs since its first stable release.
const NAME: &CStr = c"libibverbs.so.1";

macro_rules! functions {
    (
        required { $($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)* }
        optional { $($maybe:ident: $symbol:literal fn($($marg:ty),*) -> $mret:ty;)* }
    ) => {
        /// What libibverbs exports, as far as it is used here.
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub(super) $maybe: Option<unsafe extern "C" fn($($marg),*) -> $mret>,)*
        }

        impl Library {
            /// # Safety
            /// `handle` is a loaded libibverbs that stays loaded.
            unsafe fn resolve(handle: *mut c_void) -> Result<Self, SysError> {
                // SAFETY: the handle is valid by the caller's promise. The default version of
                // each symbol has the type that <infiniband/verbs.h> declares, which is the one
                // given here.
                unsafe {
                    Ok(Self {
                        $($name: {
                            let symbol = concat!("ibv_", stringify!($name), "\0");
                            let found = find(handle, symbol)
                                .ok_or(SysError::Symbol { name: symbol.trim_end_matches('\0') })?;
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),*) $(-> $ret)?,
                            >(found)
                        },)*
                        $($maybe: find(handle, concat!($symbol, "\0")).map(|found| {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($marg),*) -> $mret,
                            >(found)
                        }),)*
                    })
                }
            }
        }
    };
}

functions! {
    required {
    get_device_list: fn(*mut c_int) -> *mut *mut ibv_device;
    free_device_list: fn(*mut *mut ibv_device);
    get_device_name: fn(*mut ibv_device) -> *const c_char;
    open_device: fn(*mut ibv_device) -> *mut ibv_context;
    close_device: fn(*mut ibv_context) -> c_int;
    query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    query_port: fn(*mut ibv_context, u8, *mut _compat_ibv_port_attr) -> c_int;
    query_pkey: fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int;
    alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
    dealloc_pd: fn(*mut ibv_pd) -> c_int;
    reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    dereg_mr: fn(*mut ibv_mr) -> c_int;
    create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
    destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
    create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    destroy_cq: fn(*mut ibv_cq) -> c_int;
    get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ack_cq_events: fn(*mut ibv_cq, c_uint);
    create_srq: fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    destroy_srq: fn(*mut ibv_srq) -> c_int;
    create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    query_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    destroy_qp: fn(*mut ibv_qp) -> c_int;
    create_ah: fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    destroy_ah: fn(*mut ibv_ah) -> c_int;
    get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ack_async_event: fn(*mut ibv_async_event);
    }
    // Since rdma-core 32; sysfs tells the same without it.
    optional {
    query_gid_table: "_ibv_query_gid_table"
        fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Library(libibverbs.so.1)")
    }
}

/// # Safety
/// `handle` is a loaded library, and `symbol` ends with a zero byte.
unsafe fn find(handle: *mut c_void, symbol: &str) -> Option<*mut c_void> {
    // SAFETY: by the caller's promise.
    let found = unsafe { libc::dlsym(handle, symbol.as_ptr().cast()) };
    (!found.is_null()).then_some(found)
}

/// The library, loaded at the first call and never unloaded: its providers start threads and keep
/// pointers into themselves.
pub(super) fn library() -> Result<&'static Library, SysError> {
    static LIBRARY: OnceLock<Result<Library, SysError>> = OnceLock::new();
    #[cfg(test)]
    if let Some(fake) = super::fake::library() {
        return Ok(fake);
    }
    LIBRARY.get_or_init(load).as_ref().map_err(SysError::clone)
}

fn load() -> Result<Library, SysError> {
    // SAFETY: the name ends with a zero byte; initialisers of libibverbs have no preconditions.
    let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: after a failed dlopen it gives a string that stays until the next call of this
        // thread to the dynamic linker, or null.
        let reason = unsafe {
            let text = libc::dlerror();
            match text.is_null() {
                true => "no reason given".to_owned(),
                false => CStr::from_ptr(text).to_string_lossy().into_owned(),
            }
        };
        return Err(SysError::Library { reason });
    }
    // SAFETY: it was loaded just now and is never unloaded.
    unsafe { Library::resolve(handle) }
}
