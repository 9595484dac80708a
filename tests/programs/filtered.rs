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
    ("epoll_create1", libc::SYS_epoll_create1),
    ("eventfd2", libc::SYS_eventfd2),
    ("faccessat2", libc::SYS_faccessat2),
    ("fcntl", libc::SYS_fcntl),
    ("getrandom", libc::SYS_getrandom),
    ("madvise", libc::SYS_madvise),
    ("membarrier", libc::SYS_membarrier),
    ("memfd_create", libc::SYS_memfd_create),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("prctl", libc::SYS_prctl),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("ptrace", libc::SYS_ptrace),
    ("recvmmsg", libc::SYS_recvmmsg),
    ("rseq", libc::SYS_rseq),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("setpgid", libc::SYS_setpgid),
    ("setsid", libc::SYS_setsid),
    ("signalfd4", libc::SYS_signalfd4),
    ("socketpair", libc::SYS_socketpair),
    ("statx", libc::SYS_statx),
    ("timerfd_create", libc::SYS_timerfd_create),
];

/// What came after Linux 4.18: system calls, flags and options.
fn as_linux_4_18() -> Result<(), Failure> {
    use SeccompCmpOp::{Eq, Ge, Le, MaskedEq};
    const P_PIDFD: u64 = 3;
    const MADV_COLD: u64 = 20;
    const MADV_COLLAPSE: u64 = 25;
    const MFD_NOEXEC_SEAL: u64 = 8;
    const MFD_EXEC: u64 = 16;
    const SOL_UDP: u64 = 17;
    const UDP_GRO: u64 = 104;
    const PR_GET_AUXV: u64 = 0x4155_5856;
    const PR_SET_VMA: u64 = 0x5356_4d41;
    const F_SEAL_FUTURE_WRITE: u64 = 16;
    // Architectures share the numbers from here on.
    fails(
        (424..512).map(|number| (number, Vec::new())).collect(),
        libc::ENOSYS,
    )?;
    let flag = |arg, flag| is(arg, MaskedEq(flag), flag);
    fails(
        vec![
            (
                libc::SYS_madvise,
                vec![is(2, Ge, MADV_COLD), is(2, Le, MADV_COLLAPSE)],
            ),
            (libc::SYS_memfd_create, vec![flag(1, MFD_NOEXEC_SEAL)]),
            (libc::SYS_memfd_create, vec![flag(1, MFD_EXEC)]),
            (libc::SYS_waitid, vec![is(0, Eq, P_PIDFD)]),
            (libc::SYS_prctl, vec![is(0, Eq, PR_GET_AUXV)]),
            (libc::SYS_prctl, vec![is(0, Eq, PR_SET_VMA)]),
            (
                libc::SYS_fcntl,
                vec![
                    is(1, Eq, libc::F_ADD_SEALS as u64),
                    flag(2, F_SEAL_FUTURE_WRITE),
                ],
            ),
        ],
        libc::EINVAL,
    )?;
    let udp_gro = vec![is(1, Eq, SOL_UDP), is(2, Eq, UDP_GRO)];
    fails(vec![(libc::SYS_setsockopt, udp_gro)], libc::ENOPROTOOPT)
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
