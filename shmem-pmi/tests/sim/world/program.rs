//! What PEs of a simulated job do, what they give, and what they are to get.

use shmem_pmi::client::{Initialised, Ticket};
use shmem_pmi::wire::data::{Operation, pack};

use crate::rng::Rng;

/// The collective operations of the job, which all PEs call in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Collective {
    Fence,
    Ifence,
    Allgather(usize),
    Iallgather(usize),
    Data(Operation, u32),
}

impl Collective {
    pub(super) fn is_fence(self) -> bool {
        matches!(self, Self::Fence | Self::Ifence)
    }

    pub(super) fn gathers(self) -> Option<usize> {
        match self {
            Self::Allgather(len) | Self::Iallgather(len) => Some(len),
            Self::Fence | Self::Ifence | Self::Data(..) => None,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    JobFacts,
    PutNodeAttr,
    /// Asks for the attribute of this node's leader.
    NodeAttr {
        wait: bool,
    },
    Put(usize),
    /// Gets the own pair of an operation before any fence could show it.
    GetTooEarly(usize),
    Start(usize),
    Wait(usize),
    /// Gets what another rank put before fence `.0`.
    Get(usize, u32),
    /// Gets a key to which another rank gives a new value before every fence, after fence `.0`.
    GetAgain(usize, u32),
    /// Gets what another rank puts for fence `.0` from that rank, without any fence.
    GetFrom(usize, u32),
    /// Sends to the next rank, and receives from the one before.
    Send,
    Receive,
    Finalize,
}

/// What a PE waits for before its next step, and what it has to be.
#[derive(Debug)]
pub(super) enum Await {
    Initialised(Ticket<Initialised>),
    JobId(Ticket<String>),
    JobAttr(Ticket<Option<Vec<u8>>>),
    NodeAttr {
        value: Ticket<Option<Vec<u8>>>,
        may_be_absent: bool,
    },
    Done(Ticket<()>, usize),
    Value(Ticket<Option<Vec<u8>>>, Option<Vec<u8>>),
    /// The value of a fence with this number or, as this one need not be the last, a larger one.
    NotOlder(Ticket<Option<Vec<u8>>>, usize),
    /// A direct get of what that rank puts for that fence, or the value that it puts just before.
    From(Ticket<Vec<u8>>, usize, u32),
    Received(Ticket<Vec<u8>>, Vec<u8>),
    Finalized(Ticket<()>),
}

pub(super) fn gather_value(rank: u32, op: usize, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(rank) << 20 | op as u64);
    (0..len).map(|_| rng.next() as u8).collect()
}

pub(super) fn pair(rank: u32, op: usize) -> (String, Vec<u8>) {
    let value = format!("<{rank}={op}>").repeat(1 + (rank as usize + op) % 4);
    (format!("key-{op}-{rank}"), value.into_bytes())
}

pub(super) fn item(rank: u32, op: usize, to: u32) -> Vec<u8> {
    let len = (rank as usize * 7 + op * 13 + to as usize) % 30;
    gather_value(rank, op, len)
}

/// What a rank brings to an operation with data, and what it gets.
pub(super) fn with_data(
    operation: Operation,
    root: u32,
    rank: u32,
    size: u32,
    op: usize,
) -> [Vec<u8>; 2] {
    let all = |from: &dyn Fn(u32) -> Vec<u8>| {
        let items: Vec<_> = (0..size).map(from).collect();
        pack(items.iter().map(|item| &item[..]))
    };
    let own = item(rank, op, 0);
    let at_root = rank == root;
    let rooted = |list: Vec<u8>| if at_root { list } else { Vec::new() };
    match operation {
        Operation::Gather => [own, rooted(all(&|from| item(from, op, 0)))],
        Operation::Allgather => [own, all(&|from| item(from, op, 0))],
        Operation::Broadcast => [own, item(root, op, 0)],
        Operation::Scatter => [rooted(all(&|to| item(root, op, to))), item(root, op, rank)],
        Operation::Alltoall => [
            all(&|to| item(rank, op, to)),
            all(&|from| item(from, op, rank)),
        ],
    }
}

/// The key to which a rank gives a new value before every fence.
pub(super) fn again(rank: u32) -> String {
    format!("again-{rank}")
}

/// 1 to 8 PEs on each of the nodes, or none on some; in blocks, cyclically, or anyhow.
pub(super) fn placement(rng: &mut Rng, nodes: u32) -> Vec<u32> {
    let empty = rng.percent(15);
    let counts: Vec<u64> = (0..nodes)
        .map(|_| {
            if empty && rng.percent(40) {
                0
            } else {
                1 + rng.below(8)
            }
        })
        .collect();
    let mut placed: Vec<u32> = (0..nodes)
        .flat_map(|node| std::iter::repeat_n(node, counts[node as usize] as usize))
        .collect();
    if placed.is_empty() {
        placed.push(rng.below(nodes.into()) as u32);
    }
    match rng.below(3) {
        0 => {}
        1 => {
            // Round after round over the nodes.
            let mut seen = vec![0; nodes as usize];
            let round = |node: &u32| {
                let seen = &mut seen[*node as usize];
                *seen += 1;
                *seen
            };
            let rounds: Vec<u32> = placed.iter().map(round).collect();
            let mut keyed: Vec<_> = rounds.into_iter().zip(placed).collect();
            keyed.sort_unstable();
            placed = keyed.into_iter().map(|(_, node)| node).collect();
        }
        _ => {
            for i in (1..placed.len()).rev() {
                placed.swap(i, rng.below(i as u64 + 1) as usize);
            }
        }
    }
    placed
}
