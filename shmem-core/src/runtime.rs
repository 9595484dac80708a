//! What a PE knows after init, and the one global that the free functions of the API use.

use std::ops::Deref;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use shmem_ib::connect::endpoint::{ConnError, Endpoint};
use shmem_ib::device::Device;
use shmem_ib::patience::Patience;
use shmem_node::pe_block::PeBlock;
use shmem_node::segment::NodeView;

use crate::collectives::Links;
use crate::context::Contexts;
use crate::heap::address::Ranges;
use crate::heap::alloc::Allocator;
use crate::pmi::Pmi;
use crate::remote::Remote;

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
    /// This PE's segment.
    pub(crate) own: Segment,
    /// Where symmetric memory lies in this process.
    pub(crate) ranges: Ranges,
    pub(crate) block: &'static PeBlock,
    pub(crate) patience: Patience,
    pub(crate) heap: Mutex<Allocator>,
    /// Other nodes, if there are any.
    pub(crate) remote: Option<Remote>,
    /// Whether somebody rings when other nodes have written this PE's memory.
    pub(crate) notices_inbound: bool,
    pub(crate) links: Links,
    pub(crate) contexts: Contexts,
    /// Whether a thread is in a collective.
    pub(crate) meeting: AtomicBool,
    pub(crate) pmi: Pmi,
}

/// First byte of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Segment(pub(crate) *mut u8);

// SAFETY: an address in a mapping that lives until the process ends; its use follows the rules of
// the heap module, whichever thread it is.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(ptr::null_mut());

/// The runtime, if the PE is initialised.
pub(crate) fn try_rt() -> Option<&'static Runtime> {
    // ORDERING(runtime): pairs with `install`.
    // SAFETY: the pointer is null or came from a leaked box.
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
        Some(rt) => rt,
        None => panic!("shmem::init() has not been called, or finalize already has"),
    }
}

/// The runtime in the hands of the one thread that may be in a collective.
///
/// Two threads in collectives at once would mix up rounds and, in a leader, write the same
/// buffers. That is a mistake of the program (OpenSHMEM 1.6, thread support: the program orders the
/// collectives of its threads), so it has to be found, not obeyed.
pub(crate) struct Collective(&'static Runtime);

/// The runtime, for a collective.
///
/// # Panics
/// If the PE is not initialised, or another thread is in a collective.
#[inline]
#[track_caller]
pub(crate) fn collective() -> Collective {
    let rt = rt();
    // ORDERING(collective): a thread sees what the one before it has done in collectives.
    if rt.meeting.swap(true, Ordering::Acquire) {
        rt.crowded();
    }
    Collective(rt)
}

impl Deref for Collective {
    type Target = Runtime;
    fn deref(&self) -> &Runtime {
        self.0
    }
}

impl Drop for Collective {
    fn drop(&mut self) {
        // ORDERING(collective): pairs with `collective`.
        self.0.meeting.store(false, Ordering::Release);
    }
}

/// Makes `runtime` the global one. It is leaked: handles and the progress thread may outlive
/// finalize, and the process ends soon after.
pub(crate) fn install(runtime: Runtime) -> &'static Runtime {
    let leaked: &'static mut Runtime = Box::leak(Box::new(runtime));
    // ORDERING(runtime): pairs with `try_rt`.
    RUNTIME.store(leaked, Ordering::Release);
    leaked
}

/// After finalize: calls fail with a clear message.
pub(crate) fn uninstall() {
    RUNTIME.store(ptr::null_mut(), Ordering::Release);
}

/// Where a PE's memory is.
pub(crate) enum Place {
    /// On this node: the address.
    Here(*mut u8),
    /// On another node.
    There,
}

impl Runtime {
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
        // SAFETY: as for `own`.
        unsafe { self.node.segment(local).add(offset) }
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
                Place::Here(self.neighbour(self.local_of[pe] as usize, offset))
            }
            Some(_) => Place::There,
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
    fn crowded(&self) -> ! {
        panic!(
            "two threads of PE {} are in collectives at once; let one thread call them, or lock",
            self.me
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

    /// Wakes a PE of this node that may sleep in a wait for memory that was just written.
    #[inline]
    pub(crate) fn ring(&self, pe: usize) {
        self.node
            .pe_block(self.local_of[pe] as usize)
            .doorbell
            .ring();
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

    /// Whether this PE acts for its node in collectives.
    pub(crate) fn is_leader(&self) -> bool {
        self.local == 0
    }

    /// PEs of this node.
    pub(crate) fn n_local(&self) -> u32 {
        self.node.n_local() as u32
    }
}
