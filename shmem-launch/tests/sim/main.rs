//! Whole trees of agents under a launcher, simulated: real state machines, simulated links, PEs,
//! deaths, terminal and time. Everything follows from a seed; `SHMEM_SIM_SEED=n` replays one.
//!
//! In some worlds processes that die are started again, some times. Now and then the job is stopped, for
//! minutes.
//!
//! In some worlds each node is a host, whose agent a remote shell starts: each starts few of them at a time, some
//! refuse once or twice, and an agent has to greet first, which some never do, or say something else.
//!
//! In most worlds there are heartbeats, and silence: agents are stopped, and links to hosts cut in one
//! direction or in both, for a while that everybody must bear, or for good. In some of them PEs fail without
//! whom the others go on.
//!
//! In some worlds each node has a PMIx server, which may die.
//!
//! Whatever dies when, the job must end: every agent exits, no PE lives, the launcher has an exit
//! status and has told at most one cause, and one that came before it, and without deaths all output arrives in order. Where the others
//! go on after a failure, all that arrives in full which PEs wrote who ended well.

mod causes;
mod scenes;
mod server;
mod silence;
mod steps;

use server::Server;

use std::collections::VecDeque;
use std::time::Duration;

use shmem_launch::agent::{
    Action, Agent, ChildSetup, Event, InputRoute, Reading, Servers, Setup, StillNeeded,
};
use shmem_launch::exit::End;
use shmem_launch::frame::{JobOptions, OUTPUT_WINDOW, Stream};
use shmem_launch::limits::SpawnQuota;
use shmem_launch::plan::Layout;
use shmem_launch::remote::{Contact, RemoteShell, greeting};
use shmem_launch::report::Reduced;
use shmem_launch::root::{self, Root};
use shmem_pmi::process_mapping::ProcessMapping;
use shmem_pmi::server::{Job, NodePlace};
use shmem_pmi::tree::Tree;

const SECOND: u64 = 1_000_000_000;

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
    /// Without the ends of lines.
    bytes: usize,
    /// Written and not yet read by the agent.
    pipe: Vec<u8>,
    open: bool,
    stubborn: bool,
    long: bool,
    /// Whether it ended with a status other than 0, or by a signal.
    failed: bool,
    /// How it will end before long, because of what it has lost.
    doomed: Option<u8>,
}

impl Pe {
    /// One of its lines, without the end.
    fn line(&self, rank: u32, number: u32) -> String {
        let filler = if self.long { 40_000 } else { 3 };
        format!("{rank} {number} {}", "x".repeat(filler))
    }
}

/// The link of an agent to its parent.
#[derive(Default)]
struct Link {
    up: VecDeque<u8>,
    down: VecDeque<u8>,
    up_closed: bool,
    down_closed: bool,
    /// Bytes that have come to the parent.
    delivered: usize,
    /// The parent has given the agent up.
    dropped: bool,
    /// Whether nothing gets through from the agent, and to it.
    cut: [bool; 2],
    /// When it is mended, or the agent continued.
    heals_at: Option<u64>,
}

/// The remote shell of an agent.
struct Shell {
    /// What the agent says before anything else; nothing for a host that does not answer. `None` once it
    /// was said.
    greeting: Option<Vec<u8>>,
    /// Whether it was started, and how often that will be refused.
    called: bool,
    refusals: u32,
}

/// What starts the PEs of a node.
struct Template {
    prepared: bool,
    alive: bool,
    requests: VecDeque<(u32, u32)>,
    finishing: bool,
}

struct Node {
    agent: Agent,
    alive: bool,
    link: Link,
    shell: Shell,
    template: Template,
    /// Its PEs and its template are stopped.
    stopped: bool,
    /// Somebody has stopped the agent itself.
    frozen: bool,
    /// Whether it is gone with what its PEs wrote.
    lost: bool,
    /// How the process ended, until the parent knows.
    unreaped: Option<End>,
    parent: Option<usize>,
    /// Child index in the parent.
    index: usize,
    children: Vec<usize>,
    server: Server,
    pes: Vec<Pe>,
    first_rank: u32,
}

/// The launcher's process.
struct Launcher {
    alive: bool,
    /// Since when it is stopped.
    stopped: Option<u64>,
    /// Whether it was stopped: an agent may look for it when it has just been continued.
    was_stopped: bool,
    told_closed: bool,
    reaped: bool,
}

/// What has happened, and what a job may end with because of that.
#[derive(Default)]
struct Seen {
    statuses: Vec<u8>,
    /// How often it was asked what the PEs wait for.
    asked: usize,
    agent_killed: bool,
    /// Whether somebody was silent, and whether for good.
    disturbed: bool,
    silenced: bool,
    /// Whether a PE that was to be started again could not be.
    respawn_failed: bool,
    /// Whether a PMIx server has died.
    server_died: bool,
}

struct World {
    shape: Shape,
    rng: Rng,
    now: u64,
    root: Root,
    launcher: Launcher,
    nodes: Vec<Node>,
    texts: [Vec<u8>; 2],
    /// Steps during which the terminal takes nothing.
    blocked_for: u32,
    deaths_left: u32,
    seen: Seen,
    next_pid: i32,
    /// Whether a test says what PEs and others do, instead of the seed.
    scripted: bool,
}

/// What the launcher says of a failure of its own that came before that of a PE.
const BEFORE: &str = "; this was before the job was ended";

/// How often a host is tried again.
const RETRIES: u32 = 2;

/// A host whose remote shell is still to be started.
fn contact(node: u32) -> Contact {
    let shell = RemoteShell {
        words: vec!["rsh".into()],
        shmrun: b"shmrun".to_vec(),
        timeout_ns: 30_000_000_000,
        retries: RETRIES,
        ..RemoteShell::default()
    };
    let host = format!("host{node}");
    Contact::new(&shell, &host, &host)
}

/// What a world is made of.
#[derive(Debug, Clone, Copy)]
struct Shape {
    n_nodes: u32,
    n_pes: u32,
    degree: u32,
    /// Whether PEs write much.
    chatty: bool,
    hosts: bool,
    bad_host: bool,
    respawns: u32,
    keep_going: bool,
    heartbeat: u64,
    label: bool,
    pmix: bool,
}

fn rng(seed: u64) -> Rng {
    Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
}

fn world(seed: u64) -> World {
    let mut rng = rng(seed);
    let most = if rng.one_in(4) { 24 } else { 6 };
    let n_nodes = 1 + rng.below(most) as u32;
    let n_pes =
        n_nodes + rng.below(3 * n_nodes as usize) as u32 + if rng.one_in(8) { 70 } else { 0 };
    let degree = 2 + rng.below(3) as u32;
    let hosts = rng.one_in(3);
    let respawns = [0, 0, 1, 4][rng.below(4)];
    let shape = Shape {
        n_nodes,
        n_pes,
        degree,
        chatty: rng.one_in(6),
        hosts,
        bad_host: hosts && rng.one_in(3),
        respawns,
        keep_going: respawns == 0 && rng.one_in(3),
        heartbeat: [0, 2, 8, 8][rng.below(4)] * SECOND,
        label: !seed.is_multiple_of(3),
        pmix: respawns == 0 && rng.one_in(3),
    };
    let mut w = make(shape, rng);
    w.blocked_for = if w.rng.one_in(3) { 3000 } else { 0 };
    w.deaths_left = [0, 0, 1, 1, 2, 5][w.rng.below(6)];
    w
}

/// A world of this shape in which nobody dies.
fn make(shape: Shape, mut rng: Rng) -> World {
    let bad_node = rng.below(shape.n_nodes as usize) as u32;
    let bad_greeting = match rng.one_in(2) {
        true => Vec::new(),
        false => b"Last login: never\n".to_vec(),
    };
    let starts = 1 + rng.below(3) as u32;
    let nodes = (0..shape.n_nodes).map(|node| {
        let mut made = make_node(shape, node, starts, &mut rng);
        if shape.bad_host && node == bad_node {
            made.shell.greeting = Some(bad_greeting.clone());
        }
        made
    });
    let nodes = nodes.collect();
    World {
        root: Root::new(root::Setup {
            n_pes: shape.n_pes,
            n_nodes: shape.n_nodes,
            hosts: match shape.hosts {
                true => (0..shape.n_nodes)
                    .map(|node| format!("host{node}"))
                    .collect(),
                false => Vec::new(),
            },
            options: shape.options(),
            agent: ChildSetup {
                node: 0,
                ranks: 0..shape.n_pes,
                pid: agent_pid(0),
                contact: shape.hosts.then(|| contact(0).begun(1)),
            },
            ..Default::default()
        }),
        launcher: Launcher {
            alive: true,
            stopped: None,
            was_stopped: false,
            told_closed: false,
            reaped: false,
        },
        nodes,
        texts: Default::default(),
        blocked_for: 0,
        deaths_left: 0,
        seen: Seen::default(),
        now: 1,
        next_pid: 5000,
        scripted: false,
        shape,
        rng,
    }
}

fn agent_pid(node: u32) -> u32 {
    1000 + node
}

impl Shape {
    fn options(self) -> JobOptions {
        JobOptions {
            respawns: self.respawns,
            keep_going: self.keep_going,
            label: self.label,
            heartbeat: Duration::from_nanos(self.heartbeat),
            preparation: Duration::from_secs(60),
            grace: Duration::from_millis(250),
            ..JobOptions::default()
        }
    }
}

fn make_node(shape: Shape, node: u32, starts: u32, rng: &mut Rng) -> Node {
    let layout = Layout::of(shape.n_pes, shape.n_nodes);
    let tree = Tree::new(shape.n_nodes, shape.degree);
    let node_of = layout.node_of();
    let ranks = layout.ranks(node);
    let job = Job {
        id: "sim".into(),
        size: shape.n_pes,
        process_mapping: ProcessMapping::from_nodes(&node_of).to_string(),
        extensions: true,
        ..Job::default()
    };
    let servers = Servers::new(job, NodePlace::in_tree(&tree, node, &node_of)).unwrap();
    let child = |node: u32| {
        let below = tree.subtree(node);
        ChildSetup {
            node,
            ranks: layout.ranks(below.start).start..layout.ranks(below.end - 1).end,
            pid: agent_pid(node),
            contact: shape.hosts.then(|| contact(node)),
        }
    };
    let setup = Setup {
        node,
        first_rank: ranks.start,
        n_local: ranks.len() as u32,
        n_pes: shape.n_pes,
        quota: SpawnQuota {
            pes: 1 + rng.below(SpawnQuota::FULL.pes as usize) as u32,
            requests: 1 + rng.below(2) as u32,
        },
        options: shape.options(),
        input: InputRoute::default(),
        pmix: shape.pmix,
        starts,
        children: tree.children(node).map(child).collect(),
    };
    let parent = tree.parent(node).map(|p| p as usize);
    let index = parent.map_or(0, |p| {
        tree.children(p as u32).position(|c| c == node).unwrap()
    });
    let refusals = match shape.hosts && rng.one_in(4) {
        true => rng.below(1 + RETRIES as usize) as u32,
        false => 0,
    };
    let pes = ranks.clone().map(|_| Pe {
        life: Life::Waiting,
        lines_left: if shape.chatty {
            30
        } else {
            rng.below(4) as u32
        },
        written: 0,
        bytes: 0,
        pipe: Vec::new(),
        open: false,
        stubborn: rng.one_in(4),
        long: shape.chatty && rng.one_in(2),
        failed: false,
        doomed: None,
    });
    Node {
        agent: Agent::new(setup, servers),
        alive: true,
        link: Link::default(),
        shell: Shell {
            greeting: shape.hosts.then(greeting),
            called: !shape.hosts || parent.is_none(),
            refusals,
        },
        template: Template {
            prepared: false,
            alive: true,
            requests: VecDeque::new(),
            finishing: false,
        },
        stopped: false,
        frozen: false,
        lost: false,
        unreaped: None,
        parent,
        index,
        children: tree.children(node).map(|c| c as usize).collect(),
        server: Server::default(),
        pes: pes.collect(),
        first_rank: ranks.start,
    }
}

fn run(seed: u64) {
    let mut w = world(seed);
    // Sometimes the launcher itself is killed.
    let root_dies_at = w.rng.one_in(5).then(|| w.rng.below(3000));
    // Of their own, so that schedules are the same without them.
    let mut questions = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut steps = 0;
    loop {
        if root_dies_at == Some(steps) && w.launcher.alive {
            w.launcher.alive = false;
            w.close_down(0);
        }
        if !w.launcher.alive && w.nodes.iter().all(|n| !n.alive) {
            break;
        }
        if questions.one_in(3000) {
            w.ask();
        }
        let went_on = w.step();
        for (at, n) in w.nodes.iter().enumerate() {
            let slack = 64 << 10;
            assert!(
                n.link.up.len() <= OUTPUT_WINDOW as usize + slack,
                "node {at} queues {} bytes",
                n.link.up.len()
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
    let goes_on = |l: &str| {
        let said = [
            "; starting it again (",
            "; the others go on",
            "more PEs have failed",
            "PEs failed (--keep-going)",
            " has waited 30 s for PE",
        ];
        said.iter().any(|part| l.contains(part))
    };
    let answers = |l: &&str| l.starts_with("shmrun: what ") || l.starts_with("shmrun: no PE runs ");
    let answered = err.lines().filter(answers).count();
    // Who interrupts once more when all is over does not want to wait for text.
    let unread = w.seen.statuses.iter().any(|&s| s == 130 || s == 143);
    assert!(
        // The launcher itself asks about a node that is silent.
        answered <= w.seen.asked + 1 && (answered > 0 || w.seen.asked == 0 || unread),
        "{} questions: {err}",
        w.seen.asked
    );
    let told = |l: &&str| l.starts_with("shmrun: ") && !goes_on(l) && !answers(l);
    let told = err.lines().filter(told).count();
    let status = w.root.finished().expect("the launcher has a status");
    if status == 0 {
        assert_eq!(told, 0, "{err}");
        if w.seen.statuses.is_empty() && !w.seen.agent_killed && !w.seen.server_died {
            check_output(&w);
        }
    } else if w.shape.keep_going && told == 0 {
        assert!(err.contains("PEs failed (--keep-going)"), "{err}");
        check_output(&w);
    } else {
        // A user who insists is told what that does.
        let interrupts = w.seen.statuses.iter().filter(|&&s| s == 130).count();
        let insisted = usize::from(err.contains("killing the job"))
            + usize::from(
                (interrupts > 2 || w.seen.silenced) && err.contains("did not end in time"),
            );
        let before = err.lines().filter(|l| l.contains(BEFORE)).count();
        assert!(before <= 1, "{err}");
        assert_eq!(told, 1 + before + insisted, "{err}");
        let lost = w.seen.agent_killed
            || w.shape.bad_host
            || w.seen.respawn_failed
            || w.seen.silenced
            || w.seen.server_died;
        assert!(before == 0 || lost && status == 125, "{err}");
        // What a PE lacked that is lost.
        let needed = w.shape.keep_going && status == 1;
        let expected = w.seen.statuses.contains(&status) || (lost && status == 125) || needed;
        assert!(expected, "status {status} of {:?}: {err}", w.seen.statuses);
    }
    if w.shape.bad_host {
        assert_ne!(status, 0, "{err}");
    } else if w.seen.statuses.is_empty()
        && !w.seen.agent_killed
        && !w.seen.silenced
        && !w.seen.server_died
    {
        assert_eq!(status, 0, "{err}");
        assert_eq!(
            w.root.report().map(|r| r.agents),
            Some(w.nodes.len() as u64)
        );
    }
}

/// Every line of every PE, in the PE's order, but for what was lost with its node.
fn check_output(w: &World) {
    let text = String::from_utf8(w.texts[0].clone()).unwrap();
    let mut next = std::collections::HashMap::new();
    let mut cut_short = Vec::new();
    for node in &w.nodes {
        let pes = (node.first_rank..).zip(&node.pes);
        let pes = pes.filter(|(_, pe)| node.lost || pe.failed);
        cut_short.extend(pes.map(|(rank, _)| rank));
    }
    if w.shape.label {
        return check_labelled(w, &text, &cut_short);
    }
    if w.seen.disturbed {
        // Who is silent in the middle of a line is not waited for.
        let written: usize = w.nodes.iter().flat_map(|n| &n.pes).map(|pe| pe.bytes).sum();
        let arrived = text.bytes().filter(|&b| b != b'\n').count();
        assert!(
            arrived == written || !cut_short.is_empty(),
            "{arrived} of {written}"
        );
        return;
    }
    for line in text.lines() {
        let mut words = line.split(' ');
        let rank: u32 = words.next().unwrap().parse().unwrap();
        let number = words.next();
        // The first digit of a rank may be all that is there.
        if cut_short.contains(&rank) || (number.is_none() && !cut_short.is_empty()) {
            continue;
        }
        let number: u32 = number.unwrap().parse().unwrap();
        let expected = next.entry(rank).or_insert(0);
        assert_eq!(number, *expected, "PE {rank}");
        *expected += 1;
    }
    for node in &w.nodes {
        for (rank, pe) in (node.first_rank..).zip(&node.pes) {
            if cut_short.contains(&rank) {
                continue;
            }
            assert_eq!(
                next.get(&rank).copied().unwrap_or(0),
                pe.written,
                "PE {rank}"
            );
        }
    }
}

/// Where each line says whose it is, a PE's lines are found although others may have got into the middle of
/// one, as they may while its node is silent; of those that were lost with their node there is the beginning.
fn check_labelled(w: &World, text: &str, cut_short: &[u32]) {
    let mut said = std::collections::HashMap::<u32, Vec<&str>>::new();
    for line in text.lines() {
        let (rank, rest) = line
            .strip_prefix('[')
            .and_then(|line| line.split_once("] "))
            .unwrap_or_else(|| panic!("no label: {line}"));
        said.entry(rank.parse().unwrap()).or_default().push(rest);
    }
    for node in &w.nodes {
        for (rank, pe) in (node.first_rank..).zip(&node.pes) {
            let written = (0..pe.written).map(|number| pe.line(rank, number));
            let written: Vec<String> = written.collect();
            let came = said.remove(&rank).unwrap_or_default();
            if cut_short.contains(&rank) {
                assert!(written.concat().starts_with(&came.concat()), "PE {rank}");
            } else if w.seen.disturbed {
                assert_eq!(written.concat(), came.concat(), "PE {rank}");
            } else {
                assert_eq!(written, came, "PE {rank}");
            }
        }
    }
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn jobs_end_whatever_dies() {
    shmem_testkit::seeds::each(100, |seed, _| run(seed));
}
