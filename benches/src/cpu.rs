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

/// Keeps the calling thread on a core of its own, if `BENCH_BIND` is in the environment and there
/// are at least as many cores as PEs.
pub fn bind_if_asked(me: usize, n_pes: usize) {
    if std::env::var_os("BENCH_BIND").is_none() {
        return;
    }
    // SAFETY: the sets are plain data, valid when zero; the calls get their size.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of_val(&all);
        if libc::sched_getaffinity(0, size, &mut all) != 0 {
            return;
        }
        let mut cores = (0..libc::CPU_SETSIZE as usize).filter(|&core| libc::CPU_ISSET(core, &all));
        if n_pes <= libc::CPU_COUNT(&all) as usize
            && let Some(mine) = cores.nth(me)
        {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(mine, &mut one);
            // A thread that cannot be bound is measured where it is.
            let _ = libc::sched_setaffinity(0, size, &one);
        }
    }
}

/// Processor time that all processes of the machine have had since it was started, as the kernel counts it: in ticks.
///
/// # Errors
/// There is no `/proc/stat`, or it is not as expected.
pub fn machine_busy() -> std::io::Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let ticks =
        busy_ticks(&text).ok_or_else(|| std::io::Error::other("/proc/stat is not understood"))?;
    // SAFETY: no memory is involved.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1);
    Ok(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// What the line of all processors says but for its fourth and fifth number, which are those of idle time, and of guests'.
fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let numbers = line.split_whitespace().skip(1).take(8).enumerate();
    numbers
        .filter(|(at, _)| !matches!(at, 3 | 4))
        .map(|(_, number)| number.parse::<u64>().ok())
        .sum()
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

    #[test]
    fn idle_time_is_not_busy() {
        let text = "cpu  100 20 30 4000 500 6 7 8 900 1000\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(text), Some(171));
        assert_eq!(busy_ticks("intr 1\n"), None);
        assert!(machine_busy().is_ok_and(|busy| busy > Duration::ZERO));
    }
}
