//! Why a job ended and what the exit status of `shmrun` says about it.
//!
//! | end of the job | status |
//! |---|---|
//! | every PE exited with 0 | 0 |
//! | a PE exited with another status | that of the *first* PE which did |
//! | a PE was killed by signal s | 128 + s |
//! | a PE ended the job itself (global exit) | the status that it gave |
//! | a PE exited with 0 after init but without finalize | 1 |
//! | output could not be written or input not be read, and nothing else failed before | 123 |
//! | nobody reads the output any more, and nothing else failed before | 141 (128 + SIGPIPE) |
//! | the time of `--timeout` was over | 124 |
//! | the launcher or an agent failed, or how a PE ended cannot be found out | 125 |
//! | the program cannot be executed | 126 |
//! | the program does not exist | 127 |
//! | Ctrl-C, SIGTERM, SIGHUP, SIGQUIT to `shmrun` | 130, 143, 129, 131 |
//! | the command line is wrong | 2 |
//!
//! Exactly one cause is reported, the first that reaches the launcher: what the other PEs do after
//! the job was ended is a consequence. A PE may have failed because a PMIx server or an agent failed, and may be
//! reported first. The launcher then reports that cause, too, and exits with its status: see `agent/causes.rs`.
//!
//! # Who frees those that wait
//! A PE that waits for one which has ended without finalize waits for ever, in memory, on the network or in
//! PMI: nobody tells it, and only the end of the job frees it. An agent therefore reports an end that
//! leaves others waiting, and the launcher ends the job. An end with another status than 0 is a fault
//! whatever the PE left behind, so `Agent::reaped` looks at that (`StillNeeded`) only where the status is 0, or
//! where the others are to go on after a fault (`--keep-going`): there it looks at it for every end, and
//! only one that leaves nobody waiting lets them. Of the PEs of a lost node nobody knows what they were
//! in; so those that are left are asked whether they use what PEs share, and PMI looks for who is missing.

use std::fmt;

use serde::{Deserialize, Serialize};

use shmem_node::machine::Size;

use crate::frame::codec;

/// A wrong command line.
pub const USAGE: u8 = 2;
/// Output was lost, or input.
pub const OUTPUT: u8 = 123;
/// The time limit was over.
pub const TIMEOUT: u8 = 124;
/// PEs wait for others that have left.
pub const HUNG: u8 = 1;
/// The launcher itself failed.
pub const LAUNCHER: u8 = 125;
/// The program was found but cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The program was not found.
pub const NOT_FOUND: u8 = 127;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It exited.
    Code(u8),
    /// A signal killed it.
    Signal {
        /// Which one.
        signal: u8,
        /// Whether a core file was written.
        core: bool,
    },
    /// A signal killed it that the kernel may have sent because there was no memory.
    OutOfMemory {
        /// Which one: SIGKILL or SIGBUS.
        signal: u8,
        /// Bytes of memory that its control group may have.
        limit: Option<u64>,
    },
    /// It has gone, and the kernel has given its status to somebody else, or kept it for nobody.
    Unknown,
}

impl End {
    /// Killed by a signal, without a core file.
    pub const fn killed(signal: u8) -> Self {
        Self::Signal {
            signal,
            core: false,
        }
    }

    /// From the status word of wait(2).
    pub fn from_wait(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Code((status >> 8) as u8),
            signal => Self::Signal {
                signal: signal as u8,
                core: status & 0x80 != 0,
            },
        }
    }

    /// As a shell would say it.
    pub fn status(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal { signal, .. } | Self::OutOfMemory { signal, .. } => {
                128u8.saturating_add(signal)
            }
            Self::Unknown => LAUNCHER,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exited with status {code}"),
            Self::Signal { signal, core } => {
                write!(f, "was killed by signal {signal} ({})", signal_name(signal))?;
                if core {
                    f.write_str(", core dumped")
                } else {
                    Ok(())
                }
            }
            Self::OutOfMemory { signal, limit } => {
                write!(f, "was killed by signal {signal} ({}); ", signal_name(signal))?;
                f.write_str(match i32::from(signal) {
                    libc::SIGKILL => "memory may have run out: the kernel has killed processes for that meanwhile",
                    _ => "memory may have run out: the kernel had none for a page that was touched",
                })?;
                match limit {
                    Some(limit) => write!(f, "; the control group allows {}", Size(limit)),
                    None => Ok(()),
                }
            }
            Self::Unknown => f.write_str(
                "has ended with a status that nobody knows: another process has waited for it, or the process that \
                 started it ignored SIGCHLD",
            ),
        }
    }
}

/// The customary name of a Linux signal.
pub fn signal_name(signal: u8) -> &'static str {
    const NAMES: [&str; 32] = [
        "none",
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    NAMES
        .get(usize::from(signal))
        .copied()
        .unwrap_or("a real-time signal")
}

/// Whether a signal is passed on for programs to do with it what they like: SIGUSR1 and SIGUSR2.
pub fn is_for_programs(signal: u8) -> bool {
    matches!(signal.into(), libc::SIGUSR1 | libc::SIGUSR2)
}

/// Whether a signal that is passed on is to end processes, rather than to stop or continue them, or
/// to tell them something.
pub fn ends(signal: u8) -> bool {
    !is_for_programs(signal) && !matches!(signal.into(), libc::SIGTSTP | libc::SIGCONT)
}

/// What failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// A PE ended as it should not.
    Pe {
        /// Its rank.
        rank: u32,
        /// How it ended.
        end: End,
    },
    /// A PE left with status 0 although others may still wait for it.
    Unfinalized {
        /// Its rank.
        rank: u32,
    },
    /// A PE has ended before an operation that others have joined and that needs all: an
    /// initialisation of theirs.
    Absent {
        /// Its rank.
        rank: u32,
    },
    /// A PE lives and has closed its PMI connection, and others wait in an operation that needs all.
    Disconnected {
        /// Its rank.
        rank: u32,
    },
    /// A PE ended the job.
    Abort {
        /// Its rank.
        rank: u32,
        /// The status that it gave.
        code: i32,
        /// What it said.
        #[serde(serialize_with = "codec::clipped")]
        message: String,
    },
    /// An agent is gone.
    Agent {
        /// How, as far as its parent could find out.
        end: Option<End>,
    },
    /// An agent could not be started on its host. There may be others that cannot, and each is told.
    Unreachable {
        /// What and why.
        #[serde(serialize_with = "codec::clipped")]
        what: String,
    },
    /// An agent could not do its work.
    Node {
        /// What and why.
        #[serde(serialize_with = "codec::clipped")]
        what: String,
    },
    /// The kernel does not execute a program.
    Program {
        /// Which, and why.
        #[serde(serialize_with = "codec::clipped")]
        what: String,
        /// The exit status that shells have for it.
        status: u8,
    },
    /// Nothing was heard of an agent for too long.
    Silent {
        /// How long, in milliseconds.
        ms: u64,
        /// The first PE of its subtree.
        first: u32,
        /// The last one.
        last: u32,
    },
    /// A PE was lost without whom the others were to go on, but they cannot.
    Needed {
        /// Its rank.
        rank: u32,
    },
}

/// A failure, as an agent reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Where.
    pub node: u32,
    /// The process concerned; 0 if there is none.
    pub pid: u32,
    /// What.
    pub cause: Cause,
}

/// Somebody is lost, and the others may go on (`--keep-going`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// How.
    pub fault: Fault,
    /// The first PE that is lost.
    pub first: u32,
    /// The last one.
    pub last: u32,
}

impl From<String> for Cause {
    fn from(what: String) -> Self {
        Self::Node { what }
    }
}

impl Cause {
    /// Whether it is what a PE did that ran.
    pub fn is_of_a_pe(&self) -> bool {
        matches!(
            self,
            Self::Pe { .. }
                | Self::Unfinalized { .. }
                | Self::Absent { .. }
                | Self::Disconnected { .. }
                | Self::Abort { .. }
        )
    }
}

impl Fault {
    /// The exit status of the job.
    pub fn status(&self) -> u8 {
        match &self.cause {
            Cause::Pe { end, .. } => end.status(),
            Cause::Unfinalized { .. }
            | Cause::Absent { .. }
            | Cause::Disconnected { .. }
            | Cause::Needed { .. } => 1,
            Cause::Abort { code, .. } => *code as u8,
            Cause::Program { status, .. } => *status,
            Cause::Agent { .. }
            | Cause::Unreachable { .. }
            | Cause::Node { .. }
            | Cause::Silent { .. } => LAUNCHER,
        }
    }

    /// Whether there is something to tell: a PE may end the job with status 0 in peace.
    pub fn is_silent(&self) -> bool {
        matches!(&self.cause, Cause::Abort { code: 0, message, .. } if message.is_empty())
    }

    /// The message, with the name of the node's host, if it has one of its own.
    pub fn message<'a>(&'a self, hosts: &'a [String]) -> impl fmt::Display + 'a {
        Message { fault: self, hosts }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message(&[]).fmt(f)
    }
}

struct Message<'a> {
    fault: &'a Fault,
    hosts: &'a [String],
}

/// A node, and its host if that has a name.
struct NodeName<'a>(u32, Option<&'a String>);

impl fmt::Display for NodeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(node, None) => write!(f, "node {node}"),
            Self(node, Some(host)) => write!(f, "node {node} ({host})"),
        }
    }
}

/// PEs with consecutive ranks: the first and the last.
pub(crate) struct Ranks(pub(crate) u32, pub(crate) u32);

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(first, last) if first == last => write!(f, "PE {first}"),
            Self(first, last) => write!(f, "PEs {first} to {last}"),
        }
    }
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { node, pid, cause } = self.fault;
        let node = NodeName(*node, self.hosts.get(*node as usize));
        match cause {
            Cause::Pe { rank, end } => write!(f, "PE {rank} on {node} (pid {pid}) {end}"),
            Cause::Unfinalized { rank } => write!(
                f,
                "PE {rank} on {node} (pid {pid}) exited with status 0 without finalize, \
                 so other PEs could wait for it forever"
            ),
            Cause::Absent { rank } => write!(
                f,
                "PE {rank} has ended, but other PEs, seen on {node}, wait for it: all PEs must \
                 initialise, and join collective operations, equally often"
            ),
            Cause::Disconnected { rank } => write!(
                f,
                "PE {rank} has closed its PMI connection without finalize, but other PEs, seen on \
                 {node}, wait for it in a collective operation"
            ),
            Cause::Abort {
                rank,
                code,
                message,
            } => {
                write!(
                    f,
                    "PE {rank} on {node} (pid {pid}) ended the job with status {code}"
                )?;
                if message.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {}", message.trim_end())
                }
            }
            Cause::Agent { end: Some(end) } => {
                write!(f, "the launch agent of {node} (pid {pid}) {end}")
            }
            Cause::Agent { end: None } => {
                write!(f, "the launch agent of {node} (pid {pid}) closed its link")
            }
            Cause::Unreachable { what } | Cause::Node { what } | Cause::Program { what, .. } => {
                write!(f, "{node}: {what}")
            }
            Cause::Silent { ms, first, last } => {
                let s = *ms as f64 / 1e3;
                write!(
                    f,
                    "{node}: nothing was heard of its launch agent for {s:.1} s \
                     (SHMEM_HEARTBEAT_TIMEOUT): the host is cut off or hangs, or the agent is stopped; \
                     lost with it: {}",
                    Ranks(*first, *last)
                )
            }
            Cause::Needed { rank } => write!(
                f,
                "PE {rank} is lost, and PEs on {node} use OpenSHMEM, so they would wait for it forever"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses() {
        assert_eq!(End::from_wait(0), End::Code(0));
        assert_eq!(End::from_wait(3 << 8), End::Code(3));
        assert_eq!(End::from_wait(9), End::killed(9));
        assert_eq!(
            End::from_wait(11 | 0x80),
            End::Signal {
                signal: 11,
                core: true
            }
        );
        assert_eq!(End::from_wait(15).status(), 143);
    }

    #[test]
    fn messages_name_pe_node_pid_and_cause() {
        let pe = |end| Fault {
            node: 2,
            pid: 1234,
            cause: Cause::Pe { rank: 5, end },
        };
        let killed = pe(End::killed(9));
        assert_eq!(
            killed.to_string(),
            "PE 5 on node 2 (pid 1234) was killed by signal 9 (SIGKILL)"
        );
        assert_eq!(killed.status(), 137);
        assert_eq!(
            pe(End::Code(7)).to_string(),
            "PE 5 on node 2 (pid 1234) exited with status 7"
        );
        assert_eq!(pe(End::Code(7)).status(), 7);
        let end = Some(End::killed(9));
        let agent = Fault {
            node: 3,
            pid: 77,
            cause: Cause::Agent { end },
        };
        assert_eq!(
            agent.to_string(),
            "the launch agent of node 3 (pid 77) was killed by signal 9 (SIGKILL)"
        );
        assert_eq!(agent.status(), LAUNCHER);
        let hosts = ["a", "b", "c", "d"].map(String::from);
        assert_eq!(
            agent.message(&hosts).to_string(),
            "the launch agent of node 3 (d) (pid 77) was killed by signal 9 (SIGKILL)"
        );
    }

    #[test]
    fn what_memory_may_have_ended_says_so() {
        let end = End::OutOfMemory {
            signal: 9,
            limit: Some(256 << 20),
        };
        assert_eq!(end.status(), 137);
        assert_eq!(
            end.to_string(),
            "was killed by signal 9 (SIGKILL); memory may have run out: the kernel has killed processes for that \
             meanwhile; the control group allows 256.0 MiB"
        );
    }

    #[test]
    fn every_signal_has_a_name() {
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(31), "SIGSYS");
        assert_eq!(signal_name(40), "a real-time signal");
    }
}
