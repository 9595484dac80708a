//! Counts what each process of a job costs: system calls, page faults, threads, descriptors, private memory.
//!
//! `costs COMMAND...` runs a command, and all that it starts, under `ptrace`, which takes no privilege and no
//! package, and prints a line for each process that ended by itself:
//!
//! `NAME EXECUTED CALLS FAULTS THREADS DESCRIPTORS KIB`
//!
//! NAME is what the process calls itself, EXECUTED 1 if it has executed a program since it was forked. Calls of a
//! kind that is repeated until something happens are not counted: their number depends on who runs when.
//! Descriptors are those that are open at the end; KIB is the private memory that was written. The status is
//! that of the command, or 3 where `ptrace` is not allowed.
//!
//! `costs bare` does nothing but count processors, and forks a process that does nothing. What that costs is the
//! business of the kernel, the dynamic linker, the C library and Rust's.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::ptr::null_mut;

/// Status where nothing can be traced.
const NOT_ALLOWED: u8 = 3;

/// Calls that wait, or look whether there is something to do.
const WAITING: [i64; 9] = [
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_wait4,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_restart_syscall,
    libc::SYS_nanosleep,
];

/// Whatever a traced process starts is traced, and stops before it ends.
const OPTIONS: i32 = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_EXITKILL;

/// What is known of the processes that live.
#[derive(Default)]
struct Traced {
    /// The process of each thread.
    process_of: HashMap<i32, i32>,
    calls: HashMap<i32, u64>,
    threads: HashMap<i32, u64>,
    executed: HashSet<i32>,
}

impl Traced {
    /// A thread that is stopped for the first time.
    fn add(&mut self, thread: i32) -> i32 {
        let process = field(thread, "status", "Tgid:").map_or(thread, |n| n as i32);
        self.process_of.insert(thread, process);
        *self.threads.entry(process).or_default() += 1;
        process
    }

    /// Prints what a process took that is about to end.
    fn tell(&self, process: i32) {
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // Behind the name, which may hold anything: state, parent, ..., minor faults.
        let faults = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(7)?.parse::<u64>().ok());
        let open = fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
        let kib = field(process, "smaps_rollup", "Private_Dirty:");
        println!(
            "{} {} {} {} {} {open} {}",
            name.trim().replace(' ', "-"),
            u8::from(self.executed.contains(&process)),
            self.calls.get(&process).unwrap_or(&0),
            faults.unwrap_or(0),
            self.threads.get(&process).unwrap_or(&0),
            kib.unwrap_or(0),
        );
    }
}

/// The first number behind a word of a file of a process.
fn field(process: i32, file: &str, word: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(word))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Lets a stopped thread go on to its next system call, with a signal or 0.
fn go_on(thread: i32, signal: i32) {
    // SAFETY: numbers. A thread that has been killed meanwhile is an error that is of no interest.
    unsafe { libc::ptrace(libc::PTRACE_SYSCALL, thread, 0, signal) };
}

/// The number of the call that a thread is about to make, if it is not returning from one.
fn entered(thread: i32) -> Option<i64> {
    // SAFETY: numbers, for which zeros are values.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes as many bytes as the object has, at most.
    let got = unsafe {
        libc::ptrace(
            libc::PTRACE_GET_SYSCALL_INFO,
            thread,
            size_of_val(&info),
            &raw mut info,
        )
    };
    // SAFETY: all parts are numbers, of which there are as many bytes.
    let number = unsafe { info.u.entry.nr } as i64;
    (got > 0 && info.op == libc::PTRACE_SYSCALL_INFO_ENTRY).then_some(number)
}

/// Forks a process that ends at once.
fn bare() -> io::Result<ExitCode> {
    // All programs of ours ask, and what it takes depends on control groups.
    std::thread::available_parallelism()?;
    // SAFETY: this process has one thread, and its child only exits.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: a system call.
        0 => unsafe { libc::_exit(0) },
        child => {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            Ok(ExitCode::from(u8::from(waited != child || status != 0)))
        }
    }
}

/// Keeps the descriptors that this process was given from the command.
fn keep_inherited() -> io::Result<()> {
    // By name, because old C libraries and kernels have no call for all of them at once.
    for open in fs::read_dir("/proc/self/fd")? {
        let number = open?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|&n: &i32| n > 2) {
            // SAFETY: changes only what an exec does with a descriptor.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

fn main() -> io::Result<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let program = words.next().expect("a command");
    if program == "bare" {
        return bare();
    }
    // What this process has from others is none of the command's costs.
    keep_inherited()?;
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::null());
    // SAFETY: a system call that is allowed after a fork.
    unsafe {
        command.pre_exec(|| {
            match libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<u8>(), null_mut::<u8>()) {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        });
    }
    let first = match command.spawn() {
        Ok(child) => child.id() as i32,
        Err(e) => {
            eprintln!("cannot trace: {e}");
            return Ok(ExitCode::from(NOT_ALLOWED));
        }
    };
    let mut traced = Traced::default();
    traced.executed.insert(first);
    let mut end = ExitCode::FAILURE;
    loop {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let thread = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        if thread == -1 {
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => continue,
                _ => return Ok(end),
            }
        }
        if !libc::WIFSTOPPED(status) {
            if thread == first && libc::WIFEXITED(status) {
                end = ExitCode::from(libc::WEXITSTATUS(status) as u8);
            }
            traced.process_of.remove(&thread);
            continue;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        let known = traced.process_of.get(&thread).copied();
        let process = known.unwrap_or_else(|| traced.add(thread));
        if known.is_none() && thread == first {
            // SAFETY: numbers.
            unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, thread, 0, OPTIONS) };
        }
        let mut deliver = 0;
        if signal == libc::SIGTRAP | 0x80 {
            if entered(thread).is_some_and(|call| !WAITING.contains(&call)) {
                *traced.calls.entry(process).or_default() += 1;
            }
        } else if event == libc::PTRACE_EVENT_EXEC {
            traced.executed.insert(process);
        } else if event == libc::PTRACE_EVENT_EXIT {
            if thread == process {
                traced.tell(process);
            }
        } else if event == 0 && known.is_some() {
            deliver = signal;
        }
        go_on(thread, deliver);
    }
}
