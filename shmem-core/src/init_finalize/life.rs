//! One life of a PE: the steps of the outermost init, and of the last finalize.
//!
//! No step sends a message to another node or waits for one, and none does work that grows with
//! the job (with static connections: by design the contrary). The UD address is handed to the
//! launch agents, whose allgather runs while the program computes already; under launchers other than
//! `shmrun` to their PMI server.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock};

use shmem_ib::spin::SpinLimit;
use shmem_mpi::Mpi;
use shmem_node::cpus;
use shmem_node::pe_block::PeState;
use shmem_node::recording::Routine;
use shmem_node::segment::NodeView;
use shmem_node::settings::{Connect, Settings};
use shmem_node::stats::Stat;
use shmem_node::sys;

use super::again::{Past, begin_together, clear};
use super::messages;
use super::report::{Steps, record_connections};
use crate::attach::{self, Attached, Start, attached, compares};
use crate::before_main;
use crate::collectives::WorldCollective;
use crate::context;
use crate::error::Error;
use crate::fault;
use crate::heap::allocator::Allocator;
use crate::naps::{LAST_NAP, cores};
use crate::network::{Adapter, Network};
use crate::pmi::PeAddresses;
use crate::runtime::{
    Neighbours, Nodes, Ranges, Runtime, ThreadLevel, Threads, WaitPolicy, install, uninstall,
};
use crate::statics::{self, Statics, Why};
use crate::team;

/// What the last life has left.
static PAST: Mutex<Past> = Mutex::new(Past::NONE);
/// The network device, once it is open.
static ADAPTER: OnceLock<Adapter> = OnceLock::new();
/// The program's static data, once it has been shared.
static STATICS: OnceLock<Statics> = OnceLock::new();

/// Makes this process a PE, for the first time or again. With `statics` the program's static data
/// becomes symmetric. Called by one thread at a time, when the process is no PE.
/// `start` says of which job, where the environment does not.
pub(super) fn begin(
    level: ThreadLevel,
    statics: bool,
    start: Option<&Start>,
) -> Result<&'static Runtime, Error> {
    run_steps(level, statics, start).inspect_err(|why| {
        if let Some(attached) = attached() {
            attached.pmi.init_failed(why);
        }
    })
}

fn run_steps(
    level: ThreadLevel,
    statics: bool,
    start: Option<&Start>,
) -> Result<&'static Runtime, Error> {
    before_main::keep();
    let settings = attach::settings(start)?;
    let mut steps = Steps::start();
    sys::register_barrier_everywhere();
    let attached = attach::attach(&settings, start)?;
    fault::watch_panics();
    sys::watch_forks();
    let Attached { local, node, .. } = *attached;
    steps.detail(node.report());
    node.let_into_cores(settings.core, local);
    let mut past = PAST.lock().unwrap_or_else(|e| e.into_inner());
    let life = past.lives + 1;
    let dirty = enter_job(attached, &settings, &past, life)?;
    let statics = match (STATICS.get(), statics) {
        (Some(statics), _) => *statics,
        (None, true) => {
            *STATICS.get_or_init(|| statics::share(&node, local, &settings, attached.heap.as_fd()))
        }
        (None, false) => Statics::Private(Why::NotAsked),
    };
    let block = node.pe_block(local);
    node.alike().note(block.statics.load(Ordering::Relaxed));
    steps.step(Routine::InitMap, Stat::MapWall, Stat::MapCpu);

    let again = past.alike(&settings, statics, level);
    let made = open_network(attached, &settings, &past, again, statics.len(), &mut steps)?;
    // For those who wait: an MPI library that cannot be used does not keep OpenSHMEM from being.
    let mpi = Mpi::in_process().ok().flatten();
    if let Some(mpi) = mpi {
        messages::mpi_is_alone(attached, mpi);
    }
    let heap = Allocator::new(node.heap_size(), node.heap_start(), dirty);
    let rt = match again {
        Some(rt) => {
            rt.renew(life, heap);
            rt
        }
        None => {
            let rt = Runtime {
                me: attached.me,
                n_pes: node.n_pes(),
                local,
                node,
                nodes: Nodes::new(&node, made.is_some(), node.recorder(local).is_some()),
                neighbours: Neighbours::new(&node, local),
                ranges: Ranges {
                    heap: node.segment(local) as usize + node.heap_start(),
                    heap_len: node.heap_size(),
                    heap_at: node.heap_start(),
                    statics,
                },
                block,
                waits: wait_policy(&node, made.as_ref(), mpi),
                heap: Mutex::new(heap),
                network: made,
                threads: Threads::promised(level),
                recorder: node.recorder(local),
                checks: compares(&settings),
                life: life.into(),
            };
            past.keep(rt)
        }
    };
    (past.lives, past.settings) = (life, Some(settings.clone()));
    context::begin();
    team::begin(&node, attached.me);
    install(rt);
    meet_neighbours(rt, &settings, &mut steps).inspect_err(|_| uninstall())?;
    block.set_state(PeState::Running);
    steps.finish(rt);
    messages::started(rt, &settings, life);
    Ok(rt)
}

/// Begins the `life`th life of this PE in its job, after the PEs of its node have ended the one before. Gives the bytes of
/// the heap that may not be zero.
fn enter_job(
    attached: &Attached,
    settings: &Settings,
    past: &Past,
    life: u32,
) -> Result<usize, Error> {
    let Attached {
        me, local, node, ..
    } = *attached;
    let block = node.pe_block(local);
    block.set_state(PeState::Starting);
    if let Some(rank) = node.absence().noted() {
        return Err(Error::Launch(format!(
            "PE {me} initialises, but PE {rank} has ended without: all PEs of a job must initialise"
        )));
    }
    // ORDERING(life): what this PE did in its last life comes before.
    block.life.store(life, Ordering::Release);
    let Some(last) = past.last() else {
        return Ok(0);
    };
    attached.pmi.return_again()?;
    begin_together(attached, life)?;
    Ok(clear(attached, last, settings))
}

/// Opens the network, if there are other nodes; publishes this PE's address, registers its segment and starts the progress
/// thread. Gives a network that the runtime to be taken again does not have.
fn open_network(
    attached: &Attached,
    settings: &Settings,
    past: &Past,
    again: Option<&Runtime>,
    statics: usize,
    steps: &mut Steps,
) -> Result<Option<Network>, Error> {
    let Attached { local, node, .. } = *attached;
    let (block, life) = (node.pe_block(local), past.lives + 1);
    let addresses = attached.pmi.addresses(&node, life);
    let made = match node.n_nodes() > 1 {
        true => connect(attached, settings, past, again, addresses.clone(), statics)?,
        false => None,
    };
    let network = made.as_ref().or(again.and_then(|rt| rt.network.as_ref()));
    steps.step(Routine::InitEndpoint, Stat::EndpointWall, Stat::EndpointCpu);
    if let Some(network) = network {
        let (here, checks) = ((&node, local), compares(settings));
        let pmi = &attached.pmi;
        pmi.publish(here, life, &addresses, &network.endpoint, checks)?;
    }
    steps.step(Routine::InitGather, Stat::GatherWall, Stat::GatherCpu);
    if let Some(network) = network {
        let (endpoint, leader) = (&network.endpoint, local == 0);
        // SAFETY: the segment stays mapped until the process ends.
        unsafe {
            let own = node.segment(local);
            network
                .registrar
                .register_first(endpoint, own, leader, &block.stats)?;
        }
        network.start_progress_thread()?;
    }
    steps.step(Routine::InitRegister, Stat::RegisterWall, Stat::RegisterCpu);
    Ok(made)
}

/// How a PE of this node waits, which has this network, and MPI in its process.
fn wait_policy(
    node: &NodeView,
    network: Option<&Network>,
    mpi: Option<&'static Mpi>,
) -> WaitPolicy {
    let notices_inbound = network.is_none_or(Network::notices_inbound);
    WaitPolicy {
        polls: SpinLimit::new(node.spins()),
        crowd: node.on_machine().div_ceil(cpus::of_machine()),
        turns: match notices_inbound && mpi.is_none() {
            true => node.turns(),
            // Looks are all that tells this PE of others' writes, or of what they want of MPI.
            false => node.turns().each(LAST_NAP / cores()),
        },
        notices_inbound,
    }
}

/// Connects with all other nodes, where that is asked for, and waits for the PEs of this one.
fn meet_neighbours(rt: &Runtime, settings: &Settings, steps: &mut Steps) -> Result<(), Error> {
    if settings.connect == Connect::Static
        && let Some(network) = &rt.network
    {
        network
            .endpoint
            .connect_all(everybody_elsewhere(rt).into_iter())
            .map_err(|e| Error::Network(e.to_string()))?;
    }
    steps.step(Routine::InitConnect, Stat::ConnectWall, Stat::ConnectCpu);
    rt.block.checks.store(rt.checks.into(), Ordering::Relaxed);
    rt.node_barrier();
    if rt.node.alike().differ() {
        rt.nodes.plain.store(u32::MAX, Ordering::Relaxed);
    }
    same_checks(rt)?;
    steps.step(Routine::InitBarrier, Stat::BarrierWall, Stat::BarrierCpu);
    Ok(())
}

/// Whether this PE compares what it calls as the first PE of its node does. Those of other nodes find out at first
/// contact.
fn same_checks(rt: &Runtime) -> Result<(), Error> {
    let theirs = rt.node.pe_block(0).checks.load(Ordering::Relaxed);
    if theirs == u32::from(rt.checks) {
        return Ok(());
    }
    let (me, first) = (rt.me, rt.node.ranks()[0] as usize);
    let (one, other) = if rt.checks { (me, first) } else { (first, me) };
    Err(Error::Launch(format!(
        "PE {one} compares what PEs call (SHMEM_CHECK), but PE {other} on the same node does not: set it alike for all \
         PEs, where some of them are programs of debug builds and others are not"
    )))
}

/// Opens the endpoint of the runtime that is to be taken again, or else a new one.
fn connect(
    attached: &Attached,
    settings: &Settings,
    past: &Past,
    again: Option<&Runtime>,
    addresses: PeAddresses,
    statics: usize,
) -> Result<Option<Network>, Error> {
    let adapter = match ADAPTER.get() {
        Some(adapter) => adapter,
        None => {
            let opened = Adapter::open(&attached.node, attached.me, settings)?;
            ADAPTER.get_or_init(|| opened)
        }
    };
    if let Some(last) = past.last().and_then(|rt| rt.network.as_ref()) {
        last.end_progress_threads();
    }
    let identity = attached.pmi.identity(&attached.node);
    if let Some(network) = again.and_then(|rt| rt.network.as_ref()) {
        network.reopen(settings, adapter, addresses, identity)?;
        return Ok(None);
    }
    let xrc = attached.xrc.as_ref().map(OwnedFd::try_clone).transpose();
    let xrc = xrc.map_err(|source| Error::Os {
        what: "duplicate the descriptor of the XRC domain",
        source,
    })?;
    Network::open(settings, adapter, xrc, addresses, identity, statics).map(Some)
}

/// All PEs of other nodes. First comes, of each node, the one at the position that this PE has on its
/// own: with XRC the first contact of a node carries the connection, and so no PE carries those of
/// all others.
fn everybody_elsewhere(rt: &Runtime) -> Vec<u32> {
    let mut pes: Vec<u32> = (0u32..)
        .zip(rt.nodes.node_of)
        .filter(|&(_, &node)| node != rt.nodes.mine)
        .map(|(pe, _)| pe)
        .collect();
    let mine = rt.local as u32;
    // A node without that position begins with its first PE.
    pes.sort_by_key(|&pe| rt.nodes.local_of[pe as usize].wrapping_sub(mine));
    pes
}

/// Has the launcher look, from now on, whether others wait for this PE. Before the last finalize, which may wait when it
/// compares what PEs call.
pub(super) fn leaves(rt: &Runtime) {
    if rt.n_pes > 1
        && rt.node.absence().leaves_first()
        && let Some(attached) = attached()
    {
        attached.pmi.leaves();
    }
}

/// Leaves the job. Collective.
pub(super) fn end(rt: WorldCollective) {
    let mut steps = Steps::start();
    steps.detail(rt.node.report());
    rt.block.set_state(PeState::Finalizing);
    // The barrier completes the default context only.
    rt.quiet_all();
    rt.barrier_all();
    record_connections(&rt);
    if let Some(network) = &rt.network {
        network.stop();
    }
    steps.done(Stat::FinalizeWall, Stat::FinalizeCpu);
    steps.leave(&rt);
    rt.block.set_state(PeState::Finalized);
    uninstall();
    messages::finalized(rt.me);
}
