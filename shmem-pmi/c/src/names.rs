//! Names of services, for other jobs. Infos are not looked at: no server of ours makes use of any.

use std::ffi::{c_char, c_int, c_void};

use crate::answer::answer;
use crate::arguments::{Out, text, value};
use crate::state;

/// Publishes where a service is.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Nameserv_publish(
    service_name: *const c_char,
    _info_ptr: *const c_void,
    port: *const c_char,
) -> c_int {
    answer("PMI2_Nameserv_publish", || {
        let job = state::job()?;
        // SAFETY: by the caller.
        let (name, port) = unsafe {
            (
                text("service_name", service_name)?,
                value("port", port, usize::MAX)?,
            )
        };
        Ok(job.process.publish(name, port)?)
    })
}

/// Where a service is.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Nameserv_lookup(
    service_name: *const c_char,
    _info_ptr: *const c_void,
    port: *mut c_char,
    port_len: c_int,
) -> c_int {
    answer("PMI2_Nameserv_lookup", || {
        let job = state::job()?;
        // SAFETY: by the caller.
        let (name, out) = unsafe {
            (
                text("service_name", service_name)?,
                Out::text(("port", port), ("portLen", port_len))?,
            )
        };
        out.set_text("the port", &job.process.lookup(name)?)
    })
}

/// Takes a name back.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Nameserv_unpublish(
    service_name: *const c_char,
    _info_ptr: *const c_void,
) -> c_int {
    answer("PMI2_Nameserv_unpublish", || {
        let job = state::job()?;
        // SAFETY: by the caller.
        let name = unsafe { text("service_name", service_name) }?;
        Ok(job.process.unpublish(name)?)
    })
}
