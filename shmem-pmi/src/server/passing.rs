//! The result of an allgather passing through an agent: every piece is forwarded and published as it
//! comes.
//!
//! A result holds a value of every PE of the job, so it is the one message that is large on every
//! node. Waiting for the whole of it at each level of the tree would multiply its time by the depth,
//! and storing it would cost every node more than all its other PMI work.

use std::sync::Arc;

use super::{NodeServer, Output, Shared, TreeError};
use crate::wire::tree::{GATHER_VALUES, ResultHeader};

/// A result of which the header has come and the last value has not.
#[derive(Debug)]
pub(super) struct Passing {
    request: u64,
    value_len: usize,
    /// Bytes of all values, and how many of them have come.
    len: usize,
    seen: usize,
    /// The header, until it is forwarded with the first piece.
    header: Option<[u8; GATHER_VALUES]>,
}

impl NodeServer {
    /// The header of an allgather's result has come.
    pub(super) fn begin_passing(&mut self, header: ResultHeader) -> Result<(), TreeError> {
        let ResultHeader {
            request,
            value_len,
            len,
            bytes,
        } = header;
        self.check_result(request, Some((value_len, len)))?;
        self.outbox.begin_passing(Passing {
            request,
            value_len,
            len,
            seen: 0,
            header: Some(bytes),
        });
        Ok(())
    }

    /// Takes what belongs to the result that is passing, and gives the rest.
    pub(super) fn pass_on<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(passing) = self.outbox.passing() else {
            return bytes;
        };
        let (values, rest) = bytes.split_at(bytes.len().min(passing.len - passing.seen));
        if values.is_empty() && passing.len > 0 {
            return rest;
        }
        let header = passing.header.take();
        let header = header.as_ref().map_or(&[][..], |header| header);
        let piece = Arc::new([header, values].concat());
        let (request, offset) = (passing.request, passing.seen);
        passing.seen += values.len();
        let last = passing.seen == passing.len;
        let publish = Output::Publish {
            request,
            value_len: passing.value_len,
            offset,
            values: Shared::new(Arc::clone(&piece), header.len()..piece.len()),
            last,
        };
        self.outbox.push(publish);
        self.pass_to_children(&piece);
        if last {
            self.outbox.end_passing();
            let waiters = self.take_waiters();
            self.finish(request, waiters);
        }
        rest
    }

    /// Sends a message, or a piece of one, to each child.
    pub(super) fn pass_to_children(&mut self, bytes: &Arc<Vec<u8>>) {
        for child in 0..self.children.len() {
            let bytes = Arc::clone(bytes);
            self.outbox.push(Output::ToChild { child, bytes });
        }
    }
}
