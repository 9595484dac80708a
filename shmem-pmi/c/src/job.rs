//! Init, finalize, abort, and what a process is in its job.

use std::ffi::{c_char, c_int};
use std::io::Write as _;

use shmem_pmi::process_mapping::{self, ProcessMapping};

use crate::answer::answer;
use crate::arguments::{Out, bytes};
use crate::state::{self, Job};
use crate::status::{Code, Fault};

/// Makes this process one of a job.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Init(
    spawned: *mut c_int,
    size: *mut c_int,
    rank: *mut c_int,
    appnum: *mut c_int,
) -> c_int {
    answer("PMI2_Init", || {
        let arguments = [
            ("spawned", spawned),
            ("size", size),
            ("rank", rank),
            ("appnum", appnum),
        ];
        for (arg, at) in arguments {
            // SAFETY: by the caller.
            unsafe { Out::one(arg, at) }?;
        }
        let job = state::init()?;
        let process = &job.process;
        let values = [
            process.spawned().into(),
            process.size() as c_int,
            process.rank() as c_int,
            process.appnum(),
        ];
        for ((arg, at), value) in arguments.into_iter().zip(values) {
            // SAFETY: by the caller.
            unsafe { Out::one(arg, at) }?.set(value);
        }
        Ok(())
    })
}

/// Whether this process is between init and finalize.
#[unsafe(no_mangle)]
extern "C" fn PMI2_Initialized() -> c_int {
    state::current().is_some().into()
}

/// Takes leave.
#[unsafe(no_mangle)]
extern "C" fn PMI2_Finalize() -> c_int {
    answer("PMI2_Finalize", || Ok(state::take()?.process.finalize()?))
}

/// Ends the job, or this process alone. Returns only if it is none of a job.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Abort(flag: c_int, msg: *const c_char) -> c_int {
    answer("PMI2_Abort", || {
        let job = state::job()?;
        // SAFETY: by the caller. An abort without a message is one, too.
        let message = unsafe { bytes("msg", msg) }.unwrap_or_default();
        let message = String::from_utf8_lossy(message);
        let message = message.trim_end();
        if flag != 0 {
            job.process.abort(1, message);
        }
        let rank = job.process.rank();
        let _ = writeln!(std::io::stderr(), "PE {rank} ends: {message}");
        std::process::exit(1);
    })
}

/// The job's id.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Job_GetId(jobid: *mut c_char, jobid_size: c_int) -> c_int {
    answer("PMI2_Job_GetId", || {
        // SAFETY: by the caller.
        let out = unsafe { Out::text(("jobid", jobid), ("jobid_size", jobid_size)) }?;
        let job = state::job()?;
        out.set_text("the id", job.id()?.as_bytes())
    })
}

/// The rank of this process.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Job_GetRank(rank: *mut c_int) -> c_int {
    answer("PMI2_Job_GetRank", || {
        // SAFETY: by the caller.
        let out = unsafe { Out::one("rank", rank) }?;
        out.set(state::job()?.process.rank() as c_int);
        Ok(())
    })
}

/// Number of processes of the job on this node.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Info_GetSize(size: *mut c_int) -> c_int {
    answer("PMI2_Info_GetSize", || {
        // SAFETY: by the caller.
        let out = unsafe { Out::one("size", size) }?;
        out.set(here(&*state::job()?)? as c_int);
        Ok(())
    })
}

/// How many processes the server's mapping places where this one is.
fn here(job: &Job) -> Result<usize, Fault> {
    let process = &job.process;
    let mapping = process.job_attr(process_mapping::KEY)?;
    let nodes = mapping.and_then(|text| {
        let mapping: ProcessMapping = std::str::from_utf8(&text).ok()?.parse().ok()?;
        Some(mapping.to_nodes(process.size()))
    });
    let nodes = nodes.ok_or_else(|| {
        let key = process_mapping::KEY;
        Fault::new(Code::Fail, format_args!("the server offers no {key}"))
    })?;
    let own = nodes.get(process.rank() as usize);
    Ok(nodes.iter().filter(|&node| Some(node) == own).count())
}
