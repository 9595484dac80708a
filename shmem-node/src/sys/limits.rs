//! Limits of this process.

use std::mem::MaybeUninit;

use rustix::process::{Resource, Rlimit};

/// The limits of this process on `what`, or `None` if the kernel or a filter of a container refuses the call (prlimit64).
/// rustix's function for this panics then.
pub fn known_limits(what: Resource) -> Option<Rlimit> {
    let mut found = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the call fills in the limits, or fails.
    let found = unsafe {
        match libc::getrlimit(what as _, found.as_mut_ptr()) {
            0 => found.assume_init(),
            _ => return None,
        }
    };
    let bound = |limit| (limit != libc::RLIM_INFINITY).then_some(limit);
    Some(Rlimit {
        current: bound(found.rlim_cur),
        maximum: bound(found.rlim_max),
    })
}

/// The limits of this process on `what`, for callers to which an unknown limit is as good as none.
pub fn getrlimit(what: Resource) -> Rlimit {
    known_limits(what).unwrap_or(Rlimit {
        current: None,
        maximum: None,
    })
}
