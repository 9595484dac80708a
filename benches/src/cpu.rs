//! CPU time of processes, as the kernel accounts it.

use std::time::Duration;

/// Whose time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// All threads of this process.
    Own,
    /// Children that were waited for, with theirs.
    Children,
}

/// User and system time together.
pub fn cpu_time(whose: Whose) -> Duration {
    let who = match whose {
        Whose::Own => libc::RUSAGE_SELF,
        Whose::Children => libc::RUSAGE_CHILDREN,
    };
    // SAFETY: an all-zero rusage is valid and writable.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time() {
        let before = cpu_time(Whose::Own);
        let mut x = 1u64;
        while cpu_time(Whose::Own) < before + Duration::from_millis(2) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(cpu_time(Whose::Own) > before);
    }
}
