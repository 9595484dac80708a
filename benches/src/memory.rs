//! Memory of the machine, as far as a job takes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// `MemAvailable` of the machine.
///
/// # Panics
/// Without `/proc/meminfo`.
pub fn available_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("/proc/meminfo");
    text.lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok())
        .expect("MemAvailable in /proc/meminfo")
}

/// The same once it has not grown for a second: the kernel takes its time to free what thousands of processes had.
/// After 30 s, what there is.
fn settled_kib() -> u64 {
    let mut most = available_kib();
    for _ in 0..30 {
        std::thread::sleep(Duration::from_secs(1));
        let now = available_kib();
        if now <= most + 256 {
            break;
        }
        most = now;
    }
    most
}

/// What `body` gives, and how much less memory was available in the meantime than before, in KiB, looked at
/// fifty times a second. What others take meanwhile is in it.
pub fn taken_by<T>(body: impl FnOnce() -> T) -> (T, u64) {
    let before = settled_kib();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut least = before;
            // Nothing but the end is told by it.
            while !over.load(Ordering::Relaxed) {
                least = least.min(available_kib());
                std::thread::sleep(Duration::from_millis(20));
            }
            least
        });
        let out = body();
        over.store(true, Ordering::Relaxed);
        let least = looking.join().unwrap_or(before);
        (out, before.saturating_sub(least))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_runs_while_memory_is_looked_at() {
        let (out, taken) = taken_by(|| 7);
        assert_eq!(out, 7);
        assert!(available_kib() > 0 && taken < u64::MAX / 2, "{taken} KiB");
    }
}
