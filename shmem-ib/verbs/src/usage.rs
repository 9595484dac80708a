//! What a thread has used of its core.

/// Processor time and sleeps of a thread since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Nanoseconds on a core.
    pub cpu_ns: u64,
    /// How often the thread has left the core to wait for something.
    pub sleeps: u64,
}

impl Usage {
    /// That of the calling thread, by two system calls: the times that `getrusage` returns are those of the last tick.
    #[must_use]
    pub fn of_this_thread() -> Self {
        let mut used = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        let mut time = std::mem::MaybeUninit::<libc::timespec>::zeroed();
        // SAFETY: the kernel writes the structures that are passed, whose bytes may all be zero.
        let (used, time) = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, used.as_mut_ptr());
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, time.as_mut_ptr());
            (used.assume_init(), time.assume_init())
        };
        Self {
            cpu_ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
            sleeps: used.ru_nvcsw as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_has_slept_and_one_that_computes_has_used_time() {
        let before = Usage::of_this_thread();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let slept = Usage::of_this_thread();
        assert!(slept.sleeps > before.sleeps);
        let mut last = slept;
        while last.cpu_ns == slept.cpu_ns {
            let now = Usage::of_this_thread();
            assert!(now.cpu_ns >= last.cpu_ns);
            last = now;
        }
    }
}
