//! An open device and its protection domain, and the questions one can ask a device.
//!
//! Whatever is made on a device keeps it open by an [`Arc`], so nothing can be destroyed in the
//! wrong order.

use std::ffi::CStr;
use std::mem::{self, offset_of, size_of};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::{
    ibv_context, ibv_device, ibv_device_attr_ex, ibv_gid_entry, ibv_pd, ibv_port_attr,
    verbs_context,
};

use super::SysError;
use super::error::{last_errno, reason};
use super::library::{Library, library};
use shmem_verbs::Pkey;

/// The devices of this machine, as libibverbs lists them.
pub(super) struct DeviceList {
    library: &'static Library,
    list: NonNull<*mut ibv_device>,
    len: usize,
}

impl DeviceList {
    pub(super) fn new() -> Result<Self, SysError> {
        let library = library()?;
        let mut len = 0;
        // SAFETY: `len` is written.
        let list = unsafe { (library.get_device_list)(&mut len) };
        let Some(list) = NonNull::new(list) else {
            let errno = last_errno();
            return Err(SysError::List {
                errno,
                reason: reason(errno),
            });
        };
        Ok(Self {
            library,
            list,
            len: len.max(0) as usize,
        })
    }

    /// The devices with their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (String, *mut ibv_device)> + '_ {
        // SAFETY: the list has `len` entries and lives as long as `self`.
        let devices = unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.len) };
        devices.iter().map(|&device| {
            // SAFETY: the device is in the list; its name is a string inside of it.
            let name = unsafe { CStr::from_ptr((self.library.get_device_name)(device)) };
            (name.to_string_lossy().into_owned(), device)
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: made by `get_device_list`; devices that are open stay valid.
        unsafe { (self.library.free_device_list)(self.list.as_ptr()) };
    }
}

/// An open device.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) library: &'static Library,
    pub(super) raw: NonNull<ibv_context>,
    pub(super) name: String,
}

// SAFETY: libibverbs allows its calls from all threads; the pointer is never changed.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// An operation of the extended context, if library and driver have it: the library may be older
/// or newer than the headers, so the size that it tells decides.
macro_rules! extended {
    ($context:expr, $op:ident) => {
        $context
            .extended(std::mem::offset_of!(rdma_sys::verbs_context, $op))
            // SAFETY: the field is within the part that the library has filled in.
            .and_then(|vctx| unsafe { (*vctx).$op })
    };
}
pub(super) use extended;

impl Context {
    /// Opens the device of this name.
    pub(super) fn open(name: &str) -> Result<Self, SysError> {
        let list = DeviceList::new()?;
        let found = list.iter().find(|(n, _)| n == name);
        let Some((_, device)) = found else {
            let names: Vec<String> = list.iter().map(|(n, _)| n).collect();
            return Err(SysError::NoSuchDevice {
                name: name.to_owned(),
                present: match names.is_empty() {
                    true => "none at all".to_owned(),
                    false => names.join(", "),
                },
            });
        };
        Self::open_listed(&list, name, device)
    }

    /// Opens a device of the list.
    pub(super) fn open_listed(
        list: &DeviceList,
        name: &str,
        device: *mut ibv_device,
    ) -> Result<Self, SysError> {
        // SAFETY: the device is in the list, which is still there.
        let raw = unsafe { (list.library.open_device)(device) };
        let Some(raw) = NonNull::new(raw) else {
            let errno = last_errno();
            return Err(SysError::Open {
                name: name.to_owned(),
                errno,
                reason: reason(errno),
            });
        };
        let context = Self {
            library: list.library,
            raw,
            name: name.to_owned(),
        };
        // Events are taken without waiting for them.
        set_nonblocking(context.async_fd()).map_err(|errno| SysError::Query {
            name: name.to_owned(),
            what: "set up asynchronous events",
            reason: reason(errno),
        })?;
        Ok(context)
    }

    /// The descriptor of asynchronous events.
    pub(super) fn async_fd(&self) -> i32 {
        // SAFETY: the context is open, and the field never changes.
        unsafe { (*self.raw.as_ptr()).async_fd }
    }

    /// The extended context, if the field at `offset` is within what the library has filled in.
    pub(super) fn extended(&self, offset: usize) -> Option<*mut verbs_context> {
        // SAFETY: the context is open.
        unsafe { extended_of(self.raw.as_ptr(), offset) }
    }

    fn failed(&self, what: &'static str, errno: i32) -> SysError {
        SysError::Query {
            name: self.name.clone(),
            what,
            reason: reason(errno),
        }
    }

    /// Attributes of the device; those that an older driver does not tell are zero.
    pub(super) fn query_device(&self) -> Result<ibv_device_attr_ex, SysError> {
        // SAFETY: numbers and arrays of numbers, for which zero is valid.
        let mut attr: ibv_device_attr_ex = unsafe { mem::zeroed() };
        let mut rc = libc::EOPNOTSUPP;
        if let Some(query) = extended!(self, query_device_ex) {
            let size = size_of::<ibv_device_attr_ex>();
            // SAFETY: the context is open, no input is allowed, `attr` is written up to `size`.
            rc = unsafe { query(self.raw.as_ptr(), ptr::null(), &mut attr, size) };
        }
        if matches!(rc, libc::EOPNOTSUPP | libc::ENOSYS) {
            // SAFETY: as above.
            rc = unsafe { (self.library.query_device)(self.raw.as_ptr(), &mut attr.orig_attr) };
        }
        match rc {
            0 => Ok(attr),
            errno => Err(self.failed("query the device's attributes", errno)),
        }
    }

    /// Attributes of a port.
    pub(super) fn query_port(&self, port: u8) -> Result<ibv_port_attr, SysError> {
        // SAFETY: numbers only.
        let mut attr: ibv_port_attr = unsafe { mem::zeroed() };
        let raw = self.raw.as_ptr();
        let rc = match extended!(self, query_port) {
            // SAFETY: the context is open, `attr` is written up to its size.
            Some(query) => unsafe { query(raw, port, &mut attr, size_of::<ibv_port_attr>()) },
            // SAFETY: the same; this function writes the beginning of the structure.
            None => unsafe { (self.library.query_port)(raw, port, (&raw mut attr).cast()) },
        };
        match rc {
            0 => Ok(attr),
            errno => Err(self.failed("query a port", errno)),
        }
    }

    /// The partitions of a port, by index; only the first, or all. Empty if they cannot be asked.
    pub(super) fn query_pkeys(&self, port: u8, whole: bool) -> Vec<(u16, Pkey)> {
        let most = if whole { u16::MAX } else { 0 };
        let entry = |index: u16| {
            let mut key = 0;
            let raw = self.raw.as_ptr();
            // SAFETY: the context is open, and `key` is written.
            let rc = unsafe { (self.library.query_pkey)(raw, port, index.into(), &mut key) };
            // In the order of the network.
            (rc == 0).then_some((index, Pkey(u16::from_be(key))))
        };
        (0..=most).map_while(entry).collect()
    }

    /// The GIDs in use of all ports; `None` if the library is too old to tell.
    pub(super) fn query_gids(&self, most: usize) -> Result<Option<Vec<ibv_gid_entry>>, SysError> {
        let Some(query) = self.library.query_gid_table else {
            return Ok(None);
        };
        let mut entries: Vec<ibv_gid_entry> = (0..most)
            // SAFETY: numbers only.
            .map(|_| unsafe { mem::zeroed() })
            .collect();
        let size = size_of::<ibv_gid_entry>();
        // SAFETY: the context is open; at most as many entries of this size are written.
        let count = unsafe {
            query(
                self.raw.as_ptr(),
                entries.as_mut_ptr(),
                entries.len(),
                0,
                size,
            )
        };
        match usize::try_from(count) {
            Ok(count) => {
                entries.truncate(count);
                Ok(Some(entries))
            }
            Err(_) => Err(self.failed("query the GID table", -count as i32)),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: open, and everything made on it is gone, because that holds a reference.
        unsafe { (self.library.close_device)(self.raw.as_ptr()) };
    }
}

/// The protection domain of everything on a device.
#[derive(Debug)]
pub(super) struct Pd {
    pub(super) raw: NonNull<ibv_pd>,
    pub(super) context: Arc<Context>,
}

// SAFETY: libibverbs allows its calls from all threads; the pointer is never changed.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    pub(super) fn alloc(context: Arc<Context>) -> Result<Self, SysError> {
        // SAFETY: the context is open.
        let raw = unsafe { (context.library.alloc_pd)(context.raw.as_ptr()) };
        match NonNull::new(raw) {
            Some(raw) => Ok(Self { raw, context }),
            None => Err(context.failed("allocate a protection domain", last_errno())),
        }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: allocated on this context, and what used it is gone.
        unsafe { (self.context.library.dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// The extended context around this one, if there is one, and the field at `offset` is within what
/// the library has filled in. Older fields lie at the end of the structure, which is at a fixed place.
///
/// # Safety
/// The context is open.
unsafe fn extended_of(raw: *mut ibv_context, offset: usize) -> Option<*mut verbs_context> {
    // SAFETY: the context is open; this field says whether it is part of an extended one, and then
    // that one begins so far before it.
    unsafe {
        if (*raw).abi_compat.addr() != IS_EXTENDED {
            return None;
        }
        let vctx = raw
            .byte_sub(offset_of!(verbs_context, context))
            .cast::<verbs_context>();
        ((*vctx).sz >= size_of::<verbs_context>() - offset).then_some(vctx)
    }
}

/// `__VERBS_ABI_IS_EXTENDED` of `<infiniband/verbs.h>`: a pointer of which all bits are set.
const IS_EXTENDED: usize = usize::MAX;

/// Makes reads of a descriptor return at once.
pub(super) fn set_nonblocking(fd: i32) -> Result<(), i32> {
    // SAFETY: plain calls on a descriptor.
    let rc = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        match flags < 0 {
            true => -1,
            false => libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK),
        }
    };
    if rc < 0 { Err(last_errno()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extended_context_is_found_as_far_as_the_library_has_filled_it_in() {
        // SAFETY: pointers, numbers, and functions that may be missing, for which zero is valid.
        let mut vctx: verbs_context = unsafe { mem::zeroed() };
        let whole = &raw mut vctx;
        let (newer, older) = (
            offset_of!(verbs_context, query_device_ex),
            offset_of!(verbs_context, open_xrcd),
        );
        assert!(newer < older, "fields are added in front");
        // SAFETY: `whole` is alive, and everything is accessed through it.
        unsafe {
            let raw = &raw mut (*whole).context;
            (*whole).sz = size_of::<verbs_context>();
            assert_eq!(extended_of(raw, older), None, "a plain context");
            // As verbs_init_context of rdma-core marks it.
            (*raw).abi_compat = ptr::without_provenance_mut(usize::MAX);
            assert_eq!(extended_of(raw, newer), Some(whole));
            (*whole).sz = size_of::<verbs_context>() - older;
            assert_eq!(extended_of(raw, older), Some(whole));
            assert_eq!(extended_of(raw, newer), None, "an older library");
        }
    }
}
