//! From a process that a launcher has started to an initialised PE.
//!
//! No step sends a message to another node or waits for one, and none does work that grows with
//! the job (with static connections: by design the contrary). The UD address is handed to the
//! launch agents, whose allgather runs while the program computes already.

use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use shmem_ib::patience::Patience;
use shmem_node::contract::{
    self, ENV_NODE, ENV_PMI_RANK, HEAP_FD, NODE_CONTRACT, TABLES_FD, XRC_FD,
};
use shmem_node::hca_address::HcaAddresses;
use shmem_node::layout::INTERNAL_SIZE;
use shmem_node::pages;
use shmem_node::pe_block::PeState;
use shmem_node::segment::{JobFacts, NodeSegment, NodeView};
use shmem_node::settings::{Connect, Settings, Spin};
use shmem_node::stats::Stat;
use shmem_node::sys;

use crate::collectives::{Links, MAX_PES};
use crate::context::Contexts;
use crate::error::Error;
use crate::heap::address::Ranges;
use crate::heap::alloc::Allocator;
use crate::pmi::Pmi;
use crate::remote::Remote;
use crate::report::{Steps, record_connections};
use crate::runtime::{Collective, Runtime, Segment, install, try_rt, uninstall};

/// Polls of a waiting PE that was started without a launcher: nobody but its own threads can give
/// it what it waits for.
const DEFAULT_SPINS: u32 = 4000;

/// Whether init was ever called. What the launch agent left for this process (descriptors, a
/// place in the node's memory) is there to be taken once, by one thread.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Makes this process a PE.
pub(crate) fn init() -> Result<&'static Runtime, Error> {
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(match try_rt() {
            Some(_) => Error::AlreadyInitialised,
            None => Error::Spent,
        });
    }
    let settings = Settings::from_env()?;
    let mut steps = Steps::start();
    sys::register_barrier_everywhere();
    let (me, node, pmi, xrc) = match std::env::var(ENV_NODE) {
        Ok(version) => {
            let (me, node, pmi, xrc) = attach(&version)?;
            (me, node, pmi, Some(xrc))
        }
        Err(_) => {
            let (me, node, pmi) = alone(&settings)?;
            (me, node, pmi, None)
        }
    };
    steps.detail(node.report());
    let local = node.local_of()[me] as usize;
    let block = node.pe_block(local);
    block.set_state(PeState::Starting);
    steps.done(Stat::MapWall, Stat::MapCpu);

    let remote = (node.n_nodes() > 1)
        .then(|| Remote::open(&node, me, &settings, xrc))
        .transpose()?;
    steps.done(Stat::EndpointWall, Stat::EndpointCpu);
    if let Some(remote) = &remote {
        let request = pmi.iallgather(&remote.endpoint.published().to_bytes())?;
        debug_assert_eq!(request, crate::remote::ADDRESS_REQUEST);
    }
    steps.done(Stat::GatherWall, Stat::GatherCpu);

    let own = node.segment(local);
    if let Some(remote) = &remote {
        let (endpoint, leader) = (&remote.endpoint, local == 0);
        // SAFETY: the segment stays mapped until the process ends.
        unsafe {
            remote
                .registrar
                .begin(endpoint, own, leader, &block.stats)?;
        }
        remote.serve()?;
    }
    steps.done(Stat::RegisterWall, Stat::RegisterCpu);

    let my_node = node.node() as u32;
    let rt = install(Runtime {
        me,
        n_pes: node.n_pes(),
        local,
        node,
        my_node,
        node_of: node.node_of(),
        local_of: node.local_of(),
        own: Segment(own),
        ranges: Ranges {
            heap: own as usize + INTERNAL_SIZE,
            heap_len: node.heap_size(),
            heap_at: INTERNAL_SIZE,
        },
        block,
        patience: Patience::new(node.spins()),
        heap: Mutex::new(Allocator::new(node.heap_size())),
        notices_inbound: remote.as_ref().is_none_or(Remote::notices_inbound),
        remote,
        links: Links::default(),
        contexts: Contexts::new(),
        meeting: AtomicBool::new(false),
        pmi,
    });
    if settings.connect == Connect::Static
        && let Some(remote) = &rt.remote
    {
        remote
            .endpoint
            .connect_all(everybody_elsewhere(rt).into_iter())
            .map_err(|e| Error::Network(e.to_string()))?;
    }
    steps.done(Stat::ConnectWall, Stat::ConnectCpu);
    rt.node_barrier();
    steps.done(Stat::BarrierWall, Stat::BarrierCpu);
    block.set_state(PeState::Running);
    steps.finish(block, rt.remote.as_ref());
    Ok(rt)
}

/// All PEs of other nodes. First comes, of each node, the one at the position that this PE has on its
/// own: with XRC the first contact of a node carries the connection, and so no PE carries those of
/// all others.
fn everybody_elsewhere(rt: &Runtime) -> Vec<u32> {
    let mut pes: Vec<u32> = (0u32..)
        .zip(rt.node_of)
        .filter(|&(_, &node)| node != rt.my_node)
        .map(|(pe, _)| pe)
        .collect();
    let mine = rt.local as u32;
    // A node without that position begins with its first PE.
    pes.sort_by_key(|&pe| rt.local_of[pe as usize].wrapping_sub(mine));
    pes
}

/// Maps what `shmrun` has prepared. The descriptor is the file of the node's XRC domain.
fn attach(version: &str) -> Result<(usize, NodeView, Pmi, OwnedFd), Error> {
    if version != NODE_CONTRACT {
        return Err(Error::Launch(format!(
            "this program was built for launch contract {NODE_CONTRACT}, but shmrun offers \
             {version}; use the shmrun that was built with it"
        )));
    }
    let rank: u32 = std::env::var(ENV_PMI_RANK)
        .ok()
        .and_then(|s| s.parse().ok())
        .ok_or_else(|| {
            Error::Launch(format!(
                "{ENV_NODE} is set but {ENV_PMI_RANK} is not a number"
            ))
        })?;
    let (tables, heap) = (take_fd(TABLES_FD)?, take_fd(HEAP_FD)?);
    let xrc = take_fd(XRC_FD)?;
    let node = NodeView::attach(tables.as_fd(), heap.as_fd())?;
    if node
        .node_of()
        .get(rank as usize)
        .is_none_or(|&n| n as usize != node.node())
    {
        return Err(Error::Launch(format!(
            "PE {rank} is not among the PEs of node {}: the environment belongs to another process",
            node.node()
        )));
    }
    if node.n_pes() > MAX_PES {
        return Err(Error::Launch(format!(
            "{} PEs are more than the {MAX_PES} that this version supports",
            node.n_pes()
        )));
    }
    let pmi = Pmi::inherited(rank, &contract::hex(&node.job_id()))?;
    Ok((rank as usize, node, pmi, xrc))
}

/// Takes over a descriptor that the launch agent left at a fixed number.
fn take_fd(fd: RawFd) -> Result<OwnedFd, Error> {
    // SAFETY: plain system call; it tells whether the descriptor is open.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
        return Err(Error::Launch(format!(
            "{ENV_NODE} is set, but descriptor {fd} is closed: this process is not the one that \
             shmrun started (a child of it must be started with shmrun again)"
        )));
    }
    // SAFETY: open, and by the contract ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A job of one PE, for a program that was started without a launcher.
fn alone(settings: &Settings) -> Result<(usize, NodeView, Pmi), Error> {
    refuse_foreign_launcher()?;
    if let Some(notice) = pages::without_effect(settings.heap_pages) {
        eprintln!("shmem: {notice}");
    }
    let (mut job_id, mut job_key) = ([0; 16], [0; 32]);
    for buf in [&mut job_id[..], &mut job_key[..]] {
        sys::random(buf).map_err(|source| Error::Os {
            what: "read random bytes",
            source,
        })?;
    }
    let segment = NodeSegment::create(&JobFacts {
        job_id,
        job_key,
        node_of: &[0],
        n_nodes: 1,
        node: 0,
        on_machine: 1,
        heap_size: settings.symmetric_size,
        heap_commit: settings.heap_commit,
        heap_pages: settings.heap_pages,
        hca_addresses: HcaAddresses::shared(std::net::Ipv4Addr::LOCALHOST.into()),
        spins: match settings.spin {
            Spin::Auto => DEFAULT_SPINS,
            Spin::Polls(n) => n,
        },
        report: false,
    })?;
    Ok((0, *segment.view(), Pmi::alone()))
}

/// A launcher that we do not understand started several processes. Without this check each of
/// them would believe to be the only PE.
fn refuse_foreign_launcher() -> Result<(), Error> {
    const MARKS: [(&str, &str); 5] = [
        ("PMI_FD", "a PMI launcher such as mpiexec.hydra"),
        ("PMI_PORT", "a PMI launcher such as mpiexec.hydra"),
        ("PMIX_RANK", "a PMIx launcher such as mpirun or prterun"),
        ("OMPI_COMM_WORLD_RANK", "Open MPI's mpirun"),
        ("SLURM_STEP_ID", "Slurm's srun"),
    ];
    match MARKS
        .iter()
        .find(|(name, _)| std::env::var_os(name).is_some())
    {
        Some((name, who)) => Err(Error::Launch(format!(
            "this process was started by {who} ({name} is set), which this version cannot talk \
             to; start the program with shmrun -n N PROGRAM, or unset {name} to run a single PE"
        ))),
        None => Ok(()),
    }
}

/// Leaves the job. Collective.
pub(crate) fn finalize(rt: Collective) {
    let mut steps = Steps::start();
    steps.detail(rt.node.report());
    rt.block.set_state(PeState::Finalizing);
    rt.barrier_all();
    record_connections(&rt);
    if let Some(remote) = &rt.remote {
        remote.stop();
    }
    rt.pmi.finalize();
    steps.done(Stat::FinalizeWall, Stat::FinalizeCpu);
    steps.leave(rt.block);
    rt.block.set_state(PeState::Finalized);
    uninstall();
}
