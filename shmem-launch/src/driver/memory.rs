//! Whether memory may have run out when a process was killed. The kernel does not say whom it has killed for that,
//! but it counts.

use std::sync::OnceLock;

use shmem_node::machine::{Machine, killed_for_memory, promises_no_more_memory};

use crate::exit::End;

/// How many processes had been killed for want of memory when this job began on this machine. Agents that are forked
/// inherit it.
static BEFORE: OnceLock<u64> = OnceLock::new();

/// Notes how many there were before the job.
pub(super) fn note() {
    if let Some(count) = killed_for_memory() {
        BEFORE.get_or_init(|| count);
    }
}

/// The end of a PE that no process of this job has killed.
pub(super) fn of_pe(end: End) -> End {
    explain(end, promises_no_more_memory)
}

/// The end of an agent. It touches no memory but its own, all of which is there unless the kernel has none.
pub(super) fn of_agent(end: End) -> End {
    explain(end, || true)
}

fn explain(end: End, may_lack_a_page: impl FnOnce() -> bool) -> End {
    let End::Signal { signal, .. } = end else {
        return end;
    };
    let killed_since = || {
        let before = BEFORE.get().copied();
        before.is_some_and(|before| killed_for_memory().is_some_and(|now| now > before))
    };
    let ran_out = match i32::from(signal) {
        libc::SIGKILL => killed_since(),
        libc::SIGBUS => may_lack_a_page(),
        _ => false,
    };
    match ran_out {
        true => End::OutOfMemory {
            signal,
            limit: Machine::read().and_then(|machine| machine.group_limit),
        },
        false => end,
    }
}
