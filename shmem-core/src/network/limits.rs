//! Whether there is memory for a registration, with devices that take the memory of registered pages.

use shmem_ib::connect::endpoint::ConnError;
use shmem_ib::device::memlock::{Memlock, RAISE_MEMLOCK};
use shmem_node::machine::{Machine, Size};

use crate::error::Error;

/// A segment that cannot be registered as it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegisterError {
    /// On-demand paging was asked for.
    #[error(
        "SHMEM_HEAP_REGISTER=odp, but this network device has no on-demand paging; set it to grow, \
         which registers what the program allocates, or to whole"
    )]
    NoPaging,
    /// More than the process may lock.
    #[error(
        "registering {} of the symmetric heap makes {} of locked memory, but this process may lock {} \
         (RLIMIT_MEMLOCK); {RAISE_MEMLOCK}{}",
        Size(*more), Size(*all), Size(*limit), Advice(*at_once)
    )]
    Locked {
        more: u64,
        all: u64,
        limit: u64,
        at_once: bool,
    },
    /// More than the machine has.
    #[error(
        "registering {} of symmetric heaps takes that memory at once, but this machine has {}{}",
        Size(*asked), Size(*have), Advice(*at_once)
    )]
    Memory {
        asked: u64,
        have: u64,
        at_once: bool,
    },
    /// The device refuses.
    #[error("the network device does not register {} of the symmetric heap: {source}", Size(*bytes))]
    Device { bytes: u64, source: ConnError },
}

impl From<RegisterError> for Error {
    fn from(error: RegisterError) -> Self {
        Self::Registration(error.to_string())
    }
}

/// What to do about a heap that is too large to be registered.
struct Advice(bool);

impl std::fmt::Display for Advice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 {
            f.write_str(
                "; or set SHMEM_HEAP_REGISTER=grow, which registers what the program allocates",
            )?;
        }
        f.write_str("; or lower SHMEM_SYMMETRIC_SIZE")
    }
}

/// What stands in the way of taking memory for a registration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes that this process may lock; `None` for any number.
    pub(super) locked: Option<u64>,
    /// The machine's memory, if it tells.
    pub(super) machine: Option<Machine>,
}

/// What a registration would take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Bytes to be registered.
    pub(super) more: u64,
    /// Bytes that are registered already.
    pub(super) before: u64,
    /// PEs of the machine that do the same.
    pub(super) pes: u64,
    /// Whether it is the whole segment.
    pub(super) at_once: bool,
}

/// Whether there is memory for a registration that takes it.
///
/// PEs of a machine register at the same time, so what is free at this moment says little about all of
/// them: their sum is compared with what the machine has at all, one PE's part with what is free.
pub(super) fn affordable(demand: Demand, limits: Limits) -> Result<(), RegisterError> {
    let Demand {
        more,
        before,
        pes,
        at_once,
    } = demand;
    let all = before.saturating_add(more);
    if let Some(limit) = limits.locked.filter(|&limit| all > limit) {
        return Err(RegisterError::Locked {
            more,
            all,
            limit,
            at_once,
        });
    }
    let Some(machine) = limits.machine else {
        return Ok(());
    };
    let cap = |have: u64, limit: Option<u64>| limit.map_or(have, |l| have.min(l));
    let total = cap(machine.total, machine.group_limit);
    let free = cap(machine.available, machine.group_left);
    for (asked, have) in [(all.saturating_mul(pes), total), (more, free)] {
        if asked > have {
            return Err(RegisterError::Memory {
                asked,
                have,
                at_once,
            });
        }
    }
    Ok(())
}

/// How many bytes this process may lock in memory; `None` for any number.
pub(super) fn may_lock() -> Option<u64> {
    let Memlock { limit, privileged } = Memlock::current();
    limit.filter(|_| !privileged)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn machine() -> Machine {
        Machine {
            total: 16 * GIB,
            available: 8 * GIB,
            swap_total: 0,
            swap_free: 0,
            group_left: None,
            group_limit: None,
        }
    }

    fn check(demand: Demand, locked: Option<u64>) -> Result<(), String> {
        let limits = Limits {
            locked,
            machine: Some(machine()),
        };
        affordable(demand, limits).map_err(|e| e.to_string())
    }

    const WHOLE: Demand = Demand {
        more: GIB,
        before: 0,
        pes: 1,
        at_once: true,
    };

    #[test]
    fn locked_memory_has_a_limit() {
        assert_eq!(check(WHOLE, None), Ok(()));
        assert_eq!(check(WHOLE, Some(GIB)), Ok(()));
        let e = check(WHOLE, Some(8 << 20)).unwrap_err();
        for part in ["1.0 GiB", "8.0 MiB", "ulimit -l", "REGISTER=grow"] {
            assert!(e.contains(part), "{part} in {e}");
        }
        let grown = Demand {
            before: GIB,
            at_once: false,
            ..WHOLE
        };
        let e = check(grown, Some(GIB)).unwrap_err();
        assert!(e.contains("2.0 GiB") && !e.contains("REGISTER"), "{e}");
    }

    #[test]
    fn memory_that_is_not_there_is_not_asked_for() {
        let of = |pes, more| Demand { pes, more, ..WHOLE };
        assert_eq!(check(of(16, GIB), None), Ok(()));
        let e = check(of(17, GIB), None).unwrap_err();
        assert!(e.contains("17.0 GiB") && e.contains("16.0 GiB"), "{e}");
        let e = check(of(1, 9 * GIB), None).unwrap_err();
        assert!(e.contains("9.0 GiB") && e.contains("8.0 GiB"), "{e}");
        let e = check(of(u64::MAX, GIB), None).unwrap_err();
        assert!(e.contains("SHMEM_HEAP_REGISTER=grow"), "{e}");
        let unknown = Limits {
            locked: None,
            machine: None,
        };
        assert!(affordable(of(17, GIB), unknown).is_ok());
    }
}
