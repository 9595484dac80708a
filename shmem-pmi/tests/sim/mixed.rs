//! Jobs in which PMI-1, PMI-2 and extension clients are mixed and some of them go wrong: they send
//! garbage, half a message, vanish, fall silent, leave early, or die and are started again.
//!
//! Whatever happens, nobody else is disturbed. Every operation that can complete does, with the
//! right values; where one cannot, the servers name exactly those who are to blame.

use std::collections::{HashMap, HashSet, VecDeque};

use shmem_pmi::client::{Call, Client, ClientConfig, Outcome, RankFrom, Refusal, RequestId, calls};
use shmem_pmi::process_mapping;
use shmem_pmi::question::{Answer, NAME_TAKEN, NO_SUCH_NAME, Question, SpawnCommand, SpawnRequest};
use shmem_pmi::server::{CachePolicy, Job, NodePlace, NodeServer, Output, TreeLink};
use shmem_pmi::tree::Tree;
use shmem_testkit::seeds;

use crate::rng::Rng;

/// What a PE does, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Init,
    Mapping,
    Put(usize),
    Fence(usize),
    Ifence(usize),
    Wait(usize),
    /// Gets what a rank put before a fence.
    Get(usize, u32),
    Publish,
    Lookup(u32),
    Spawn,
    Finalize,
}

/// How a PE goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Garbage,
    Vanish,
    HalfAMessage,
    Silence,
    EarlyEnd,
    Restart,
}

/// Whether the outcome of a call has come; checks it then.
type Check = Box<dyn Fn() -> bool>;

/// Makes a call whose outcome has to pass a check.
fn ask<C: Call>(
    client: &mut Client,
    call: &C,
    check: impl Fn(Outcome<C::Reply>) + 'static,
) -> Check {
    let ticket = client.call(call).unwrap();
    Box::new(move || ticket.take().map(&check).is_some())
}

fn succeeds<C: Call>(client: &mut Client, call: &C) -> Check {
    ask(client, call, |outcome| drop(outcome.unwrap()))
}

struct Pe {
    rank: u32,
    node: usize,
    local: usize,
    client: Client,
    plan: VecDeque<Action>,
    doing: Option<(Action, Check)>,
    /// The last operation that was started without waiting.
    request: Option<RequestId>,
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    /// What goes wrong, and before which event.
    fate: Option<(u64, Fate)>,
    events: u64,
    /// It went wrong for good.
    lost: bool,
    finalized: bool,
    closed: bool,
    restarts: u32,
}

struct World {
    rng: Rng,
    tree: Tree,
    job: Job,
    rounds: usize,
    servers: Vec<NodeServer>,
    pes: Vec<Pe>,
    up: Vec<VecDeque<u8>>,
    down: Vec<VecDeque<u8>>,
    names: HashMap<Vec<u8>, Vec<u8>>,
    /// Questions that the launcher has not answered.
    asked: Vec<(u32, u64, Question)>,
    fragment: u64,
    progress: bool,
}

fn key(round: usize, rank: u32) -> String {
    format!("key-{round}-{rank}")
}

fn value(round: usize, rank: u32) -> Vec<u8> {
    format!("<{rank}={round}>")
        .repeat(1 + (rank as usize + round) % 9)
        .into_bytes()
}

impl Pe {
    fn action(&self) -> Option<&Action> {
        self.doing.as_ref().map(|(action, _)| action)
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x717e_d000);
        let nodes = 1 + rng.below(6) as u32;
        let tree = Tree::new(nodes, 1 + rng.below(3) as u32);
        let size = 1 + rng.below(12) as u32;
        let node_of_rank: Vec<u32> = (0..size).map(|_| rng.below(nodes.into()) as u32).collect();
        let job = Job {
            id: format!("mixed.{seed}"),
            size,
            process_mapping: process_mapping::ProcessMapping::from_nodes(&node_of_rank).to_string(),
            extensions: true,
            cache: match rng.below(4) {
                0 => CachePolicy::Hcs,
                1 => CachePolicy::Hcma,
                2 => CachePolicy::HcmabLru { bytes: 500 },
                _ => CachePolicy::Hcmab,
            },
            preputs: vec![(b"from-the-start".to_vec(), b"yes".to_vec())],
            ..Job::default()
        };
        let servers: Vec<_> = (0..nodes)
            .map(|node| NodePlace::in_tree(&tree, node, &node_of_rank))
            .map(|place| NodeServer::new(job.clone(), place).unwrap())
            .collect();
        let mut world = Self {
            fragment: [1, 5, 80, 5000][rng.below(4) as usize],
            rounds: rng.below(5) as usize,
            rng,
            tree,
            job,
            pes: Vec::new(),
            up: vec![VecDeque::new(); nodes as usize],
            down: vec![VecDeque::new(); nodes as usize],
            names: HashMap::new(),
            asked: Vec::new(),
            progress: false,
            servers,
        };
        let trouble = world.rng.below(60);
        for (rank, &node) in (0..).zip(&node_of_rank) {
            let node = node as usize;
            let ranks = &world.servers[node].place().ranks;
            let local = ranks.iter().position(|&r| r == rank).unwrap();
            let fate = world.rng.percent(trouble).then(|| {
                let fates = [
                    Fate::Garbage,
                    Fate::Vanish,
                    Fate::HalfAMessage,
                    Fate::Silence,
                    Fate::EarlyEnd,
                    Fate::Restart,
                    Fate::Restart,
                    Fate::Restart,
                ];
                let fate = fates[world.rng.below(fates.len() as u64) as usize];
                (1 + world.rng.below(4 + 4 * world.rounds as u64), fate)
            });
            let pe = Pe {
                rank,
                node,
                local,
                client: world.client(rank),
                plan: world.plan(0),
                doing: None,
                request: None,
                to_server: VecDeque::new(),
                to_client: VecDeque::new(),
                fate,
                events: 0,
                lost: false,
                finalized: false,
                closed: false,
                restarts: 0,
            };
            world.pes.push(pe);
        }
        world
    }

    /// A client of any version.
    fn client(&mut self, rank: u32) -> Client {
        let size = self.job.size;
        let extended = |extensions| {
            Client::new(ClientConfig {
                rank,
                job_id: Some(self.job.id.clone()),
                extensions,
            })
        };
        match self.rng.below(4) {
            0 => Client::pmi1(RankFrom::Environment { rank, size }),
            1 => Client::pmi1(RankFrom::Server { id: rank }),
            2 => extended(false),
            _ => extended(true),
        }
    }

    /// What a process does whose predecessors have joined `from` fences.
    fn plan(&mut self, from: usize) -> VecDeque<Action> {
        let mut plan = VecDeque::from([Action::Init]);
        let size = u64::from(self.job.size);
        for round in from..self.rounds {
            plan.push_back(Action::Put(round));
            match self.rng.below(6) {
                0 => plan.push_back(Action::Mapping),
                1 => plan.push_back(Action::Publish),
                2 => plan.push_back(Action::Lookup(self.rng.below(size) as u32)),
                3 => plan.push_back(Action::Spawn),
                _ => {}
            }
            match self.rng.percent(50) {
                true => plan.push_back(Action::Fence(round)),
                false => plan.extend([Action::Ifence(round), Action::Wait(round)]),
            }
            for _ in 0..self.rng.below(3) {
                plan.push_back(Action::Get(round, self.rng.below(size) as u32));
            }
        }
        plan.push_back(Action::Finalize);
        plan
    }

    fn run(&mut self) {
        let mut idle = 0;
        while idle < 400 {
            self.progress = false;
            let turns = self.pes.len() + self.servers.len();
            let pick = self.rng.below(turns as u64) as usize;
            match pick.checked_sub(self.pes.len()) {
                None => self.turn_of_pe(pick, false),
                Some(node) => self.turn_of_node(node, false),
            }
            idle = if self.progress { 0 } else { idle + 1 };
        }
        // Whether nothing at all can move.
        self.progress = true;
        while std::mem::take(&mut self.progress) {
            for pe in 0..self.pes.len() {
                self.turn_of_pe(pe, true);
            }
            for node in 0..self.servers.len() {
                self.turn_of_node(node, true);
            }
        }
        self.check();
    }

    fn check(&self) {
        let lost: HashSet<u32> = self
            .pes
            .iter()
            .filter(|pe| pe.lost)
            .map(|pe| pe.rank)
            .collect();
        let done = self
            .servers
            .iter()
            .map(NodeServer::completed)
            .min()
            .unwrap();
        if lost.is_empty() || done == self.rounds as u64 {
            for pe in &self.pes {
                assert!(pe.lost || pe.finalized, "PE {}: {:?}", pe.rank, pe.action());
            }
            assert_eq!(done, self.rounds as u64);
            return;
        }
        // All others stand at the first operation that the lost ones do not join.
        let mut blamed = HashSet::new();
        for server in &self.servers {
            let missing = server.who_is_missing(done);
            blamed.extend(missing.local.iter());
            for (_, ranks) in &missing.children {
                assert!(ranks.iter().any(|rank| lost.contains(&rank)), "{missing}");
            }
        }
        assert!(!blamed.is_empty());
        assert!(blamed.is_subset(&lost), "{blamed:?} blamed, {lost:?} lost");
        assert!(!self.servers[0].who_is_missing(done).is_empty());
        for pe in self.pes.iter().filter(|pe| !pe.lost) {
            // A client that speaks PMI-1 or plain PMI-2 waits in the fence itself. One that was
            // started again may be ahead, for its predecessor waited for the operation; it may
            // even have nothing more to do.
            let waits = match pe.action() {
                Some(Action::Fence(at) | Action::Wait(at) | Action::Ifence(at)) => {
                    *at as u64 == done || *at as u64 > done && pe.restarts > 0
                }
                _ => pe.finalized && pe.restarts > 0,
            };
            assert!(waits, "PE {}: {:?}, {done} done", pe.rank, pe.action());
            assert!(!blamed.contains(&pe.rank));
        }
    }

    fn cut(&mut self, len: usize, whole: bool) -> usize {
        match whole {
            true => len,
            false => (1 + self.rng.below(self.fragment) as usize).min(len),
        }
    }

    fn turn_of_node(&mut self, node: usize, whole: bool) {
        if !self.asked.is_empty() && node == 0 && (whole || self.rng.percent(50)) {
            let at = self.rng.below(self.asked.len() as u64) as usize;
            let (asker, ticket, question) = self.asked.swap_remove(at);
            let answer = self.answer(question);
            self.servers[0].handle_answer(asker, ticket, answer);
            self.progress = true;
        }
        let parent = self.tree.parent(node as u32);
        if let Some(parent) = parent.filter(|_| !self.up[node].is_empty()) {
            let mut siblings = self.tree.children(parent);
            let child = siblings.position(|c| c == node as u32).unwrap();
            let cut = self.cut(self.up[node].len(), whole);
            let bytes: Vec<u8> = self.up[node].drain(..cut).collect();
            let parent = &mut self.servers[parent as usize];
            parent.handle_tree(TreeLink::Child(child), &bytes).unwrap();
            self.progress = true;
        }
        if !self.down[node].is_empty() {
            let cut = self.cut(self.down[node].len(), whole);
            let bytes: Vec<u8> = self.down[node].drain(..cut).collect();
            self.servers[node]
                .handle_tree(TreeLink::Parent, &bytes)
                .unwrap();
            self.progress = true;
        }
        let children: Vec<u32> = self.tree.children(node as u32).collect();
        while let Some(output) = self.servers[node].poll_output() {
            self.progress = true;
            match output {
                Output::ToClient { local, bytes } => {
                    let pe = self.pe_at(node, local);
                    if !pe.closed {
                        pe.to_client.extend(bytes);
                    }
                }
                Output::ToParent(bytes) => self.up[node].extend(bytes.iter()),
                Output::ToChild { child, bytes } => {
                    self.down[children[child] as usize].extend(bytes.iter());
                }
                Output::Ask {
                    asker,
                    ticket,
                    question,
                } => {
                    assert_eq!(node, 0, "only the root asks");
                    self.asked.push((asker, ticket, question));
                }
                Output::Lost { local } | Output::ProtocolError { local, .. } => {
                    let pe = self.pe_at(node, local);
                    assert!(pe.lost || pe.fate.is_none(), "PE {}", pe.rank);
                }
                Output::Finalized { .. } => {}
                other => panic!("node {node}: {other:?}"),
            }
        }
    }

    fn pe_at(&mut self, node: usize, local: usize) -> &mut Pe {
        let rank = self.servers[node].rank(local);
        &mut self.pes[rank as usize]
    }

    fn answer(&mut self, question: Question) -> Answer {
        let refused = |reason: &str| Answer::Refused {
            rc: 1,
            reason: reason.into(),
        };
        match question {
            Question::Publish { name, port } => match self.names.contains_key(&name) {
                true => refused(NAME_TAKEN),
                false => {
                    self.names.insert(name, port);
                    Answer::Done
                }
            },
            Question::LookupName { name } => match self.names.get(&name) {
                Some(port) => Answer::Port(port.clone()),
                None => refused(NO_SUCH_NAME),
            },
            Question::Spawn(request) => {
                assert_eq!(request.commands[0].procs, 2);
                let job_id = String::from_utf8(request.commands[0].program.clone()).unwrap();
                Answer::Spawned { job_id }
            }
            other => panic!("{other:?}"),
        }
    }

    fn turn_of_pe(&mut self, index: usize, whole: bool) {
        if self.pes[index].closed {
            return;
        }
        self.call(index);
        let (node, local) = (self.pes[index].node, self.pes[index].local);
        let output = self.pes[index].client.take_output();
        self.pes[index].to_server.extend(output);
        let len = self.pes[index].to_server.len();
        if len > 0 {
            let cut = self.cut(len, whole);
            let bytes: Vec<u8> = self.pes[index].to_server.drain(..cut).collect();
            self.servers[node].handle_client_bytes(local, &bytes);
            self.progress = true;
        }
        let len = self.pes[index].to_client.len();
        if len > 0 {
            let cut = self.cut(len, whole);
            let pe = &mut self.pes[index];
            let bytes: Vec<u8> = pe.to_client.drain(..cut).collect();
            self.progress = true;
            if !pe.lost {
                pe.client.handle_bytes(&bytes).unwrap();
            }
        }
        self.look(index);
        let pe = &self.pes[index];
        if let Some((_, fate)) = pe.fate.filter(|(at, _)| pe.events >= *at) {
            self.progress = true;
            self.pes[index].fate = None;
            self.go_wrong(index, fate);
        }
        let pe = &mut self.pes[index];
        if pe.finalized && pe.to_server.is_empty() && !pe.closed {
            self.close(index);
        }
    }

    /// Begins the next action if none is under way.
    fn call(&mut self, index: usize) {
        let pe = &mut self.pes[index];
        if pe.lost || pe.doing.is_some() {
            return;
        }
        let Some(action) = pe.plan.pop_front() else {
            return;
        };
        let client = &mut pe.client;
        let name = |rank: u32| format!("service-{rank}");
        // PMI-1 has no blanks in its reasons, and its client puts them back.
        let says = |refusal: Refusal, reason| {
            assert_eq!(refusal.message.replace(' ', "_"), reason);
        };
        let check = match &action {
            Action::Init => {
                let expected = (pe.rank, self.job.size);
                ask(client, &calls::Initialise, move |facts| {
                    let facts = facts.unwrap();
                    assert_eq!((facts.rank, facts.size), expected);
                })
            }
            Action::Mapping => {
                let mapping = self.job.process_mapping.clone().into_bytes();
                let call = calls::JobAttr(process_mapping::KEY);
                ask(client, &call, move |found| {
                    assert_eq!(found, Ok(Some(mapping.clone())));
                })
            }
            Action::Put(round) => {
                let (key, value) = (key(*round, pe.rank), value(*round, pe.rank));
                succeeds(client, &calls::Put(&key, &value))
            }
            Action::Fence(_) => succeeds(client, &calls::Fence),
            Action::Ifence(_) => {
                pe.request = Some(client.next_request());
                succeeds(client, &calls::Ifence)
            }
            Action::Wait(_) => succeeds(client, &calls::Wait(pe.request.unwrap())),
            Action::Get(round, rank) => {
                let (key, value) = (key(*round, *rank), value(*round, *rank));
                ask(client, &calls::Get(&key), move |found| {
                    assert_eq!(found, Ok(Some(value.clone())));
                })
            }
            Action::Publish => {
                let name = name(pe.rank);
                ask(
                    client,
                    &calls::Publish(&name, b"port"),
                    move |published| match published {
                        Ok(()) => {}
                        Err(refusal) => says(refusal, NAME_TAKEN),
                    },
                )
            }
            Action::Lookup(rank) => {
                let name = name(*rank);
                ask(client, &calls::Lookup(&name), move |found| match found {
                    Ok(port) => assert_eq!(port, b"port"),
                    Err(refusal) => says(refusal, NO_SUCH_NAME),
                })
            }
            Action::Spawn => {
                let request = SpawnRequest {
                    commands: vec![SpawnCommand {
                        program: b"prog".to_vec(),
                        args: vec![b"two words".to_vec()],
                        procs: 2,
                        ..SpawnCommand::default()
                    }],
                    preputs: Vec::new(),
                };
                ask(client, &calls::Spawn(&request), |job| {
                    let job = job.unwrap();
                    assert_eq!(job.job_id.as_deref(), Some("prog"));
                    assert_eq!(job.errcodes, [0, 0]);
                })
            }
            Action::Finalize => succeeds(client, &calls::Finalize),
        };
        pe.doing = Some((action, check));
        self.progress = true;
    }

    /// Looks whether what is awaited has come.
    fn look(&mut self, index: usize) {
        let pe = &mut self.pes[index];
        if let Some((action, _)) = pe.doing.take_if(|(_, check)| check()) {
            pe.events += 1;
            pe.finalized |= action == Action::Finalize;
            self.progress = true;
        }
    }

    fn close(&mut self, index: usize) {
        let pe = &mut self.pes[index];
        pe.closed = true;
        pe.to_server.clear();
        pe.to_client.clear();
        let (node, local) = (pe.node, pe.local);
        self.servers[node].client_closed(local);
    }

    fn go_wrong(&mut self, index: usize, fate: Fate) {
        if self.pes[index].finalized {
            return;
        }
        if self.rng.percent(50) {
            // What it wrote before has come.
            let pe = &mut self.pes[index];
            let bytes: Vec<u8> = pe.to_server.drain(..).collect();
            let (node, local) = (pe.node, pe.local);
            self.servers[node].handle_client_bytes(local, &bytes);
        }
        self.pes[index].lost = true;
        match fate {
            Fate::Silence => {}
            Fate::Vanish => self.close(index),
            Fate::Garbage => {
                let len = 1 + self.rng.below(200);
                let garbage: Vec<u8> = (0..len).map(|_| self.rng.next() as u8).collect();
                self.pes[index].to_server.extend(garbage);
            }
            Fate::HalfAMessage => {
                let half = [
                    &b"cmd=pu"[..],
                    b"40    cmd=kvs-put;key",
                    b"mcmd=spawn\nnprocs=1\n",
                ];
                let half = half[self.rng.below(3) as usize];
                let pe = &mut self.pes[index];
                pe.to_server.clear();
                let (node, local) = (pe.node, pe.local);
                self.servers[node].handle_client_bytes(local, half);
                self.close(index);
            }
            Fate::EarlyEnd => {
                let end = [&b"cmd=finalize\n"[..], b"13    cmd=finalize;"];
                let end = end[self.rng.below(2) as usize];
                self.pes[index].to_server.extend(end);
            }
            Fate::Restart => self.restart(index),
        }
    }

    /// The process dies, and another takes its place, perhaps later to die as well.
    fn restart(&mut self, index: usize) {
        if self.rng.percent(70) {
            self.close(index);
        }
        let (rank, node, local) = {
            let pe = &self.pes[index];
            (pe.rank, pe.node, pe.local)
        };
        self.servers[node].restart(local);
        // What the server has to say of the dead one is said before the new one is there.
        self.turn_of_node(node, false);
        let joined = (0..self.rounds).find(|&round| {
            let missing = self.servers[node].who_is_missing(round as u64);
            missing.local.contains(rank)
        });
        let from = joined.unwrap_or(self.rounds);
        let (client, plan) = (self.client(rank), self.plan(from));
        let again = self.rng.percent(30);
        let at = 1 + self.rng.below(8);
        let pe = &mut self.pes[index];
        pe.restarts += 1;
        pe.client = client;
        pe.plan = plan;
        pe.doing = None;
        pe.to_server.clear();
        pe.to_client.clear();
        pe.closed = false;
        pe.lost = false;
        pe.events = 0;
        pe.fate = again.then_some((at, Fate::Restart));
    }
}

#[test]
fn mixed_and_misbehaving() {
    seeds::each(2000, |seed, _| World::new(seed).run());
}
