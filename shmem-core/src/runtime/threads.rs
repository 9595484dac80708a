//! Which threads of a PE call the library, and the check in debug builds that they keep to it.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which threads of a PE call the library. The numbers are C's.
///
/// # Spec
/// OpenSHMEM 1.6, `SHMEM_THREAD_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ThreadLevel {
    /// The process has one thread.
    Single = 0,
    /// Only the thread that called init.
    Funneled = 1,
    /// Any, one at a time.
    Serialized = 2,
    /// Any, all at once.
    Multiple = 3,
}

impl ThreadLevel {
    /// The level with C's number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Single),
            1 => Some(Self::Funneled),
            2 => Some(Self::Serialized),
            3 => Some(Self::Multiple),
            _ => None,
        }
    }
}

/// What the program has promised of its threads.
#[derive(Debug)]
pub(crate) struct Threads {
    level: ThreadLevel,
    /// Address of the mark of the main thread, which called init. Only a check, so all accesses are
    /// relaxed.
    main: AtomicUsize,
}

/// Address that no two threads have in common.
fn mark() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| ptr::from_ref(mark) as usize)
}

impl Threads {
    /// The calling thread, which is in init, has promised this level.
    pub(crate) fn promised(level: ThreadLevel) -> Self {
        Self {
            level,
            main: AtomicUsize::new(mark()),
        }
    }

    /// The level in force.
    pub(crate) fn level(&self) -> ThreadLevel {
        self.level
    }

    /// The calling thread, which ends the process, takes the place of the one that called init.
    pub(crate) fn become_main(&self) {
        self.main.store(mark(), Ordering::Relaxed);
    }

    /// Whether the calling thread promises the same again.
    pub(crate) fn are_again(&self, level: ThreadLevel) -> bool {
        level == self.level && mark() == self.main.load(Ordering::Relaxed)
    }

    /// Whether the calling thread may call the library.
    pub(super) fn may_call(&self) -> bool {
        self.level > ThreadLevel::Funneled || mark() == self.main.load(Ordering::Relaxed)
    }
}
