//! From a process that a launcher has started to an initialised PE.
//!
//! No step sends a message to another node or waits for one, and none does work that grows with
//! the job (with static connections: by design the contrary). The UD address is handed to the
//! launch agents, whose allgather runs while the program computes already; under launchers other than
//! `shmrun` ([`foreign`]) to their PMI server.

mod alone;
mod attach;
mod foreign;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use shmem_ib::spin::SpinLimit;
use shmem_node::layout::{INTERNAL_SIZE, page_up};
use shmem_node::pe_block::PeState;
use shmem_node::segment::NodeView;
use shmem_node::settings::{Connect, HeapCommit, HeapPages, Settings};
use shmem_node::stats::Stat;
use shmem_node::sys;
use shmem_pmi::process::launchers::{self, Launcher};

use crate::context::Contexts;
use crate::error::Error;
use crate::fault;
use crate::heap::access;
use crate::heap::address::Ranges;
use crate::heap::alloc::Allocator;
use crate::life::ThreadLevel;
use crate::pmi::{Book, Pmi};
use crate::remote::{Adapter, Remote};
use crate::report::{Steps, record_connections};
use crate::runtime::{
    Caller, Collective, Neighbours, Runtime, Segment, install, try_rt, uninstall,
};
use crate::startup;
use crate::statics::{self, Statics, Why};
use crate::team::Teams;
use crate::tell;
use crate::wait;

/// What a process keeps from its first init to its end. The launch agent left it (descriptors, a place
/// in the node's memory) to be taken once; everything else is made anew by each outermost init.
pub(crate) struct Lasting {
    me: usize,
    node: NodeView,
    /// The file of the node's heaps.
    heap: OwnedFd,
    /// The file of the node's XRC domain.
    xrc: Option<OwnedFd>,
    pmi: Pmi,
    /// What the last life has left: bytes of the heap that may be written, and its network.
    past: Mutex<Past>,
    adapter: OnceLock<Adapter>,
    /// Once it has been shared.
    statics: OnceLock<Statics>,
}

#[derive(Default)]
struct Past {
    /// Outermost inits so far.
    lives: u32,
    /// Handles may outlive the finalize of their runtime, so none is freed. A life that is to be as the
    /// last one takes that one's, so a program that asks for the same each time has one. Kept here, they
    /// are no leaks to those who look for some.
    runtimes: Vec<&'static Runtime>,
    /// What the last one was made with.
    settings: Option<Settings>,
}

impl Past {
    /// The last life's.
    fn last(&self) -> Option<&'static Runtime> {
        self.runtimes.last().copied()
    }

    /// The last life's, if it can be that of a life with these settings, too.
    fn alike(
        &self,
        settings: &Settings,
        statics: Statics,
        level: ThreadLevel,
    ) -> Option<&'static Runtime> {
        let same = |rt: &&Runtime| rt.ranges.statics == statics && rt.caller.is_again(level);
        self.last()
            .filter(same)
            .filter(|_| self.settings.as_ref() == Some(settings))
    }
}

/// Shortest and longest sleep of a PE that waits for its neighbours to initialise again, where no more
/// wait than there are cores.
const FIRST_NAP: Duration = Duration::from_micros(20);
const LAST_NAP: Duration = Duration::from_millis(1);

static LASTING: OnceLock<Lasting> = OnceLock::new();

/// What this process keeps, if it has ever begun an init.
pub(crate) fn lasting() -> Option<&'static Lasting> {
    LASTING.get()
}

impl Lasting {
    /// Number of this PE.
    pub(crate) fn me(&self) -> usize {
        self.me
    }

    /// Its node.
    pub(crate) fn node(&self) -> &NodeView {
        &self.node
    }

    /// Its way to the process manager.
    pub(crate) fn pmi(&self) -> &Pmi {
        &self.pmi
    }

    /// Whether this process is the PE, and not one that it has forked.
    pub(crate) fn is_own_process(&self) -> bool {
        let local = self.node.local_of()[self.me] as usize;
        self.node.pe_block(local).pid() == std::process::id()
    }

    fn new(me: usize, node: NodeView, heap: OwnedFd, xrc: Option<OwnedFd>, pmi: Pmi) -> Self {
        Self {
            me,
            node,
            heap,
            xrc,
            pmi,
            past: Mutex::default(),
            adapter: OnceLock::new(),
            statics: OnceLock::new(),
        }
    }

    /// Takes what the launch agent has left, finds its peers through PMI, or makes a job of this
    /// process alone.
    fn take(settings: &Settings) -> Result<Self, Error> {
        match found_launcher()? {
            Launcher::Agent(version) => attach::attach(&version),
            Launcher::Pmi => foreign::join(settings),
            Launcher::Nobody => alone::alone(settings),
        }
    }

    /// Waits until all PEs of this node have begun their `life`th life, so that nobody is left in the one
    /// before. Polls, because whoever ends instead rings nobody.
    fn begin_together(&self, life: u32) -> Result<(), Error> {
        let mut turn = None;
        let mut nap = FIRST_NAP;
        for (local, &rank) in self.node.ranks().iter().enumerate() {
            let block = self.node.pe_block(local);
            // ORDERING(life): pairs with the store in `init`.
            let begun = || block.life.load(Ordering::Acquire) >= life;
            while !begun() {
                if block.state() == PeState::Finalized && sys::has_ended(block.pid()) && !begun() {
                    return Err(Error::Launch(format!(
                        "PE {} initialises again, but PE {rank} has ended after its finalize: all \
                         PEs must initialise equally often",
                        self.me
                    )));
                }
                std::thread::sleep(nap);
                nap = match nap < LAST_NAP {
                    true => nap * 2,
                    false => {
                        let turns = || self.node.turns().each(LAST_NAP / cores());
                        turn.get_or_insert_with(|| turns().take()).after(LAST_NAP)
                    }
                };
            }
        }
        Ok(())
    }

    /// Makes this PE's segment as it was before the first life. The PEs of this node are out of the
    /// last one ([`begin_together`](Self::begin_together)); those of others are, since they have said
    /// goodbye, and do not know yet where it is. Gives the bytes of the heap that may not be zero.
    fn clear(&self, last: &Runtime, settings: &Settings) -> usize {
        let dirty = last
            .heap
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .fresh_from();
        // Memory that was set aside is kept.
        let lazy =
            settings.heap_commit == HeapCommit::Lazy && settings.heap_pages != HeapPages::Huge;
        let wiped = |at, len| {
            // SAFETY: the range lies in this PE's segment, which nobody uses, as said above.
            lazy && unsafe { sys::give_back(last.own(at), len) }
        };
        if !wiped(0, INTERNAL_SIZE) {
            // SAFETY: as above.
            unsafe { access::zero(last.own(0), INTERNAL_SIZE) };
        }
        match wiped(self.node.heap_start(), page_up(dirty)) {
            true => 0,
            false => dirty,
        }
    }
}

/// Makes this process a PE, for the first time or again. With `statics` the program's static data
/// becomes symmetric. Called by one thread at a time, when the process is no PE.
pub(crate) fn init(level: ThreadLevel, statics: bool) -> Result<&'static Runtime, Error> {
    begin(level, statics).inspect_err(|why| {
        if let Some(lasting) = LASTING.get() {
            lasting.pmi.init_failed(why);
        }
    })
}

/// What the environment sets. If that makes no sense, and the launcher would not notice, it is told.
fn settings() -> Result<Settings, Error> {
    let settings = Settings::from_env().map_err(Error::from);
    settings.inspect_err(|why| {
        if LASTING.get().is_none() && matches!(found_launcher(), Ok(Launcher::Pmi)) {
            foreign::refuse_settings(why);
        }
    })
}

fn found_launcher() -> Result<Launcher, Error> {
    let found = launchers::launcher(|name| std::env::var(name).ok());
    found.map_err(|refused| Error::Launch(refused.to_string()))
}

fn begin(level: ThreadLevel, statics: bool) -> Result<&'static Runtime, Error> {
    startup::keep();
    let settings = settings()?;
    let mut steps = Steps::start();
    sys::register_barrier_everywhere();
    let lasting = match LASTING.get() {
        Some(lasting) => lasting,
        None => {
            let taken = Lasting::take(&settings)?;
            LASTING.get_or_init(|| taken)
        }
    };
    fault::watch_panics();
    let (me, node) = (lasting.me, lasting.node);
    steps.detail(node.report());
    let local = node.local_of()[me] as usize;
    node.let_into_cores(settings.core, local);
    let block = node.pe_block(local);
    block.set_state(PeState::Starting);
    if let Some(rank) = node.absence().noted() {
        return Err(Error::Launch(format!(
            "PE {me} initialises, but PE {rank} has ended without: all PEs of a job must initialise"
        )));
    }
    let mut past = lasting.past.lock().unwrap_or_else(|e| e.into_inner());
    // ORDERING(life): what this PE did in its last life comes before.
    let life = past.lives + 1;
    block.life.store(life, Ordering::Release);
    let dirty = match past.last() {
        Some(last) => {
            lasting.begin_together(life)?;
            lasting.clear(last, &settings)
        }
        None => 0,
    };
    let statics = match lasting.statics.get() {
        Some(statics) => *statics,
        None if statics => *lasting
            .statics
            .get_or_init(|| statics::share(&node, local, &settings, lasting.heap.as_fd())),
        None => Statics::Private(Why::NotAsked),
    };
    steps.done(Stat::MapWall, Stat::MapCpu);

    let book = lasting.pmi.book(&node, life);
    let again = past.alike(&settings, statics, level);
    let made = match node.n_nodes() > 1 {
        true => lasting.connect(&settings, &past, again, book.clone())?,
        false => None,
    };
    let remote = made.as_ref().or(again.and_then(|rt| rt.remote.as_ref()));
    steps.done(Stat::EndpointWall, Stat::EndpointCpu);
    if let Some(remote) = remote {
        lasting.pmi.publish(life, &book, &remote.endpoint)?;
    }
    steps.done(Stat::GatherWall, Stat::GatherCpu);

    let own = node.segment(local);
    if let Some(remote) = remote {
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

    let notices_inbound = remote.is_none_or(Remote::notices_inbound);
    let heap = Allocator::new(node.heap_size(), node.heap_start(), dirty);
    let rt = match again {
        Some(rt) => {
            rt.renew(heap);
            rt
        }
        None => {
            let rt = Runtime {
                me,
                n_pes: node.n_pes(),
                local,
                node,
                my_node: node.node() as u32,
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
                spin_limit: SpinLimit::new(node.spins()),
                turns: match notices_inbound {
                    true => node.turns(),
                    // Looks are all that tells this PE of others' writes.
                    false => node.turns().each(wait::LAST_NAP / cores()),
                },
                heap: Mutex::new(heap),
                notices_inbound,
                remote: made,
                contexts: Contexts::new(),
                teams: Teams::new(&node, me),
                caller: Caller::of(level),
                pmi: &lasting.pmi,
            };
            past.runtimes.push(Box::leak(Box::new(rt)));
            past.runtimes[past.runtimes.len() - 1]
        }
    };
    (past.lives, past.settings) = (life, Some(settings.clone()));
    install(rt);
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
    tell::started(rt, &settings, life);
    Ok(rt)
}

impl Lasting {
    /// Opens the endpoint of the runtime that is to be taken again, or else a new one.
    fn connect(
        &self,
        settings: &Settings,
        past: &Past,
        again: Option<&Runtime>,
        book: Book,
    ) -> Result<Option<Remote>, Error> {
        let adapter = match self.adapter.get() {
            Some(adapter) => adapter,
            None => {
                let opened = Adapter::open(&self.node, self.me, settings)?;
                self.adapter.get_or_init(|| opened)
            }
        };
        if let Some(last) = past.last().and_then(|rt| rt.remote.as_ref()) {
            last.dismiss(adapter);
        }
        let identity = self.pmi.identity(&self.node);
        if let Some(remote) = again.and_then(|rt| rt.remote.as_ref()) {
            remote.reopen(&self.node, self.me, settings, adapter, book, identity)?;
            return Ok(None);
        }
        let xrc = self.xrc.as_ref().map(OwnedFd::try_clone).transpose();
        let xrc = xrc.map_err(|source| Error::Os {
            what: "duplicate the descriptor of the XRC domain",
            source,
        })?;
        Remote::open(&self.node, self.me, settings, adapter, xrc, book, identity).map(Some)
    }
}

/// Cores that this process may use.
fn cores() -> u32 {
    let cores = std::thread::available_parallelism();
    cores.map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
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

/// The process exits with `status`, whether or not it is a PE. Called by the C library.
pub(crate) fn process_exits(status: i32) {
    if let Some(lasting) = LASTING.get() {
        lasting.pmi.process_exits(status, try_rt().is_some());
    }
}

/// Whether the launcher ends this process, with the job, once it hears of the process's exit.
pub(crate) fn exit_ends_job() -> bool {
    let foreign = LASTING
        .get()
        .is_some_and(|lasting| lasting.pmi.ends_job_at_exit());
    foreign && try_rt().is_some()
}

/// Leaves the job. Collective.
pub(crate) fn finalize(rt: Collective) {
    let mut steps = Steps::start();
    steps.detail(rt.node.report());
    rt.block.set_state(PeState::Finalizing);
    // The barrier completes the default context only.
    rt.quiet_all();
    rt.last_barrier();
    record_connections(&rt);
    if let Some(remote) = &rt.remote {
        remote.stop();
    }
    steps.done(Stat::FinalizeWall, Stat::FinalizeCpu);
    steps.leave(rt.block);
    rt.block.set_state(PeState::Finalized);
    uninstall();
}
