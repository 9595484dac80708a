//! What things cost. A job is made of the same steps wherever it runs; what a step takes of a core, and a message of the
//! network, differs. On this machine it is [measured](super::fit), on a cluster it is what others have published.

use super::contacts::contact;

macro_rules! costs {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// Unit costs, in nanoseconds of a core where nothing else is said.
        #[derive(Debug, Clone, Copy, Default, PartialEq)]
        pub struct Costs {
            $($(#[$doc])* pub $name: f64,)*
        }

        impl Costs {
            /// The costs with their names.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, f64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}
costs! {
    /// Launcher: from its start until it starts the first agent, and from the last report to its end.
    launcher;
    /// An agent, or the launcher: starting an agent of a child.
    start;
    /// From there until the agent runs, on another host; no core is busy meanwhile.
    shell;
    /// An agent: all that it does for itself, from its first instruction until its node is prepared, and at its end.
    agent;
    /// An agent: the same for each PE of the job, of which it has tables.
    rank;
    /// An agent: reading or writing a piece of a message between agents.
    piece;
    /// An agent: each byte of these.
    byte;
    /// An agent: all that it does for a PE: its output, and its end.
    reap;
    /// A template: from its execution until it can fork, and its end.
    template;
    /// A template: forking a PE.
    fork;
    /// A PE: from the fork to init.
    main;
    /// A PE: init until it has its endpoint and starts its progress thread.
    endpoint;
    /// A PE: the rest of init.
    register;
    /// A PE: from the end of init until it arrives at finalize's barrier.
    program;
    /// A PE: from that barrier to the end of its process.
    exit;
    /// A thread of a PE: making a queue pair, and taking it to where it can send.
    queue_pair;
    /// A PE: one of very many connections, made and left, with all that is said again meanwhile.
    contact;
    /// The same for each doubling of their number: they are found in trees, and in memory that caches do not hold.
    deeper;
    /// A thread of a PE: sending a datagram, or taking one in.
    datagram;
    /// A PE: starting a write to another node, or noticing one.
    write;
    /// Time on the way between two nodes, without that of bytes.
    latency;
    /// Time on the way for each byte.
    link_byte;
    /// How long a process runs before another one that waits has its turn.
    turn;
}

/// Where nodes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// One machine with so many cores, which emulates all nodes.
    Emulating(usize),
    /// Each node is a machine with so many cores.
    Cluster(usize),
}

impl Machine {
    /// Whether one machine emulates all nodes.
    pub fn is_one(self) -> bool {
        matches!(self, Self::Emulating(_))
    }
}

/// A cost that was not measured here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// Which cost.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Who published it; or that it is assumed, and why.
    pub source: &'static str,
}

/// What differs on a cluster from the machine that was measured.
pub const INFINIBAND: &[Published] = &[
    Published {
        name: "queue_pair",
        value: 750_000.0 / 2.0,
        source: "libfabric, verbs with rxm: 0.75 ms until two processes are connected, of which each side has half",
    },
    Published {
        name: "latency",
        value: 1_500.0,
        source: "assumed: a small message over FDR InfiniBand, the network of the paper on connections on demand",
    },
    Published {
        name: "link_byte",
        value: 8.0 / 56.0,
        source: "the same paper: FDR InfiniBand, 56 Gbit/s",
    },
    Published {
        name: "shell",
        value: 200e6,
        source: "assumed, as where the degree of the tree is chosen: some hundred milliseconds until a remote shell has a command run",
    },
    Published {
        name: "start",
        value: 10e6,
        source: "assumed, as there: some ten milliseconds to start one more remote shell",
    },
];

impl Costs {
    /// These costs on a cluster: processes take what they take here, queue pairs and the network what was published.
    #[must_use]
    pub fn on_infiniband(mut self) -> Self {
        for published in INFINIBAND {
            let of = match published.name {
                "queue_pair" => &mut self.queue_pair,
                "latency" => &mut self.latency,
                "link_byte" => &mut self.link_byte,
                "shell" => &mut self.shell,
                "start" => &mut self.start,
                other => unreachable!("{other} is in the list"),
            };
            *of = published.value;
        }
        self.with_queue_pairs(self.queue_pair)
    }

    /// The same where a queue pair takes so long: nothing has to be said twice.
    #[must_use]
    pub fn with_queue_pairs(mut self, takes: f64) -> Self {
        let each = contact(true);
        let said = f64::from(each.datagrams + each.farewell) * self.datagram;
        self.queue_pair = takes;
        self.contact = f64::from(each.queue_pairs) * takes + said;
        self.deeper = 0.0;
        self
    }

    /// The same where a process takes so much of wall time for its processor time. What the network takes stays.
    #[must_use]
    pub fn at_pace(mut self, pace: f64) -> Self {
        let work = [
            &mut self.launcher,
            &mut self.start,
            &mut self.agent,
            &mut self.rank,
            &mut self.piece,
            &mut self.byte,
            &mut self.reap,
            &mut self.template,
            &mut self.fork,
            &mut self.main,
            &mut self.endpoint,
            &mut self.register,
            &mut self.program,
            &mut self.exit,
            &mut self.queue_pair,
            &mut self.contact,
            &mut self.deeper,
            &mut self.datagram,
            &mut self.write,
        ];
        work.into_iter().for_each(|cost| *cost *= pace);
        self
    }

    /// A round number for each cost, for tests.
    #[cfg(test)]
    pub(super) fn round() -> Self {
        Self {
            launcher: 1e6,
            start: 3e5,
            shell: 0.0,
            agent: 1e6,
            rank: 10.0,
            piece: 5e3,
            byte: 0.2,
            reap: 4e4,
            template: 1.2e6,
            fork: 1e5,
            main: 1e5,
            endpoint: 1e5,
            register: 1e5,
            program: 5e4,
            exit: 2e5,
            queue_pair: 2e4,
            contact: 6e4,
            deeper: 0.0,
            datagram: 1e4,
            write: 5e3,
            latency: 1e4,
            link_byte: 0.1,
            turn: 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_what_was_published() {
        let here = Costs::round();
        let there = here.on_infiniband();
        for published in INFINIBAND {
            let of = |costs: &Costs| costs.named().find(|(n, _)| *n == published.name);
            assert_eq!(of(&there).map(|(_, v)| v), Some(published.value));
            assert_ne!(of(&there), of(&here), "{}", published.name);
        }
        assert_eq!((there.fork, there.exit), (here.fork, here.exit));
    }
}
