//! A node of a modelled job: its launch agent, template and PEs.

use std::collections::VecDeque;

use shmem_launch::agent::{Agent, Event as AgentEvent, StillNeeded};
use shmem_launch::exit::End;
use shmem_launch::frame::{FrameReader, Stream};
use shmem_launch::report::Reduced;

use super::cores::TaskId;

/// Longest piece of a message between agents: what a socket takes at once.
pub(super) const PIECE: usize = 64 << 10;

/// What agents have had no room for yet.
pub(super) type Requests = VecDeque<(u32, u32)>;

/// What a stand-in needs beside its agent.
#[derive(Debug, Default)]
pub(super) struct StandIn {
    /// PEs that it has been asked for.
    pub(super) requests: Requests,
    /// Whether its sibling has started all PEs of its subtree.
    pub(super) starts: bool,
    /// What its sibling took until its subtree was prepared, if that was before this one ran.
    pub(super) takes: Option<f64>,
    /// Whether it has brought addresses.
    pub(super) brought: bool,
    /// PEs whose end is still to be told: as much output as there is room for is told at a time.
    pub(super) to_end: std::ops::Range<u32>,
}

/// A node, or a stand-in for a subtree.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: u32,
    pub(super) agent: Agent,
    pub(super) task: TaskId,
    pub(super) template: TaskId,
    pub(super) pes: Vec<TaskId>,
    /// The parent's node, and which of its children this is.
    pub(super) parent: Option<(u32, usize)>,
    pub(super) children: Vec<u32>,
    pub(super) first_rank: u32,
    pub(super) n_local: u32,
    /// Until when the link to other nodes is busy.
    pub(super) link: f64,
    /// When its agent began to run.
    pub(super) ran: Option<f64>,
    /// When it looks at its clock next.
    pub(super) looks: f64,
    pub(super) next_pid: i32,
    /// PEs that are in init's barrier, have left their address, and are at the last barrier.
    pub(super) met: u32,
    pub(super) left: u32,
    pub(super) at_end: u32,
    /// When each PE began init, or how long it was in it.
    pub(super) inits: Vec<f64>,
    /// What a stand-in needs besides.
    pub(super) stand_in: Option<StandIn>,
    /// Reads what this node says to its parent, for stand-ins.
    pub(super) overheard: FrameReader,
}

impl Node {
    /// Its number.
    pub(super) fn number(&self) -> u32 {
        self.at
    }

    pub(super) fn is_stand_in(&self) -> bool {
        self.stand_in.is_some()
    }

    /// Time that its PEs were in init, all together.
    pub(super) fn in_init(&self) -> f64 {
        self.inits.iter().sum()
    }

    /// Process ids for so many.
    pub(super) fn pids(&mut self, count: u32) -> Vec<i32> {
        let first = self.next_pid;
        self.next_pid += count as i32;
        (first..self.next_pid).collect()
    }

    /// What a PE writes.
    pub(super) fn line(&self, local: u32, n_pes: u32) -> String {
        format!("Hello from PE {} of {n_pes}\n", self.first_rank + local)
    }

    /// The PE has ended, and all of its output was read.
    pub(super) fn ended(&mut self, local: u32, n_pes: u32, now: f64) {
        let (line, now) = (self.line(local, n_pes), now as u64);
        let agent = &mut self.agent;
        agent.handle(AgentEvent::Output(local, Stream::Out, line.as_bytes()), now);
        for stream in [Stream::Err, Stream::Out] {
            agent.handle(AgentEvent::OutputClosed(local, stream), now);
        }
        let reaped = AgentEvent::Reaped {
            local,
            end: End::Code(0),
            missed: StillNeeded::Nothing,
            attached: true,
        };
        agent.handle(reaped, now);
    }

    /// A report of a node with nothing in it.
    pub(super) fn report() -> Box<Reduced> {
        Box::new(Reduced {
            agents: 1,
            ..Reduced::default()
        })
    }
}
