//! Launcher and launch agents of the model: the real machines and their frames, between links that take time.

use shmem_launch::agent::{
    Action, Agent, ChildSetup, Event as AgentEvent, InputRoute, Servers, Setup,
};
use shmem_launch::frame::{FrameReader, JobOptions, Stream};
use shmem_launch::limits::SpawnQuota;
use shmem_launch::remote::{Contact, RemoteShell, greeting};
use shmem_launch::root;
use shmem_node::to_agent::ToAgent;
use shmem_pmi::server::{Job, NodePlace};

use super::Shape;
use super::cores::TaskId;
use super::node::{Node, PIECE};
use super::work::{AgentWork, Event, TemplateWork, Work};
use super::world::World;

/// Hosts that an agent waits for at a time; the setting's value.
const STARTS: u32 = 10;

impl World {
    pub(super) fn launcher_setup(shape: &Shape) -> root::Setup {
        root::Setup {
            n_pes: shape.pes(),
            n_nodes: shape.nodes,
            options: JobOptions::default(),
            agent: ChildSetup {
                node: 0,
                ranks: 0..shape.pes(),
                pid: 1,
                contact: None,
            },
            ..root::Setup::default()
        }
    }

    /// Puts a node there, with its PEs.
    pub(super) fn place(&mut self, at: u32) {
        let machine = self.machine_of(at);
        let ranks = self.layout.ranks(at);
        let subtrees: Vec<_> = self.tree.child_subtrees(at).collect();
        let below = |nodes: &std::ops::Range<u32>| {
            self.layout.ranks(nodes.start).start..self.layout.ranks(nodes.end - 1).end
        };
        let children = subtrees.iter().map(|nodes| ChildSetup {
            node: nodes.start,
            ranks: below(nodes),
            pid: 1 + nodes.start,
            contact: (!self.shape.machine.is_one()).then(|| far(nodes.start)),
        });
        let place = NodePlace {
            ranks: ranks.clone().collect(),
            has_parent: at > 0,
            children: subtrees.iter().map(|nodes| below(nodes).into()).collect(),
        };
        let agent = self.agent(at, ranks.clone(), children.collect(), place);
        let mut node = self.node(at, agent, ranks.clone());
        node.children = subtrees.into_iter().map(|nodes| nodes.start).collect();
        node.pes = ranks.map(|_| self.cores.task(machine)).collect();
        node.inits = vec![0.0; node.pes.len()];
        self.nodes[at as usize] = Some(Box::new(node));
    }

    pub(super) fn agent(
        &self,
        at: u32,
        ranks: std::ops::Range<u32>,
        children: Vec<ChildSetup>,
        place: NodePlace,
    ) -> Agent {
        let job = Job {
            id: "model".into(),
            size: self.shape.pes(),
            extensions: true,
            ..Job::default()
        };
        let servers = Servers::new(job, place).expect("a tree that fits the job");
        let setup = Setup {
            node: at,
            first_rank: ranks.start,
            n_local: ranks.len() as u32,
            n_pes: self.shape.pes(),
            quota: SpawnQuota::FULL,
            options: JobOptions::default(),
            input: InputRoute::default(),
            pmix: false,
            children,
            starts: STARTS,
        };
        Agent::new(setup, servers)
    }

    pub(super) fn node(&mut self, at: u32, agent: Agent, ranks: std::ops::Range<u32>) -> Node {
        let machine = self.machine_of(at);
        let parent = self.tree.parent(at).map(|parent| {
            let child = self.tree.children(parent).position(|child| child == at);
            (parent, child.expect("a child of its parent"))
        });
        Node {
            at,
            agent,
            task: self.cores.task(machine),
            template: self.cores.task(machine),
            pes: Vec::new(),
            parent,
            children: Vec::new(),
            first_rank: ranks.start,
            n_local: ranks.len() as u32,
            link: 0.0,
            ran: None,
            looks: f64::INFINITY,
            next_pid: 1 << 20,
            met: 0,
            left: 0,
            at_end: 0,
            inits: Vec::new(),
            stand_in: None,
            overheard: FrameReader::default(),
        }
    }

    pub(super) fn agent_starts(&mut self, now: f64, node: u32) {
        let task = self.at(node).task;
        let work = Work::Agent(node, AgentWork::Start);
        self.agenda.add(now, Event::Arrives(task, 0.0, work));
    }

    pub(super) fn agent_does(&mut self, now: f64, node: u32, work: AgentWork) {
        let n_pes = self.shape.pes();
        let task = self.at(node).task;
        match work {
            AgentWork::Start => self.agent_runs(now, node),
            AgentWork::Child(child) => {
                let at = self.at(node).children[child];
                self.child_starts(now, node, (child, at));
            }
            AgentWork::Prepare => {
                let (template, takes) = (self.at(node).template, self.costs.template);
                let work = Work::Template(node, TemplateWork::Start);
                self.give(now, template, takes, work);
                self.tell(now, node, AgentEvent::Prepared);
            }
            AgentWork::Hear(None, bytes) => self.tell(now, node, AgentEvent::FromParent(&bytes)),
            AgentWork::Hear(Some(child), bytes) => {
                self.tell(now, node, AgentEvent::FromChild(child, &bytes));
            }
            AgentWork::Say(to, bytes) => return self.deliver(now, node, to, bytes),
            AgentWork::Addresses => {
                let it = self.at(node);
                let bytes = vec![7; it.n_local as usize * shmem_node::address::ADDRESS_LEN];
                let said = ToAgent::Addresses {
                    first: 0,
                    bytes: &bytes,
                };
                self.tell(now, node, AgentEvent::Message(said));
            }
            AgentWork::Started(count) => {
                let pids = self.at(node).pids(count);
                let started = AgentEvent::PesStarted {
                    pids: &pids,
                    error: None,
                };
                self.tell(now, node, started);
            }
            AgentWork::TemplateEnded => self.tell(now, node, AgentEvent::TemplateClosed),
            AgentWork::Ended(local) => self.at(node).ended(local, n_pes, now),
            AgentWork::CleanUp => self.tell(now, node, AgentEvent::CleanedUp(Node::report())),
            AgentWork::Look => {
                self.at(node).looks = f64::INFINITY;
                self.tell(now, node, AgentEvent::Timer);
            }
        }
        self.settle(now, node, task);
    }

    fn tell(&mut self, now: f64, node: u32, event: AgentEvent<'_>) {
        self.at(node).agent.handle(event, now as u64);
    }

    /// The agent's process begins: first it starts its children, then it prepares its node.
    fn agent_runs(&mut self, now: f64, node: u32) {
        let one_machine = self.shape.machine.is_one();
        let children = self.at(node).children.len();
        let task = self.at(node).task;
        if one_machine {
            for child in 0..children {
                let work = Work::Agent(node, AgentWork::Child(child));
                self.give(now, task, self.costs.start, work);
            }
        } else {
            // Which of them are to be started first.
            self.tell(now, node, AgentEvent::Timer);
            self.settle(now, node, task);
        }
        let takes = self.costs.agent + self.costs.rank * f64::from(self.shape.pes());
        self.give(now, task, takes, Work::Agent(node, AgentWork::Prepare));
    }

    fn child_starts(&mut self, now: f64, node: u32, (child, at): (usize, u32)) {
        let runs = now + self.costs.shell;
        if !self.shape.machine.is_one() {
            let task = self.at(node).task;
            self.tell(now, node, AgentEvent::ChildStarted(child, Ok(1 + at)));
            let hears = Work::Agent(node, AgentWork::Hear(Some(child), greeting()));
            let answered = runs + 2.0 * self.costs.latency;
            self.agenda
                .add(answered, Event::Arrives(task, self.costs.piece, hears));
        }
        self.at(at).ran = Some(runs);
        match self.at(at).is_stand_in() {
            true => self.stand_in_runs(runs, at),
            false => {
                let task = self.at(at).task;
                let work = Work::Agent(at, AgentWork::Start);
                self.agenda.add(runs, Event::Arrives(task, 0.0, work));
            }
        }
    }

    /// Does what an agent says.
    fn settle(&mut self, now: f64, node: u32, task: TaskId) {
        while let Some(action) = self.at(node).agent.poll_action() {
            match action {
                Action::StartPes { first, count } => self.template_forks(now, node, first, count),
                Action::FinishTemplate => {
                    let template = self.at(node).template;
                    let work = Work::Template(node, TemplateWork::End);
                    self.give(now, template, 0.0, work);
                }
                Action::Publish { last: true, .. } => self.published(now, node),
                Action::CleanUp => {
                    self.give(now, task, 0.0, Work::Agent(node, AgentWork::CleanUp));
                }
                Action::StartChild(child) => {
                    let work = Work::Agent(node, AgentWork::Child(child));
                    self.give(now, task, self.costs.start, work);
                }
                Action::Publish { .. } | Action::KillAll | Action::Exit => {}
                other => panic!("nothing goes wrong here: {other:?}"),
            }
        }
        // As its driver does, an agent takes in all that has come before it writes.
        if !self.cores.has_more(task) {
            self.flush(now, node, task);
        }
        let looks = self.at(node).agent.next_timeout();
        if let Some(at) = looks.map(|at| at as f64 + 1.0)
            && at < self.at(node).looks
        {
            self.at(node).looks = at;
            let work = Work::Agent(node, AgentWork::Look);
            self.agenda
                .add(at.max(now), Event::Arrives(task, 0.0, work));
        }
    }

    /// Writes to parent and children, before the agent does anything else. Where only a path is there, its
    /// first child is served last.
    fn flush(&mut self, now: f64, node: u32, task: TaskId) {
        let mut out = Vec::new();
        let children = self.at(node).children.len();
        for to in std::iter::once(None).chain((0..children).rev().map(Some)) {
            let bytes = self.at(node).agent.outgoing(to).take();
            out.extend(bytes.chunks(PIECE).map(|piece| (to, piece.to_vec())));
        }
        for (to, piece) in out.into_iter().rev() {
            let takes = self.costs.piece + self.costs.byte * piece.len() as f64;
            let work = Work::Agent(node, AgentWork::Say(to, piece));
            self.give_first(now, task, takes, work);
        }
    }

    fn deliver(&mut self, now: f64, node: u32, to: Option<usize>, bytes: Vec<u8>) {
        self.outcome.pieces += 1;
        self.outcome.bytes += bytes.len() as u64;
        let (len, costs) = (bytes.len() as f64, self.costs);
        let it = self.at(node);
        it.link = it.link.max(now) + costs.link_byte * len;
        let arrives = it.link + costs.latency;
        let takes = costs.piece + costs.byte * len;
        let (task, work) = match (to, it.parent) {
            (None, None) => (self.launcher, Work::Hears(bytes)),
            (None, Some((parent, child))) => {
                self.overhear(arrives, node, &bytes);
                let hears = AgentWork::Hear(Some(child), bytes);
                (self.at(parent).task, Work::Agent(parent, hears))
            }
            (Some(child), _) => {
                let at = it.children[child];
                if self.at(at).is_stand_in() {
                    return self.agenda.add(arrives, Event::StandIn(at, bytes));
                }
                let hears = AgentWork::Hear(None, bytes);
                (self.at(at).task, Work::Agent(at, hears))
            }
        };
        self.agenda.add(arrives, Event::Arrives(task, takes, work));
    }

    pub(super) fn launcher_says(&mut self, now: f64, bytes: Vec<u8>) {
        let (len, costs) = (bytes.len() as f64, self.costs);
        let takes = costs.piece + costs.byte * len;
        let work = Work::Agent(0, AgentWork::Hear(None, bytes));
        let task = self.at(0).task;
        self.agenda.add(now, Event::Arrives(task, takes, work));
    }

    /// Does what the launcher says.
    pub(super) fn settle_launcher(&mut self, now: f64) {
        let mut written = true;
        while std::mem::take(&mut written) {
            for stream in Stream::ALL {
                let text = self.root.take_text(stream);
                if !text.is_empty() {
                    written = true;
                    let event = root::Event::Written(stream, text.len());
                    self.root.handle(event, now as u64);
                }
            }
        }
        let bytes = self.root.outgoing().take();
        let pieces: Vec<_> = bytes.chunks(PIECE).map(<[u8]>::to_vec).collect();
        for piece in pieces.into_iter().rev() {
            let takes = self.costs.piece + self.costs.byte * piece.len() as f64;
            self.give_first(now, self.launcher, takes, Work::Says(piece));
        }
        if self.root.finished().is_some() {
            let half = self.costs.launcher / 2.0;
            return self.give(now, self.launcher, half, Work::Ends);
        }
        if let Some(at) = self.root.next_timeout() {
            let at = (at as f64 + 1.0).max(now);
            if self.looks <= now || at < self.looks {
                self.looks = at;
                self.agenda
                    .add(at, Event::Arrives(self.launcher, 0.0, Work::Looks));
            }
        }
    }
}

/// A host that a remote shell leads to.
fn far(node: u32) -> Contact {
    let shell = RemoteShell {
        words: vec!["ssh".into()],
        shmrun: b"shmrun".to_vec(),
        timeout_ns: 600_000_000_000,
        starts: STARTS,
        retries: 0,
        ..RemoteShell::default()
    };
    let host = format!("host{node}");
    Contact::new(&shell, &host, &host)
}
