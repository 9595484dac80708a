//! Collective operations with data of any length at one agent: what a PE brings, what the root makes of
//! it, and which part of it goes to whom.

use std::collections::HashMap;
use std::sync::Arc;

use super::operation::Contribution;
use super::{NodeServer, WaitKind, Waiter};
use crate::wire::Reply;
use crate::wire::data::{self, MAX_CONTRIBUTION, Operation};
use crate::wire::tree::{
    self, Body, DATA_RECORDS, Direction, EVERYBODY, Message, Records, append_record,
};
use crate::wire::v2::DATA_PART;

impl NodeServer {
    /// A PE joins an operation, or sends one of several parts of what it brings.
    pub(super) fn join_with_data(
        &mut self,
        local: usize,
        thread_id: Option<&[u8]>,
        (operation, root): (Operation, u32),
        part: &[u8],
        more: bool,
    ) -> Result<(), String> {
        let whole = self.exchange.parts.entry(local).or_default();
        // One byte over the limit is enough to know.
        let room = (MAX_CONTRIBUTION + 1).saturating_sub(whole.len());
        whole.extend_from_slice(&part[..part.len().min(room)]);
        if more {
            return Ok(());
        }
        let value = self.exchange.parts.remove(&local).unwrap_or_default();
        let contribution = match self.usable(local, operation, root, &value) {
            Ok(()) => Contribution::Data(operation, root, value),
            Err(reason) => {
                let rank = self.rank(local);
                Contribution::Unusable(format!("PE {rank}: NLA {operation}: {reason}"))
            }
        };
        // Before it joins: the result may be there at once, and goes to those who wait.
        self.wait_to_start(local, thread_id, WaitKind::Data)?;
        self.start(local, contribution).map(drop)
    }

    fn usable(
        &self,
        local: usize,
        operation: Operation,
        root: u32,
        value: &[u8],
    ) -> Result<(), String> {
        let size = self.job.size;
        if value.len() > MAX_CONTRIBUTION {
            return Err(format!("more than {MAX_CONTRIBUTION} bytes"));
        }
        if root >= size {
            return Err(format!(
                "root {root} is none of the {size} ranks of the job"
            ));
        }
        let list = match operation {
            Operation::Scatter => self.rank(local) == root,
            Operation::Alltoall => true,
            _ => false,
        };
        if list && data::unpack(value, size as usize).is_none() {
            return Err(format!("not one byte string for each of the {size} PEs"));
        }
        Ok(())
    }

    /// The root has what all PEs gave: makes of it what they get.
    pub(super) fn data_result(
        &self,
        request: u64,
        (operation, root): (Operation, u32),
        records: Records<'_>,
    ) -> Vec<u8> {
        let size = self.job.size as usize;
        let mut given: Vec<_> = records.iter().collect();
        given.sort_unstable_by_key(|&(rank, _)| rank);
        let values = || given.iter().map(|&(_, value)| value);
        let mut message = vec![0; DATA_RECORDS];
        let mut count = 0;
        let mut add = |rank: u32, bytes: &[u8]| {
            append_record(&mut message, rank, bytes);
            count += 1;
        };
        match operation {
            Operation::Gather => add(root, &data::pack(values())),
            Operation::Allgather => add(EVERYBODY, &data::pack(values())),
            Operation::Broadcast => values().for_each(|value| add(EVERYBODY, value)),
            Operation::Scatter => {
                // Checked when the root's PE gave it.
                let items = values()
                    .filter_map(|list| data::unpack(list, size))
                    .flatten();
                (0..).zip(items).for_each(|(rank, item)| add(rank, item));
            }
            Operation::Alltoall => {
                let lists: Vec<_> = values().filter_map(|l| data::unpack(l, size)).collect();
                for to in 0..size {
                    add(to as u32, &data::pack(lists.iter().map(|list| list[to])));
                }
            }
        }
        let what = (operation, root);
        match tree::seal_data(&mut message, Direction::Down, request, what, count) {
            Ok(()) => message,
            Err(error) => tree::failed(Direction::Down, request, root, &error.to_string()),
        }
    }

    /// The messages for the children, where each gets only what is for its subtree.
    pub(super) fn shares(&self, bytes: &[u8]) -> Option<Vec<Arc<Vec<u8>>>> {
        let message = Message::decode(bytes).ok()?;
        let Body::Data {
            operation,
            root,
            records,
        } = message.body
        else {
            return None;
        };
        if matches!(operation, Operation::Broadcast | Operation::Allgather) {
            return None;
        }
        let mut shares = vec![(vec![0; DATA_RECORDS], 0); self.place.children.len()];
        for (rank, value) in records.iter() {
            let child = self.place.children.iter().position(|c| c.contains(rank));
            if let Some((share, count)) = child.map(|child| &mut shares[child]) {
                append_record(share, rank, value);
                *count += 1;
            }
        }
        let seal = |(mut share, count): (Vec<u8>, u32)| {
            let (request, what) = (message.request, (operation, root));
            // A part of a message that was not too long.
            let _ = tree::seal_data(&mut share, Direction::Down, request, what, count);
            Arc::new(share)
        };
        Some(shares.into_iter().map(seal).collect())
    }

    /// An operation is complete: the PEs of this node get theirs.
    pub(super) fn hand_out(&mut self, request: u64, records: Records<'_>, waiters: Vec<Waiter>) {
        let mut own: Vec<&[u8]> = vec![&[]; self.sessions.len()];
        let locals: HashMap<u32, usize> = self.place.ranks.iter().copied().zip(0..).collect();
        for (rank, value) in records.iter() {
            if rank == EVERYBODY {
                own.fill(value);
            } else if let Some(&local) = locals.get(&rank) {
                own[local] = value;
            }
        }
        for waiter in waiters {
            if waiter.kind != WaitKind::Data {
                self.answer(waiter, request);
                continue;
            }
            let mut rest = own[waiter.local];
            loop {
                let (part, after) = rest.split_at(rest.len().min(DATA_PART));
                rest = after;
                let reply = Reply::Data {
                    request,
                    value: part.into(),
                    more: !rest.is_empty(),
                };
                self.tell(&waiter, reply);
                if rest.is_empty() {
                    break;
                }
            }
        }
    }
}
