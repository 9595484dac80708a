//! What the launcher is told and what it answers: its interface to the driver.

use crate::child::ChildSetup;
use crate::exit::End;
use crate::frame::{JobOptions, Stream};

/// What the launcher needs to know of the job.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// PEs of the job.
    pub n_pes: u32,
    /// Its nodes.
    pub n_nodes: u32,
    /// What was asked for.
    pub options: JobOptions,
    /// When the job began.
    pub began: u64,
    /// Node 0's agent.
    pub agent: ChildSetup,
    /// Names of the nodes' hosts, if they have their own.
    pub hosts: Vec<String>,
    /// Id of the job.
    pub job_id: String,
    /// Its number, if another job has spawned it.
    pub spawned_as: Option<u32>,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// Bytes from node 0's agent.
    FromAgent(&'a [u8]),
    /// The link to it ended.
    AgentClosed,
    /// Its process ended.
    AgentReaped(End),
    /// Its process was started anew, as [`Action::StartAgent`] asks for; or why it cannot be.
    AgentStarted(Result<u32, String>),
    /// Its remote shell said something.
    ShellText(&'a [u8]),
    /// A signal for the launcher.
    Signal(u8),
    /// Input for PE 0.
    Stdin(&'a [u8]),
    /// There is no more input.
    StdinEnd,
    /// The driver wrote this many bytes of a stream's text.
    Written(Stream, usize),
    /// A stream can be written no more: nobody reads it, or this is where it leads and why.
    StreamClosed(Stream, Option<String>),
    /// Standard input cannot be read on, for this reason.
    StdinFailed(String),
    /// The launcher was stopped for so many nanoseconds, and all PEs with it.
    Continued(u64),
    /// Bytes from the launcher of the spawned job of this number.
    FromSpawned(u32, &'a [u8]),
    /// A spawned job wrote something.
    SpawnedText(u32, Stream, &'a [u8]),
    /// The launcher of a spawned job has ended, after all that it wrote; or why it cannot be started.
    SpawnedEnded(u32, Result<End, String>),
    /// Bytes from the launcher that started this one, which is that of a spawned job.
    FromOuter(&'a [u8]),
    /// Time has passed.
    Timer,
}

/// Moments of the job, in nanoseconds of the driver's clock; 0 if not reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moments {
    /// All agents were prepared.
    pub ready: u64,
    /// All PEs were started.
    pub started: u64,
    /// All PEs had ended.
    pub exited: u64,
    /// Nothing was left.
    pub done: u64,
}

impl Setup {
    /// Name of a node's host, if it has one of its own.
    pub(super) fn host(&self, node: u32) -> &str {
        self.hosts.get(node as usize).map_or("", String::as_str)
    }
}

/// Something that the driver has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start the remote shell of node 0's agent anew. Its first frame is the driver's.
    StartAgent,
    /// Start the launcher of a job that a PE has spawned. What the job is, is the first of its bytes.
    StartJob {
        /// Its number, by which events name it.
        number: u32,
    },
    /// Answer another process of the user, which has asked something.
    Answer {
        /// Its number.
        client: u64,
        /// The words.
        text: String,
    },
}
