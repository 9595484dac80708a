//! Whole trees of agents under a launcher, simulated: real state machines, simulated links, PEs,
//! deaths, terminal and time. Everything follows from a seed; `SHMEM_SIM_SEED=n` replays one.
//!
//! In some worlds each node is a host, whose agent a remote shell starts: it has to greet first, and
//! some never do, or say something else.
//!
//! Whatever dies when, the job must end: every agent exits, no PE lives, the launcher has an exit
//! status and has told at most one cause, and without deaths all output arrives in order.

use std::collections::VecDeque;

use shmem_launch::agent::{Action, Agent, ChildSetup, Event, Setup};
use shmem_launch::exit::End;
use shmem_launch::frame::{OUTPUT_WINDOW, Stream};
use shmem_launch::plan::Layout;
use shmem_launch::remote::{Contact, RemoteShell, greeting};
use shmem_launch::report::Reduced;
use shmem_launch::root::{self, Root};
use shmem_pmi::process_mapping::ProcessMapping;
use shmem_pmi::server::{Job, NodePlace, NodeServer};
use shmem_pmi::tree::Tree;

/// xorshift64*: enough for choices.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Waiting,
    Alive,
    /// Ended; the agent has not reaped it.
    Zombie(End),
    Reaped,
}

struct Pe {
    life: Life,
    lines_left: u32,
    written: u32,
    /// Written and not yet read by the agent.
    pipe: Vec<u8>,
    open: bool,
    stubborn: bool,
    long: bool,
}

struct Node {
    agent: Agent,
    alive: bool,
    prepared: bool,
    up: VecDeque<u8>,
    down: VecDeque<u8>,
    up_closed: bool,
    down_closed: bool,
    /// What it says before anything else; nothing for a host that does not answer. `None` once it
    /// was said.
    greeting: Option<Vec<u8>>,
    /// Its parent has given it up.
    dropped: bool,
    /// How the process ended, until the parent knows.
    unreaped: Option<End>,
    parent: Option<usize>,
    /// Child index in the parent.
    index: usize,
    children: Vec<usize>,
    requests: VecDeque<(u32, u32)>,
    finishing: bool,
    template: bool,
    pes: Vec<Pe>,
    first_rank: u32,
}

struct World {
    rng: Rng,
    now: u64,
    root: Root,
    root_alive: bool,
    root_told_closed: bool,
    root_reaped: bool,
    nodes: Vec<Node>,
    texts: [Vec<u8>; 2],
    /// Steps during which the terminal takes nothing.
    blocked_for: u32,
    deaths_left: u32,
    statuses: Vec<u8>,
    agent_killed: bool,
    /// Whether a host does not answer as it should.
    bad_host: bool,
    next_pid: i32,
}

fn contact(node: u32) -> Contact {
    let shell = RemoteShell {
        words: vec!["rsh".into()],
        shmrun: b"shmrun".to_vec(),
        timeout_ns: 30_000_000_000,
    };
    Contact::new(&shell, &format!("host{node}"), 1)
}

fn world(seed: u64) -> World {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let most = if rng.one_in(4) { 24 } else { 6 };
    let n_nodes = 1 + rng.below(most) as u32;
    let n_pes =
        n_nodes + rng.below(3 * n_nodes as usize) as u32 + if rng.one_in(8) { 70 } else { 0 };
    let layout = Layout::of(n_pes, n_nodes);
    let tree = Tree::new(n_nodes, 2 + rng.below(3) as u32);
    let node_of = layout.node_of();
    let pid = |node: u32| 1000 + node;
    let chatty = rng.one_in(6);
    let hosts = rng.one_in(3);
    let bad_host = hosts && rng.one_in(3);
    let bad_node = rng.below(n_nodes as usize) as u32;
    let bad_greeting = match rng.one_in(2) {
        true => Vec::new(),
        false => b"Last login: never\n".to_vec(),
    };
    let nodes = (0..n_nodes)
        .map(|node| {
            let ranks = layout.ranks(node);
            let job = Job {
                id: "sim".into(),
                size: n_pes,
                appnum: 0,
                process_mapping: ProcessMapping::from_nodes(&node_of).to_string(),
                attributes: Vec::new(),
                spawner: None,
                extensions: true,
            };
            let pmi = NodeServer::new(job, NodePlace::in_tree(&tree, node, &node_of)).unwrap();
            let setup = Setup {
                node,
                first_rank: ranks.start,
                n_local: ranks.len() as u32,
                n_pes,
                raw_output: false,
                children: tree
                    .children(node)
                    .map(|c| ChildSetup {
                        node: c,
                        pid: pid(c),
                        contact: hosts.then(|| contact(c)),
                    })
                    .collect(),
            };
            let parent = tree.parent(node).map(|p| p as usize);
            let index = parent.map_or(0, |p| {
                tree.children(p as u32).position(|c| c == node).unwrap()
            });
            let pes = ranks.clone().map(|_| Pe {
                life: Life::Waiting,
                lines_left: if chatty { 30 } else { rng.below(4) as u32 },
                written: 0,
                pipe: Vec::new(),
                open: false,
                stubborn: rng.one_in(4),
                long: chatty && rng.one_in(2),
            });
            Node {
                agent: Agent::new(setup, pmi),
                alive: true,
                prepared: false,
                up: VecDeque::new(),
                down: VecDeque::new(),
                up_closed: false,
                down_closed: false,
                greeting: hosts.then(|| match bad_host && node == bad_node {
                    true => bad_greeting.clone(),
                    false => greeting(),
                }),
                dropped: false,
                unreaped: None,
                parent,
                index,
                children: tree.children(node).map(|c| c as usize).collect(),
                requests: VecDeque::new(),
                finishing: false,
                template: true,
                pes: pes.collect(),
                first_rank: ranks.start,
            }
        })
        .collect();
    let deaths_left = [0, 0, 1, 1, 2, 5][rng.below(6)];
    World {
        root: Root::new(root::Setup {
            n_pes,
            grace_ns: 250_000_000,
            agent_pid: pid(0),
            contact: hosts.then(|| contact(0)),
            ..Default::default()
        }),
        root_alive: true,
        root_told_closed: false,
        root_reaped: false,
        nodes,
        texts: Default::default(),
        blocked_for: if rng.one_in(3) { 3000 } else { 0 },
        deaths_left,
        statuses: Vec::new(),
        agent_killed: false,
        bad_host,
        now: 1,
        next_pid: 5000,
        rng,
    }
}

impl World {
    fn tell(&mut self, at: usize, event: Event<'_>) {
        if self.nodes[at].alive {
            self.nodes[at].agent.handle(event, self.now);
            self.act(at);
        }
    }

    /// The driver of an agent.
    fn act(&mut self, at: usize) {
        while let Some(action) = self.nodes[at].agent.poll_action() {
            match action {
                Action::Spawn { first, count } => {
                    for pe in &mut self.nodes[at].pes[first as usize..(first + count) as usize] {
                        pe.open = true;
                    }
                    self.nodes[at].requests.push_back((first, count));
                }
                Action::FinishTemplate => self.nodes[at].finishing = true,
                Action::Signal(signal) => self.signal(at, signal),
                Action::KillAll => self.signal(at, 9),
                Action::CleanUp => {
                    assert!(self.nodes[at].pes.iter().all(|p| p.life != Life::Alive));
                    let report = Reduced {
                        agents: 1,
                        ..Reduced::default()
                    };
                    self.nodes[at]
                        .agent
                        .handle(Event::CleanedUp(report), self.now);
                }
                Action::Exit => self.end_agent(at, End::Code(0)),
                Action::Die => self.end_agent(at, End::Code(125)),
                Action::DropOutput => {
                    for pe in &mut self.nodes[at].pes {
                        pe.open = false;
                    }
                }
                Action::CloseOutput(_) | Action::ToPe(..) | Action::Publish { .. } => {}
                Action::DropChild(index) => {
                    let child = self.nodes[at].children[index];
                    let child = &mut self.nodes[child];
                    assert!(child.pes.iter().all(|pe| pe.life == Life::Waiting));
                    (child.dropped, child.down_closed) = (true, true);
                }
                Action::Stdin(_) | Action::StdinEnd => {}
            }
        }
        self.flush(at);
    }

    fn flush(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let out = node.agent.outgoing(None);
        node.up.extend(out.take());
        for (index, child) in node.children.clone().into_iter().enumerate() {
            let bytes = self.nodes[at].agent.outgoing(Some(index)).take();
            self.nodes[child].down.extend(bytes);
        }
    }

    fn signal(&mut self, at: usize, signal: u8) {
        let node = &mut self.nodes[at];
        for pe in node.pes.iter_mut().filter(|p| p.life == Life::Alive) {
            if signal == 9 || (signal == 15 && !pe.stubborn) {
                pe.life = Life::Zombie(End::Signal {
                    signal,
                    core: false,
                });
            }
        }
        if node.template && (signal == 9 || signal == 15) {
            node.finishing = true;
            node.requests.clear();
        }
    }

    fn end_agent(&mut self, at: usize, end: End) {
        self.flush(at);
        let node = &mut self.nodes[at];
        node.alive = false;
        node.up_closed = true;
        node.unreaped = Some(end);
        // The guard.
        for pe in &mut node.pes {
            pe.life = Life::Reaped;
        }
        for child in node.children.clone() {
            self.nodes[child].down_closed = true;
        }
    }

    /// One of the things that can happen now; false if nothing can.
    fn step(&mut self) -> bool {
        let mut choices: Vec<(usize, u8)> = Vec::new();
        for (at, n) in self.nodes.iter().enumerate() {
            let parent_alive = n.parent.map_or(self.root_alive, |p| self.nodes[p].alive);
            if parent_alive && !n.dropped {
                let told = n.parent.is_none() && self.root_told_closed;
                if !n.up.is_empty() && n.greeting.is_none() {
                    choices.push((at, 0));
                } else if n.up_closed && !told {
                    choices.push((at, 1));
                }
                if n.unreaped.is_some() {
                    choices.push((at, 2));
                }
            }
            if !n.alive {
                continue;
            }
            if let Some(greeting) = &n.greeting {
                // Until then nothing runs on the host.
                if n.down_closed {
                    choices.push((at, 4));
                } else if !greeting.is_empty() && n.parent.is_none_or(|p| self.nodes[p].alive) {
                    choices.push((at, 12));
                }
                continue;
            }
            if !n.down.is_empty() {
                choices.push((at, 3));
            } else if n.down_closed {
                choices.push((at, 4));
            }
            if !n.prepared {
                choices.push((at, 5));
            }
            if !n.requests.is_empty() {
                choices.push((at, 6));
            } else if n.finishing && n.template {
                choices.push((at, 7));
            }
            if n.pes.iter().any(|p| p.life == Life::Alive) {
                choices.push((at, 8));
            }
            if !n.template && n.pes.iter().any(|p| matches!(p.life, Life::Zombie(_))) {
                choices.push((at, 9));
            }
            let readable = |p: &Pe| {
                p.open
                    && (!p.pipe.is_empty()
                        || matches!(p.life, Life::Reaped | Life::Zombie(_))
                        || (p.life == Life::Waiting && !n.template))
            };
            if n.agent.may_read_output() && n.pes.iter().any(readable) {
                choices.push((at, 10));
            }
        }
        if self.root_alive && self.blocked_for == 0 {
            choices.push((0, 11));
        }
        self.blocked_for = self.blocked_for.saturating_sub(1);
        if self.deaths_left > 0 && self.rng.one_in(150) {
            self.deaths_left -= 1;
            self.death();
            return true;
        }
        let only_terminal = choices.iter().all(|c| c.1 == 11);
        if only_terminal && !choices.is_empty() && self.write_text() {
            return true;
        }
        if only_terminal || self.rng.one_in(50) {
            return self.pass_time(only_terminal) || self.root_alive && self.blocked_for > 0;
        }
        let (at, what) = choices[self.rng.below(choices.len())];
        self.happen(at, what);
        true
    }

    fn happen(&mut self, at: usize, what: u8) {
        let (parent, index) = (self.nodes[at].parent, self.nodes[at].index);
        match what {
            0 => {
                let max = self.nodes[at].up.len();
                let most = if self.rng.one_in(2) { 7 } else { 200_000 };
                let n = 1 + self.rng.below(max.min(most));
                let bytes: Vec<u8> = self.nodes[at].up.drain(..n).collect();
                match parent {
                    Some(p) => self.tell(p, Event::FromChild(index, &bytes)),
                    None => self.tell_root(root::Event::FromAgent(&bytes)),
                }
            }
            1 => {
                match parent {
                    Some(p) => {
                        // Reported once: nothing more can come from the link.
                        self.nodes[at].up_closed = false;
                        self.tell(p, Event::ChildClosed(index));
                    }
                    None => {
                        self.root_told_closed = true;
                        self.tell_root(root::Event::AgentClosed);
                    }
                }
            }
            2 => {
                let end = self.nodes[at].unreaped.take().unwrap();
                match parent {
                    Some(p) => self.tell(p, Event::ChildReaped(index, end)),
                    None => {
                        self.root_reaped = true;
                        self.tell_root(root::Event::AgentReaped(end));
                    }
                }
            }
            3 => {
                let max = self.nodes[at].down.len();
                let n = 1 + self.rng.below(max.min(64));
                let bytes: Vec<u8> = self.nodes[at].down.drain(..n).collect();
                self.tell(at, Event::FromParent(&bytes));
            }
            4 => self.tell(at, Event::ParentClosed),
            5 => {
                self.nodes[at].prepared = true;
                self.tell(at, Event::Prepared);
            }
            6 => {
                let (first, count) = self.nodes[at].requests.pop_front().unwrap();
                let pids: Vec<i32> = (self.next_pid..self.next_pid + count as i32).collect();
                self.next_pid += count as i32;
                for pe in &mut self.nodes[at].pes[first as usize..(first + count) as usize] {
                    pe.life = Life::Alive;
                }
                self.tell(
                    at,
                    Event::Spawned {
                        pids: &pids,
                        error: None,
                    },
                );
            }
            7 => {
                self.nodes[at].template = false;
                self.tell(at, Event::TemplateClosed);
            }
            8 => {
                let first_rank = self.nodes[at].first_rank;
                let alive: Vec<usize> = (0..self.nodes[at].pes.len())
                    .filter(|&l| self.nodes[at].pes[l].life == Life::Alive)
                    .collect();
                let local = alive[self.rng.below(alive.len())];
                let pe = &mut self.nodes[at].pes[local];
                if pe.pipe.len() > 64 << 10 {
                    return;
                }
                if pe.lines_left == 0 {
                    pe.life = Life::Zombie(End::Code(0));
                    return;
                }
                pe.lines_left -= 1;
                let filler = if pe.long { 40_000 } else { 3 };
                let line = format!(
                    "{} {} {}\n",
                    first_rank + local as u32,
                    pe.written,
                    "x".repeat(filler)
                );
                pe.written += 1;
                pe.pipe.extend_from_slice(line.as_bytes());
            }
            9 => {
                let zombies: Vec<(u32, End)> = (0u32..)
                    .zip(&self.nodes[at].pes)
                    .filter_map(|(l, p)| match p.life {
                        Life::Zombie(end) => Some((l, end)),
                        _ => None,
                    })
                    .collect();
                let (local, end) = zombies[self.rng.below(zombies.len())];
                self.nodes[at].pes[local as usize].life = Life::Reaped;
                self.tell(
                    at,
                    Event::Reaped {
                        local,
                        end,
                        unfinalized: false,
                    },
                );
            }
            10 => self.read_output(at),
            12 => {
                let said = self.nodes[at].greeting.take().unwrap();
                for byte in said.into_iter().rev() {
                    self.nodes[at].up.push_front(byte);
                }
            }
            _ => {
                self.write_text();
            }
        }
    }

    fn read_output(&mut self, at: usize) {
        let template = self.nodes[at].template;
        for local in 0..self.nodes[at].pes.len() {
            let pe = &mut self.nodes[at].pes[local];
            if !pe.open {
                continue;
            }
            if !pe.pipe.is_empty() {
                let n = 1 + self.rng.below(pe.pipe.len().min(64 << 10));
                let data: Vec<u8> = self.nodes[at].pes[local].pipe.drain(..n).collect();
                return self.tell(at, Event::Output(local as u32, Stream::Out, &data));
            }
            let ended = matches!(pe.life, Life::Reaped | Life::Zombie(_))
                || (pe.life == Life::Waiting && !template);
            if ended {
                pe.open = false;
                self.tell(at, Event::OutputClosed(local as u32, Stream::Err));
                return self.tell(at, Event::OutputClosed(local as u32, Stream::Out));
            }
        }
    }

    fn tell_root(&mut self, event: root::Event<'_>) {
        self.root.handle(event, self.now);
        let bytes = self.root.outgoing().take();
        self.nodes[0].down.extend(bytes);
        if self.root.is_over() {
            self.nodes[0].down_closed = true;
        }
    }

    /// True if there was something to write.
    fn write_text(&mut self) -> bool {
        let mut news = false;
        for stream in Stream::ALL {
            let text = self.root.take_text(stream);
            news |= !text.is_empty();
            self.texts[stream as usize].extend_from_slice(&text);
            self.tell_root(root::Event::Written(stream, text.len()));
        }
        if self.root.finished().is_some() {
            self.root_alive = false;
            self.nodes[0].down_closed = true;
            news = true;
        }
        news
    }

    /// Jumps to the next timer if nothing else can happen, else some milliseconds ahead; false if
    /// there is nothing to wait for.
    fn pass_time(&mut self, idle: bool) -> bool {
        if idle {
            let timers = self
                .nodes
                .iter()
                .filter(|n| n.alive)
                .filter_map(|n| n.agent.next_timeout());
            let root = self.root.next_timeout().filter(|_| self.root_alive);
            let Some(next) = timers.chain(root).min() else {
                return false;
            };
            self.now = self.now.max(next);
        } else {
            self.now += self.rng.below(20_000_000) as u64;
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at]
                .agent
                .next_timeout()
                .is_some_and(|t| t <= self.now)
            {
                self.tell(at, Event::Timer);
            }
        }
        if self.root_alive {
            self.tell_root(root::Event::Timer);
        }
        true
    }

    fn death(&mut self) {
        match self.rng.below(5) {
            // A signal after the end only drops what is unwritten.
            3 | 4 if self.root.is_over() => {}
            0 | 1 => {
                let at = self.rng.below(self.nodes.len());
                let local = self.rng.below(self.nodes[at].pes.len());
                let pe = &mut self.nodes[at].pes[local];
                if pe.life == Life::Alive {
                    let end = if self.rng.one_in(2) {
                        End::Signal {
                            signal: 9,
                            core: false,
                        }
                    } else {
                        End::Code(1 + self.rng.below(100) as u8)
                    };
                    self.statuses.push(end.status());
                    self.nodes[at].pes[local].life = Life::Zombie(end);
                }
            }
            2 => {
                let at = self.rng.below(self.nodes.len());
                if self.nodes[at].alive {
                    self.agent_killed = true;
                    self.end_agent(
                        at,
                        End::Signal {
                            signal: 9,
                            core: false,
                        },
                    );
                }
            }
            3 => {
                self.statuses.push(143);
                self.tell_root(root::Event::Signal(15));
            }
            _ => {
                self.statuses.push(130);
                self.tell_root(root::Event::Signal(2));
            }
        }
    }
}

fn run(seed: u64) {
    let mut w = world(seed);
    // Sometimes the launcher itself is killed.
    let root_dies_at = w.rng.one_in(5).then(|| w.rng.below(3000));
    let mut steps = 0;
    loop {
        if root_dies_at == Some(steps) && w.root_alive {
            w.root_alive = false;
            w.nodes[0].down_closed = true;
        }
        if !w.root_alive && w.nodes.iter().all(|n| !n.alive) {
            break;
        }
        let went_on = w.step();
        for (at, n) in w.nodes.iter().enumerate() {
            let slack = 64 << 10;
            assert!(
                n.up.len() <= OUTPUT_WINDOW as usize + slack,
                "node {at} queues {} bytes",
                n.up.len()
            );
        }
        steps += 1;
        assert!(went_on || w.rng.one_in(2) || steps < 2_000_000, "stuck");
        assert!(
            steps < 2_000_000,
            "does not end: root {:?} over {}",
            w.root.finished(),
            w.root.is_over()
        );
    }
    let killed = root_dies_at.is_some_and(|at| at <= steps) && w.root.finished().is_none();
    if killed {
        return;
    }
    let err = String::from_utf8(w.texts[1].clone()).unwrap();
    let told = err.lines().filter(|l| l.starts_with("shmrun: ")).count();
    let status = w.root.finished().expect("the launcher has a status");
    if status == 0 {
        assert_eq!(told, 0, "{err}");
        if w.statuses.is_empty() && !w.agent_killed {
            check_output(&w);
        }
    } else {
        // A user who insists is told what that does.
        let interrupts = w.statuses.iter().filter(|&&s| s == 130).count();
        let insisted = usize::from(err.contains("killing the job"))
            + usize::from(interrupts > 2 && err.contains("did not end in time"));
        assert_eq!(told, 1 + insisted, "{err}");
        let lost = w.agent_killed || w.bad_host;
        let expected = w.statuses.contains(&status) || (lost && status == 125);
        assert!(expected, "status {status} of {:?}: {err}", w.statuses);
    }
    if w.bad_host {
        assert_ne!(status, 0, "{err}");
    } else if w.statuses.is_empty() && !w.agent_killed {
        assert_eq!(status, 0, "{err}");
        assert_eq!(
            w.root.report().map(|r| r.agents),
            Some(w.nodes.len() as u64)
        );
    }
}

/// Every line of every PE, in the PE's order.
fn check_output(w: &World) {
    let text = String::from_utf8(w.texts[0].clone()).unwrap();
    let mut next = std::collections::HashMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let rank: u32 = words.next().unwrap().parse().unwrap();
        let number: u32 = words.next().unwrap().parse().unwrap();
        let expected = next.entry(rank).or_insert(0);
        assert_eq!(number, *expected, "PE {rank}");
        *expected += 1;
    }
    for node in &w.nodes {
        for (rank, pe) in (node.first_rank..).zip(&node.pes) {
            assert_eq!(
                next.get(&rank).copied().unwrap_or(0),
                pe.written,
                "PE {rank}"
            );
        }
    }
}

#[test]
fn jobs_end_whatever_dies() {
    if let Some(seed) = std::env::var("SHMEM_SIM_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
    {
        return run(seed);
    }
    for seed in 0..1500 {
        let result = std::panic::catch_unwind(|| run(seed));
        if let Err(cause) = result {
            eprintln!("failed with SHMEM_SIM_SEED={seed}");
            std::panic::resume_unwind(cause);
        }
    }
}
