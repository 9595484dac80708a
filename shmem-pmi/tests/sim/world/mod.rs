//! The simulated job: its shape, its streams, and the program that each PE runs.

mod program;

use std::collections::{HashMap, VecDeque};

use shmem_pmi::client::{Client, ClientConfig, RequestId, Ticket, calls};
use shmem_pmi::process_mapping::{self, ProcessMapping};
use shmem_pmi::server::{CachePolicy, Job, NodePlace, NodeServer, Output, TreeLink};
use shmem_pmi::tree::Tree;
use shmem_pmi::wire::data::Operation;

use crate::rng::Rng;
use program::{Await, Collective, Step, again, gather_value, item, pair, placement, with_data};

struct Pe {
    rank: u32,
    node: usize,
    local: usize,
    client: Client,
    steps: VecDeque<Step>,
    blocked: Option<Await>,
    /// Calls that it does not wait for; their servers may refuse none.
    quiet: Vec<Ticket<()>>,
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    /// Reasons of failed operations, as told to this PE.
    failures: HashMap<usize, String>,
    /// Whether the first message has been received.
    received: bool,
    finalized: bool,
    closed: bool,
}

pub(crate) struct World {
    rng: Rng,
    tree: Tree,
    job: Job,
    node_of_rank: Vec<u32>,
    collectives: Vec<Collective>,
    /// An allgather to which one rank gives a value of another length.
    culprit: Option<(usize, u32)>,
    pes: Vec<Pe>,
    servers: Vec<NodeServer>,
    /// Rank by node and local index.
    ranks: Vec<Vec<u32>>,
    /// Streams between a node and its parent.
    up: Vec<VecDeque<u8>>,
    down: Vec<VecDeque<u8>>,
    published: Vec<HashMap<u64, Vec<u8>>>,
    /// The pieces so far of the result that is being published.
    coming: Vec<Vec<u8>>,
    finalized: Vec<usize>,
    fragment: u64,
}

impl World {
    pub(crate) fn new(seed: u64, largest: u32) -> Self {
        let mut rng = Rng::new(seed);
        let nodes = 1 + rng.below(largest.into()) as u32;
        let tree = Tree::new(nodes, 1 + rng.below(6) as u32);
        let node_of_rank = placement(&mut rng, nodes);
        let size = node_of_rank.len() as u32;
        let extensions = rng.percent(75);
        let mapping = ProcessMapping::from_nodes(&node_of_rank);
        let job = Job {
            id: format!("sim.{seed}"),
            size,
            appnum: 3,
            process_mapping: mapping.to_string(),
            attributes: vec![("universeSize".into(), size.to_string())],
            extensions,
            cache: match rng.below(5) {
                0 => CachePolicy::Hcs,
                1 => CachePolicy::Hcma,
                2 => CachePolicy::Hcmab,
                3 => CachePolicy::HcmabLru { bytes: 500 },
                _ => CachePolicy::HcmabLru { bytes: 50_000 },
            },
            ..Job::default()
        };
        let collectives: Vec<_> = (0..rng.below(7))
            .map(|_| match rng.below(if extensions { 6 } else { 2 }) {
                0 => Collective::Fence,
                1 => Collective::Ifence,
                2 => Collective::Allgather(1 + rng.below(80) as usize),
                3 => Collective::Iallgather(1 + rng.below(80) as usize),
                _ => {
                    let operation = Operation::ALL[rng.below(5) as usize];
                    let root = match operation.has_root() {
                        true => rng.below(size.into()) as u32,
                        false => 0,
                    };
                    Collective::Data(operation, root)
                }
            })
            .collect();
        let gathers: Vec<_> = (0..collectives.len())
            .filter(|&op| collectives[op].gathers().is_some())
            .collect();
        let culprit = (size > 1 && !gathers.is_empty() && rng.percent(10)).then(|| {
            let op = gathers[rng.below(gathers.len() as u64) as usize];
            (op, rng.below(size.into()) as u32)
        });
        let places: Vec<_> = (0..nodes)
            .map(|node| NodePlace::in_tree(&tree, node, &node_of_rank))
            .collect();
        // Bytes one by one, of messages for every single put, would take a large job for ever.
        let many_messages = nodes > 8 && matches!(job.cache, CachePolicy::Hcs | CachePolicy::Hcma);
        let fragments = if many_messages {
            [100, 5000, 100, 5000]
        } else {
            [1, 7, 100, 5000]
        };
        let fragment = fragments[rng.below(4) as usize];
        let mut world = Self {
            fragment,
            rng,
            tree,
            ranks: places.iter().map(|place| place.ranks.clone()).collect(),
            servers: places
                .into_iter()
                .map(|place| NodeServer::new(job.clone(), place).unwrap())
                .collect(),
            job,
            collectives,
            culprit,
            pes: Vec::new(),
            up: vec![VecDeque::new(); nodes as usize],
            down: vec![VecDeque::new(); nodes as usize],
            published: vec![HashMap::new(); nodes as usize],
            coming: vec![Vec::new(); nodes as usize],
            finalized: vec![0; nodes as usize],
            node_of_rank,
        };
        for rank in 0..size {
            let pe = world.pe(rank);
            world.pes.push(pe);
        }
        world
    }

    fn pe(&mut self, rank: u32) -> Pe {
        let node = self.node_of_rank[rank as usize] as usize;
        let local = self.ranks[node].iter().position(|&r| r == rank).unwrap();
        let mut client = Client::new(ClientConfig {
            rank,
            job_id: Some(self.job.id.clone()),
            extensions: self.job.extensions,
        });
        let ticket = client.call(&calls::Initialise).unwrap();
        let mut pe = Pe {
            rank,
            node,
            local,
            client,
            steps: self.program(local),
            blocked: Some(Await::Initialised(ticket)),
            quiet: Vec::new(),
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            failures: HashMap::new(),
            received: false,
            finalized: false,
            closed: false,
        };
        if self.job.extensions
            && let Some(&Collective::Iallgather(len)) = self.collectives.first()
        {
            // Init, fullinit and the first allgather in one write, before any reply.
            let value = self.gives(&pe, 0, len);
            pe.client.call(&calls::Iallgather(&value)).unwrap();
        }
        pe
    }

    fn program(&mut self, local: usize) -> VecDeque<Step> {
        let mut steps = VecDeque::new();
        let mut open = Vec::new();
        let messages = self.job.extensions && self.collectives.len() % 2 == 1;
        let receive_at = self.rng.below(self.collectives.len() as u64 + 1) as usize;
        if messages {
            steps.push_back(Step::Send);
        }
        if self.rng.percent(30) {
            steps.push_back(Step::JobFacts);
        }
        if local == 0 {
            steps.push_back(Step::PutNodeAttr);
        } else if self.rng.percent(50) {
            let wait = self.rng.percent(70);
            steps.push_back(Step::NodeAttr { wait });
        }
        for op in 0..self.collectives.len() {
            if messages && op == receive_at {
                steps.push_back(Step::Receive);
            }
            let first = op == 0 && self.job.extensions;
            match self.collectives[op] {
                Collective::Fence | Collective::Ifence => {
                    steps.push_back(Step::Put(op));
                    if self.rng.percent(20) {
                        steps.push_back(Step::GetTooEarly(op));
                    }
                    if self.job.extensions && self.rng.percent(20) {
                        let other = self.rng.below(self.job.size.into()) as u32;
                        steps.push_back(Step::GetFrom(op, other));
                    }
                    steps.push_back(Step::Start(op));
                }
                Collective::Iallgather(_) if first => {}
                _ => steps.push_back(Step::Start(op)),
            }
            if matches!(
                self.collectives[op],
                Collective::Ifence | Collective::Iallgather(_)
            ) {
                open.push(op);
            } else {
                self.look(&mut steps, op);
            }
            while !open.is_empty() && self.rng.percent(30) {
                let op = open.swap_remove(self.rng.below(open.len() as u64) as usize);
                steps.push_back(Step::Wait(op));
                self.look(&mut steps, op);
            }
        }
        if messages && receive_at == self.collectives.len() {
            steps.push_back(Step::Receive);
        }
        for op in open {
            steps.push_back(Step::Wait(op));
            self.look(&mut steps, op);
        }
        steps.push_back(Step::Finalize);
        steps
    }

    fn look(&mut self, steps: &mut VecDeque<Step>, op: usize) {
        if self.collectives[op].is_fence() {
            for _ in 0..self.rng.below(3) {
                let other = self.rng.below(self.job.size.into()) as u32;
                steps.push_back(Step::Get(op, other));
                if self.rng.percent(50) {
                    steps.push_back(Step::GetAgain(op, other));
                }
                if self.job.extensions && self.rng.percent(30) {
                    steps.push_back(Step::GetFrom(op, other));
                }
            }
        }
    }

    /// Lets things happen in random order until all PEs are gone.
    pub(crate) fn run(mut self) {
        let (pes, nodes) = (self.pes.len() as u64, self.servers.len() as u64);
        // Nodes that are a chain hand everything on one by one, and chance picks who may.
        let limit = 4_000_000.max(50_000 * (pes + 3 * nodes));
        for turn in 0.. {
            assert!(turn < limit, "the job hangs: {}", self.state());
            if turn % (pes + nodes) == 0 && self.pes.iter().all(|pe| pe.closed) {
                break;
            }
            let pick = self.rng.below(pes + 3 * nodes);
            if pick < pes {
                self.turn_of_pe(pick as usize);
            } else {
                let node = ((pick - pes) / 3) as usize;
                match (pick - pes) % 3 {
                    0 => self.poll(node),
                    1 => self.deliver_up(node),
                    _ => self.deliver_down(node),
                }
            }
        }
        // Results still travel to nodes without PEs.
        while (0..self.servers.len()).any(|n| {
            !(self.up[n].is_empty() && self.down[n].is_empty() && self.servers[n].is_idle())
        }) {
            for node in 0..self.servers.len() {
                self.poll(node);
                self.deliver_up(node);
                self.deliver_down(node);
            }
        }
        self.check_end();
    }

    fn state(&self) -> String {
        let mut text = String::new();
        for (node, server) in self.servers.iter().enumerate() {
            if let Some(request) = server.oldest_incomplete() {
                let missing = server.who_is_missing(request);
                text += &format!("node {node}: request {request} waits for {missing}\n");
            }
        }
        for pe in self.pes.iter().filter(|pe| !pe.closed) {
            text += &format!("PE {}: {:?}, then {:?}\n", pe.rank, pe.blocked, pe.steps);
        }
        text
    }

    fn check_end(&mut self) {
        for (node, server) in self.servers.iter().enumerate() {
            assert!(server.is_idle());
            assert_eq!(server.oldest_incomplete(), None);
            assert_eq!(self.finalized[node], self.ranks[node].len());
            assert_eq!(server.completed(), self.collectives.len() as u64);
            for (op, collective) in self.collectives.iter().enumerate() {
                assert!(server.who_is_missing(op as u64).is_empty());
                let expected = collective.gathers().filter(|_| !self.fails(op)).map(|len| {
                    (0..self.job.size)
                        .flat_map(|rank| gather_value(rank, op, len))
                        .collect::<Vec<u8>>()
                });
                let found = self.published[node].get(&(op as u64));
                assert_eq!(found, expected.as_ref(), "node {node}, operation {op}");
            }
        }
        for pe in &self.pes {
            assert_eq!(pe.client.outstanding(), 0);
            assert_eq!(pe.client.incomplete_input(), 0);
            assert!(pe.to_server.is_empty() && pe.to_client.is_empty());
            let expected = usize::from(self.culprit.is_some());
            assert_eq!(pe.failures.len(), expected, "PE {}", pe.rank);
            assert_eq!(pe.failures, self.pes[0].failures);
        }
        if let Some((op, rank)) = self.culprit {
            let reason = &self.pes[0].failures[&op];
            assert!(reason.contains(&format!("PE {rank} gave")), "{reason}");
        }
    }

    fn fails(&self, op: usize) -> bool {
        self.culprit.is_some_and(|(bad, _)| bad == op)
    }

    fn cut(&mut self, queue_len: usize) -> usize {
        // Now and then a long piece, or a large job dribbled byte by byte would take for ever.
        let longest = if self.rng.percent(10) {
            100_000
        } else {
            self.fragment
        };
        (1 + self.rng.below(longest) as usize).min(queue_len)
    }

    fn turn_of_pe(&mut self, index: usize) {
        if self.pes[index].closed {
            return;
        }
        if self.rng.percent(60) {
            self.advance(index);
        }
        let len = self.pes[index].to_server.len();
        let (node, local) = (self.pes[index].node, self.pes[index].local);
        if len > 0 {
            let cut = self.cut(len);
            let bytes: Vec<u8> = self.pes[index].to_server.drain(..cut).collect();
            self.servers[node].handle_client_bytes(local, &bytes);
            if self.rng.percent(70) {
                self.poll(node);
            }
        }
        let len = self.pes[index].to_client.len();
        if len > 0 {
            let cut = self.cut(len);
            let pe = &mut self.pes[index];
            let bytes: Vec<u8> = pe.to_client.drain(..cut).collect();
            pe.client.handle_bytes(&bytes).unwrap();
        }
        // A call may have its event without any bytes: a wait for what is complete.
        self.outcome(index);
        let pe = &mut self.pes[index];
        if pe.client.has_output() && self.rng.percent(80) {
            pe.to_server.extend(pe.client.take_output());
        }
        if pe.finalized && pe.to_client.is_empty() {
            assert!(pe.to_server.is_empty() && !pe.client.has_output());
            pe.closed = true;
            self.servers[node].client_closed(local);
        }
    }

    fn poll(&mut self, node: usize) {
        let children: Vec<u32> = self.tree.children(node as u32).collect();
        while let Some(output) = self.servers[node].poll_output() {
            match output {
                Output::ToClient { local, bytes } => {
                    assert!(!bytes.is_empty());
                    let rank = self.ranks[node][local];
                    self.pes[rank as usize].to_client.extend(bytes);
                }
                Output::ToParent(bytes) => self.up[node].extend(bytes.iter()),
                Output::ToChild { child, bytes } => {
                    self.down[children[child] as usize].extend(bytes.iter());
                }
                Output::Publish {
                    request,
                    value_len,
                    offset,
                    values,
                    last,
                } => {
                    let whole = value_len * self.job.size as usize;
                    let coming = &mut self.coming[node];
                    assert_eq!(offset, coming.len(), "pieces leave no gaps");
                    coming.extend_from_slice(&values);
                    assert_eq!(last, coming.len() == whole);
                    assert!(coming.len() <= whole);
                    if last {
                        let values = std::mem::take(coming);
                        let old = self.published[node].insert(request, values);
                        assert_eq!(old, None, "published twice");
                    }
                }
                Output::Finalized { .. } => self.finalized[node] += 1,
                other => panic!("node {node}: {other:?}"),
            }
        }
    }

    fn deliver_up(&mut self, node: usize) {
        let len = self.up[node].len();
        if len == 0 {
            return;
        }
        let parent = self.tree.parent(node as u32).unwrap();
        let mut siblings = self.tree.children(parent);
        let child = siblings.position(|c| c == node as u32).unwrap();
        let cut = self.cut(len);
        let bytes: Vec<u8> = self.up[node].drain(..cut).collect();
        self.servers[parent as usize]
            .handle_tree(TreeLink::Child(child), &bytes)
            .unwrap();
    }

    fn deliver_down(&mut self, node: usize) {
        let len = self.down[node].len();
        if len == 0 {
            return;
        }
        let cut = self.cut(len);
        let bytes: Vec<u8> = self.down[node].drain(..cut).collect();
        self.servers[node]
            .handle_tree(TreeLink::Parent, &bytes)
            .unwrap();
    }

    /// What a rank gives to an allgather.
    fn gives(&self, pe: &Pe, op: usize, len: usize) -> Vec<u8> {
        let mut value = gather_value(pe.rank, op, len);
        if self.culprit == Some((op, pe.rank)) {
            value.push(0);
        }
        value
    }

    /// Runs steps until one has to be awaited.
    fn advance(&mut self, index: usize) {
        let mut pes = std::mem::take(&mut self.pes);
        let pe = &mut pes[index];
        while pe.blocked.is_none() {
            let Some(step) = pe.steps.pop_front() else {
                break;
            };
            pe.blocked = self.step(pe, step);
        }
        self.pes = pes;
    }

    fn step(&mut self, pe: &mut Pe, step: Step) -> Option<Await> {
        match step {
            Step::JobFacts => {
                if self.rng.percent(50) {
                    return Some(Await::JobId(pe.client.call(&calls::JobId).unwrap()));
                }
                let call = calls::JobAttr(process_mapping::KEY);
                Some(Await::JobAttr(pe.client.call(&call).unwrap()))
            }
            Step::PutNodeAttr => {
                let value = format!("leader of {}", pe.node);
                let call = calls::PutNodeAttr("leader", value.as_bytes());
                pe.quiet.push(pe.client.call(&call).unwrap());
                None
            }
            Step::NodeAttr { wait } => {
                let key = "leader";
                let value = pe.client.call(&calls::NodeAttr(key, wait)).unwrap();
                Some(Await::NodeAttr {
                    value,
                    may_be_absent: !wait,
                })
            }
            Step::Put(op) => {
                let (key, value) = pair(pe.rank, op);
                let mut put = |key: &str, value: &[u8]| {
                    pe.quiet
                        .push(pe.client.call(&calls::Put(key, value)).unwrap());
                };
                if pe.rank.is_multiple_of(2) {
                    put(&key, b"old");
                }
                put(&key, &value);
                put(&again(pe.rank), op.to_string().as_bytes());
                None
            }
            Step::GetTooEarly(op) => {
                let (key, _) = pair(pe.rank, op);
                Some(Await::Value(
                    pe.client.call(&calls::Get(&key)).unwrap(),
                    None,
                ))
            }
            Step::Start(op) => {
                assert_eq!(pe.client.next_request(), RequestId(op as u64));
                match self.collectives[op] {
                    Collective::Fence => {
                        Some(Await::Done(pe.client.call(&calls::Fence).unwrap(), op))
                    }
                    Collective::Ifence => {
                        pe.client.call(&calls::Ifence).unwrap();
                        None
                    }
                    Collective::Iallgather(len) => {
                        let value = self.gives(pe, op, len);
                        pe.client.call(&calls::Iallgather(&value)).unwrap();
                        None
                    }
                    Collective::Data(operation, root) => {
                        let [value, expected] =
                            with_data(operation, root, pe.rank, self.job.size, op);
                        let call = calls::Data(operation, root, &value);
                        Some(Await::Received(pe.client.call(&call).unwrap(), expected))
                    }
                    Collective::Allgather(len) => {
                        let value = self.gives(pe, op, len);
                        let call = calls::Allgather(&value);
                        Some(Await::Done(pe.client.call(&call).unwrap(), op))
                    }
                }
            }
            Step::Wait(op) => {
                let call = calls::Wait(RequestId(op as u64));
                Some(Await::Done(pe.client.call(&call).unwrap(), op))
            }
            Step::Get(op, other) => {
                let (key, value) = pair(other, op);
                let got = pe.client.call(&calls::Get(&key)).unwrap();
                Some(Await::Value(got, Some(value)))
            }
            Step::GetAgain(op, other) => {
                let got = pe.client.call(&calls::Get(&again(other))).unwrap();
                Some(Await::NotOlder(got, op))
            }
            Step::GetFrom(op, other) => {
                let (key, _) = pair(other, op);
                let got = pe.client.call(&calls::GetFrom(other, &key)).unwrap();
                Some(Await::From(got, op, other))
            }
            Step::Send => {
                let to = (pe.rank + 1) % self.job.size;
                for round in 0..2 {
                    let message = &item(pe.rank, round, 99);
                    let sent = pe.client.call(&calls::SendTo(to, message));
                    pe.quiet.push(sent.unwrap());
                }
                None
            }
            Step::Receive => {
                let from = (pe.rank + self.job.size - 1) % self.job.size;
                let again = std::mem::replace(&mut pe.received, true);
                if !again && self.rng.percent(50) {
                    pe.steps.push_front(Step::Receive);
                }
                let message = pe.client.call(&calls::ReceiveFrom(from)).unwrap();
                let expected = item(from, usize::from(again), 99);
                Some(Await::Received(message, expected))
            }
            Step::Finalize => {
                let end = pe.client.call(&calls::Finalize).unwrap();
                Some(Await::Finalized(end))
            }
        }
    }

    /// Looks whether what a PE waits for has come, and is what it has to be.
    fn outcome(&mut self, index: usize) {
        let pe = &mut self.pes[index];
        let rank = pe.rank;
        pe.quiet.retain(|ticket| match ticket.take() {
            None => true,
            Some(outcome) => {
                assert_eq!(outcome, Ok(()), "PE {rank}");
                false
            }
        });
        let Some(awaited) = &pe.blocked else { return };
        let found = match awaited {
            Await::Initialised(facts) => facts.take().map(|facts| {
                let facts = facts.unwrap();
                assert_eq!((facts.rank, facts.size), (rank, self.job.size));
                assert_eq!(facts.appnum, 3);
            }),
            Await::JobId(id) => id
                .take()
                .map(|id| assert_eq!(id.as_ref(), Ok(&self.job.id))),
            Await::JobAttr(value) => value.take().map(|value| {
                let text = String::from_utf8(value.unwrap().unwrap()).unwrap();
                let mapping: ProcessMapping = text.parse().unwrap();
                assert_eq!(mapping.to_nodes(self.job.size), self.node_of_rank);
            }),
            Await::NodeAttr {
                value,
                may_be_absent,
            } => value.take().map(|value| match value.unwrap() {
                None => assert!(may_be_absent),
                Some(value) => {
                    assert_eq!(value, format!("leader of {}", pe.node).into_bytes());
                }
            }),
            Await::Done(done, op) => done.take().map(|done| match done {
                Ok(()) => {
                    if self.collectives[*op].gathers().is_some() {
                        // Published before told.
                        assert!(self.published[pe.node].contains_key(&(*op as u64)));
                    }
                }
                Err(refusal) => {
                    assert!(self.culprit.is_some_and(|(bad, _)| bad == *op), "{refusal}");
                    pe.failures.insert(*op, refusal.message);
                }
            }),
            Await::Value(value, expected) => value
                .take()
                .map(|value| assert_eq!(value.as_ref(), Ok(expected), "PE {rank}")),
            Await::NotOlder(value, op) => value.take().map(|value| {
                let text = String::from_utf8(value.unwrap().unwrap()).unwrap();
                let found: usize = text.parse().unwrap();
                assert!(found >= *op, "PE {rank}: {found} after {op}");
            }),
            Await::From(value, op, other) => value.take().map(|value| {
                let value = value.unwrap();
                let first = other % 2 == 0 && value == b"old";
                let right = first || value == pair(*other, *op).1;
                assert!(right, "PE {rank}: {value:?}");
            }),
            Await::Received(message, expected) => message
                .take()
                .map(|message| assert_eq!(message.as_ref(), Ok(expected), "PE {rank}")),
            Await::Finalized(end) => end.take().map(|end| {
                end.unwrap();
                pe.finalized = true;
            }),
        };
        if found.is_some() {
            pe.blocked = None;
        }
    }
}
