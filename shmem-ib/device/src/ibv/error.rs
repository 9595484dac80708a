//! Why libibverbs or a device cannot be used, and what to do about it.

#![forbid(unsafe_code)]

use std::io;

use crate::memlock::{Memlock, RAISE_MEMLOCK};
use shmem_verbs::VerbsError;

/// Why a device cannot be used. Cloned, because loading the library is tried once per process.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SysError {
    /// libibverbs is not installed, or cannot be loaded.
    #[error(
        "cannot load libibverbs.so.1: {reason}; install the packages libibverbs1 and \
         ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)"
    )]
    Library {
        /// What the dynamic linker says.
        reason: String,
    },
    /// libibverbs is too old.
    #[error(
        "libibverbs.so.1 has no function {name}: it is too old, rdma-core 17 or newer is needed \
         (package libibverbs1)"
    )]
    Symbol {
        /// The function.
        name: &'static str,
    },
    /// The devices cannot be listed.
    #[error("cannot list RDMA devices: {reason}{}", list_advice(*.errno))]
    List {
        /// The error number.
        errno: i32,
        /// What the system says.
        reason: String,
    },
    /// There is no such device.
    #[error("there is no RDMA device {name}; there is {present}")]
    NoSuchDevice {
        /// The name asked for.
        name: String,
        /// The names of those that are there.
        present: String,
    },
    /// The device cannot be opened.
    #[error("cannot open RDMA device {name}: {reason}{}", open_advice(*.errno))]
    Open {
        /// The device.
        name: String,
        /// The error number.
        errno: i32,
        /// What the system says.
        reason: String,
    },
    /// The device does not answer a question.
    #[error("RDMA device {name}: cannot {what}: {reason}")]
    Query {
        /// The device.
        name: String,
        /// What was asked.
        what: &'static str,
        /// What the system says.
        reason: String,
    },
    /// There is no such port.
    #[error("RDMA device {name} has no port {port}: its ports are 1 to {count}")]
    NoSuchPort {
        /// The device.
        name: String,
        /// The port asked for.
        port: u8,
        /// How many it has.
        count: usize,
    },
    /// No packets pass the port.
    #[error("port {port} of RDMA device {name} is {state}, not active: {advice}")]
    PortNotActive {
        /// The device.
        name: String,
        /// The port.
        port: u8,
        /// Its state.
        state: String,
        /// What to look at.
        advice: &'static str,
    },
    /// There is no such GID.
    #[error("port {port} of RDMA device {name} has no GID at index {index}; it has {present}")]
    NoSuchGid {
        /// The device.
        name: String,
        /// The port.
        port: u8,
        /// The index asked for.
        index: u8,
        /// Those that are there.
        present: String,
    },
    /// The port is not in the partition.
    #[error("port {port} of RDMA device {name}: {why}")]
    NoSuchPkey {
        /// The device.
        name: String,
        /// The port.
        port: u8,
        /// Which partitions it is in.
        why: String,
    },
    /// A resource was refused.
    #[error("RDMA device {name}: {reason}")]
    Refused {
        /// The device.
        name: String,
        /// What was refused, and why.
        reason: String,
    },
}

fn list_advice(errno: i32) -> &'static str {
    match errno {
        libc::ENOSYS | libc::ENOENT => {
            "; the kernel has no InfiniBand support loaded (module ib_uverbs)"
        }
        libc::EPERM | libc::EACCES => "; the process may not read /sys/class/infiniband_verbs",
        _ => "",
    }
}

fn open_advice(errno: i32) -> &'static str {
    match errno {
        libc::EACCES | libc::EPERM => {
            "; the process needs read and write access to /dev/infiniband/uverbs*: add the user to \
             the group of that device (often rdma), or set its mode with a udev rule"
        }
        libc::ENOENT | libc::ENODEV | libc::ENXIO => {
            "; its /dev/infiniband/uverbs* is not there: in a container pass that device in, \
             otherwise load the module ib_uverbs"
        }
        libc::EMFILE | libc::ENFILE => "; too many open files: raise `ulimit -n`",
        _ => "",
    }
}

/// What to do about a system's answer to the registration of memory.
pub(super) fn registration_advice(errno: i32, memlock: impl FnOnce() -> Memlock) -> String {
    match errno {
        libc::ENOMEM | libc::EPERM | libc::EAGAIN => match memlock() {
            Memlock {
                limit: Some(bytes),
                privileged: false,
            } => format!(
                "; registered memory is locked, and this process may lock {} KiB; {RAISE_MEMLOCK}; \
                 otherwise the machine has too little memory",
                bytes >> 10
            ),
            _ => "; registered memory is locked, which no limit of this process forbids: the \
                  machine or its control group has too little memory, or the device too few entries"
                .to_owned(),
        },
        libc::EFAULT | libc::EACCES => {
            "; the range is not mapped, or not writable as the rights ask".to_owned()
        }
        libc::EOPNOTSUPP | libc::ENOSYS => "; the device does not know these rights".to_owned(),
        _ => String::new(),
    }
}

/// An answer of the system as a verbs error.
pub(super) fn io_error(what: impl Into<String>, errno: i32) -> VerbsError {
    let what = what.into();
    let hint = match errno {
        libc::ENOMEM => " (the device or the kernel has no more room for it)",
        libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ETIMEDOUT => {
            " (no way to that address from this port: is the peer's network interface up, is the \
             GID the right one?)"
        }
        libc::EIO | libc::ENODEV => " (the device has failed or was removed)",
        _ => "",
    };
    VerbsError::Io {
        what: format!("{what}{hint}"),
        source: io::Error::from_raw_os_error(errno),
    }
}

/// The number of the last failed call of this thread.
pub(super) fn last_errno() -> i32 {
    match io::Error::last_os_error().raw_os_error() {
        Some(0) | None => libc::EIO,
        Some(errno) => errno,
    }
}

/// The text of an error number.
pub(super) fn reason(errno: i32) -> String {
    io::Error::from_raw_os_error(errno).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let open = SysError::Open {
            name: "mlx5_0".into(),
            errno: libc::EACCES,
            reason: reason(libc::EACCES),
        };
        let text = open.to_string();
        assert!(text.contains("mlx5_0") && text.contains("udev"), "{text}");
        let list = SysError::List {
            errno: libc::ENOSYS,
            reason: reason(libc::ENOSYS),
        };
        assert!(list.to_string().contains("ib_uverbs"), "{list}");
        let memlock = |limit, privileged| move || Memlock { limit, privileged };
        let advice = |limit, root| registration_advice(libc::ENOMEM, memlock(limit, root));
        let text = advice(Some(8 << 20), false);
        assert!(
            text.contains("8192 KiB") && text.contains("ulimit -l"),
            "{text}"
        );
        for (limit, root) in [(None, false), (Some(8 << 20), true)] {
            let text = advice(limit, root);
            assert!(
                text.contains("control group") && !text.contains("ulimit"),
                "{text}"
            );
        }
        assert_eq!(
            registration_advice(libc::EINVAL, || unreachable!("of no interest")),
            ""
        );
        let text = io_error("cannot reach 10.0.0.9", libc::EHOSTUNREACH).to_string();
        assert!(text.contains("10.0.0.9") && text.contains("GID"), "{text}");
    }
}
