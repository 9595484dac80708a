//! Questions that the agent of a PE cannot answer by itself, on their way along the tree, and answers
//! on their way back.
//!
//! A question is routed by what it asks, an answer by the rank of the asker, so agents in between keep
//! nothing. The asker's agent keeps one entry for each unanswered question, by its ticket.

use std::sync::Arc;

use super::{LinkName, NodeServer, Output, TreeError, TreeLink};
use crate::question::{Answer, Question};
use crate::wire::Verb;
use crate::wire::tree::{Body, Direction, Message};

/// A PE of this node whose question is under way: what it takes to reply to it.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) local: usize,
    pub(super) thread_id: Option<Box<[u8]>>,
    /// The command that the reply belongs to.
    pub(super) verb: Verb,
    /// Which of the PE's processes asks.
    pub(super) life: u32,
    /// Number of processes that are to be spawned.
    pub(super) procs: u32,
}

/// Where a message goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hop {
    Here,
    Link(TreeLink),
}

impl NodeServer {
    /// Asks on behalf of a PE of this node; [`NodeServer::answered`] gets the answer.
    pub(super) fn ask(&mut self, asking: Asking, question: &Question) {
        let asker = self.rank(asking.local);
        if !self.may_withhold(asking.local, asking.thread_id.as_deref(), asking.verb) {
            return;
        }
        let ticket = self.new_ticket();
        self.asking.insert(ticket, asking);
        self.route_question(asker, ticket, question);
    }

    pub(super) fn new_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// The answer to a question that left as [`Output::Ask`].
    pub fn handle_answer(&mut self, asker: u32, ticket: u64, answer: Answer) {
        self.route_answer(asker, ticket, answer);
    }

    /// A question came over a link.
    pub(super) fn question(
        &mut self,
        from: TreeLink,
        asker: u32,
        ticket: u64,
        question: &[u8],
    ) -> Result<(), TreeError> {
        let question = Question::decode(question).map_err(|e| not_understood(from, ticket, &e))?;
        self.route_question(asker, ticket, &question);
        Ok(())
    }

    /// An answer came over a link.
    pub(super) fn answer_from(
        &mut self,
        from: TreeLink,
        asker: u32,
        ticket: u64,
        answer: &[u8],
    ) -> Result<(), TreeError> {
        let answer = Answer::decode(answer).map_err(|e| not_understood(from, ticket, &e))?;
        self.route_answer(asker, ticket, answer);
        Ok(())
    }

    pub(super) fn route_question(&mut self, asker: u32, ticket: u64, question: &Question) {
        if let Some(answer) = self.answer_here(asker, ticket, question) {
            return self.route_answer(asker, ticket, answer);
        }
        let hop = match question {
            Question::Fetch { owner: rank, .. } | Question::Receive { from: rank } => {
                self.towards(*rank)
            }
            _ if self.place.has_parent => Hop::Link(TreeLink::Parent),
            _ => Hop::Here,
        };
        match (hop, question) {
            (Hop::Link(link), _) => {
                let question = &question.encode();
                self.send_to(link, ticket, Body::Ask { asker, question });
            }
            (Hop::Here, Question::Fetch { .. } | Question::Receive { .. }) => {
                self.wanted(asker, ticket, question);
            }
            (Hop::Here, _) => self.outbox.push(Output::Ask {
                asker,
                ticket,
                question: question.clone(),
            }),
        }
    }

    /// The answer, where this agent is the one to give it and can.
    fn answer_here(&mut self, _asker: u32, _ticket: u64, question: &Question) -> Option<Answer> {
        match question {
            Question::Lookup { key } => {
                let value = self.kvs.get(key).map(<[u8]>::to_vec);
                let last = !self.place.has_parent;
                (value.is_some() || last).then(|| Answer::Value {
                    key: key.clone(),
                    value,
                })
            }
            _ => None,
        }
    }

    pub(super) fn route_answer(&mut self, asker: u32, ticket: u64, answer: Answer) {
        self.remember(&answer);
        match self.towards(asker) {
            Hop::Here => {
                if let Some(asking) = self.asking.remove(&ticket) {
                    self.no_longer_withheld(asking.local, asking.life);
                    self.answered(asking, answer);
                } else {
                    self.looked_up(ticket, answer);
                }
            }
            Hop::Link(link) => {
                let answer = &answer.encode();
                self.send_to(link, ticket, Body::Answer { asker, answer });
            }
        }
    }

    /// Where PE `rank` is.
    fn towards(&self, rank: u32) -> Hop {
        if self.place.ranks.contains(&rank) {
            return Hop::Here;
        }
        let child = self.place.children.iter().position(|c| c.contains(rank));
        match child {
            Some(child) => Hop::Link(TreeLink::Child(child)),
            // A rank that nobody has ends at the root.
            None if !self.place.has_parent => Hop::Here,
            None => Hop::Link(TreeLink::Parent),
        }
    }

    fn send_to(&mut self, link: TreeLink, request: u64, body: Body<'_>) {
        let direction = match link {
            TreeLink::Parent => Direction::Up,
            TreeLink::Child(_) => Direction::Down,
        };
        let message = Message {
            direction,
            request,
            body,
        };
        // Bounded far below the limit when it was decoded or made.
        let Ok(bytes) = message.encode() else { return };
        let bytes = Arc::new(bytes);
        match link {
            TreeLink::Parent => self.outbox.push(Output::ToParent(bytes)),
            TreeLink::Child(child) => self.outbox.push_to_child(child, bytes),
        }
    }
}

fn not_understood(from: TreeLink, request: u64, error: &dyn std::fmt::Display) -> TreeError {
    TreeError::OutOfStep {
        link: LinkName(from),
        request,
        expected: error.to_string(),
    }
}
