//! The threads library's lock for readers and a writer, in memory that processes share: what PMIx
//! used before the 2N-lock ("A Scalable PMIx Database", EuroMPI 2018, section 5).

use std::cell::UnsafeCell;
use std::io;
use std::time::Duration;

/// The lock. All processes that use it have the same C library.
#[repr(C, align(128))]
pub(crate) struct RwLock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: it is only touched by the functions of the threads library, which are there for that.
unsafe impl Sync for RwLock {}

impl std::fmt::Debug for RwLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RwLock")
    }
}

impl RwLock {
    /// For the agent, before anybody uses it. The writer goes before readers that come after it:
    /// readers that overlap could keep it out for ever.
    pub(crate) fn init(&self) -> io::Result<()> {
        let check = |rc| match rc {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(e)),
        };
        // SAFETY: the attributes are initialised, used and destroyed here; nobody else uses the
        // lock yet.
        unsafe {
            let mut attr: libc::pthread_rwlockattr_t = std::mem::zeroed();
            check(libc::pthread_rwlockattr_init(&mut attr))?;
            libc::pthread_rwlockattr_setpshared(&mut attr, libc::PTHREAD_PROCESS_SHARED);
            #[cfg(target_env = "gnu")]
            pthread_rwlockattr_setkind_np(&mut attr, PREFER_WRITER_NONRECURSIVE);
            let made = check(libc::pthread_rwlock_init(self.0.get(), &attr));
            libc::pthread_rwlockattr_destroy(&mut attr);
            made
        }
    }

    /// For a reader. False if it had to wait for longer than `patience`.
    pub(crate) fn enter(&self, patience: Duration) -> bool {
        // SAFETY: the agent has initialised the lock.
        unsafe {
            libc::pthread_rwlock_tryrdlock(self.0.get()) == 0
                || pthread_rwlock_timedrdlock(self.0.get(), &after(patience)) == 0
        }
    }

    /// For the writer: keeps readers out. False if they do not leave within `patience`.
    pub(crate) fn exclude(&self, patience: Duration) -> bool {
        // SAFETY: as above.
        unsafe {
            libc::pthread_rwlock_trywrlock(self.0.get()) == 0
                || pthread_rwlock_timedwrlock(self.0.get(), &after(patience)) == 0
        }
    }

    /// For who has entered or excluded.
    pub(crate) fn leave(&self) {
        // SAFETY: the calling thread holds the lock.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }
}

/// When `patience` will have passed, by the clock of the threads library.
fn after(patience: Duration) -> libc::timespec {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is writable; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    let nanoseconds = now.tv_nsec as u64 + u64::from(patience.subsec_nanos());
    let seconds = patience.as_secs() + nanoseconds / 1_000_000_000;
    now.tv_sec += seconds as libc::time_t;
    now.tv_nsec = (nanoseconds % 1_000_000_000) as libc::c_long;
    now
}

/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP` of the GNU C library.
#[cfg(target_env = "gnu")]
const PREFER_WRITER_NONRECURSIVE: libc::c_int = 2;

// In POSIX or the GNU C library, but not in the `libc` crate.
// SAFETY: the types are those of the C library's headers.
unsafe extern "C" {
    fn pthread_rwlock_timedrdlock(
        lock: *mut libc::pthread_rwlock_t,
        end: *const libc::timespec,
    ) -> libc::c_int;
    fn pthread_rwlock_timedwrlock(
        lock: *mut libc::pthread_rwlock_t,
        end: *const libc::timespec,
    ) -> libc::c_int;
    #[cfg(target_env = "gnu")]
    fn pthread_rwlockattr_setkind_np(
        attr: *mut libc::pthread_rwlockattr_t,
        kind: libc::c_int,
    ) -> libc::c_int;
}
