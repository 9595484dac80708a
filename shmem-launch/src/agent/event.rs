//! What an agent is told and what it answers: its interface to the driver.

use shmem_node::to_agent::ToAgent;
use shmem_pmi::server::Shared;

use super::InputRoute;
use crate::census::{Census, Example};
use crate::child::ChildSetup;
use crate::exit::{Cause, End};
use crate::frame::{FromServer, JobOptions, Stream};
use crate::limits::SpawnQuota;
use crate::report::Reduced;

/// What an agent knows about itself.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Its node.
    pub node: u32,
    /// Rank of its first PE; the others follow.
    pub first_rank: u32,
    /// PEs of the node.
    pub n_local: u32,
    /// PEs of the job: with several, one that leaves early is missed.
    pub n_pes: u32,
    /// How many PEs it asks its template for at a time.
    pub quota: SpawnQuota,
    /// What was asked for.
    pub options: JobOptions,
    /// Where standard input goes.
    pub input: InputRoute,
    /// Whether the node has a PMIx server.
    pub pmix: bool,
    /// The child agents.
    pub children: Vec<ChildSetup>,
    /// How many of them may be waited for at a time.
    pub starts: u32,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// Bytes from the parent.
    FromParent(&'a [u8]),
    /// The link to the parent ended.
    ParentClosed,
    /// The answer to [`Action::FindParent`]: whether somebody has stopped it.
    ParentFound {
        /// It is on this machine and stopped, so nothing can be expected of it.
        stopped: bool,
    },
    /// Bytes from a child.
    FromChild(usize, &'a [u8]),
    /// The link to a child ended.
    ChildClosed(usize),
    /// A child's process ended.
    ChildReaped(usize, End),
    /// A child's process was started, as [`Action::StartChild`] asks for; or why it cannot be.
    ChildStarted(usize, Result<u32, String>),
    /// A child's remote shell said something.
    ShellText(usize, &'a [u8]),
    /// Segment, process group and template are there.
    Prepared,
    /// They cannot be made, or another thing failed that the agent cannot do without.
    Failed(Cause),
    /// The node's PMIx server has ended, or does not do its work.
    PmixFailed(String),
    /// The template has answered the oldest request: these PEs run. `error` says why fewer than
    /// asked for.
    PesStarted {
        /// Process ids, in order.
        pids: &'a [i32],
        /// Why the next PE could not be started.
        error: Option<Cause>,
    },
    /// The template has closed its socket.
    TemplateClosed,
    /// The template's process has ended: how, and why, if its file tells.
    TemplateEnded(End, Option<Cause>),
    /// A PE wrote something.
    Output(u32, Stream, &'a [u8]),
    /// A stream of a PE has no writer any more.
    OutputClosed(u32, Stream),
    /// A PE ended.
    Reaped {
        /// Local number of the PE.
        local: u32,
        /// How it ended.
        end: End,
        /// For what of it others wait.
        missed: StillNeeded,
        /// Whether it used the node segment: an OpenSHMEM program, of whose memory others know.
        attached: bool,
    },
    /// The answer to [`Action::FindAttached`]: there is a PE that has initialised and not finalized.
    Attached {
        /// As in the question.
        lost: u32,
    },
    /// A PE was started again.
    Respawned {
        /// Local number of the PE.
        local: u32,
        /// Its new process; or why there is none.
        pid: Result<i32, String>,
    },
    /// A PE wrote to its PMI socket.
    FromPe(u32, &'a [u8]),
    /// A PE's PMI socket was closed.
    PeClosed(u32),
    /// An OpenSHMEM program said something.
    Message(ToAgent<'a>),
    /// The node's PMIx server said something.
    FromPmix(FromServer<'a>),
    /// The PEs that get input have taken so many bytes of it, each of them; 0 if none takes any more.
    StdinTaken(u32),
    /// Somebody sent this agent a signal to end.
    Terminated(u8),
    /// What a PE of this node recorded, encoded. Comes before [`Event::CleanedUp`].
    Recorded(Vec<u8>),
    /// Everything in the process group is gone, and this is the node's report.
    CleanedUp(Box<Reduced>),
    /// What the PEs do, for the question of this number.
    Counted(u32, Census),
    /// The stacks of a PE, for the question of this number; or why there are none.
    Traced(u32, u32, String),
    /// Time has passed, and what there was to read of output was read.
    Timer,
}

/// Something that the driver has to do, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask the template for PEs `first..first + count` (local numbers).
    StartPes {
        /// First PE.
        first: u32,
        /// How many.
        count: u32,
    },
    /// Let the template exit.
    FinishTemplate,
    /// The parent is silent: see what it does, and answer with [`Event::ParentFound`].
    FindParent,
    /// Answer with [`Event::Attached`] if a PE uses what PEs share.
    FindAttached {
        /// A PE that is lost.
        lost: u32,
    },
    /// Read what a PE that was reaped has left in its pipes, as far as output may be read, and close them.
    CloseOutputOf(u32),
    /// Start a PE again that was reaped and whose pipes are closed, and answer with [`Event::Respawned`].
    Respawn {
        /// Local number of the PE.
        local: u32,
        /// How often it has been started again, this time included.
        count: u32,
    },
    /// Send a signal to the process group.
    Signal(u8),
    /// The job goes on after it was stopped for so many nanoseconds, and with it whoever starts PEs.
    Continued(u64),
    /// Write to a PE's PMI socket.
    ToPe(u32, Vec<u8>),
    /// Send a frame to the node's PMIx server.
    ToPmix(Vec<u8>),
    /// Put a piece of an allgather's result into the node segment. Pieces come in order, from
    /// offset 0 to the last one.
    Publish {
        /// Whose slots it belongs to.
        of: Service,
        /// Number of the operation.
        request: u64,
        /// Bytes of each value.
        value_len: usize,
        /// Where the piece belongs among the values of all PEs of the job.
        offset: usize,
        /// The piece.
        values: Shared,
        /// Whether the result is complete with it.
        last: bool,
    },
    /// Look what the PEs do, and answer with [`Event::Counted`] and this number.
    Count(u32),
    /// Find out the stacks of a PE, and answer with [`Event::Traced`].
    Trace {
        /// Number of the question.
        number: u32,
        /// Which PE.
        pe: Example,
        /// How many milliseconds it may take.
        budget_ms: u32,
    },
    /// Start the remote shell of a child. Its first frame is the driver's.
    StartChild(usize),
    /// Close the link to a child and end its remote shell.
    DropChild(usize),
    /// Input for the PEs that get it.
    Stdin(Vec<u8>),
    /// They get no more.
    StdinEnd,
    /// Close the read ends of a stream.
    CloseOutput(Stream),
    /// Kill the process group and every descendant but the child agents.
    KillAll,
    /// Give up on output that has not ended.
    DropOutput,
    /// Reap everything, make the report, answer with [`Event::CleanedUp`].
    CleanUp,
    /// Flush the link to the parent and exit.
    Exit,
    /// Kill everything and exit at once: nobody is there to hear of it.
    Die,
}

/// One of the two servers of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// PMI.
    Pmi,
    /// The exchange of UD addresses.
    Addresses,
}

/// For what of a PE that has ended the others of a job wait: see [`exit`](crate::exit), "Who frees those that
/// wait".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StillNeeded {
    /// For nothing.
    Nothing,
    /// It never called init, and others are in theirs, which needs it.
    Init,
    /// It called init, and did not return from finalize.
    Finalize,
}
