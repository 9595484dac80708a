//! Waiting for memory that other PEs write.

use std::time::Duration;

use crate::datum::Atomic;
use crate::heap::access;
use crate::heap::sym::SymSlice;
use crate::runtime::{Runtime, rt};

/// How often a PE that cannot be told of a change offers its core to others before it naps: a
/// device that is driven by the kernel may need it.
const YIELDS: u32 = 64;
/// Its first and its longest nap. The first is about what a round trip through a kernel takes; the
/// last bounds how late a change is seen, and costs a thousandth of a core or two.
const FIRST_NAP: Duration = Duration::from_micros(50);
const LAST_NAP: Duration = Duration::from_millis(1);

/// How a word is compared with a value.
///
/// # Spec
/// OpenSHMEM 1.6, `SHMEM_CMP_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cmp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Greater than.
    Gt,
    /// Greater than or equal.
    Ge,
    /// Less than.
    Lt,
    /// Less than or equal.
    Le,
}

impl Cmp {
    fn holds<T: PartialOrd>(self, a: &T, b: &T) -> bool {
        match self {
            Self::Eq => a == b,
            Self::Ne => a != b,
            Self::Gt => a > b,
            Self::Ge => a >= b,
            Self::Lt => a < b,
            Self::Le => a <= b,
        }
    }
}

impl Runtime {
    /// Returns when `ready()` holds. Polls while cores are to spare, then sleeps; memory written
    /// by other PEs, of this node or of others, wakes it, and it polls again.
    pub(crate) fn wait_for(&self, ready: impl Fn() -> bool) {
        while !self.spin_until(&ready) {
            if self.notices_inbound {
                self.block.doorbell.sleep(&ready);
            } else {
                self.look_again(&ready);
            }
        }
    }

    /// Returns when `ready()` holds or something has happened that may be the beginning of it. Other
    /// nodes write this PE's memory without anybody noticing, so it looks now and then, the less
    /// often the longer it waits. What happens on this node still wakes it.
    #[cold]
    fn look_again(&self, ready: impl Fn() -> bool) {
        for _ in 0..YIELDS {
            std::thread::yield_now();
            if ready() || self.progress() {
                return;
            }
        }
        let mut nap = FIRST_NAP;
        while self.block.doorbell.nap(nap, &ready) && !ready() && !self.progress() {
            nap = (nap * 2).min(LAST_NAP);
        }
    }

    /// Polls memory, and the network if there is one, until `ready()` holds or nothing has
    /// happened for the job's number of polls. Returns whether it holds. Whatever comes in counts:
    /// a PE that others use answers them at once for as long as they go on.
    pub(crate) fn spin_until(&self, ready: impl Fn() -> bool) -> bool {
        if ready() {
            return true;
        }
        let mut spin = self.patience.spin();
        loop {
            if !self.patience.again(&mut spin) {
                return ready();
            }
            if ready() {
                self.patience.ended_well();
                return true;
            }
            if self.progress() {
                spin.renew();
            } else if self.remote.is_none() {
                // A poll of the network is a pause by itself.
                std::hint::spin_loop();
            }
        }
    }
}

/// Waits until this PE's first element of `word` compares as asked; gives its value then.
///
/// # Completion
/// What the PE that wrote the value had put to this PE before it, with a fence between, is
/// visible on return.
///
/// # Panics
/// If `word` is empty.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_wait_until`.
#[track_caller]
pub fn wait_until<T: Atomic + PartialOrd>(word: SymSlice<T>, cmp: Cmp, value: T) -> T {
    let rt = rt();
    let at = word.elem(0).as_ptr().cast_const().cast::<u8>();
    // SAFETY: the word lies aligned in this PE's segment.
    let read = || T::from_bits(unsafe { access::load(at, size_of::<T>()) });
    let seen = std::cell::Cell::new(read());
    // ORDERING(quiet): the load acquires what the writer released.
    rt.wait_for(|| {
        seen.set(read());
        cmp.holds(&seen.get(), &value)
    });
    seen.get()
}

/// Whether this PE's first element of `word` compares as asked.
///
/// # Completion
/// As for [`wait_until`], if true.
///
/// # Panics
/// If `word` is empty.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_test`.
#[track_caller]
pub fn test<T: Atomic + PartialOrd>(word: SymSlice<T>, cmp: Cmp, value: T) -> bool {
    let rt = rt();
    let at = word.elem(0).as_ptr().cast_const().cast::<u8>();
    // SAFETY: the word lies aligned in this PE's segment.
    let holds = cmp.holds(
        &T::from_bits(unsafe { access::load(at, size_of::<T>()) }),
        &value,
    );
    // A program that polls must not starve the network on a core of its own.
    if !holds {
        rt.progress();
    }
    holds
}
