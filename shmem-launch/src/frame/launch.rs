//! The `Launch` frame: everything that an agent must know, so that it makes no difference how the
//! agent itself was started (a fork on this machine, a remote shell elsewhere).

use shmem_node::hca_address::HcaAddresses;

use shmem_node::settings::HeapCommit;

use super::codec::{CodecError, Reader, Writer};

/// Version of the link protocol; the first field of the first frame.
pub const LAUNCH_VERSION: u32 = 2;

/// How an agent starts PEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnMode {
    /// The program is exec'ed once and forks the node's PEs.
    Template,
    /// The program is exec'ed for each PE.
    Exec,
}

/// A variable set for the PEs on top of the agent's own environment.
pub type EnvVar = (Vec<u8>, Vec<u8>);

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
    /// Addresses of the software HCAs.
    pub hca_addresses: HcaAddresses,
    /// Bytes of each symmetric heap.
    pub heap_size: u64,
    /// When heaps get memory.
    pub heap_commit: HeapCommit,
    /// Polls before a waiting PE sleeps.
    pub spins: u32,
    /// Whether a report was asked for.
    pub report: bool,
    /// Whether output is passed on as it comes rather than by lines (a single PE).
    pub raw_output: bool,
    /// How PEs are started.
    pub spawn: SpawnMode,
    /// Path of the program.
    pub program: Vec<u8>,
    /// Its arguments, with the zeroth.
    pub argv: Vec<Vec<u8>>,
    /// Additional environment.
    pub env: Vec<EnvVar>,
    /// Working directory of the PEs.
    pub cwd: Vec<u8>,
}

impl Launch {
    /// The body of the frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let mut w = Writer(&mut out);
        w.u32(LAUNCH_VERSION)
            .u32(self.node)
            .u32(self.n_nodes)
            .u32(self.n_pes)
            .u32(self.degree);
        w.raw(&self.job_id)
            .raw(&self.job_key)
            .raw(&self.hca_addresses.to_bytes());
        w.u64(self.heap_size)
            .u8(u8::from(self.heap_commit == HeapCommit::Reserve));
        w.u32(self.spins)
            .u8(self.report.into())
            .u8(self.raw_output.into());
        w.u8(u8::from(self.spawn == SpawnMode::Template));
        w.bytes(&self.program).u32(self.argv.len() as u32);
        for arg in &self.argv {
            w.bytes(arg);
        }
        w.u32(self.env.len() as u32);
        for (name, value) in &self.env {
            w.bytes(name).bytes(value);
        }
        w.bytes(&self.cwd);
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
            hca_addresses: hca_addresses(&r.array("HCA addresses")?)?,
            heap_size: r.u64("heap size")?,
            heap_commit: if r.bool("heap commit")? {
                HeapCommit::Reserve
            } else {
                HeapCommit::Lazy
            },
            spins: r.u32("spins")?,
            report: r.bool("report")?,
            raw_output: r.bool("raw output")?,
            spawn: if r.bool("spawn mode")? {
                SpawnMode::Template
            } else {
                SpawnMode::Exec
            },
            program: r.bytes("program")?.to_vec(),
            argv: r.list("arguments", 4, |r| Ok(r.bytes("argument")?.to_vec()))?,
            env: r.list("environment", 8, |r| {
                Ok((r.bytes("variable")?.to_vec(), r.bytes("value")?.to_vec()))
            })?,
            cwd: r.bytes("working directory")?.to_vec(),
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
        if launch.degree == 0 {
            return bad("tree degree", 0);
        }
        Ok(launch)
    }
}

fn hca_addresses(bytes: &[u8; HcaAddresses::LEN]) -> Result<HcaAddresses, CodecError> {
    HcaAddresses::from_bytes(bytes).ok_or(CodecError::Value {
        what: "spread of HCA addresses",
        value: bytes[HcaAddresses::LEN - 1].into(),
    })
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
            hca_addresses: HcaAddresses::shared(Ipv4Addr::new(127, 9, 8, 255).into()),
            heap_size: 1 << 20,
            heap_commit: HeapCommit::Lazy,
            spins: 0,
            report: false,
            raw_output: false,
            spawn: SpawnMode::Exec,
            program: b"/bin/true".to_vec(),
            argv: vec![b"true".to_vec()],
            env: Vec::new(),
            cwd: b"/".to_vec(),
        }
    }

    proptest! {
        #[test]
        fn launch_round_trips(
            n_nodes in 1u32..100, more in 0u32..100, heap_size: u64, spins: u32, report: bool,
            program: Vec<u8>, argv: Vec<Vec<u8>>, env: Vec<EnvVar>, cwd: Vec<u8>, flip: bool, cut: usize,
        ) {
            let l = Launch {
                heap_size, spins, report, program, argv, env, cwd,
                raw_output: flip,
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
    fn impossible_jobs_are_refused() {
        for l in [
            launch(3, 4, 0),
            launch(4, 4, 4),
            Launch {
                degree: 0,
                ..launch(1, 1, 0)
            },
        ] {
            assert!(Launch::decode(&l.encode()).is_err());
        }
    }
}
