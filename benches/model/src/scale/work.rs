//! What the tasks of a modelled job have to do, and what happens at some time.

use super::contacts::Done;
use super::cores::{Ran, TaskId};

/// What a task does.
#[derive(Debug)]
pub(super) enum Work {
    /// The launcher begins.
    Launcher,
    /// It has started the first agent.
    Launched,
    /// It takes in a piece of what the first agent says.
    Hears(Vec<u8>),
    /// It has written a piece to it.
    Says(Vec<u8>),
    /// It looks at its clock.
    Looks,
    /// It ends.
    Ends,
    /// The agent of a node.
    Agent(u32, AgentWork),
    /// The template of a node.
    Template(u32, TemplateWork),
    /// A PE, by node and position.
    Pe(u32, u32, PeWork),
    /// The leader of a node.
    Leader(u32, LeaderWork),
    /// The thread of a PE.
    Endpoint(u32, EndpointWork),
}

/// What happens at some time.
#[derive(Debug)]
pub(super) enum Event {
    /// A task has had a core.
    Ran(Ran),
    /// A task gets something to do, which takes so long.
    Arrives(TaskId, f64, Work),
    /// A stand-in for siblings of this child hears of its parent.
    StandIn(u32, Vec<u8>),
    /// It does what its sibling has said.
    Follows(u32, Said),
    /// A PE may have to repeat something.
    Timer(u32),
}

impl From<Ran> for Event {
    fn from(ran: Ran) -> Self {
        Self::Ran(ran)
    }
}

/// What an agent does.
#[derive(Debug)]
pub(super) enum AgentWork {
    /// It runs.
    Start,
    /// It has started a child.
    Child(usize),
    /// It has prepared its node.
    Prepare,
    /// It takes in a piece of what its parent says, or a child.
    Hear(Option<usize>, Vec<u8>),
    /// It has written a piece to them.
    Say(Option<usize>, Vec<u8>),
    /// It takes in addresses of its node.
    Addresses,
    /// The template has started so many PEs.
    Started(u32),
    /// The template has ended.
    TemplateEnded,
    /// A PE has written its line and ended.
    Ended(u32),
    /// It has reaped everything.
    CleanUp,
    /// It looks at its clock.
    Look,
}

/// What a template does.
#[derive(Debug)]
pub(super) enum TemplateWork {
    /// It can fork.
    Start,
    /// It has forked a PE, the last one of a request of so many if there is a number.
    Forked(u32, Option<u32>),
    /// It ends.
    End,
}

/// What a PE does.
#[derive(Debug)]
pub(super) enum PeWork {
    /// It has come to init.
    Main,
    /// It has its endpoint, and an address.
    Endpoint,
    /// It is done with its own part of init.
    Register,
    /// It has done its part of all its connections.
    Connect,
    /// All PEs have.
    Connected,
    /// It has left init.
    InitDone,
    /// It has come to the last barrier.
    Program,
    /// It has ended.
    Exit,
}

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    /// The nodes of the sender's subtree have come.
    Come,
    /// All have.
    Go,
}

/// What a leader does.
#[derive(Debug)]
pub(super) enum LeaderWork {
    /// It has written a flag to the leader of a node.
    Wrote(u32, Flag),
    /// It notices a flag.
    Sees(Flag),
}

/// What the thread of an endpoint does.
#[derive(Debug)]
pub(super) enum EndpointWork {
    /// It has done this to connections.
    Acted(Done),
    /// A datagram has come.
    Hears(Vec<u8>),
    /// Time has passed.
    Tick,
}

/// What a sibling was heard to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// Its subtree is prepared.
    Ready,
    /// The PEs of its subtree are started.
    Started,
    /// Addresses of its subtree.
    Addresses,
    /// The PEs of its subtree have ended.
    Exited,
}
