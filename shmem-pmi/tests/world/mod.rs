//! The simulated job: its shape, its streams, and the program that each PE runs.

mod program;
mod rng;

use std::collections::{HashMap, VecDeque};

use shmem_pmi::client::{Client, ClientConfig, Event, RequestId, Ticket};
use shmem_pmi::nla::Operation;
use shmem_pmi::process_mapping::{self, ProcessMapping};
use shmem_pmi::server::{CachePolicy, Job, NodePlace, NodeServer, Output, TreeLink};
use shmem_pmi::tree::Tree;

use program::{Collective, Expect, Step, again, gather_value, item, nla_data, pair, placement};
pub(crate) use rng::Rng;

struct Pe {
    rank: u32,
    node: usize,
    local: usize,
    client: Client,
    steps: VecDeque<Step>,
    blocked: Option<(Ticket, Expect)>,
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
                    Collective::Nla(operation, root)
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
        let ticket = client.initialise().unwrap();
        let mut pe = Pe {
            rank,
            node,
            local,
            client,
            steps: self.program(local),
            blocked: Some((ticket, Expect::Initialised)),
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
            self.start(&mut pe, 0, len);
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
        let limit = 4_000_000;
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
        self.events(index);
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

    fn start(&self, pe: &mut Pe, op: usize, len: usize) -> Ticket {
        let mut value = gather_value(pe.rank, op, len);
        if self.culprit == Some((op, pe.rank)) {
            value.push(0);
        }
        let started = match self.collectives[op] {
            Collective::Iallgather(_) => pe.client.iallgather(&value),
            _ => pe.client.allgather(&value),
        };
        let started = started.unwrap();
        assert_eq!(started.request, RequestId(op as u64));
        started.ticket
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

    fn step(&mut self, pe: &mut Pe, step: Step) -> Option<(Ticket, Expect)> {
        match step {
            Step::JobFacts => {
                if self.rng.percent(50) {
                    return Some((pe.client.job_id().unwrap(), Expect::JobId));
                }
                let ticket = pe.client.job_attr(process_mapping::KEY).unwrap();
                Some((ticket, Expect::JobAttr))
            }
            Step::PutNodeAttr => {
                let value = format!("leader of {}", pe.node);
                pe.client.put_node_attr("leader", value.as_bytes()).unwrap();
                None
            }
            Step::NodeAttr { wait } => {
                let ticket = pe.client.node_attr("leader", wait).unwrap();
                let may_be_absent = !wait;
                Some((ticket, Expect::NodeAttr { may_be_absent }))
            }
            Step::Put(op) => {
                let (key, value) = pair(pe.rank, op);
                if pe.rank.is_multiple_of(2) {
                    pe.client.put(&key, b"old").unwrap();
                }
                pe.client.put(&key, &value).unwrap();
                let now = op.to_string();
                pe.client.put(&again(pe.rank), now.as_bytes()).unwrap();
                None
            }
            Step::GetTooEarly(op) => {
                let ticket = pe.client.get(&pair(pe.rank, op).0).unwrap();
                Some((ticket, Expect::Value(None)))
            }
            Step::Start(op) => match self.collectives[op] {
                Collective::Fence => Some((pe.client.fence().unwrap(), Expect::Done(op))),
                Collective::Ifence => {
                    let started = pe.client.ifence().unwrap();
                    assert_eq!(started.request, RequestId(op as u64));
                    None
                }
                Collective::Iallgather(len) => {
                    self.start(pe, op, len);
                    None
                }
                Collective::Nla(operation, root) => {
                    let [value, expected] = nla_data(operation, root, pe.rank, self.job.size, op);
                    let ticket = pe.client.nla(operation, root, &value).unwrap();
                    Some((ticket, Expect::Received(expected)))
                }
                Collective::Allgather(len) => Some((self.start(pe, op, len), Expect::Done(op))),
            },
            Step::Wait(op) => {
                let ticket = pe.client.wait(RequestId(op as u64)).unwrap();
                Some((ticket, Expect::Done(op)))
            }
            Step::Get(op, other) => {
                let (key, value) = pair(other, op);
                let ticket = pe.client.get(&key).unwrap();
                Some((ticket, Expect::Value(Some(value))))
            }
            Step::GetAgain(op, other) => {
                let ticket = pe.client.get(&again(other)).unwrap();
                Some((ticket, Expect::NotOlder(op)))
            }
            Step::GetFrom(op, other) => {
                let ticket = pe.client.get_from(other, &pair(other, op).0).unwrap();
                Some((ticket, Expect::From(op, other)))
            }
            Step::Send => {
                let to = (pe.rank + 1) % self.job.size;
                for round in 0..2 {
                    pe.client.nla_send(to, &item(pe.rank, round, 99)).unwrap();
                }
                None
            }
            Step::Receive => {
                let from = (pe.rank + self.job.size - 1) % self.job.size;
                let again = std::mem::replace(&mut pe.received, true);
                if !again && self.rng.percent(50) {
                    pe.steps.push_front(Step::Receive);
                }
                let expected = Expect::Received(item(from, usize::from(again), 99));
                Some((pe.client.nla_recv(from).unwrap(), expected))
            }
            Step::Finalize => Some((pe.client.finalize().unwrap(), Expect::Finalized)),
        }
    }

    fn events(&mut self, index: usize) {
        let pe = &mut self.pes[index];
        while let Some((ticket, event)) = pe.client.poll_event() {
            match &pe.blocked {
                Some((awaited, _)) if *awaited == ticket => {}
                _ => {
                    let quiet = matches!(
                        event,
                        Event::Put | Event::NodeAttrPut | Event::RequestStarted(_) | Event::Sent
                    );
                    assert!(quiet, "PE {}: {event:?}", pe.rank);
                    continue;
                }
            }
            let Some((_, expected)) = pe.blocked.take() else {
                unreachable!("matched above");
            };
            match (expected, event) {
                (Expect::Initialised, Event::Initialised(facts)) => {
                    assert_eq!((facts.rank, facts.size), (pe.rank, self.job.size));
                    assert_eq!(facts.appnum, 3);
                }
                (Expect::JobId, Event::JobId(id)) => assert_eq!(id, self.job.id),
                (Expect::JobAttr, Event::JobAttr(Some(value))) => {
                    let text = String::from_utf8(value).unwrap();
                    let mapping: ProcessMapping = text.parse().unwrap();
                    assert_eq!(mapping.to_nodes(self.job.size), self.node_of_rank);
                }
                (Expect::NodeAttr { may_be_absent }, Event::NodeAttr(value)) => match value {
                    None => assert!(may_be_absent),
                    Some(value) => {
                        assert_eq!(value, format!("leader of {}", pe.node).into_bytes());
                    }
                },
                (Expect::Done(op), Event::FenceDone) => {
                    assert_eq!(self.collectives[op], Collective::Fence);
                }
                (Expect::Done(op), Event::RequestDone(request)) => {
                    assert_eq!(request, RequestId(op as u64));
                    if self.collectives[op].gathers().is_some() {
                        // Published before told.
                        assert!(self.published[pe.node].contains_key(&request.0));
                    }
                }
                (Expect::Done(op), Event::Error(refusal))
                    if self.culprit.is_some_and(|(bad, _)| bad == op) =>
                {
                    pe.failures.insert(op, refusal.message);
                }
                (Expect::Value(expected), Event::Got(value)) => assert_eq!(value, expected),
                (Expect::NotOlder(op), Event::Got(Some(value))) => {
                    let found: usize = String::from_utf8(value).unwrap().parse().unwrap();
                    assert!(found >= op, "PE {}: {found} after {op}", pe.rank);
                }
                (Expect::From(op, other), Event::Got(Some(value))) => {
                    let first = other % 2 == 0 && value == b"old";
                    assert!(
                        first || value == pair(other, op).1,
                        "PE {}: {value:?}",
                        pe.rank
                    );
                }
                (Expect::Received(expected), Event::Received(value)) => {
                    assert_eq!(value, expected, "PE {}", pe.rank);
                }
                (Expect::Finalized, Event::Finalized) => pe.finalized = true,
                (expected, event) => {
                    panic!("PE {}: expected {expected:?}, got {event:?}", pe.rank)
                }
            }
        }
    }
}
