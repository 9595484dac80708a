//! Runs a command under a filter that makes system calls fail, as older kernels and containers do: `filtered WHAT... -- COMMAND`.
//!
//! WHAT is `linux-4.18`, which answers as that kernel does, or `CALL=ERROR`: a system call that fails, such as
//! `close_range=EPERM`. Of `prctl` and `fcntl` a single request can fail: `prctl:36=EINVAL`.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut halves = words.splitn(2, |word| word == "--");
    let (what, command) = (halves.next(), halves.next().and_then(<[_]>::split_first));
    let (Some(what), Some((program, args))) = (what, command) else {
        eprintln!("usage: filtered WHAT... -- COMMAND");
        return ExitCode::from(2);
    };
    if let Err(e) = what.iter().try_for_each(|what| lacks(what)) {
        eprintln!("filtered: {e}");
        return ExitCode::from(2);
    }
    let e = Command::new(program).args(args).exec();
    eprintln!("filtered: {program}: {e}");
    ExitCode::from(127)
}

/// From now on the kernel lacks this, for this process and those that it starts.
fn lacks(what: &str) -> Result<(), Failure> {
    if what == "linux-4.18" {
        return as_linux_4_18();
    }
    let (call, error) = what.split_once('=').ok_or("CALL=ERROR is expected")?;
    let (call, conditions) = match call.split_once(':') {
        Some((call, request)) => {
            let arg = u8::from(call == "fcntl");
            (call, vec![is(arg, SeccompCmpOp::Eq, request.parse()?)])
        }
        None => (call, Vec::new()),
    };
    let &(_, number) = CALLS
        .iter()
        .find(|(name, _)| *name == call)
        .ok_or_else(|| format!("this program does not know the system call {call}"))?;
    fails(vec![(number, conditions)], errno(error)?)
}

fn errno(name: &str) -> Result<i32, Failure> {
    Ok(match name {
        "ENOSYS" => libc::ENOSYS,
        "EPERM" => libc::EPERM,
        "EINVAL" => libc::EINVAL,
        "EAGAIN" => libc::EAGAIN,
        _ => return Err(format!("this program does not know the error {name}").into()),
    })
}

/// The system calls that can be taken away.
const CALLS: &[(&str, i64)] = &[
    ("clone3", libc::SYS_clone3),
    ("close_range", libc::SYS_close_range),
    ("copy_file_range", libc::SYS_copy_file_range),
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("epoll_pwait", libc::SYS_epoll_pwait),
    ("eventfd2", libc::SYS_eventfd2),
    ("faccessat2", libc::SYS_faccessat2),
    ("fallocate", libc::SYS_fallocate),
    ("fcntl", libc::SYS_fcntl),
    ("getpriority", libc::SYS_getpriority),
    ("getrandom", libc::SYS_getrandom),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("ioctl", libc::SYS_ioctl),
    ("madvise", libc::SYS_madvise),
    ("mbind", libc::SYS_mbind),
    ("membarrier", libc::SYS_membarrier),
    ("memfd_create", libc::SYS_memfd_create),
    ("mlock", libc::SYS_mlock),
    ("mlock2", libc::SYS_mlock2),
    ("mremap", libc::SYS_mremap),
    ("openat2", libc::SYS_openat2),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("ppoll", libc::SYS_ppoll),
    ("prctl", libc::SYS_prctl),
    ("prlimit64", libc::SYS_prlimit64),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("ptrace", libc::SYS_ptrace),
    ("recvmmsg", libc::SYS_recvmmsg),
    ("rseq", libc::SYS_rseq),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("sched_yield", libc::SYS_sched_yield),
    ("seccomp", libc::SYS_seccomp),
    ("sendfile", libc::SYS_sendfile),
    ("sendmmsg", libc::SYS_sendmmsg),
    ("set_mempolicy", libc::SYS_set_mempolicy),
    ("setpgid", libc::SYS_setpgid),
    ("setpriority", libc::SYS_setpriority),
    ("setsid", libc::SYS_setsid),
    ("sigaltstack", libc::SYS_sigaltstack),
    ("signalfd4", libc::SYS_signalfd4),
    ("socketpair", libc::SYS_socketpair),
    ("splice", libc::SYS_splice),
    ("statx", libc::SYS_statx),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("userfaultfd", libc::SYS_userfaultfd),
    #[cfg(target_arch = "x86_64")]
    ("epoll_wait", libc::SYS_epoll_wait),
    #[cfg(not(target_arch = "x86_64"))]
    ("epoll_wait", libc::SYS_epoll_pwait),
];

/// What came after Linux 4.18: system calls, flags and options. Files that came later (`cgroup.kill`) stay.
fn as_linux_4_18() -> Result<(), Failure> {
    use SeccompCmpOp::{Eq, Ge, Le, MaskedEq};
    // Architectures share the numbers from here on.
    let calls = 424..512;
    fails(
        calls.map(|number| (number, Vec::new())).collect(),
        libc::ENOSYS,
    )?;
    let flag = |arg, flag| vec![is(arg, MaskedEq(flag), flag)];
    let between = |arg, first, last| vec![is(arg, Ge, first), is(arg, Le, last)];
    let sealing = |seal| {
        let command = is(1, Eq, libc::F_ADD_SEALS as u64);
        (libc::SYS_fcntl, [vec![command], flag(2, seal)].concat())
    };
    fails(
        vec![
            // MADV_COLD to MADV_COLLAPSE; MADV_GUARD_INSTALL and _REMOVE, which C libraries use for the stacks of threads.
            (libc::SYS_madvise, between(2, 20, 25)),
            (libc::SYS_madvise, between(2, 102, 103)),
            // MFD_NOEXEC_SEAL, MFD_EXEC.
            (libc::SYS_memfd_create, flag(1, 8)),
            (libc::SYS_memfd_create, flag(1, 16)),
            // F_SEAL_FUTURE_WRITE, F_SEAL_EXEC.
            sealing(16),
            sealing(32),
            // P_PIDFD.
            (libc::SYS_waitid, vec![is(0, Eq, 3)]),
            // PR_PAC_RESET_KEYS and all that followed; PR_GET_AUXV; PR_SET_VMA.
            (libc::SYS_prctl, between(0, 54, 1000)),
            (libc::SYS_prctl, vec![is(0, Eq, 0x4155_5856)]),
            (libc::SYS_prctl, vec![is(0, Eq, 0x5356_4d41)]),
            // MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ and all that followed.
            (libc::SYS_membarrier, vec![is(0, Ge, 128)]),
            // GRND_INSECURE.
            (libc::SYS_getrandom, flag(2, 4)),
            // MREMAP_DONTUNMAP.
            (libc::SYS_mremap, flag(3, 4)),
            // CLONE_NEWTIME.
            (libc::SYS_unshare, flag(0, 0x80)),
        ],
        libc::EINVAL,
    )?;
    // FUTEX_LOCK_PI2, with FUTEX_PRIVATE_FLAG or without it.
    let lock = vec![is(1, MaskedEq(0x7f), 13)];
    fails(vec![(libc::SYS_futex, lock)], libc::ENOSYS)?;
    // PTRACE_GET_SYSCALL_INFO and all that followed.
    let ptrace = between(0, 0x420e, 0x42ff);
    fails(vec![(libc::SYS_ptrace, ptrace)], libc::EIO)?;
    // Of sockets from SO_TXTIME on, of UDP UDP_GRO, of TCP from TCP_TX_DELAY on, of IP from IP_LOCAL_PORT_RANGE on.
    let mut options = Vec::new();
    for call in [libc::SYS_setsockopt, libc::SYS_getsockopt] {
        for (level, first, last) in [
            (libc::SOL_SOCKET, 61, 1000),
            (libc::SOL_UDP, 104, 1000),
            (libc::SOL_TCP, 37, 1000),
            // Those from 64 on are iptables' and old.
            (libc::SOL_IP, 51, 63),
        ] {
            let newer = [vec![is(1, Eq, level as u64)], between(2, first, last)];
            options.push((call, newer.concat()));
        }
    }
    fails(options, libc::ENOPROTOOPT)
}

fn is(arg: u8, how: SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(arg, SeccompCmpArgLen::Dword, how, value).expect("six arguments at most")
}

/// These calls, where all of the conditions hold, fail with an error.
fn fails(calls: Vec<(i64, Vec<SeccompCondition>)>, errno: i32) -> Result<(), Failure> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (number, conditions) in calls {
        let of = rules.entry(number).or_default();
        // A call without rules always fails.
        if !conditions.is_empty() {
            of.push(SeccompRule::new(conditions)?);
        }
    }
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno as u32),
        std::env::consts::ARCH.try_into()?,
    )?;
    Ok(seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?)
}
