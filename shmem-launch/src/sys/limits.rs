//! Limits of processes: raised for the launcher's own, and taken back for the programs that it starts, which
//! have the soft limits of the shell in which `shmrun` was typed, on other hosts, too.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use shmem_node::sys::{getrlimit, known_limits};

/// The limits with which this process, or the one that it was forked from, began: of descriptors, file sizes and
/// stacks, if they have been raised, and of core files, if there are to be none.
static FIRST_DESCRIPTORS: OnceLock<Rlimit> = OnceLock::new();
static FIRST_CORE: OnceLock<Rlimit> = OnceLock::new();
static FIRST_FILE_SIZE: OnceLock<Rlimit> = OnceLock::new();
static FIRST_STACK: OnceLock<Rlimit> = OnceLock::new();

/// The soft limits that programs are to have on a host that has others.
static ADOPTED: OnceLock<Vec<SoftLimit>> = OnceLock::new();

/// Number of a limit among [`TRAVELLING`], and its value; `u64::MAX` is none.
pub(crate) type SoftLimit = (u8, u64);

/// Limits that hold for the programs of a job on all hosts. That of processes is of a host: what others do
/// there counts.
const TRAVELLING: [Resource; 8] = [
    Resource::Core,
    Resource::Stack,
    Resource::Nofile,
    Resource::Memlock,
    Resource::Data,
    Resource::As,
    Resource::Fsize,
    Resource::Cpu,
];

/// The soft limits of [`TRAVELLING`] with which this process began, as far as they are known.
pub(crate) fn soft_limits() -> Vec<SoftLimit> {
    soft_of(|which| match FIRST_STACK.get() {
        Some(stack) if which == Resource::Stack => Some(Rlimit { ..*stack }),
        _ => known_limits(which),
    })
}

/// The soft limits of [`TRAVELLING`] according to `limits`. An unknown one is left out: an agent would take it for none, and
/// raise the limit of its own host.
fn soft_of(limits: impl Fn(Resource) -> Option<Rlimit>) -> Vec<SoftLimit> {
    let numbered = (0..).zip(TRAVELLING);
    let soft =
        numbered.map(|(number, which)| Some((number, limits(which)?.current.unwrap_or(u64::MAX))));
    soft.flatten().collect()
}

/// From now on there is no core file of this process, whatever its limit is, until it executes another program.
pub(crate) fn be_undumpable() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// From now on [`restore_limits`] gives programs these limits, as far as the hard ones of this host allow.
pub(crate) fn adopt_limits(limits: Vec<SoftLimit>) {
    ADOPTED.get_or_init(|| limits);
}

/// From now on there is no core file of this process, or of one that is forked from it: its memory
/// has the key of the job in many places. The kernel ignores a limit of 0 where core files go to a program; with one
/// of 1 it starts none, and no file is as small. Where limits are unknown or cannot be changed, this process is no longer
/// dumpable instead: the kernel then hides more of it from the user's debuggers.
pub(crate) fn leave_no_core_file() {
    let Some(old) = known_limits(Resource::Core) else {
        return be_undumpable();
    };
    FIRST_CORE.get_or_init(|| Rlimit { ..old });
    for few in [1, 0] {
        let none = Rlimit {
            current: Some(few),
            maximum: old.maximum,
        };
        if setrlimit(Resource::Core, none).is_ok() {
            return;
        }
    }
    be_undumpable();
}

/// Raises the limit of descriptors to `need`, as far as this user may; gives what it is then.
pub(crate) fn raise_descriptors(need: u64) -> u64 {
    let old = getrlimit(Resource::Nofile);
    let (current, most) = (
        old.current.unwrap_or(u64::MAX),
        old.maximum.unwrap_or(u64::MAX),
    );
    FIRST_DESCRIPTORS.get_or_init(|| old);
    if current >= need {
        return current;
    }
    for (limit, maximum) in [(need, need.max(most)), (need.min(most), most)] {
        let raised = Rlimit {
            current: Some(limit),
            // Without a limit it stays without one.
            maximum: old.maximum.map(|_| maximum),
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return limit;
        }
    }
    current
}

/// Raises the limit of file sizes as far as this user may: shared memory counts as a file.
pub(crate) fn raise_file_size() {
    let old = getrlimit(Resource::Fsize);
    let maximum = old.maximum;
    if old.current != maximum {
        FIRST_FILE_SIZE.get_or_init(|| old);
        let _ = setrlimit(
            Resource::Fsize,
            Rlimit {
                current: maximum,
                maximum,
            },
        );
    }
}

/// Gives this process, whose first stack grows as it is used, a stack that launchers and agents can do with.
///
/// # Errors
/// The limit that the user cannot raise.
pub(crate) fn raise_stack() -> Result<(), u64> {
    /// What shells usually allow.
    const USUAL: u64 = 8 << 20;
    /// What launchers and agents need: less has overflowed.
    const LEAST: u64 = 192 << 10;
    let old = getrlimit(Resource::Stack);
    let maximum = old.maximum;
    let raised = USUAL.min(maximum.unwrap_or(u64::MAX));
    if old.current.is_none_or(|current| current >= raised) {
        return if raised < LEAST { Err(raised) } else { Ok(()) };
    }
    FIRST_STACK.get_or_init(|| old);
    let current = Some(raised);
    let _ = setrlimit(Resource::Stack, Rlimit { current, maximum });
    if raised < LEAST { Err(raised) } else { Ok(()) }
}

/// Takes [`raise_stack`], [`raise_descriptors`], [`raise_file_size`] and [`leave_no_core_file`] back, for programs that a forked
/// child is to execute.
pub(crate) fn restore_limits() {
    let first = [
        (Resource::Fsize, &FIRST_FILE_SIZE),
        (Resource::Stack, &FIRST_STACK),
        (Resource::Nofile, &FIRST_DESCRIPTORS),
        (Resource::Core, &FIRST_CORE),
    ];
    for (which, limit) in first {
        if let Some(limit) = limit.get() {
            let limit = Rlimit { ..*limit };
            let _ = setrlimit(which, limit);
        }
    }
    for &(which, soft) in ADOPTED.get().into_iter().flatten() {
        if let Some(&which) = TRAVELLING.get(usize::from(which))
            && let Some(Rlimit { maximum, .. }) = known_limits(which)
        {
            let current = Some(soft.min(maximum.unwrap_or(u64::MAX))).filter(|&n| n != u64::MAX);
            let _ = setrlimit(which, Rlimit { current, maximum });
        }
    }
}

/// Takes the same back in the process that `command` is to start.
pub(crate) fn with_first_limits(command: &mut Command) -> &mut Command {
    let restore = || {
        restore_limits();
        Ok(())
    };
    // SAFETY: system calls with values that this process has; no lock is taken and nothing is allocated.
    unsafe { command.pre_exec(restore) }
}

/// Descriptors that programs may have open after [`restore_limits`].
pub(crate) fn descriptors_of_programs() -> u64 {
    let now = getrlimit(Resource::Nofile);
    let first = FIRST_DESCRIPTORS
        .get()
        .map_or(now, |limit| Rlimit { ..*limit });
    let is_descriptors = |which: u8| TRAVELLING.get(usize::from(which)) == Some(&Resource::Nofile);
    let mut adopted = ADOPTED.get().into_iter().flatten();
    let adopted = adopted.find(|&&(which, _)| is_descriptors(which));
    let soft = adopted.map_or(first.current, |&(_, soft)| Some(soft));
    let (soft, most) = (soft.unwrap_or(u64::MAX), first.maximum.unwrap_or(u64::MAX));
    soft.min(most)
}

/// Most descriptors that a process of this user can get.
pub(crate) fn descriptors_allowed() -> Option<u64> {
    if is_root() {
        return std::fs::read_to_string("/proc/sys/fs/nr_open")
            .ok()?
            .trim()
            .parse()
            .ok();
    }
    Some(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX))
}

/// Raises the limit of processes as far as this user may; gives it if it binds.
pub(crate) fn processes_allowed() -> Option<u64> {
    if is_root() {
        return None;
    }
    let Rlimit { maximum, .. } = getrlimit(Resource::Nproc);
    let current = maximum;
    let _ = setrlimit(Resource::Nproc, Rlimit { current, maximum });
    maximum
}

/// The real user of this process, for whom the kernel counts processes.
pub(crate) fn user() -> u32 {
    rustix::process::getuid().as_raw()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_limits_do_not_travel() {
        assert_eq!(soft_of(|_| None), []);
        let limits = |which| match which {
            Resource::Stack => Some(Rlimit {
                current: Some(8 << 20),
                maximum: None,
            }),
            // Known to be none.
            Resource::Cpu => Some(Rlimit {
                current: None,
                maximum: None,
            }),
            _ => None,
        };
        assert_eq!(soft_of(limits), [(1, 8 << 20), (7, u64::MAX)]);
    }
}
