//! The extensions: allgathers, split operations, rings.

use std::ffi::{c_char, c_int, c_void};

use shmem_pmi::wire::MAX_VALUE;

use crate::answer::answer;
use crate::arguments::{Out, length, value};
use crate::state::{self, Job, Pending};
use crate::status::{Code, Fault};

/// A handle: a number of [`state`], which nobody follows as an address.
type PmixRequest = *mut c_void;

/// Gives each PE the values of all, padded with NUL to `PMI2_MAX_VALLEN` bytes, in the order of ranks.
///
/// # Safety
/// See the crate; the buffer has room for as many such values as there are PEs.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMIX_Allgather(value: *const c_char, buffer: *mut c_void) -> c_int {
    // SAFETY: by the caller.
    answer("PMIX_Allgather", || unsafe {
        gather(value, buffer, MAX_VALUE as c_int)
    })
}

/// Gives each PE the values of all, each of at most `maxvalue` bytes with its NUL.
///
/// # Safety
/// See the crate; the buffer has room for as many such values as there are PEs.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMIX_Allgather_max(
    value: *const c_char,
    buffer: *mut c_void,
    maxvalue: c_int,
) -> c_int {
    // SAFETY: by the caller.
    answer("PMIX_Allgather_max", || unsafe {
        gather(value, buffer, maxvalue)
    })
}

/// Starts a [`PMIX_Allgather`].
///
/// # Safety
/// As of [`PMIX_Allgather`], until the request has been waited for.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMIX_Iallgather(
    value: *const c_char,
    buffer: *mut c_void,
    request_ptr: *mut PmixRequest,
) -> c_int {
    // SAFETY: by the caller.
    answer("PMIX_Iallgather", || unsafe {
        igather(value, buffer, MAX_VALUE as c_int, request_ptr)
    })
}

/// Starts a [`PMIX_Allgather_max`].
///
/// # Safety
/// As of [`PMIX_Allgather_max`], until the request has been waited for.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMIX_Iallgather_max(
    value: *const c_char,
    buffer: *mut c_void,
    maxvalue: c_int,
    request_ptr: *mut PmixRequest,
) -> c_int {
    // SAFETY: by the caller.
    answer("PMIX_Iallgather_max", || unsafe {
        igather(value, buffer, maxvalue, request_ptr)
    })
}

/// Starts a fence.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMIX_KVS_Ifence(request_ptr: *mut PmixRequest) -> c_int {
    answer("PMIX_KVS_Ifence", || {
        let job = state::job()?;
        // SAFETY: by the caller.
        let out = unsafe { Out::one("request_ptr", request_ptr) }?;
        let request = job.process.ifence()?;
        out.set(handle(&job, Pending::Fence(request)));
        Ok(())
    })
}

/// Waits until an operation is complete. The request is none any more then, even if it has failed.
#[unsafe(no_mangle)]
extern "C" fn PMIX_Wait(request: PmixRequest) -> c_int {
    answer("PMIX_Wait", || state::job()?.wait(request.addr()))
}

/// Whether an operation is complete; never waits. It has to be waited for nevertheless.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMIX_Test(request: PmixRequest, flag: *mut c_int) -> c_int {
    answer("PMIX_Test", || {
        let job = state::job()?;
        // SAFETY: by the caller.
        let out = unsafe { Out::one("flag", flag) }?;
        out.set(job.test(request.addr())?.into());
        Ok(())
    })
}

/// Puts the PEs in a ring and tells each what its neighbours have given.
///
/// # Safety
/// See the crate; `left` and `right` have room for `maxvalue` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMIX_Ring(
    value_at: *const c_char,
    rank: *mut c_int,
    ranks: *mut c_int,
    left: *mut c_char,
    right: *mut c_char,
    maxvalue: c_int,
) -> c_int {
    answer("PMIX_Ring", || {
        let job = state::job()?;
        let room = length("maxvalue", maxvalue)?;
        // SAFETY: by the caller.
        let (value, rank, ranks, left, right) = unsafe {
            (
                value("value", value_at, room)?,
                Out::one("rank", rank)?,
                Out::one("ranks", ranks)?,
                Out::text(("left", left), ("maxvalue", maxvalue))?,
                Out::text(("right", right), ("maxvalue", maxvalue))?,
            )
        };
        let ring = job.process.ring(value)?;
        rank.set(ring.rank as c_int);
        ranks.set(ring.size as c_int);
        let left = left.set_text("the left neighbour's value", &ring.left);
        let right = right.set_text("the right neighbour's value", &ring.right);
        left.and(right)
    })
}

fn handle(job: &Job, pending: Pending) -> PmixRequest {
    std::ptr::without_provenance_mut(job.register(pending))
}

/// # Safety
/// As [`PMIX_Allgather_max`].
unsafe fn gather(value: *const c_char, buffer: *mut c_void, maxvalue: c_int) -> Result<(), Fault> {
    let job = state::job()?;
    // SAFETY: by the caller.
    let pending = unsafe { start(&job, value, buffer, maxvalue) }?;
    pending.wait(job.process.size())
}

/// # Safety
/// As [`PMIX_Iallgather_max`].
unsafe fn igather(
    value: *const c_char,
    buffer: *mut c_void,
    maxvalue: c_int,
    request_ptr: *mut PmixRequest,
) -> Result<(), Fault> {
    let job = state::job()?;
    // SAFETY: by the caller.
    let out = unsafe { Out::one("request_ptr", request_ptr) }?;
    // SAFETY: by the caller.
    let pending = unsafe { start(&job, value, buffer, maxvalue) }?;
    out.set(handle(&job, pending));
    Ok(())
}

/// # Safety
/// `value` and `buffer` as of [`PMIX_Iallgather_max`].
unsafe fn start(
    job: &Job,
    value_at: *const c_char,
    buffer: *mut c_void,
    maxvalue: c_int,
) -> Result<Pending, Fault> {
    let width = length("maxvalue", maxvalue)?;
    if width > MAX_VALUE {
        return Err(Fault::new(
            Code::InvalidLength,
            format_args!("maxvalue = {width}, expected at most {MAX_VALUE}"),
        ));
    }
    // SAFETY: by the caller.
    let (value, buffer) = unsafe {
        let room = width * job.process.size() as usize;
        (
            value("value", value_at, width)?,
            Out::new("buffer", buffer.cast(), room)?,
        )
    };
    // The values of all PEs are equally long, as the buffer has them.
    let mut padded = [0; MAX_VALUE];
    padded[..value.len()].copy_from_slice(value);
    Ok(Pending::Gather {
        request: job.process.iallgather(&padded[..width])?,
        width,
        buffer,
    })
}
