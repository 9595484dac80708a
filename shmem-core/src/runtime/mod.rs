//! What a PE knows after init, and the one global that everything above asks for it.
//!
//! [`Runtime`] is data and what follows from it directly: where the memory of a PE is ([`place`]), how
//! one wakes a neighbour, calls the network, or ends the job. What is done with it (copies, waits,
//! collectives) is added by the modules above, of which nothing here knows.

mod place;
mod ranges;
mod recorded;
mod threads;

use std::ops::Range;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use shmem_ib::connect::endpoint::ConnError;
use shmem_ib::spin::SpinLimit;
use shmem_node::pe_block::PeBlock;
use shmem_node::recording::Recorder;
use shmem_node::segment::NodeView;
use shmem_node::sys;
use shmem_node::turns::Turns;

use crate::attach;
use crate::error::Error;
use crate::fault;
use crate::heap::allocator::Allocator;
use crate::network::{Network, Operations, Stream};

pub(crate) use self::place::Place;
pub use self::place::{Near, near};
pub(crate) use self::ranges::Ranges;
pub use self::recorded::pcontrol;
pub use self::threads::ThreadLevel;
pub(crate) use self::threads::Threads;

/// State of an initialised PE.
pub(crate) struct Runtime {
    pub(crate) me: usize,
    pub(crate) n_pes: usize,
    /// Position of this PE among its node's.
    pub(crate) local: usize,
    pub(crate) node: NodeView,
    pub(crate) nodes: Nodes,
    pub(crate) neighbours: Neighbours,
    /// Where symmetric memory lies in this process.
    pub(crate) ranges: Ranges,
    pub(crate) block: &'static PeBlock,
    pub(crate) waits: WaitPolicy,
    pub(crate) heap: Mutex<Allocator>,
    /// The way to other nodes, if there are any.
    pub(crate) network: Option<Network>,
    pub(crate) threads: Threads,
    /// Where this PE records what it calls, if it is to.
    pub(crate) recorder: Option<Recorder>,
    /// Whether PEs compare what they call before each collective (`SHMEM_CHECK`).
    pub(crate) checks: bool,
    /// Which init this is, as [`Runtime::life`] tells. Changes in init alone, which publishes the
    /// runtime after that.
    pub(crate) life: AtomicU32,
}

/// Where PEs are.
pub(crate) struct Nodes {
    /// The node of this PE.
    pub(crate) mine: u32,
    /// The node whose memory the program's operations access directly: this one; none where calls are recorded or where
    /// PEs of the node have different static data. So the fast path needs no test for either. Changes in init alone.
    pub(crate) plain: AtomicU32,
    /// Whether all memory is that of this node, and no calls are recorded.
    pub(crate) all_is_plain: bool,
    /// The node of each PE.
    pub(crate) node_of: &'static [u32],
    /// The position of each PE among its node's.
    pub(crate) local_of: &'static [u32],
}

impl Nodes {
    /// Those of a job, in which this PE has a network if there are other nodes.
    pub(crate) fn new(node: &NodeView, has_network: bool, is_recorded: bool) -> Self {
        let mine = node.node() as u32;
        Self {
            mine,
            plain: AtomicU32::new(if is_recorded { u32::MAX } else { mine }),
            all_is_plain: !has_network && !is_recorded,
            node_of: node.node_of(),
            local_of: node.local_of(),
        }
    }
}

/// How this PE waits.
pub(crate) struct WaitPolicy {
    /// How often it polls before it sleeps.
    pub(crate) polls: SpinLimit,
    /// PEs of this machine for each of its cores.
    pub(crate) crowd: usize,
    /// When it looks while it sleeps.
    pub(crate) turns: Turns<'static>,
    /// Whether somebody rings when other nodes have written its memory.
    pub(crate) notices_inbound: bool,
}

/// First byte of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Segment(pub(crate) *mut u8);

// SAFETY: an address in a mapping that lives until the process ends; its use follows the rules of
// the heap module, whichever thread it is.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// Where the PEs of this node have their memory: what every operation on them asks for.
#[derive(Clone, Copy)]
pub(crate) struct Neighbours {
    /// This PE's segment.
    pub(crate) own: Segment,
    /// Segment of the first.
    segments: Segment,
    /// Bytes from one segment to the next.
    stride: usize,
    /// Block of the first; the others follow it.
    blocks: &'static PeBlock,
}

impl Neighbours {
    /// Those of the PE at a position of this node.
    pub(crate) fn new(node: &NodeView, local: usize) -> Self {
        let first = node.segment(0);
        let stride = match node.n_local() {
            1 => 0,
            _ => node.segment(1) as usize - first as usize,
        };
        Self {
            own: Segment(node.segment(local)),
            segments: Segment(first),
            stride,
            blocks: node.pe_block(0),
        }
    }
}

static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(ptr::null_mut());

/// The runtime, if the PE is initialised.
#[inline]
pub(crate) fn try_rt() -> Option<&'static Runtime> {
    // ORDERING(runtime): pairs with `install`.
    // SAFETY: the pointer is null or came from a reference that lives as long as the process.
    unsafe { RUNTIME.load(Ordering::Acquire).as_ref() }
}

/// The runtime.
///
/// # Panics
/// If the PE is not initialised.
#[inline]
#[track_caller]
pub(crate) fn rt() -> &'static Runtime {
    match try_rt() {
        Some(rt) => {
            if cfg!(debug_assertions) && !rt.threads.may_call() {
                rt.wrong_thread();
            }
            rt
        }
        None => not_initialised(),
    }
}

#[cold]
#[track_caller]
fn not_initialised() -> ! {
    panic!("shmem::init() has not been called, or finalize already has")
}

/// Makes `runtime` the global one.
pub(crate) fn install(runtime: &'static Runtime) {
    // ORDERING(runtime): pairs with `try_rt`.
    RUNTIME.store(ptr::from_ref(runtime).cast_mut(), Ordering::Release);
    attach::set_pe(true);
}

/// After finalize: calls fail with a clear message.
pub(crate) fn uninstall() {
    RUNTIME.store(ptr::null_mut(), Ordering::Release);
    attach::set_pe(false);
}

impl Runtime {
    /// Begins another life, in which the heap is as `heap` says.
    pub(crate) fn renew(&self, life: u32, heap: Allocator) {
        *self.heap.lock().unwrap_or_else(|e| e.into_inner()) = heap;
        self.life.store(life, Ordering::Relaxed);
    }

    /// Which init of this process this is, counted from 1. Contexts, teams and locks that a program holds
    /// are of the life in which they were made, and refused or left alone in any other.
    #[inline]
    pub(crate) fn life(&self) -> u32 {
        self.life.load(Ordering::Relaxed)
    }

    /// Address of this PE's own byte at `offset` of the segment.
    #[inline]
    pub(crate) fn own(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.node.segment_len());
        // SAFETY: offsets come from handles, which stay inside the segment.
        unsafe { self.neighbours.own.0.add(offset) }
    }

    /// Address of the byte at `offset` in the segment of a PE of this node.
    #[inline]
    pub(crate) fn neighbour(&self, local: usize, offset: usize) -> *mut u8 {
        debug_assert!(local < self.node.n_local());
        // SAFETY: the segments of a node lie at equal distances; as for `own`.
        unsafe {
            let all = &self.neighbours;
            all.segments.0.add(local * all.stride + offset)
        }
    }

    #[cold]
    #[track_caller]
    fn no_such_pe(&self, pe: usize) -> ! {
        panic!(
            "PE {pe} does not exist: this job has PEs 0 to {}",
            self.n_pes - 1
        )
    }

    #[cold]
    #[track_caller]
    fn wrong_thread(&self) -> ! {
        panic!(
            "a thread of PE {} calls the library that did not initialise it, but the program asked \
             for ThreadLevel::{:?} (SHMEM_THREAD_{}); ask for Serialized or Multiple",
            self.me,
            self.threads.level(),
            format!("{:?}", self.threads.level()).to_uppercase()
        )
    }

    /// Wakes the PE at a position of this node, which may sleep in a wait for memory that was just
    /// written.
    #[inline]
    pub(crate) fn ring(&self, local: usize) {
        debug_assert!(local < self.node.n_local());
        // SAFETY: the blocks of a node lie one behind the other.
        let block = unsafe { &*ptr::from_ref(self.neighbours.blocks).add(local) };
        block.doorbell.ring();
    }

    /// The network.
    ///
    /// # Panics
    /// If the job has only one node, where no caller asks.
    #[inline]
    pub(crate) fn network(&self) -> &Network {
        self.network
            .as_ref()
            .expect("a PE on another node exists only in jobs of several nodes")
    }

    /// Calls the network, for a stream of operations. A thread of this PE that waits for its memory is woken by the network itself, when that has
    /// written there for a peer or for an operation of this PE. Ends the job if the network fails.
    pub(crate) fn far<T>(
        &self,
        stream: Stream,
        call: impl FnOnce(Operations<'_>) -> Result<T, ConnError>,
    ) -> T {
        if sys::was_forked() {
            fault::is_no_pe();
        }
        self.or_die(call(stream.on(&self.network().endpoint)))
    }

    /// Takes in what other nodes have sent, without waiting. Returns whether there was anything.
    pub(crate) fn progress(&self) -> bool {
        let Some(network) = &self.network else {
            return false;
        };
        network.endpoint.progress()
    }

    /// Makes a range of this PE's segment accessible to other nodes. Ends the job if that fails: the
    /// others, whose devices did not refuse, are on their way to a barrier.
    pub(crate) fn register(&self, range: Range<usize>) {
        if let Some(network) = &self.network {
            let (endpoint, figures) = (&network.endpoint, &self.block.stats);
            // SAFETY: the segment stays mapped until the process ends.
            let done = unsafe {
                network
                    .registrar
                    .register(endpoint, self.neighbours.own.0, range, figures)
            };
            self.or_die(done.map_err(Error::from));
        }
    }

    /// Ends the job if something failed without which a one-sided program cannot go on: a peer, or what
    /// all PEs have to agree on.
    pub(crate) fn or_die<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> T {
        match result {
            Ok(value) => value,
            Err(e) => die(&e),
        }
    }
}

#[cold]
fn die(error: &dyn std::fmt::Display) -> ! {
    fault::fail(&error.to_string())
}
