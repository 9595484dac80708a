//! What a PE knows after init, and the one global that the free functions of the API use.

use std::ops::Deref;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use shmem_ib::connect::endpoint::{ConnError, Endpoint};
use shmem_ib::device::Device;
use shmem_ib::spin::SpinLimit;
use shmem_node::pe_block::PeBlock;
use shmem_node::segment::NodeView;
use shmem_node::turns::Turns;

use crate::context::Contexts;
use crate::heap::address::Ranges;
use crate::heap::alloc::Allocator;
use crate::life::ThreadLevel;
use crate::pmi::Pmi;
use crate::remote::Remote;
use crate::team::{Guard, Teams};

/// State of an initialised PE.
pub(crate) struct Runtime {
    pub(crate) me: usize,
    pub(crate) n_pes: usize,
    /// Position of this PE among its node's.
    pub(crate) local: usize,
    pub(crate) node: NodeView,
    pub(crate) my_node: u32,
    pub(crate) node_of: &'static [u32],
    pub(crate) local_of: &'static [u32],
    pub(crate) neighbours: Neighbours,
    /// This PE's segment.
    pub(crate) own: Segment,
    /// Where symmetric memory lies in this process.
    pub(crate) ranges: Ranges,
    pub(crate) block: &'static PeBlock,
    pub(crate) spin_limit: SpinLimit,
    /// When this PE looks while it sleeps.
    pub(crate) turns: Turns<'static>,
    pub(crate) heap: Mutex<Allocator>,
    /// Other nodes, if there are any.
    pub(crate) remote: Option<Remote>,
    /// Whether somebody rings when other nodes have written this PE's memory.
    pub(crate) notices_inbound: bool,
    pub(crate) contexts: Contexts,
    pub(crate) teams: Teams,
    pub(crate) caller: Caller,
    pub(crate) pmi: &'static Pmi,
}

/// The thread that may call the library, where the program has promised that only one does. Looked
/// at in debug builds.
#[derive(Debug)]
pub(crate) struct Caller {
    level: ThreadLevel,
    /// Address of the mark of the thread that called init. Only a check, so all accesses are relaxed.
    home: AtomicUsize,
}

/// Address that no two threads have in common.
fn mark() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| ptr::from_ref(mark) as usize)
}

impl Caller {
    /// The calling thread, which is in init.
    pub(crate) fn of(level: ThreadLevel) -> Self {
        Self {
            level,
            home: AtomicUsize::new(mark()),
        }
    }

    /// The calling thread takes the place of the one that called init: it ends the process.
    pub(crate) fn adopt(&self) {
        self.home.store(mark(), Ordering::Relaxed);
    }

    /// Whether the calling thread promises the same again.
    pub(crate) fn is_again(&self, level: ThreadLevel) -> bool {
        level == self.level && mark() == self.home.load(Ordering::Relaxed)
    }

    /// Whether the calling thread may call the library.
    fn may(&self) -> bool {
        self.level > ThreadLevel::Funneled || mark() == self.home.load(Ordering::Relaxed)
    }
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
    /// Segment of the first.
    segments: Segment,
    /// Bytes from one segment to the next.
    stride: usize,
    /// Block of the first; the others follow it.
    blocks: &'static PeBlock,
}

impl Neighbours {
    pub(crate) fn new(node: &NodeView) -> Self {
        let first = node.segment(0);
        let stride = match node.n_local() {
            1 => 0,
            _ => node.segment(1) as usize - first as usize,
        };
        Self {
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
            if cfg!(debug_assertions) && !rt.caller.may() {
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

/// The runtime in the hands of the one thread that may be in a collective of all PEs.
pub(crate) struct Collective(&'static Runtime, #[allow(dead_code)] Guard<'static>);

/// The runtime, for a collective of all PEs.
///
/// # Panics
/// If the PE is not initialised, or another thread is in a collective of the world team.
#[inline]
#[track_caller]
pub(crate) fn collective() -> Collective {
    let (rt, guard) = rt().teams.world.enter();
    Collective(rt, guard)
}

impl Deref for Collective {
    type Target = Runtime;
    fn deref(&self) -> &Runtime {
        self.0
    }
}

/// Makes `runtime` the global one.
pub(crate) fn install(runtime: &'static Runtime) {
    // ORDERING(runtime): pairs with `try_rt`.
    RUNTIME.store(ptr::from_ref(runtime).cast_mut(), Ordering::Release);
}

/// After finalize: calls fail with a clear message.
pub(crate) fn uninstall() {
    RUNTIME.store(ptr::null_mut(), Ordering::Release);
}

/// Where a PE's memory is.
pub(crate) enum Place {
    /// On this node.
    Here(Near),
    /// On another node: the PE's number in the job.
    There(usize),
}

/// A byte of a PE of this node.
#[derive(Clone, Copy)]
pub(crate) struct Near {
    pub(crate) at: *mut u8,
    /// Position of the PE on the node.
    pub(crate) local: usize,
}

impl Runtime {
    /// Begins another life: the heap is as `heap` says, and there are no contexts, teams or handles but
    /// those that always exist.
    pub(crate) fn renew(&self, heap: Allocator) {
        *self.heap.lock().unwrap_or_else(|e| e.into_inner()) = heap;
        self.contexts.renew();
        self.teams.renew();
    }

    /// Address of this PE's own byte at `offset` of the segment.
    #[inline]
    pub(crate) fn own(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.node.segment_len());
        // SAFETY: offsets come from handles, which stay inside the segment.
        unsafe { self.own.0.add(offset) }
    }

    /// Address of the byte at `offset` in the segment of a PE of this node.
    #[inline]
    pub(crate) fn neighbour(&self, local: usize, offset: usize) -> *mut u8 {
        debug_assert!(local < self.node.n_local());
        // SAFETY: the segments of a node lie at equal distances; as for `own`.
        unsafe {
            let near = &self.neighbours;
            near.segments.0.add(local * near.stride + offset)
        }
    }

    /// Where the byte at `offset` of `pe`'s segment is.
    ///
    /// # Panics
    /// If there is no such PE.
    #[inline]
    #[track_caller]
    pub(crate) fn place(&self, pe: usize, offset: usize) -> Place {
        match self.node_of.get(pe) {
            Some(&node) if node == self.my_node => {
                let local = self.local_of[pe] as usize;
                let at = self.neighbour(local, offset);
                Place::Here(Near { at, local })
            }
            Some(_) => Place::There(pe),
            None => self.no_such_pe(pe),
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
            self.caller.level,
            format!("{:?}", self.caller.level).to_uppercase()
        )
    }

    /// Whether `pe` is on this node.
    ///
    /// # Panics
    /// If there is no such PE.
    #[inline]
    #[track_caller]
    pub(crate) fn is_near(&self, pe: usize) -> bool {
        match self.node_of.get(pe) {
            Some(&node) => node == self.my_node,
            None => self.no_such_pe(pe),
        }
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
    pub(crate) fn remote(&self) -> &Remote {
        self.remote
            .as_ref()
            .expect("a PE on another node exists only in jobs of several nodes")
    }

    /// Calls the network, which takes in what other PEs have sent meanwhile: another thread of this
    /// PE may sleep for just that. Ends the job if the network fails.
    pub(crate) fn far<T>(&self, call: impl FnOnce(&Endpoint<Device>) -> Result<T, ConnError>) -> T {
        let remote = self.remote();
        let done = call(&remote.endpoint);
        // A get may have written what another thread of this PE waits for. What peers have written
        // was announced while it was taken in.
        self.block.doorbell.ring();
        self.or_die(done)
    }

    /// Takes in what other nodes have sent, without waiting. Returns whether there was anything.
    pub(crate) fn progress(&self) -> bool {
        let Some(remote) = &self.remote else {
            return false;
        };
        remote.endpoint.progress()
    }

    /// Completes what this PE has started, and waits for all PEs.
    pub(crate) fn barrier_all(&self) {
        self.team_barrier(&self.teams.world);
    }
}
