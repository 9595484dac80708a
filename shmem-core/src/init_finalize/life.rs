//! One life of a PE: the steps of the outermost init, and of the last finalize.
//!
//! No step sends a message to another node or waits for one, and none does work that grows with
//! the job (with static connections: by design the contrary). The UD address is handed to the
//! launch agents, whose allgather runs while the program computes already; under launchers other than
//! `shmrun` to their PMI server.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use shmem_ib::spin::SpinLimit;
use shmem_mpi::Mpi;
use shmem_node::cpus;
use shmem_node::pe_block::PeState;
use shmem_node::recording::Routine;
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
use crate::pmi::Book;
use crate::runtime::{
    Neighbours, Ranges, Runtime, Segment, ThreadLevel, Threads, install, uninstall,
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
    let Attached {
        me, local, node, ..
    } = *attached;
    steps.detail(node.report());
    node.let_into_cores(settings.core, local);
    let block = node.pe_block(local);
    block.set_state(PeState::Starting);
    if let Some(rank) = node.absence().noted() {
        return Err(Error::Launch(format!(
            "PE {me} initialises, but PE {rank} has ended without: all PEs of a job must initialise"
        )));
    }
    let mut past = PAST.lock().unwrap_or_else(|e| e.into_inner());
    // ORDERING(life): what this PE did in its last life comes before.
    let life = past.lives + 1;
    block.life.store(life, Ordering::Release);
    let dirty = match past.last() {
        Some(last) => {
            attached.pmi.return_again()?;
            begin_together(attached, life)?;
            clear(attached, last, &settings)
        }
        None => 0,
    };
    let statics = match STATICS.get() {
        Some(statics) => *statics,
        None if statics => {
            *STATICS.get_or_init(|| statics::share(&node, local, &settings, attached.heap.as_fd()))
        }
        None => Statics::Private(Why::NotAsked),
    };
    node.alike().note(block.statics.load(Ordering::Relaxed));
    steps.step(Routine::InitMap, Stat::MapWall, Stat::MapCpu);

    let book = attached.pmi.book(&node, life);
    let again = past.alike(&settings, statics, level);
    let made = match node.n_nodes() > 1 {
        true => connect(
            attached,
            &settings,
            &past,
            again,
            book.clone(),
            statics.len(),
        )?,
        false => None,
    };
    let network = made.as_ref().or(again.and_then(|rt| rt.network.as_ref()));
    steps.step(Routine::InitEndpoint, Stat::EndpointWall, Stat::EndpointCpu);
    if let Some(network) = network {
        let here = (&node, local);
        let (pmi, checks) = (&attached.pmi, compares(&settings));
        pmi.publish(here, life, &book, &network.endpoint, checks)?;
    }
    steps.step(Routine::InitGather, Stat::GatherWall, Stat::GatherCpu);

    let own = node.segment(local);
    if let Some(network) = network {
        let (endpoint, leader) = (&network.endpoint, local == 0);
        // SAFETY: the segment stays mapped until the process ends.
        unsafe {
            network
                .registrar
                .register_first(endpoint, own, leader, &block.stats)?;
        }
        network.start_progress_thread()?;
    }
    steps.step(Routine::InitRegister, Stat::RegisterWall, Stat::RegisterCpu);

    // For those who wait: an MPI library that cannot be used does not keep OpenSHMEM from being.
    let mpi = Mpi::in_process().ok().flatten();
    if let Some(mpi) = mpi {
        messages::mpi_is_alone(attached, mpi);
    }
    let notices_inbound = network.is_none_or(Network::notices_inbound);
    let heap = Allocator::new(node.heap_size(), node.heap_start(), dirty);
    let rt = match again {
        Some(rt) => {
            rt.renew(life, heap);
            rt
        }
        None => {
            let recorder = node.recorder(local);
            let all_is_plain = made.is_none() && recorder.is_none();
            let rt = Runtime {
                me,
                n_pes: node.n_pes(),
                local,
                node,
                my_node: node.node() as u32,
                plain_node: AtomicU32::new(match recorder {
                    None => node.node() as u32,
                    Some(_) => u32::MAX,
                }),
                neighbours: Neighbours::new(&node),
                node_of: node.node_of(),
                local_of: node.local_of(),
                own: Segment(own),
                ranges: Ranges {
                    heap: own as usize + node.heap_start(),
                    heap_len: node.heap_size(),
                    heap_at: node.heap_start(),
                    statics,
                },
                block,
                polls: SpinLimit::new(node.spins()),
                crowd: node.on_machine().div_ceil(cpus::of_machine()),
                turns: match notices_inbound && mpi.is_none() {
                    true => node.turns(),
                    // Looks are all that tells this PE of others' writes, or of what they want of MPI.
                    false => node.turns().each(LAST_NAP / cores()),
                },
                heap: Mutex::new(heap),
                notices_inbound,
                network: made,
                threads: Threads::promised(level),
                all_is_plain,
                recorder,
                checks: compares(&settings),
                life: life.into(),
            };
            past.runtimes.push(Box::leak(Box::new(rt)));
            past.runtimes[past.runtimes.len() - 1]
        }
    };
    (past.lives, past.settings) = (life, Some(settings.clone()));
    context::begin();
    team::begin(&node, me);
    install(rt);
    if settings.connect == Connect::Static
        && let Some(network) = &rt.network
    {
        network
            .endpoint
            .connect_all(everybody_elsewhere(rt).into_iter())
            .inspect_err(|_| uninstall())
            .map_err(|e| Error::Network(e.to_string()))?;
    }
    steps.step(Routine::InitConnect, Stat::ConnectWall, Stat::ConnectCpu);
    block.checks.store(rt.checks.into(), Ordering::Relaxed);
    rt.node_barrier();
    if node.alike().differ() {
        rt.plain_node.store(u32::MAX, Ordering::Relaxed);
    }
    same_checks(rt).inspect_err(|_| uninstall())?;
    steps.step(Routine::InitBarrier, Stat::BarrierWall, Stat::BarrierCpu);
    block.set_state(PeState::Running);
    steps.finish(rt);
    messages::started(rt, &settings, life);
    Ok(rt)
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
    book: Book,
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
        network.reopen(settings, adapter, book, identity)?;
        return Ok(None);
    }
    let xrc = attached.xrc.as_ref().map(OwnedFd::try_clone).transpose();
    let xrc = xrc.map_err(|source| Error::Os {
        what: "duplicate the descriptor of the XRC domain",
        source,
    })?;
    Network::open(settings, adapter, xrc, book, identity, statics).map(Some)
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
