//! Collective operations at one agent: what has come from the PEs of the node and from the
//! children, when it goes up, and what a result does when it comes down.
//!
//! A PE joins its operations in order and links keep order, so at every agent the operations are
//! also *aggregated* and *completed* in order. Three counters therefore describe a whole agent:
//! how many operations each child has reported, how many went up, how many are complete.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::operation::{Contribution, Failure, Gathered, Operation};
use super::place::{ConfigError, Job, NodePlace};
use super::ring::{Pieces, Standing};
use super::{LinkName, NodeServer, Output, Shared, TreeError, TreeLink, WaitKind, Waiter};
use crate::ranks::RankSet;
use crate::wire::data;
use crate::wire::tree::{self, Body, Direction, GATHER_VALUES, Message};
use crate::wire::{Reply, Verb};

/// How far one PE may run ahead of the slowest, in operations, before it is refused.
pub(super) const MAX_AHEAD: u64 = 4096;

/// Copies `len` values from position `from` of a child's values to position `to` of ours.
#[derive(Debug, Clone, Copy)]
struct CopyRun {
    from: usize,
    to: usize,
    len: usize,
}

#[derive(Debug)]
struct ChildState {
    /// Number of its next contribution.
    next: u64,
    first_rank: u32,
    ranks: usize,
    copies: Vec<CopyRun>,
}

/// The operations of an agent that are under way, and where each contribution belongs.
#[derive(Debug)]
pub(super) struct Operations {
    completed: u64,
    /// Number of operations that went up, or were completed at the root.
    aggregated: u64,
    /// The operations from `completed` on.
    window: VecDeque<Operation>,
    failures: HashMap<u64, Failure>,
    /// Position of each local PE among the ranks of the subtree.
    slots: Vec<usize>,
    children: Vec<ChildState>,
    /// Children with PEs below them; others never contribute.
    contributing: usize,
    subtree: usize,
    size: usize,
}

impl Operations {
    pub(super) fn new(job: &Job, place: &NodePlace) -> Result<Self, ConfigError> {
        let subtree = place.subtree(job.size)?;
        // Every rank has a position: the subtree is the union of these sets.
        let position = |rank| subtree.position(rank).unwrap_or(0);
        let child = |ranks: &RankSet| {
            let mut copies: Vec<CopyRun> = Vec::new();
            let mut from = 0;
            for run in ranks.runs() {
                let (to, len) = (position(run.start), run.len());
                match copies.last_mut() {
                    Some(last) if last.to + last.len == to => last.len += len,
                    _ => copies.push(CopyRun { from, to, len }),
                }
                from += len;
            }
            ChildState {
                next: 0,
                first_rank: ranks.first().unwrap_or(0),
                ranks: ranks.len(),
                copies,
            }
        };
        Ok(Self {
            completed: 0,
            aggregated: 0,
            window: VecDeque::new(),
            failures: HashMap::new(),
            slots: place.ranks.iter().map(|&rank| position(rank)).collect(),
            contributing: place.children.iter().filter(|set| !set.is_empty()).count(),
            children: place.children.iter().map(child).collect(),
            subtree: subtree.len(),
            size: job.size as usize,
        })
    }

    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Bytes of this subtree's values in the operation that a PE joins with this contribution.
    pub(super) fn gathered_by(&self, contribution: &Contribution) -> u64 {
        match contribution {
            Contribution::Gather(value) => (value.len() as u64).saturating_mul(self.subtree as u64),
            _ => 0,
        }
    }

    pub(super) fn oldest_incomplete(&self) -> Option<u64> {
        (!self.window.is_empty()).then_some(self.completed)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.window.is_empty()
    }

    pub(super) fn failure(&self, request: u64) -> Option<&Failure> {
        self.failures.get(&request)
    }

    pub(super) fn late_children<'a>(
        &'a self,
        place: &'a NodePlace,
        request: u64,
    ) -> impl Iterator<Item = (usize, RankSet)> + 'a {
        let late = move |state: &ChildState| state.ranks > 0 && state.next <= request;
        self.children
            .iter()
            .enumerate()
            .filter(move |(_, state)| late(state))
            .map(|(child, _)| (child, place.children[child].clone()))
    }

    /// The operation with number `request`, which must not be complete.
    fn operation(&mut self, request: u64) -> &mut Operation {
        let index = (request - self.completed) as usize;
        while self.window.len() <= index {
            self.window.push_back(Operation::new());
        }
        &mut self.window[index]
    }

    pub(super) fn add_waiter(&mut self, request: u64, waiter: Waiter) {
        self.operation(request).waiters.push(waiter);
    }

    /// Takes the oldest operation, whose result is here, out of those that are under way, if it is a
    /// ring; gives what has come for it. Nothing has where no PE is below.
    pub(super) fn take_ring(&mut self) -> Option<(Pieces, Vec<Waiter>)> {
        if self.subtree == 0 {
            self.aggregated += 1;
            return Some(Default::default());
        }
        match self.window.pop_front()? {
            Operation {
                gathered: Gathered::Ring(pieces),
                waiters,
                ..
            } => Some((pieces, waiters)),
            _ => None,
        }
    }

    /// The oldest operation that has not gone up, if all below have joined it.
    fn next_aggregated(&mut self) -> Option<u64> {
        let index = (self.aggregated - self.completed) as usize;
        let operation = self.window.get(index)?;
        let all = operation.local == self.slots.len() && operation.children == self.contributing;
        all.then(|| {
            self.aggregated += 1;
            self.aggregated - 1
        })
    }
}

impl Failure {
    /// The reply that tells a PE of it.
    pub(super) fn reply(&self, kind: WaitKind) -> Reply<'static> {
        let verb = match kind {
            WaitKind::Attribute => Verb::NodeAttr,
            WaitKind::Fence => Verb::KvsFence,
            WaitKind::Allgather => Verb::Allgather,
            WaitKind::Wait => Verb::Wait,
            WaitKind::Data => Verb::Data,
            WaitKind::Ring => Verb::Ring,
        };
        Reply::Refused {
            command: verb.name().into(),
            rc: -1,
            message: self.reason.clone().into(),
        }
    }
}

impl NodeServer {
    /// A PE of this node joins operation `request`.
    pub(super) fn join(&mut self, local: usize, request: u64, contribution: Contribution) {
        let rank = self.rank(local);
        let (slot, subtree) = (self.operations.slots[local], self.operations.subtree);
        let operation = self.operations.operation(request);
        operation.local += 1;
        let outcome = match contribution {
            Contribution::Gather(value) => {
                let len = value.len();
                operation.values(rank, len, subtree).map(|all| {
                    all[slot * len..][..len].copy_from_slice(&value);
                })
            }
            Contribution::Fence(pairs, count) => operation.pairs(rank, &pairs, count),
            Contribution::Data(which, root, value) => {
                let mut record = Vec::new();
                let gives = !matches!(which, data::Operation::Broadcast | data::Operation::Scatter);
                if gives || rank == root {
                    tree::append_record(&mut record, rank, &value);
                }
                operation.records(
                    rank,
                    (which, root),
                    &record,
                    u32::from(gives || rank == root),
                )
            }
            Contribution::Ring(left, right) => operation
                .ring(rank)
                .map(|pieces| pieces.add_local(local, left, right)),
            Contribution::Unusable(reason) => Err(reason),
        };
        if let Err(reason) = outcome {
            operation.fail(rank, reason);
        }
        self.advance();
    }

    /// A child reports what its subtree brings to an operation.
    pub(super) fn contribution(
        &mut self,
        child: usize,
        message: &Message<'_>,
    ) -> Result<(), TreeError> {
        let link = LinkName(TreeLink::Child(child));
        let request = message.request;
        let out_of_step = |expected: String| TreeError::OutOfStep {
            link,
            request,
            expected,
        };
        let completed = self.operations.completed;
        let subtree = self.operations.subtree;
        let state = &mut self.operations.children[child];
        if state.ranks == 0 || request != state.next {
            return Err(out_of_step(format!("operation {}", state.next)));
        }
        if request - completed > MAX_AHEAD {
            return Err(out_of_step(format!("at most {MAX_AHEAD} incomplete ones")));
        }
        if let Body::Gather { value_len, values } = message.body
            && values.len() != state.ranks * value_len
        {
            return Err(out_of_step(format!("the values of {} PEs", state.ranks)));
        }
        if let Body::Ring(part) = message.body
            && part.count as usize != state.ranks
        {
            return Err(out_of_step(format!("a ring of {} PEs", state.ranks)));
        }
        state.next += 1;
        let who = state.first_rank;
        // Taken out while the operation, which lies beside it, is changed.
        let copies = std::mem::take(&mut state.copies);
        let operation = self.operations.operation(request);
        operation.children += 1;
        let outcome = match message.body {
            Body::Gather { value_len, values } => {
                operation.values(who, value_len, subtree).map(|all| {
                    for run in &copies {
                        let bytes = run.len * value_len;
                        all[run.to * value_len..][..bytes]
                            .copy_from_slice(&values[run.from * value_len..][..bytes]);
                    }
                })
            }
            Body::Fence(pairs) => operation.pairs(who, pairs.bytes(), pairs.count()),
            Body::Data {
                operation: which,
                root,
                records,
            } => operation.records(who, (which, root), records.bytes(), records.count()),
            Body::Ring(part) => operation
                .ring(who)
                .map(|pieces| pieces.add_child(child, part)),
            Body::Failed { rank, reason } => {
                operation.fail(rank, reason.to_owned());
                Ok(())
            }
            // Dealt with before, or only on the way down: these contribute nothing.
            _ => Ok(()),
        };
        if let Err(reason) = outcome {
            operation.fail(who, reason);
        }
        self.operations.children[child].copies = copies;
        self.advance();
        Ok(())
    }

    /// Sends up, or completes at the root, whatever all below have joined.
    fn advance(&mut self) {
        while let Some(request) = self.operations.next_aggregated() {
            if self.place.has_parent {
                let operation = self.operations.operation(request);
                // The pieces stay here until the answer comes.
                if let Some(message) = operation.whole_ring().and_then(|ring| ring.up(request)) {
                    self.outbox.push(Output::ToParent(Arc::new(message)));
                    continue;
                }
                let waiters = std::mem::take(&mut operation.waiters);
                let whole = std::mem::replace(operation, Operation::new());
                operation.waiters = waiters;
                let message = Arc::new(whole.seal(Direction::Up, request));
                self.kvs.goes_up(request, &message);
                self.outbox.push(Output::ToParent(message));
            } else if let Some(mut operation) = self.operations.window.pop_front() {
                let waiters = std::mem::take(&mut operation.waiters);
                if let Some(pieces) = operation.whole_ring() {
                    self.close_ring(request, pieces, waiters);
                    continue;
                }
                let message = operation.seal(Direction::Down, request);
                let message = self.settle_at_root(request, message);
                self.complete(request, message, waiters);
            }
        }
    }

    /// The parent sends the result of an operation.
    pub(super) fn result(&mut self, bytes: Vec<u8>) -> Result<(), TreeError> {
        let link = LinkName(TreeLink::Parent);
        let message = Message::decode(&bytes).map_err(|source| TreeError::Wire { link, source })?;
        let request = message.request;
        let values = match message.body {
            Body::Gather { value_len, values } => Some((value_len, values.len())),
            _ => None,
        };
        self.check_result(request, values)?;
        if let Body::Ring(part) = message.body {
            return self.ring_result(request, &Standing::from(part));
        }
        let waiters = self.take_waiters();
        self.complete(request, bytes, waiters);
        Ok(())
    }

    /// Replies to a request that waited, unless the process that sent it has ended.
    pub(super) fn tell(&mut self, waiter: &Waiter, reply: Reply<'_>) {
        if waiter.life == self.sessions[waiter.local].life() {
            self.reply(waiter.local, waiter.thread_id.as_deref(), reply);
        }
    }

    /// Whether a result may come now; `values` are the length of each and of all values of an
    /// allgather.
    pub(super) fn check_result(
        &self,
        request: u64,
        values: Option<(usize, usize)>,
    ) -> Result<(), TreeError> {
        let out_of_step = |expected| TreeError::OutOfStep {
            link: LinkName(TreeLink::Parent),
            request,
            expected,
        };
        let operations = &self.operations;
        if request != operations.completed {
            let expected = format!("the result of operation {}", operations.completed);
            return Err(out_of_step(expected));
        }
        if let Some((value_len, all)) = values
            && all != operations.size * value_len
        {
            let expected = format!("the values of {} PEs", operations.size);
            return Err(out_of_step(expected));
        }
        // With no PE below nothing goes up, yet results are forwarded and published.
        if operations.subtree != 0 && request >= operations.aggregated {
            let expected = "no result before all PEs below have joined".to_owned();
            return Err(out_of_step(expected));
        }
        Ok(())
    }

    /// Takes the oldest operation, whose result is here, out of those that are under way; gives the
    /// requests that wait for it.
    pub(super) fn take_waiters(&mut self) -> Vec<Waiter> {
        if self.operations.subtree == 0 {
            self.operations.aggregated += 1;
            return Vec::new();
        }
        let operation = self.operations.window.pop_front();
        operation.map_or_else(Vec::new, |operation| operation.waiters)
    }

    /// The result of an operation is here, as the message that goes down: forward it, apply it,
    /// and tell those who wait.
    fn complete(&mut self, request: u64, bytes: Vec<u8>, waiters: Vec<Waiter>) {
        let bytes = Arc::new(bytes);
        if let Some(for_each) = self.shares(&bytes) {
            for (child, bytes) in for_each.into_iter().enumerate() {
                self.outbox.push(Output::ToChild { child, bytes });
            }
        } else {
            self.pass_to_children(&bytes);
        }
        // Checked when it came, or sealed here.
        match Message::decode(&bytes).map(|message| message.body) {
            Ok(Body::Gather { value_len, .. }) => self.outbox.push(Output::Publish {
                request,
                value_len,
                offset: 0,
                values: Shared::new(Arc::clone(&bytes), GATHER_VALUES..bytes.len()),
                last: true,
            }),
            Ok(Body::Fence(pairs)) => {
                self.kvs.insert_all(pairs);
            }
            Ok(Body::Changed(keys)) => {
                if self.place.has_parent {
                    self.kvs.settled(request, keys);
                }
            }
            Ok(Body::Failed { rank, reason }) => {
                let reason = reason.to_owned();
                let failure = Failure { rank, reason };
                self.kvs.failed(request);
                self.operations.failures.insert(request, failure);
            }
            Ok(Body::Data { records, .. }) => {
                self.operations.completed = request + 1;
                return self.hand_out(request, records, waiters);
            }
            Ok(_) => {}
            Err(error) => debug_assert!(false, "own message cannot be read: {error}"),
        }
        self.finish(request, waiters);
    }

    /// A result has been dealt with: those who wait for it are told.
    pub(super) fn finish(&mut self, request: u64, waiters: Vec<Waiter>) {
        self.operations.completed = request + 1;
        for waiter in waiters {
            self.answer(waiter, request);
        }
    }

    /// Answers a request that waited for, or asks about, a complete operation.
    pub(super) fn answer(&mut self, waiter: Waiter, request: u64) {
        let reply = match (self.operations.failure(request), waiter.kind) {
            (Some(failure), kind) => failure.reply(kind),
            (None, WaitKind::Fence) => Reply::KvsFence { tag: None },
            (None, WaitKind::Allgather) => Reply::Allgather(request),
            (None, WaitKind::Wait) => Reply::Wait(request),
            // These are answered where their value is at hand.
            (None, WaitKind::Attribute | WaitKind::Ring | WaitKind::Data) => return,
        };
        if waiter.kind == WaitKind::Wait {
            self.no_longer_withheld(waiter.local, waiter.life);
        }
        self.tell(&waiter, reply);
    }
}
