//! The `Launch` frame: everything that an agent must know, so that it makes no difference how the
//! agent itself was started (a fork on this machine, a remote shell elsewhere).

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shmem_node::hca_address::AddressPlan;
use shmem_node::template::marker::StaticsRoom;
use shmem_pmi::tree::Tree;

use super::codec::{self, CodecError};
use crate::agent::InputRoute;
use crate::binding::Binding;
use crate::plan::Layout;
use crate::remote::RemoteShell;

/// How an agent starts PEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpawnMode {
    /// The program is exec'ed once and forks the node's PEs.
    Template {
        /// Whether the template may execute them if forks would lose something.
        may_execute: bool,
    },
    /// The program is exec'ed for each PE.
    Exec,
}

/// Which PEs get standard input; the others find it empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputTo {
    /// None: shmrun does not read it.
    Nobody,
    /// One, by default the first.
    Rank(u32),
    /// Each gets all of it.
    All,
}

impl InputTo {
    /// How many of so many PEs of a node get it at most.
    pub fn most(self, n_local: u32) -> u32 {
        match self {
            Self::Nobody => 0,
            Self::Rank(_) => 1,
            Self::All => n_local,
        }
    }
}

/// A variable set for the PEs on top of the agent's own environment.
pub type EnvVar = (Vec<u8>, Vec<u8>);

/// A program of a job, and the processes that run it. They have consecutive ranks, after those of
/// the program before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// How many.
    pub procs: u32,
    /// Path of the program.
    pub program: Vec<u8>,
    /// Its arguments, with the zeroth.
    pub argv: Vec<Vec<u8>>,
    /// Its working directory, if it is not that of the job.
    pub dir: Option<Vec<u8>>,
    /// Variables of this program alone.
    pub env: Vec<EnvVar>,
}

/// Where a job comes from that another job's PE has spawned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawner {
    /// Id of the other job.
    pub job_id: String,
    /// What is in the key-value space of this one from the start.
    pub preputs: Vec<EnvVar>,
}

/// The host of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// How many PEs it has.
    pub pes: u32,
    /// What the remote shell calls it, if that is not its name.
    pub target: Option<String>,
}

/// The hosts of a job that runs on several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machines {
    /// Each node's.
    pub hosts: Vec<Machine>,
    /// How a host's agent is started by its parent's.
    pub shell: RemoteShell,
}

/// How processes are served by PMIx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmixPlan {
    /// Why they are, to be told where they cannot be.
    pub why: String,
    /// The libpmix to load, if one was named or the program comes with one.
    pub library: Option<String>,
}

/// What was asked for on the command line beside the program and its place: launcher and agents do as
/// it says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOptions {
    /// Whether a report was asked for.
    pub report: bool,
    /// Whether it is to have each PE.
    pub report_each: bool,
    /// How many of its calls each PE has room to record; 0 if it is not to.
    pub calls: u32,
    /// Whether the statuses of all PEs are told.
    pub all_statuses: bool,
    /// Whether output is passed on as it comes rather than by lines (a single PE).
    pub raw_output: bool,
    /// Whether lines carry the rank.
    pub label: bool,
    /// Whether each PE's output goes to a file of its own.
    pub separate: bool,
    /// Whether a terminal shows how far the start has come.
    pub progress: bool,
    /// How often processes that die may be started again, all together.
    pub respawns: u32,
    /// The time limit in seconds.
    pub timeout_s: Option<u64>,
    /// Time between asking a PE to end and killing it.
    pub grace: Duration,
    /// Whether SIGUSR1 is passed on to the PEs, rather than being the question what they wait for.
    pub pass_usr1: bool,
    /// Whether what PEs wait for is told with stacks.
    pub backtrace: bool,
    /// Whether PEs find nothing of their agent's environment.
    pub bare_env: bool,
    /// What they are bound to.
    pub binding: Binding,
    /// How long the other end of a link may be silent; 0 if that is nobody's business.
    pub heartbeat: Duration,
    /// The same before anything was heard of it.
    pub preparation: Duration,
    /// Whether PEs go on after others have failed who leave nobody waiting.
    pub keep_going: bool,
}

/// What an agent must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The receiver's node.
    pub node: u32,
    /// Nodes of the job.
    pub n_nodes: u32,
    /// PEs of the job, block-wise on the nodes; see [`crate::plan::Layout`].
    pub n_pes: u32,
    /// Degree of the launch tree.
    pub degree: u32,
    /// Random name of the job.
    pub job_id: [u8; 16],
    /// Random secret of the job.
    pub job_key: [u8; 32],
    /// Hosts, unless all nodes are emulated on one.
    pub machines: Option<Machines>,
    /// Where addresses of the software HCAs come from.
    pub addresses: AddressPlan,
    /// Room for static data in each PE's segment.
    pub statics: StaticsRoom,
    /// Polls before a waiting PE sleeps; `None` if each host has to compare its PEs with its cores.
    pub spins: Option<u32>,
    /// What was asked for beside the program and its place.
    pub options: JobOptions,
    /// How PEs are started.
    pub spawn: SpawnMode,
    /// The programs, in the order of ranks; most jobs have one.
    pub commands: Vec<Command>,
    /// Additional environment: the settings of the job among it.
    pub env: Vec<EnvVar>,
    /// Working directory of the PEs.
    pub cwd: Vec<u8>,
    /// What new files of theirs may not allow (umask).
    pub file_mask: u32,
    /// Their soft limits, as `sys` numbers them.
    pub soft_limits: Vec<(u8, u64)>,
    /// Who gets standard input.
    pub input: InputTo,
    /// Signals that PEs ignore from the start, because the launcher does: bit n - 1 for signal n.
    pub ignored: u64,
    /// What is known of the job that spawned this one.
    pub spawner: Option<Spawner>,
    /// Whether processes are served by PMIx, and how.
    pub pmix: Option<PmixPlan>,
}

impl Launch {
    /// Which rank is on which node.
    pub fn layout(&self) -> Layout {
        let counts = |m: &Machines| Layout::of_counts(&m.counts());
        let uneven = self.machines.as_ref().and_then(counts);
        uneven.unwrap_or_else(|| Layout::of(self.n_pes, self.n_nodes))
    }

    /// Name of a node's host; empty if all nodes are on one.
    pub fn host(&self, node: u32) -> &str {
        let machines = self.machines.as_ref();
        machines.map_or("", |m| m.hosts[node as usize].name.as_str())
    }

    /// What the remote shell calls a node's host.
    pub fn target(&self, node: u32) -> &str {
        let machines = self.machines.as_ref();
        let own = machines.and_then(|m| m.hosts[node as usize].target.as_deref());
        own.unwrap_or_else(|| self.host(node))
    }

    /// The program of a PE.
    pub fn command_of(&self, rank: u32) -> &Command {
        let mut behind = 0;
        let holds = |command: &&Command| {
            behind += command.procs;
            rank < behind
        };
        let found = self.commands.iter().find(holds);
        found.or(self.commands.last()).expect("a job has a program")
    }

    /// Where standard input goes from the agent of this node.
    pub fn input_route(&self, tree: &Tree) -> InputRoute {
        let layout = self.layout();
        let wanted = match self.input {
            InputTo::Nobody => 0..0,
            InputTo::Rank(rank) => rank..rank.saturating_add(1),
            InputTo::All => 0..self.n_pes,
        };
        // Subtrees have consecutive ranks.
        let common = |of: Range<u32>| of.start.max(wanted.start)..of.end.min(wanted.end);
        let ranks =
            |nodes: Range<u32>| layout.ranks(nodes.start).start..layout.ranks(nodes.end - 1).end;
        let own = layout.ranks(self.node);
        let here = common(own.clone());
        let children = tree.children(self.node).enumerate();
        InputRoute {
            here: match here.is_empty() {
                true => 0..0,
                false => here.start - own.start..here.end - own.start,
            },
            children: children
                .filter(|&(_, child)| !common(ranks(tree.subtree(child))).is_empty())
                .map(|(at, _)| at)
                .collect(),
        }
    }

    /// PEs of the machine on which the receiver's node is, and those of the node among them.
    pub fn on_machine(&self) -> (u32, Range<u32>) {
        let ranks = self.layout().ranks(self.node);
        match self.machines {
            None => (self.n_pes, ranks),
            Some(_) => (ranks.len() as u32, 0..ranks.len() as u32),
        }
    }

    /// The body of the frame.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode_first(self)
    }

    /// Reads the body of the frame.
    ///
    /// # Errors
    /// When the bytes come from another version or describe no possible job.
    pub fn decode(body: &[u8]) -> Result<Self, CodecError> {
        let launch: Self = codec::decode_first(body)?;
        let bad = |what, value: u32| {
            Err(CodecError::Value {
                what,
                value: value.into(),
            })
        };
        if launch.n_nodes == 0 || launch.n_pes < launch.n_nodes {
            return bad("number of nodes", launch.n_nodes);
        }
        if launch.node >= launch.n_nodes {
            return bad("node", launch.node);
        }
        let procs = launch.commands.iter().map(|c| u64::from(c.procs));
        if launch.commands.iter().any(|c| c.procs == 0)
            || procs.sum::<u64>() != u64::from(launch.n_pes)
        {
            return bad("number of programs", launch.commands.len() as u32);
        }
        if let Some(machines) = &launch.machines {
            let layout = Layout::of_counts(&machines.counts());
            let fits = |l: &Layout| (l.n_nodes(), l.n_pes()) == (launch.n_nodes, launch.n_pes);
            if !layout.as_ref().is_some_and(fits) {
                return bad("number of hosts", machines.hosts.len() as u32);
            }
        }
        if launch.degree == 0 {
            return bad("tree degree", 0);
        }
        Ok(launch)
    }
}

impl Machines {
    fn counts(&self) -> Vec<u32> {
        self.hosts.iter().map(|h| h.pes).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use shmem_node::hca_address::HcaAddresses;
    use std::net::Ipv4Addr;

    /// A job for tests.
    pub(crate) fn launch(n_pes: u32, n_nodes: u32, node: u32) -> Launch {
        Launch {
            node,
            n_nodes,
            n_pes,
            degree: 3,
            job_id: [1; 16],
            job_key: [2; 32],
            machines: None,
            addresses: known(),
            statics: StaticsRoom::default(),
            spins: Some(0),
            options: JobOptions::default(),
            spawn: SpawnMode::Exec,
            commands: vec![command(
                n_pes,
                b"/bin/true".to_vec(),
                vec![b"true".to_vec()],
            )],
            env: Vec::new(),
            cwd: b"/".to_vec(),
            file_mask: 0o22,
            soft_limits: vec![(0, u64::MAX)],
            input: InputTo::Rank(0),
            ignored: 0,
            spawner: None,
            pmix: None,
        }
    }

    fn command(procs: u32, program: Vec<u8>, argv: Vec<Vec<u8>>) -> Command {
        Command {
            procs,
            program,
            argv,
            dir: None,
            env: Vec::new(),
        }
    }

    fn known() -> AddressPlan {
        AddressPlan::Known(HcaAddresses::shared(Ipv4Addr::new(127, 9, 8, 255).into()))
    }

    fn machines(counts: &[u32]) -> Machines {
        let host = |(i, &pes): (usize, &u32)| Machine {
            name: format!("host{i}"),
            pes,
            target: (i % 2 == 1).then(|| i.to_string()),
        };
        Machines {
            hosts: counts.iter().enumerate().map(host).collect(),
            shell: RemoteShell {
                words: vec!["ssh".into(), "-x".into()],
                shmrun: b"/opt/shmrun".to_vec(),
                timeout_ns: 7,
                ..RemoteShell::default()
            },
        }
    }

    #[test]
    fn hosts_round_trip_and_have_to_add_up() {
        let on = |n_pes, n_nodes, counts: &[u32]| Launch {
            machines: Some(machines(counts)),
            ..launch(n_pes, n_nodes, 0)
        };
        let l = on(6, 3, &[1, 4, 1]);
        let bytes = l.encode();
        assert_eq!(Launch::decode(&bytes).as_ref(), Ok(&l));
        assert_eq!((l.layout().ranks(1), l.host(1)), (1..5, "host1"));
        for cut in 0..bytes.len() {
            assert!(Launch::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        for wrong in [
            on(6, 2, &[1, 4, 1]),
            on(7, 3, &[1, 4, 1]),
            on(6, 3, &[6, 0, 0]),
        ] {
            assert!(Launch::decode(&wrong.encode()).is_err());
        }
    }

    #[test]
    fn address_plans_round_trip() {
        for addresses in [
            known(),
            AddressPlan::Routed { anchor: None },
            AddressPlan::Routed {
                anchor: Some("fd00::1".parse().unwrap()),
            },
            AddressPlan::Routed {
                anchor: Some("10.0.0.1".parse().unwrap()),
            },
            AddressPlan::Network("10.5.0.0/24".parse().unwrap()),
            AddressPlan::Network("fd00::/64".parse().unwrap()),
        ] {
            let l = Launch {
                addresses,
                ..launch(2, 2, 1)
            };
            assert_eq!(Launch::decode(&l.encode()), Ok(l));
        }
    }

    proptest! {
        #[test]
        fn launch_round_trips(
            n_nodes in 1u32..100, more in 1u32..100, bytes: u64, layout: u64, spins: Option<u32>, report: bool,
            program: Vec<u8>, argv: Vec<Vec<u8>>, env: Vec<EnvVar>, cwd: Vec<u8>, flip: bool, cut: usize,
            preputs: Vec<EnvVar>, dir: Option<Vec<u8>>,
        ) {
            let second = Command { dir, ..command(more, program.clone(), Vec::new()) };
            let l = Launch {
                statics: StaticsRoom { bytes, layout }, spins, env, cwd,
                commands: vec![command(n_nodes, program, argv), second],
                options: JobOptions {
                    report,
                    calls: more,
                    raw_output: flip,
                    respawns: more,
                    timeout_s: flip.then_some(bytes),
                    ..JobOptions::default()
                },
                input: [InputTo::Nobody, InputTo::Rank(more), InputTo::All][cut % 3],
                ignored: bytes,
                spawner: flip.then(|| Spawner { job_id: "1.2".into(), preputs }),
                pmix: flip.then(|| PmixPlan { why: "so".into(), library: None}),
                spawn: if flip { SpawnMode::Template { may_execute: flip } } else { SpawnMode::Exec },
                ..launch(n_nodes + more, n_nodes, n_nodes - 1)
            };
            let bytes = l.encode();
            prop_assert_eq!(Launch::decode(&bytes), Ok(l));
            prop_assert!(Launch::decode(&bytes[..cut % bytes.len()]).is_err());
        }
    }

    #[test]
    fn input_finds_its_pes_and_takes_no_other_way() {
        for (n_pes, n_nodes, degree) in [(1, 1, 2), (7, 3, 2), (40, 13, 3), (9, 9, 2)] {
            let tree = Tree::new(n_nodes, degree);
            let to = (0..n_pes).map(InputTo::Rank);
            for input in to.chain([InputTo::Nobody, InputTo::All]) {
                let mut got = Vec::new();
                let mut visited = vec![0];
                while let Some(node) = visited.pop() {
                    let l = Launch {
                        input,
                        ..launch(n_pes, n_nodes, node)
                    };
                    let route = l.input_route(&tree);
                    let first = l.layout().ranks(node).start;
                    got.extend(route.here.map(|local| first + local));
                    let children: Vec<u32> = tree.children(node).collect();
                    visited.extend(route.children.iter().map(|&at| children[at]));
                    let nothing_below = route.children.is_empty();
                    assert!(nothing_below || input != InputTo::Nobody);
                }
                got.sort_unstable();
                let want: Vec<u32> = match input {
                    InputTo::Nobody => Vec::new(),
                    InputTo::Rank(rank) => vec![rank],
                    InputTo::All => (0..n_pes).collect(),
                };
                assert_eq!(got, want, "{input:?} of {n_pes} on {n_nodes}");
            }
        }
    }

    #[test]
    fn impossible_jobs_are_refused() {
        for l in [
            launch(3, 4, 0),
            launch(4, 4, 4),
            Launch {
                degree: 0,
                ..launch(1, 1, 0)
            },
            Launch {
                commands: vec![command(2, b"x".to_vec(), Vec::new())],
                ..launch(3, 1, 0)
            },
            Launch {
                commands: vec![
                    command(0, b"x".to_vec(), Vec::new()),
                    command(3, b"x".to_vec(), Vec::new()),
                ],
                ..launch(3, 1, 0)
            },
        ] {
            assert!(Launch::decode(&l.encode()).is_err());
        }
    }
}
