//! The key-value space.

use std::ffi::{c_char, c_int};

use crate::answer::answer;
use crate::arguments::{Out, key, text, value};
use crate::state;
use crate::status::{Code, Fault};

/// Puts a pair, for the next fence.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_KVS_Put(key_at: *const c_char, value_at: *const c_char) -> c_int {
    answer("PMI2_KVS_Put", || {
        let job = state::job()?;
        // SAFETY: by the caller.
        let (key, value) = unsafe { (key("key", key_at)?, value("value", value_at, usize::MAX)?) };
        let put = job.process.put(key, value).map_err(Fault::from);
        put.map_err(|mut fault| {
            // Servers differ in this.
            if fault.code == Code::InvalidVal && value.len() > job.process.value_max() {
                fault.code = Code::InvalidValLength;
            }
            fault
        })
    })
}

/// Makes all pairs visible to all.
#[unsafe(no_mangle)]
extern "C" fn PMI2_KVS_Fence() -> c_int {
    answer("PMI2_KVS_Fence", || Ok(state::job()?.process.fence()?))
}

/// The value of a key: `*vallen` is its length, negative if only its beginning fits. That nobody has put the key
/// is told by the code alone.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_KVS_Get(
    jobid: *const c_char,
    src_pmi_id: c_int,
    key_at: *const c_char,
    value: *mut c_char,
    maxvalue: c_int,
    vallen: *mut c_int,
) -> c_int {
    answer("PMI2_KVS_Get", || {
        let job = state::job()?;
        // SAFETY: by the caller.
        let (key, out, len) = unsafe {
            (
                key("key", key_at)?,
                Out::text(("value", value), ("maxvalue", maxvalue))?,
                Out::one("vallen", vallen)?,
            )
        };
        if !jobid.is_null() {
            // SAFETY: by the caller.
            let asked = unsafe { text("jobid", jobid) }?;
            let own = job.id()?;
            if asked != own {
                return Err(Fault::new(
                    Code::InvalidArg,
                    format_args!("jobid is {asked}: only keys of this job, {own}, can be got"),
                ));
            }
        }
        let got = match u32::try_from(src_pmi_id) {
            Ok(owner) if owner < job.process.size() => job.process.get_of(owner, key)?,
            _ => job.process.get(key)?,
        };
        let got = got.ok_or_else(|| Fault::silent(Code::Fail))?;
        let whole = out.write_text(&got);
        let got_len = got.len() as c_int;
        len.set(if whole { got_len } else { -got_len });
        Ok(())
    })
}
