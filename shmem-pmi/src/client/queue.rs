//! The calls that have been made and whose outcome has not come.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::ticket::{Outcome, Settle};
use super::{ClientError, Refusal, RequestId};
use crate::wire::{Command, Reply, Verb};

/// A request that has been sent or is held back, and who gets its reply.
#[derive(Debug)]
pub(super) struct Pending {
    /// The client's number for it.
    pub(super) mark: u64,
    /// The command, by which replies are told apart.
    pub(super) verb: Verb,
    /// For collective operations and waits.
    pub(super) request: Option<RequestId>,
    /// None for a plain fence under an `ifence`: its completion is told to those who wait.
    pub(super) caller: Option<Arc<dyn Settle>>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// One at a time: what must not be sent yet.
    pub(super) held: VecDeque<(Command<'static>, Pending)>,
    /// Sent, without reply.
    pub(super) pending: VecDeque<Pending>,
    /// One at a time: calls of `wait` for a fence that is under way.
    waits: Vec<(Arc<dyn Settle>, RequestId)>,
    /// One at a time: fences that failed.
    failed: HashMap<RequestId, Refusal>,
}

impl Queue {
    pub(super) fn outstanding(&self) -> usize {
        self.pending.len() + self.held.len() + self.waits.len()
    }

    /// The outcome of the pending call at `index`.
    pub(super) fn settle(
        &mut self,
        index: usize,
        outcome: Outcome<Reply<'_>>,
    ) -> Result<(), ClientError> {
        let Some(pending) = self.pending.remove(index) else {
            return Ok(());
        };
        let verb = pending.verb;
        if let Some(caller) = &pending.caller {
            return match caller.settle(outcome) {
                true => Ok(()),
                false => Err(ClientError::Unexpected {
                    command: verb.name().to_owned(),
                }),
            };
        }
        if let (Some(request), Err(refusal)) = (pending.request, outcome) {
            self.failed.insert(request, refusal);
        }
        let over = |(_, request): &mut (_, RequestId)| pending.request == Some(*request);
        for (caller, request) in self.waits.extract_if(.., over).collect::<Vec<_>>() {
            self.tell_wait(&*caller, request);
        }
        Ok(())
    }

    /// One at a time: tells the caller when `request` is over.
    pub(super) fn wait(&mut self, caller: Arc<dyn Settle>, request: RequestId) {
        let held = self.held.iter().map(|(_, pending)| pending);
        let mut under_way = self.pending.iter().chain(held);
        if under_way.any(|pending| pending.request == Some(request)) {
            self.waits.push((caller, request));
        } else {
            self.tell_wait(&*caller, request);
        }
    }

    fn tell_wait(&self, caller: &dyn Settle, request: RequestId) {
        caller.settle(match self.failed.get(&request) {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(Reply::Wait(request.0)),
        });
    }
}
