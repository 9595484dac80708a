//! The `Launch` frame: everything that an agent must know, so that it makes no difference how the
//! agent itself was started (a fork on this machine, a remote shell elsewhere).

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use shmem_node::hca_address::{AddressPlan, HcaAddresses};
use shmem_node::ip_network::IpNetwork;
use shmem_node::settings::HeapCommit;
use shmem_node::template::marker::StaticsRoom;
use shmem_pmi::server::CachePolicy;
use shmem_pmi::tree::Tree;

use super::codec::{CodecError, Reader, Writer};
use crate::agent::InputRoute;
use crate::plan::Layout;
use crate::remote::RemoteShell;

/// Version of the link protocol; the first field of the first frame, and in the greeting of an
/// agent on another host.
pub const LAUNCH_VERSION: u32 = 7;

/// How an agent starts PEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnMode {
    /// The program is exec'ed once and forks the node's PEs.
    Template,
    /// The program is exec'ed for each PE.
    Exec,
}

/// Which PEs get standard input; the others find it empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// How many.
    pub procs: u32,
    /// Path of the program.
    pub program: Vec<u8>,
    /// Its arguments, with the zeroth.
    pub argv: Vec<Vec<u8>>,
    /// Its working directory, if it is not that of the job.
    pub dir: Option<Vec<u8>>,
}

/// Where a job comes from that another job's PE has spawned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawner {
    /// Id of the other job.
    pub job_id: String,
    /// What is in the key-value space of this one from the start.
    pub preputs: Vec<EnvVar>,
}

/// The hosts of a job that runs on several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machines {
    /// Name of each node's host, and how many PEs it has.
    pub hosts: Vec<(String, u32)>,
    /// How a host's agent is started by its parent's.
    pub shell: RemoteShell,
}

/// What an agent must know.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Bytes of each symmetric heap.
    pub heap_size: u64,
    /// Room for static data in each PE's segment.
    pub statics: StaticsRoom,
    /// When heaps get memory.
    pub heap_commit: HeapCommit,
    /// Polls before a waiting PE sleeps; `None` if each host has to compare its PEs with its cores.
    pub spins: Option<u32>,
    /// Which key-value pairs of PMI an agent keeps.
    pub pmi_cache: CachePolicy,
    /// Whether a report was asked for.
    pub report: bool,
    /// Whether output is passed on as it comes rather than by lines (a single PE).
    pub raw_output: bool,
    /// How PEs are started.
    pub spawn: SpawnMode,
    /// The programs, in the order of ranks; most jobs have one.
    pub commands: Vec<Command>,
    /// Additional environment.
    pub env: Vec<EnvVar>,
    /// Working directory of the PEs.
    pub cwd: Vec<u8>,
    /// Whether a process that dies may be started again.
    pub respawn: bool,
    /// Who gets standard input.
    pub input: InputTo,
    /// Signals that PEs ignore from the start, because the launcher does: bit n - 1 for signal n.
    pub ignored: u64,
    /// What is known of the job that spawned this one.
    pub spawner: Option<Spawner>,
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
        machines.map_or("", |m| m.hosts[node as usize].0.as_str())
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

    /// The body of the frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let mut w = Writer(&mut out);
        w.u32(LAUNCH_VERSION)
            .u32(self.node)
            .u32(self.n_nodes)
            .u32(self.n_pes)
            .u32(self.degree);
        w.raw(&self.job_id).raw(&self.job_key);
        w.u8(self.machines.is_some().into());
        if let Some(machines) = &self.machines {
            machines.encode(&mut w);
        }
        encode_plan(&self.addresses, &mut w);
        w.u64(self.heap_size)
            .u64(self.statics.bytes)
            .u64(self.statics.layout)
            .u8(u8::from(self.heap_commit == HeapCommit::Reserve));
        w.u8(self.spins.is_some().into())
            .u32(self.spins.unwrap_or(0))
            .u8(self.report.into())
            .u8(self.raw_output.into());
        let (cache, bytes) = match self.pmi_cache {
            CachePolicy::Hcs => (0, 0),
            CachePolicy::Hcma => (1, 0),
            CachePolicy::Hcmab => (2, 0),
            CachePolicy::HcmabLru { bytes } => (3, bytes as u64),
        };
        w.u8(cache).u64(bytes);
        w.u8(u8::from(self.spawn == SpawnMode::Template));
        w.u32(self.commands.len() as u32);
        for command in &self.commands {
            command.encode(&mut w);
        }
        encode_pairs(&self.env, &mut w);
        w.bytes(&self.cwd).u8(self.respawn.into());
        let (kind, rank) = match self.input {
            InputTo::Nobody => (0, 0),
            InputTo::Rank(rank) => (1, rank),
            InputTo::All => (2, 0),
        };
        w.u8(kind)
            .u32(rank)
            .u64(self.ignored)
            .u8(self.spawner.is_some().into());
        if let Some(spawner) = &self.spawner {
            w.bytes(spawner.job_id.as_bytes());
            encode_pairs(&spawner.preputs, &mut w);
        }
        out
    }

    /// Reads the body of the frame.
    ///
    /// # Errors
    /// When the bytes come from another version or describe no possible job.
    pub fn decode(body: &[u8]) -> Result<Self, CodecError> {
        let mut r = Reader::new(body);
        let version = r.u32("protocol version")?;
        if version != LAUNCH_VERSION {
            return Err(CodecError::Value {
                what: "protocol version",
                value: version.into(),
            });
        }
        let launch = Self {
            node: r.u32("node")?,
            n_nodes: r.u32("number of nodes")?,
            n_pes: r.u32("number of PEs")?,
            degree: r.u32("tree degree")?,
            job_id: r.array("job id")?,
            job_key: r.array("job key")?,
            machines: match r.bool("hosts")? {
                true => Some(Machines::decode(&mut r)?),
                false => None,
            },
            addresses: decode_plan(&mut r)?,
            heap_size: r.u64("heap size")?,
            statics: StaticsRoom {
                bytes: r.u64("room for static data")?,
                layout: r.u64("layout of static data")?,
            },
            heap_commit: if r.bool("heap commit")? {
                HeapCommit::Reserve
            } else {
                HeapCommit::Lazy
            },
            spins: match (r.bool("spins")?, r.u32("spins")?) {
                (true, n) => Some(n),
                (false, _) => None,
            },
            report: r.bool("report")?,
            raw_output: r.bool("raw output")?,
            pmi_cache: match (r.u8("PMI cache")?, r.u64("size of the PMI cache")?) {
                (0, _) => CachePolicy::Hcs,
                (1, _) => CachePolicy::Hcma,
                (2, _) => CachePolicy::Hcmab,
                (3, bytes) => CachePolicy::HcmabLru {
                    bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
                },
                (kind, _) => {
                    return Err(CodecError::Value {
                        what: "PMI cache",
                        value: kind.into(),
                    });
                }
            },
            spawn: if r.bool("spawn mode")? {
                SpawnMode::Template
            } else {
                SpawnMode::Exec
            },
            commands: r.list("programs", 13, Command::decode)?,
            env: decode_pairs(&mut r)?,
            cwd: r.bytes("working directory")?.to_vec(),
            respawn: r.bool("respawn")?,
            input: match (r.u8("who gets input")?, r.u32("rank that gets input")?) {
                (0, _) => InputTo::Nobody,
                (1, rank) => InputTo::Rank(rank),
                (2, _) => InputTo::All,
                (kind, _) => {
                    return Err(CodecError::Value {
                        what: "who gets input",
                        value: kind.into(),
                    });
                }
            },
            ignored: r.u64("ignored signals")?,
            spawner: match r.bool("spawner")? {
                true => Some(Spawner {
                    job_id: r.text("job id of the spawner")?,
                    preputs: decode_pairs(&mut r)?,
                }),
                false => None,
            },
        };
        r.end()?;
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

impl Command {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.procs)
            .bytes(&self.program)
            .u32(self.argv.len() as u32);
        for arg in &self.argv {
            w.bytes(arg);
        }
        w.u8(self.dir.is_some().into());
        if let Some(dir) = &self.dir {
            w.bytes(dir);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            procs: r.u32("PEs of a program")?,
            program: r.bytes("program")?.to_vec(),
            argv: r.list("arguments", 4, |r| Ok(r.bytes("argument")?.to_vec()))?,
            dir: match r.bool("directory")? {
                true => Some(r.bytes("directory")?.to_vec()),
                false => None,
            },
        })
    }
}

fn encode_pairs(pairs: &[EnvVar], w: &mut Writer<'_>) {
    w.u32(pairs.len() as u32);
    for (name, value) in pairs {
        w.bytes(name).bytes(value);
    }
}

fn decode_pairs(r: &mut Reader<'_>) -> Result<Vec<EnvVar>, CodecError> {
    r.list("pairs", 8, |r| {
        Ok((r.bytes("name")?.to_vec(), r.bytes("value")?.to_vec()))
    })
}

impl Machines {
    fn counts(&self) -> Vec<u32> {
        self.hosts.iter().map(|h| h.1).collect()
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.hosts.len() as u32);
        for (name, n) in &self.hosts {
            w.bytes(name.as_bytes()).u32(*n);
        }
        w.u32(self.shell.words.len() as u32);
        for word in &self.shell.words {
            w.bytes(word.as_bytes());
        }
        w.bytes(&self.shell.shmrun).u64(self.shell.timeout_ns);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            hosts: r.list("hosts", 8, |r| {
                Ok((r.text("host")?, r.u32("PEs of a host")?))
            })?,
            shell: RemoteShell {
                words: r.list("remote shell", 4, |r| r.text("word of the remote shell"))?,
                shmrun: r.bytes("path of shmrun")?.to_vec(),
                timeout_ns: r.u64("timeout of the remote shell")?,
            },
        })
    }
}

fn encode_plan(plan: &AddressPlan, w: &mut Writer<'_>) {
    match plan {
        AddressPlan::Known(addresses) => w.u8(0).raw(&addresses.to_bytes()),
        AddressPlan::Routed { anchor: None } => w.u8(1),
        AddressPlan::Routed { anchor: Some(ip) } => w.u8(2).raw(&octets(*ip)),
        AddressPlan::Network(network) => {
            let (ip, bits) = network.parts();
            // The family decides what the bits count.
            w.u8(3).raw(&octets(ip)).u8(bits)
        }
    };
}

fn decode_plan(r: &mut Reader<'_>) -> Result<AddressPlan, CodecError> {
    let ip = |r: &mut Reader<'_>| -> Result<IpAddr, CodecError> {
        let octets: [u8; 16] = r.array("address")?;
        Ok(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical())
    };
    let bad = |what, value: u8| CodecError::Value {
        what,
        value: value.into(),
    };
    Ok(match r.u8("kind of HCA addresses")? {
        0 => {
            let bytes: [u8; HcaAddresses::LEN] = r.array("HCA addresses")?;
            let addresses = HcaAddresses::from_bytes(&bytes);
            let last = bytes[HcaAddresses::LEN - 1];
            AddressPlan::Known(addresses.ok_or_else(|| bad("spread of HCA addresses", last))?)
        }
        1 => AddressPlan::Routed { anchor: None },
        2 => AddressPlan::Routed {
            anchor: Some(ip(r)?),
        },
        3 => {
            let (first, bits) = (ip(r)?, r.u8("bits of a network")?);
            let network = IpNetwork::new(first, bits);
            AddressPlan::Network(network.ok_or_else(|| bad("bits of a network", bits))?)
        }
        kind => return Err(bad("kind of HCA addresses", kind)),
    })
}

/// IPv4 as `::ffff:a.b.c.d`.
fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
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
            heap_size: 1 << 20,
            statics: StaticsRoom::default(),
            heap_commit: HeapCommit::Lazy,
            spins: Some(0),
            pmi_cache: CachePolicy::default(),
            report: false,
            raw_output: false,
            spawn: SpawnMode::Exec,
            commands: vec![command(
                n_pes,
                b"/bin/true".to_vec(),
                vec![b"true".to_vec()],
            )],
            env: Vec::new(),
            cwd: b"/".to_vec(),
            respawn: false,
            input: InputTo::Rank(0),
            ignored: 0,
            spawner: None,
        }
    }

    fn command(procs: u32, program: Vec<u8>, argv: Vec<Vec<u8>>) -> Command {
        Command {
            procs,
            program,
            argv,
            dir: None,
        }
    }

    fn known() -> AddressPlan {
        AddressPlan::Known(HcaAddresses::shared(Ipv4Addr::new(127, 9, 8, 255).into()))
    }

    fn machines(counts: &[u32]) -> Machines {
        let host = |(i, &n)| (format!("host{i}"), n);
        Machines {
            hosts: counts.iter().enumerate().map(host).collect(),
            shell: RemoteShell {
                words: vec!["ssh".into(), "-x".into()],
                shmrun: b"/opt/shmrun".to_vec(),
                timeout_ns: 7,
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
            n_nodes in 1u32..100, more in 1u32..100, heap_size: u64, bytes: u64, layout: u64, spins: Option<u32>, report: bool,
            program: Vec<u8>, argv: Vec<Vec<u8>>, env: Vec<EnvVar>, cwd: Vec<u8>, flip: bool, cut: usize,
            preputs: Vec<EnvVar>, dir: Option<Vec<u8>>,
        ) {
            let second = Command { dir, ..command(more, program.clone(), Vec::new()) };
            let l = Launch {
                heap_size, statics: StaticsRoom { bytes, layout }, spins, report, env, cwd,
                commands: vec![command(n_nodes, program, argv), second],
                respawn: flip,
                input: [InputTo::Nobody, InputTo::Rank(more), InputTo::All][cut % 3],
                ignored: bytes,
                spawner: flip.then(|| Spawner { job_id: "1.2".into(), preputs }),
                raw_output: flip,
                pmi_cache: [
                    CachePolicy::Hcs,
                    CachePolicy::Hcma,
                    CachePolicy::Hcmab,
                    CachePolicy::HcmabLru { bytes: heap_size as usize },
                ][cut % 4],
                spawn: if flip { SpawnMode::Template } else { SpawnMode::Exec },
                heap_commit: if flip { HeapCommit::Reserve } else { HeapCommit::Lazy },
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
