//! What one PE wants of another, without a collective operation: a key that the other puts (direct
//! exchange), or the next message that it sends to the one that asks.
//!
//! Both are kept at the agent of the PE that gives, and a question goes there. So a sender never
//! waits, nothing is sent that nobody asked for, and the end of a PE is known where it matters: who
//! waits for what will never come is told.

use std::collections::{HashMap, VecDeque};

use super::NodeServer;
use crate::question::{Answer, Question};
use crate::wire::data::{MAX_MESSAGE, MAX_UNRECEIVED, MESSAGE_OVERHEAD};
use crate::wire::tree::Pairs;

/// What is wanted of a PE.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Wanted {
    /// The value of a key that it puts.
    Key(Box<[u8]>),
    /// The next message to this rank.
    Message(u32),
}

/// Who asked, and its agent's number for the question.
#[derive(Debug, Clone, Copy)]
struct Asker {
    rank: u32,
    ticket: u64,
}

/// What the PEs of a node give to single others.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// Unanswered questions, by the local index of the PE that they are about.
    waiting: HashMap<(usize, Wanted), VecDeque<Asker>>,
    /// This agent's own lookups of such keys, by ticket: whether a fence has made them visible, only
    /// an agent above knows.
    lookups: HashMap<u64, (usize, Box<[u8]>)>,
    /// Puts on their way through a fence, by local index: number of the operation, and pairs.
    in_flight: HashMap<usize, VecDeque<(u64, Vec<u8>)>>,
    /// Messages that nobody has received, by sender and receiver.
    messages: HashMap<(usize, u32), VecDeque<Vec<u8>>>,
    /// Bytes of them, by sender.
    unreceived: HashMap<usize, usize>,
    /// Contributions to collective operations of which more parts are to come, by local index.
    pub(super) parts: HashMap<usize, Vec<u8>>,
}

impl Exchange {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.lookups.is_empty()
    }
}

/// What a message takes of the room for those that nobody has received.
fn cost(message: &[u8]) -> usize {
    message.len() + MESSAGE_OVERHEAD
}

fn last_value<'a>(pairs: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let all = Pairs::checked(pairs).iter();
    all.filter(|(k, _)| *k == key).map(|(_, v)| v).last()
}

impl NodeServer {
    /// A question about PE `of`, which is on this node or nowhere.
    pub(super) fn wanted(&mut self, rank: u32, ticket: u64, question: &Question) {
        let (of, wanted) = match question {
            Question::Fetch { owner, key } => (*owner, Wanted::Key(key[..].into())),
            Question::Receive { from } => (*from, Wanted::Message(rank)),
            _ => return,
        };
        let asker = Asker { rank, ticket };
        let Some(local) = self.place.ranks.iter().position(|&r| r == of) else {
            let reason = format!("rank {of} is none of the {} of the job", self.job.size);
            return self.refuse(asker, reason);
        };
        if let Some(bytes) = self.at_hand(local, &wanted) {
            return self.give(asker, bytes);
        }
        let unsure = matches!(wanted, Wanted::Key(_)) && !self.kvs.is_complete();
        if !unsure && self.sessions[local].has_left() {
            return self.refuse(asker, self.never(local, &wanted));
        }
        if let Wanted::Key(key) = &wanted
            && unsure
        {
            // A fence may have made it visible, and it is forgotten here.
            let own = self.new_ticket();
            self.exchange.lookups.insert(own, (local, key.clone()));
            let key = key.to_vec();
            self.want(local, wanted, asker);
            return self.route_question(of, own, &Question::Lookup { key });
        }
        self.want(local, wanted, asker);
    }

    fn want(&mut self, local: usize, wanted: Wanted, asker: Asker) {
        let askers = self.exchange.waiting.entry((local, wanted)).or_default();
        askers.push_back(asker);
    }

    /// What is wanted, if this agent has it.
    fn at_hand(&mut self, local: usize, wanted: &Wanted) -> Option<Vec<u8>> {
        match wanted {
            Wanted::Key(key) => {
                if let Some(value) = last_value(self.sessions[local].puts(), key) {
                    return Some(value.to_vec());
                }
                let completed = self.operations.completed();
                let in_flight = self.exchange.in_flight.get(&local).into_iter().flatten();
                let in_flight = in_flight.rev().filter(|(request, _)| *request >= completed);
                let value = in_flight
                    .filter_map(|(_, pairs)| last_value(pairs, key))
                    .next();
                value.or_else(|| self.kvs.get(key)).map(<[u8]>::to_vec)
            }
            Wanted::Message(to) => {
                let exchange = &mut self.exchange;
                let queue = exchange.messages.get_mut(&(local, *to))?;
                let message = queue.pop_front()?;
                if queue.is_empty() {
                    exchange.messages.remove(&(local, *to));
                }
                *exchange.unreceived.entry(local).or_default() -= cost(&message);
                Some(message)
            }
        }
    }

    fn never(&self, local: usize, wanted: &Wanted) -> String {
        let rank = self.rank(local);
        match wanted {
            Wanted::Key(key) => {
                let key = String::from_utf8_lossy(key);
                format!("PE {rank} has finalized or ended without putting `{key}`")
            }
            Wanted::Message(to) => {
                format!("PE {rank} has finalized or ended without sending to PE {to}")
            }
        }
    }

    fn give(&mut self, asker: Asker, bytes: Vec<u8>) {
        self.route_answer(asker.rank, asker.ticket, Answer::Bytes(bytes));
    }

    fn refuse(&mut self, asker: Asker, reason: String) {
        self.route_answer(asker.rank, asker.ticket, Answer::Refused { rc: -1, reason });
    }

    /// A PE of this node puts a pair: those who asked for it get it.
    pub(super) fn offer_pair(&mut self, local: usize, key: &[u8], value: &[u8]) {
        if self.exchange.waiting.is_empty() {
            return;
        }
        let askers = self
            .exchange
            .waiting
            .remove(&(local, Wanted::Key(key.into())));
        for asker in askers.into_iter().flatten() {
            self.give(asker, value.to_vec());
        }
    }

    /// The puts of a PE go into its next operation, a fence.
    pub(super) fn puts_leave(&mut self, local: usize, puts: &[u8]) {
        if puts.is_empty() || !self.job.extensions {
            return;
        }
        let (request, completed) = (self.sessions[local].started(), self.operations.completed());
        let in_flight = self.exchange.in_flight.entry(local).or_default();
        in_flight.retain(|(request, _)| *request >= completed);
        in_flight.push_back((request, puts.to_vec()));
    }

    /// The answer to this agent's own lookup.
    pub(super) fn looked_up(&mut self, ticket: u64, answer: Answer) {
        let Some((local, key)) = self.exchange.lookups.remove(&ticket) else {
            return;
        };
        let wanted = Wanted::Key(key);
        let value = match answer {
            Answer::Value { value, .. } => value,
            _ => None,
        };
        if value.is_none() && !self.sessions[local].has_left() {
            // Not yet: the put will bring it.
            return;
        }
        let reason = self.never(local, &wanted);
        let askers = self.exchange.waiting.remove(&(local, wanted));
        for asker in askers.into_iter().flatten() {
            match &value {
                Some(value) => self.give(asker, value.clone()),
                None => self.refuse(asker, reason.clone()),
            }
        }
    }

    /// A PE of this node has finalized, or its connection has ended: it puts and sends nothing any
    /// more, unless another process takes its place, and needs no answer.
    pub(super) fn pe_left(&mut self, local: usize) {
        self.asking.retain(|_, asking| asking.local != local);
        let exchange = &mut self.exchange;
        exchange.parts.remove(&local);
        if exchange.waiting.is_empty() || !self.sessions[local].has_left() {
            return;
        }
        // Where a lookup is under way, its answer decides.
        let lookups = &exchange.lookups;
        let open = |key: &[u8]| lookups.values().any(|(l, k)| *l == local && **k == *key);
        let hopeless = exchange.waiting.extract_if(|(of, wanted), _| {
            *of == local && !matches!(wanted, Wanted::Key(key) if open(key))
        });
        let hopeless: Vec<_> = hopeless.collect();
        for ((_, wanted), askers) in hopeless {
            let reason = self.never(local, &wanted);
            for asker in askers {
                self.refuse(asker, reason.clone());
            }
        }
    }

    /// A PE of this node sends a message to another.
    pub(super) fn send_message(
        &mut self,
        local: usize,
        to: u32,
        message: Vec<u8>,
    ) -> Result<(), String> {
        if to >= self.job.size {
            return Err(format!(
                "rank {to} is none of the {} of the job",
                self.job.size
            ));
        }
        if message.len() > MAX_MESSAGE {
            return Err(format!(
                "message of {} bytes; at most {MAX_MESSAGE} are possible",
                message.len()
            ));
        }
        let wanted = (local, Wanted::Message(to));
        if let Some(askers) = self.exchange.waiting.get_mut(&wanted) {
            let first = askers.pop_front();
            if askers.is_empty() {
                self.exchange.waiting.remove(&wanted);
            }
            if let Some(asker) = first {
                self.give(asker, message);
                return Ok(());
            }
        }
        let exchange = &mut self.exchange;
        let unreceived = exchange.unreceived.entry(local).or_default();
        if *unreceived + cost(&message) > MAX_UNRECEIVED {
            return Err(format!(
                "more than {MAX_UNRECEIVED} bytes sent that nobody has received"
            ));
        }
        *unreceived += cost(&message);
        let queue = exchange.messages.entry((local, to)).or_default();
        queue.push_back(message);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
