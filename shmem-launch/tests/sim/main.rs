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
    Action, Agent, ChildSetup, Event, InputRoute, Missed, Reading, Servers, Setup,
};
use shmem_launch::exit::End;
use shmem_launch::frame::{JobOptions, OUTPUT_WINDOW, Stream};
use shmem_launch::limits::Portion;
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
    /// Whether its remote shell was started, and how often that will be refused.
    called: bool,
    refusals: u32,
    /// Bytes of its that have come to its parent.
    delivered: usize,
    /// Its parent has given it up.
    dropped: bool,
    /// Its PEs and its template are stopped.
    stopped: bool,
    /// Somebody has stopped the agent itself.
    frozen: bool,
    /// Whether nothing gets through from it, and to it.
    cut: [bool; 2],
    /// When it is continued, or its link mended.
    heals_at: Option<u64>,
    /// Whether it is gone with what its PEs wrote.
    lost: bool,
    /// How the process ended, until the parent knows.
    unreaped: Option<End>,
    parent: Option<usize>,
    /// Child index in the parent.
    index: usize,
    children: Vec<usize>,
    requests: VecDeque<(u32, u32)>,
    finishing: bool,
    template: bool,
    server: Server,
    pes: Vec<Pe>,
    first_rank: u32,
}

struct World {
    rng: Rng,
    now: u64,
    root: Root,
    root_alive: bool,
    /// Since when the launcher is stopped.
    root_stopped: Option<u64>,
    /// Whether it was stopped: an agent may look for it when it has just been continued.
    root_was_stopped: bool,
    root_told_closed: bool,
    root_reaped: bool,
    nodes: Vec<Node>,
    texts: [Vec<u8>; 2],
    /// Steps during which the terminal takes nothing.
    blocked_for: u32,
    deaths_left: u32,
    statuses: Vec<u8>,
    /// How often it was asked what the PEs wait for.
    asked: usize,
    agent_killed: bool,
    /// Whether nodes are hosts, behind remote shells.
    hosts: bool,
    /// Whether lines carry the rank.
    label: bool,
    /// How long anybody may be silent.
    heartbeat: u64,
    keep_going: bool,
    /// Whether somebody was silent, and whether for good.
    disturbed: bool,
    silenced: bool,
    /// Whether a PE that was to be started again could not be.
    respawn_failed: bool,
    /// Whether a host does not answer as it should.
    bad_host: bool,
    next_pid: i32,
    /// Whether nodes have PMIx servers, and whether one has died.
    pmix: bool,
    server_died: bool,
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
    let Shape {
        n_nodes,
        n_pes,
        degree,
        chatty,
        hosts,
        bad_host,
        respawns,
        keep_going,
        heartbeat,
        label,
        pmix,
    } = shape;
    let layout = Layout::of(n_pes, n_nodes);
    let tree = Tree::new(n_nodes, degree);
    let node_of = layout.node_of();
    let pid = |node: u32| 1000 + node;
    let bad_node = rng.below(n_nodes as usize) as u32;
    let bad_greeting = match rng.one_in(2) {
        true => Vec::new(),
        false => b"Last login: never\n".to_vec(),
    };
    let starts = 1 + rng.below(3) as u32;
    let options = JobOptions {
        respawns,
        keep_going,
        label,
        heartbeat: Duration::from_nanos(heartbeat),
        preparation: Duration::from_secs(60),
        grace: Duration::from_millis(250),
        ..JobOptions::default()
    };
    let nodes = (0..n_nodes)
        .map(|node| {
            let ranks = layout.ranks(node);
            let job = Job {
                id: "sim".into(),
                size: n_pes,
                process_mapping: ProcessMapping::from_nodes(&node_of).to_string(),
                extensions: true,
                ..Job::default()
            };
            let servers = Servers::new(job, NodePlace::in_tree(&tree, node, &node_of)).unwrap();
            let setup = Setup {
                node,
                first_rank: ranks.start,
                n_local: ranks.len() as u32,
                n_pes,
                portion: Portion {
                    pes: 1 + rng.below(Portion::FULL.pes as usize) as u32,
                    requests: 1 + rng.below(2) as u32,
                },
                options: options.clone(),
                input: InputRoute::default(),
                pmix,
                starts,
                children: tree
                    .children(node)
                    .map(|c| ChildSetup {
                        node: c,
                        ranks: {
                            let below = tree.subtree(c);
                            layout.ranks(below.start).start..layout.ranks(below.end - 1).end
                        },
                        pid: pid(c),
                        contact: hosts.then(|| contact(c)),
                    })
                    .collect(),
            };
            let parent = tree.parent(node).map(|p| p as usize);
            let index = parent.map_or(0, |p| {
                tree.children(p as u32).position(|c| c == node).unwrap()
            });
            let refusals = match hosts && rng.one_in(4) {
                true => rng.below(1 + RETRIES as usize) as u32,
                false => 0,
            };
            let pes = ranks.clone().map(|_| Pe {
                life: Life::Waiting,
                lines_left: if chatty { 30 } else { rng.below(4) as u32 },
                written: 0,
                bytes: 0,
                pipe: Vec::new(),
                open: false,
                stubborn: rng.one_in(4),
                long: chatty && rng.one_in(2),
                failed: false,
                doomed: None,
            });
            Node {
                agent: Agent::new(setup, servers),
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
                called: !hosts || parent.is_none(),
                refusals,
                delivered: 0,
                dropped: false,
                stopped: false,
                frozen: false,
                cut: [false; 2],
                heals_at: None,
                lost: false,
                unreaped: None,
                parent,
                index,
                children: tree.children(node).map(|c| c as usize).collect(),
                requests: VecDeque::new(),
                finishing: false,
                template: true,
                server: Server::default(),
                pes: pes.collect(),
                first_rank: ranks.start,
            }
        })
        .collect();
    World {
        root: Root::new(root::Setup {
            n_pes,
            n_nodes,
            hosts: match hosts {
                true => (0..n_nodes).map(|node| format!("host{node}")).collect(),
                false => Vec::new(),
            },
            options,
            agent: ChildSetup {
                node: 0,
                ranks: 0..n_pes,
                pid: pid(0),
                contact: hosts.then(|| contact(0).begun(1)),
            },
            ..Default::default()
        }),
        root_alive: true,
        root_stopped: None,
        root_was_stopped: false,
        root_told_closed: false,
        root_reaped: false,
        nodes,
        texts: Default::default(),
        blocked_for: 0,
        deaths_left: 0,
        statuses: Vec::new(),
        asked: 0,
        agent_killed: false,
        hosts,
        label,
        heartbeat,
        keep_going,
        disturbed: false,
        silenced: false,
        respawn_failed: false,
        bad_host,
        now: 1,
        next_pid: 5000,
        pmix,
        server_died: false,
        scripted: false,
        rng,
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
        if root_dies_at == Some(steps) && w.root_alive {
            w.root_alive = false;
            w.close_down(0);
        }
        if !w.root_alive && w.nodes.iter().all(|n| !n.alive) {
            break;
        }
        if questions.one_in(3000) {
            w.ask();
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
    let unread = w.statuses.iter().any(|&s| s == 130 || s == 143);
    assert!(
        // The launcher itself asks about a node that is silent.
        answered <= w.asked + 1 && (answered > 0 || w.asked == 0 || unread),
        "{} questions: {err}",
        w.asked
    );
    let told = |l: &&str| l.starts_with("shmrun: ") && !goes_on(l) && !answers(l);
    let told = err.lines().filter(told).count();
    let status = w.root.finished().expect("the launcher has a status");
    if status == 0 {
        assert_eq!(told, 0, "{err}");
        if w.statuses.is_empty() && !w.agent_killed && !w.server_died {
            check_output(&w);
        }
    } else if w.keep_going && told == 0 {
        assert!(err.contains("PEs failed (--keep-going)"), "{err}");
        check_output(&w);
    } else {
        // A user who insists is told what that does.
        let interrupts = w.statuses.iter().filter(|&&s| s == 130).count();
        let insisted = usize::from(err.contains("killing the job"))
            + usize::from((interrupts > 2 || w.silenced) && err.contains("did not end in time"));
        let before = err.lines().filter(|l| l.contains(BEFORE)).count();
        assert!(before <= 1, "{err}");
        assert_eq!(told, 1 + before + insisted, "{err}");
        let lost = w.agent_killed || w.bad_host || w.respawn_failed || w.silenced || w.server_died;
        assert!(before == 0 || lost && status == 125, "{err}");
        // What a PE lacked that is lost.
        let needed = w.keep_going && status == 1;
        let expected = w.statuses.contains(&status) || (lost && status == 125) || needed;
        assert!(expected, "status {status} of {:?}: {err}", w.statuses);
    }
    if w.bad_host {
        assert_ne!(status, 0, "{err}");
    } else if w.statuses.is_empty() && !w.agent_killed && !w.silenced && !w.server_died {
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
    if w.label {
        return check_labelled(w, &text, &cut_short);
    }
    if w.disturbed {
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
            } else if w.disturbed {
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
