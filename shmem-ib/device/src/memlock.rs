//! How much memory this process may pin, which registrations of most RDMA devices do.

#![forbid(unsafe_code)]

use std::fs;

/// Bit of CAP_IPC_LOCK in a set of capabilities.
const CAP_IPC_LOCK: u32 = 14;

/// The line of the first user namespace in `/proc/self/uid_map`.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// How to raise the limit.
pub const RAISE_MEMLOCK: &str = "raise that limit: ulimit -l unlimited; memlock in \
    /etc/security/limits.conf; LimitMEMLOCK=infinity in the systemd unit of what starts the job (slurmd, \
    sshd); under Slurm also PropagateResourceLimitsExcept=MEMLOCK, so that the limit of the login node does \
    not come along";

/// What the kernel lets a process pin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memlock {
    /// `RLIMIT_MEMLOCK` in bytes; `None`: unlimited, or not known.
    pub limit: Option<u64>,
    /// Whether the process is above the limit (CAP_IPC_LOCK).
    pub privileged: bool,
}

impl Memlock {
    /// Of this process.
    #[must_use]
    pub fn current() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::parse(
            &read("/proc/self/limits"),
            &read("/proc/self/status"),
            &read("/proc/self/uid_map"),
        )
    }

    fn parse(limits: &str, status: &str, uid_map: &str) -> Self {
        let soft = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max locked memory"))
            .and_then(|rest| rest.split_whitespace().next());
        let capabilities = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        Self {
            limit: soft.and_then(|bytes| bytes.parse().ok()),
            // The kernel asks for the capability in the first user namespace, which alone has all
            // users mapped to themselves; in others root is privileged over what is theirs.
            privileged: capabilities.is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 == 1)
                && uid_map.split_whitespace().eq(ALL_USERS),
        }
    }

    /// Why `bytes` cannot be pinned, if so.
    #[must_use]
    pub fn refuses(&self, bytes: u64) -> Option<String> {
        let limit = self
            .limit
            .filter(|limit| !self.privileged && *limit < bytes)?;
        Some(format!(
            "its registrations pin memory, and this process may pin {limit} bytes of the {bytes} that \
             a PE registers; {RAISE_MEMLOCK}; or make SHMEM_SYMMETRIC_SIZE smaller"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
        Max processes             31191                31191                processes\n\
        Max locked memory         8388608              8388608              bytes\n";

    const FIRST: &str = "         0          0 4294967295\n";
    const ROOT: &str = "CapEff:\t000001ffffffffff\n";

    #[test]
    fn the_limit_counts_unless_privileged() {
        let plain = Memlock::parse(LIMITS, "CapEff:\t0000000000000000\n", FIRST);
        assert_eq!((plain.limit, plain.privileged), (Some(8 << 20), false));
        assert_eq!(plain.refuses(8 << 20), None);
        let text = plain.refuses((8 << 20) + 1).expect("too much");
        assert!(
            text.contains("8388608") && text.contains("ulimit -l"),
            "{text}"
        );
        let root = Memlock::parse(LIMITS, ROOT, FIRST);
        assert!(root.privileged);
        assert_eq!(root.refuses(u64::MAX), None);
    }

    #[test]
    fn root_of_a_container_of_a_plain_user_has_the_limit() {
        let fake = Memlock::parse(LIMITS, ROOT, "         0       1000          1\n");
        assert!(!fake.privileged);
        assert!(fake.refuses(u64::MAX).is_some());
    }

    #[test]
    fn unlimited_and_unknown_refuse_nothing() {
        let limits = LIMITS.replace("8388608", "unlimited");
        for limits in [limits.as_str(), ""] {
            let memlock = Memlock::parse(limits, "", "");
            assert_eq!((memlock.limit, memlock.refuses(u64::MAX)), (None, None));
        }
    }

    #[test]
    fn the_kernel_answers() {
        // Nothing to compare with; but it must be found where the kernel writes it.
        let limits = fs::read_to_string("/proc/self/limits").expect("Linux");
        assert!(limits.contains("Max locked memory"));
        let _ = Memlock::current();
    }
}
