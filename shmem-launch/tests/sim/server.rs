//! The PMIx servers of a world's nodes, and PEs that fail of what they have lost.

use super::*;
use shmem_launch::frame::{FrameReader, FromServer, ToServer};

/// A node's server, and the link between it and its agent.
#[derive(Default)]
pub(super) struct Server {
    dead: bool,
    /// It is stopped.
    pub(super) frozen: bool,
    /// Questions that it has not answered, and answers that the agent has not read.
    questions: VecDeque<u64>,
    answers: VecDeque<u64>,
    /// Whether the agent knows that it has ended.
    told: bool,
}

impl Server {
    /// What its agent sends.
    pub(super) fn hear(&mut self, mut bytes: &[u8]) {
        let mut reader = FrameReader::default();
        while let Some(content) = reader.next_frame(&mut bytes).unwrap() {
            if let ToServer::Ping(number) = ToServer::decode(content).unwrap() {
                self.questions.push_back(number);
            }
        }
    }

    /// Whether it has something to answer.
    pub(super) fn works(&self) -> bool {
        !self.dead && !self.frozen && !self.questions.is_empty()
    }

    pub(super) fn work(&mut self) {
        self.answers.extend(self.questions.pop_front());
    }

    /// Whether there is something that the agent can read of it.
    pub(super) fn has_news(&self) -> bool {
        !self.answers.is_empty() || (self.dead && !self.told)
    }
}

impl Node {
    pub(super) fn dies_of_a_loss(&self) -> bool {
        let dies = |pe: &Pe| pe.life == Life::Alive && pe.doomed.is_some();
        self.pes.iter().any(dies)
    }
}

impl World {
    /// A server is killed. Its node's PEs will fail of that.
    pub(super) fn kill_server(&mut self, at: usize) {
        let n = &mut self.nodes[at];
        // Where it is not there yet, or ends with its node, nobody would miss it.
        if !n.alive || !n.template.prepared || n.server.dead {
            return;
        }
        n.server.dead = true;
        self.seen.server_died = true;
        for pe in &mut n.pes {
            pe.doomed = Some(101);
            pe.failed = true;
        }
        self.seen.statuses.push(101);
    }

    /// A PE fails of what it has lost.
    pub(super) fn die_of_a_loss(&mut self, at: usize) {
        let pes = self.nodes[at].pes.iter_mut();
        let mut doomed: Vec<&mut Pe> = pes
            .filter(|pe| pe.life == Life::Alive && pe.doomed.is_some())
            .collect();
        let which = self.rng.below(doomed.len());
        let pe = &mut doomed[which];
        pe.life = Life::Zombie(End::Code(pe.doomed.unwrap()));
        pe.failed = true;
    }

    /// The agent reads what the server has sent, or sees that it has ended.
    pub(super) fn server_news(&mut self, at: usize) {
        let server = &mut self.nodes[at].server;
        match server.answers.pop_front() {
            Some(number) => self.tell(at, Event::FromPmix(FromServer::Pong(number))),
            None => {
                server.told = true;
                let what = "its PMIx server was killed by signal 9 (SIGKILL)";
                self.tell(at, Event::PmixFailed(what.into()));
            }
        }
    }

    /// Whether nothing is on its way between agents, or between them and their servers.
    pub(super) fn is_quiet(&self) -> bool {
        self.nodes.iter().all(|n| {
            let s = &n.server;
            n.link.up.is_empty() && n.link.down.is_empty() && !s.works() && !s.has_news()
        })
    }
}
