//! Limits of this process.

use std::mem::MaybeUninit;

use rustix::process::{Resource, Rlimit};

/// The limits of this process on `what`. If the kernel or a filter of a container refuses the call (prlimit64), nothing is
/// known of limits, and this returns none. rustix's function of this name panics then.
pub fn getrlimit(what: Resource) -> Rlimit {
    let mut found = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the call fills in the limits, or fails.
    let found = unsafe {
        match libc::getrlimit(what as _, found.as_mut_ptr()) {
            0 => Some(found.assume_init()),
            _ => None,
        }
    };
    let bound = |limit| (limit != libc::RLIM_INFINITY).then_some(limit);
    Rlimit {
        current: found.and_then(|limits| bound(limits.rlim_cur)),
        maximum: found.and_then(|limits| bound(limits.rlim_max)),
    }
}
