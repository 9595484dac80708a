//! The key-value space at one agent: puts on their way up, what a fence makes visible, and gets.

use std::sync::Arc;

use super::relay::Asking;
use super::{NodeServer, Output, Shared};
use crate::question::{Answer, Question};
use crate::wire::tree::{self, Body, Direction, Message, Pairs};

impl NodeServer {
    /// Bytes of memory that the pairs of the key-value space take at this agent: keys, values and
    /// what it takes to find them, those that no fence has made visible yet included as far as they
    /// came from other PEs' messages.
    pub fn cache_bytes(&self) -> usize {
        self.kvs.bytes()
    }

    /// A PE of this node puts a pair. Whether it goes up now or with the fence, the policy says.
    pub(super) fn put_pair(&mut self, local: usize, key: &[u8], value: &[u8]) {
        self.offer_pair(local, key, value);
        let from = self.sessions[local].started();
        if let Some(pair) = self.kvs.put(from, key, value)
            && self.place.has_parent
        {
            self.send_puts(from, Pairs::checked(&pair));
        }
    }

    /// What a PE brings to a fence of the puts that it has made since the last one.
    pub(super) fn fence_pairs(
        &mut self,
        local: usize,
        puts: Vec<u8>,
        count: u32,
    ) -> (Vec<u8>, u32) {
        self.puts_leave(local, &puts);
        match self.kvs.fence_brings_puts() {
            true => (puts, count),
            false => (Vec::new(), 0),
        }
    }

    /// Puts from below, ahead of the fence `from` or a later one.
    pub(super) fn puts_from_below(&mut self, from: u64, pairs: Pairs<'_>) {
        let copy = Arc::new(pairs.bytes().to_vec());
        self.kvs.puts_pass(from, Shared::from(copy));
        if self.place.has_parent {
            self.send_puts(from, pairs);
        }
    }

    fn send_puts(&mut self, request: u64, pairs: Pairs<'_>) {
        let message = Message {
            direction: Direction::Up,
            request,
            body: Body::Puts(pairs),
        };
        // As long as the puts of one PE may be, or as it came.
        if let Ok(bytes) = message.encode() {
            self.outbox.push(Output::ToParent(Arc::new(bytes)));
        }
    }

    /// The root has all contributions of an operation: gives the message that goes down. For a fence
    /// it depends on the policy; an operation with data is turned into what the PEs get.
    pub(super) fn settle_at_root(&mut self, request: u64, message: Vec<u8>) -> Vec<u8> {
        let changed = match Message::decode(&message).map(|m| m.body) {
            Ok(Body::Fence(pairs)) => self.kvs.settle(request, pairs),
            Ok(Body::Data {
                operation,
                root,
                records,
            }) => return self.data_result(request, (operation, root), records),
            _ => None,
        };
        let Some(keys) = changed else { return message };
        let down = Message {
            direction: Direction::Down,
            request,
            body: Body::Changed(Pairs::checked(&keys)),
        };
        down.encode()
            .unwrap_or_else(|error| tree::failed(Direction::Down, request, 0, &error.to_string()))
    }

    /// A PE of this node gets the visible value of a key; [`NodeServer::answered`] replies, now or
    /// when others have answered.
    pub(super) fn kvs_get(&mut self, asking: Asking, key: &[u8]) {
        let value = self.kvs.get(key).map(<[u8]>::to_vec);
        let key = key.to_vec();
        if value.is_some() || self.kvs.is_complete() {
            self.answered(asking, Answer::Value { key, value });
        } else {
            self.ask(asking, &Question::Lookup { key });
        }
    }

    /// The answer to a lookup passes on its way down.
    pub(super) fn remember(&mut self, answer: &Answer) {
        if let Answer::Value {
            key,
            value: Some(value),
        } = answer
            && !self.kvs.is_complete()
        {
            self.kvs.insert(key, value);
        }
    }
}
