//! What the protocols stand on: PEs that are threads, and what they do to each other's memory.

use loom::thread;
use shmem_ib::atomic::{AtomicOp, Width};
use shmem_node::recording::Routine;
use shmem_node::waiting::Wait;
use shmem_testkit::models::fence;

use crate::heap::address::SymAddr;
use crate::memory;
use crate::sync::Ordering;

/// Where PEs are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// All on one node.
    Together,
    /// A node each.
    Apart,
    /// The first two on one node, and the others on another.
    Halves,
}

pub(crate) struct Runtime {
    pub(crate) me: usize,
    pub(crate) n_pes: usize,
    layout: Layout,
    pub(crate) threads: Threads,
    pub(crate) network: Option<Network>,
}

/// Words of a PE's stack.
const STACK: usize = 32 << 10;

/// Runs `f` as each of `n` PEs, who have words at these offsets of their segments.
pub(crate) fn job(
    n: usize,
    layout: Layout,
    words: &[usize],
    f: impl Fn(&Runtime) + Copy + Send + 'static,
) {
    memory::make(n, words);
    let pe = move |me| {
        f(&Runtime {
            me,
            n_pes: n,
            layout,
            threads: Threads,
            network: None,
        });
    };
    // Reductions have blocks on the stack.
    let spawn = |me| {
        thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || pe(me))
    };
    let pes: Vec<_> = (0..n).map(spawn).collect();
    for pe in pes {
        pe.unwrap().join().unwrap();
    }
}

impl Runtime {
    fn node(&self, pe: usize) -> usize {
        match self.layout {
            Layout::Together => 0,
            Layout::Apart => pe,
            Layout::Halves => pe / 2,
        }
    }

    pub(crate) fn own(&self, offset: usize) -> *mut u8 {
        memory::address(self.me, offset)
    }

    /// Models have one PE a node where this is asked.
    pub(crate) fn neighbour(&self, _local: usize, offset: usize) -> *mut u8 {
        self.own(offset)
    }

    /// # Safety
    /// As for the library's.
    pub(crate) unsafe fn put_raw(
        &self,
        pe: usize,
        offset: usize,
        from: *const u8,
        len: usize,
        _: Completion,
    ) {
        let to = memory::address(pe, offset);
        // SAFETY: by the caller.
        unsafe {
            match self.node(pe) == self.node(self.me) {
                true => memory::copy(from, to, len),
                false => memory::hca_write(from, to, len),
            }
        }
    }

    /// # Safety
    /// As for the library's.
    pub(crate) unsafe fn get_raw(
        &self,
        pe: usize,
        offset: usize,
        to: *mut u8,
        len: usize,
        _: Completion,
    ) {
        // SAFETY: by the caller.
        unsafe { memory::copy(memory::address(pe, offset), to, len) };
    }

    /// Puts one word, as a program does.
    pub(crate) fn put(&self, pe: usize, offset: usize, value: u64) {
        let from = (&raw const value).cast();
        // SAFETY: a local word.
        unsafe { self.put_raw(pe, offset, from, 8, Completion::OnReturn) };
    }

    /// What this PE has in a word, read as data.
    pub(crate) fn get(&self, pe: usize, offset: usize) -> u64 {
        let mut value = 0u64;
        // SAFETY: a local word.
        unsafe { memory::copy(memory::address(pe, offset), (&raw mut value).cast(), 8) };
        value
    }

    /// Waits for a word of this PE, as `wait_until` does.
    pub(crate) fn wait_until(&self, offset: usize, value: u64) {
        // SAFETY: a word of the segment.
        let loaded = || unsafe { memory::load(self.own(offset)) };
        while loaded() < value {
            memory::in_vain();
        }
    }

    pub(crate) fn quiet(&self) {
        fence(Ordering::SeqCst);
    }

    /// Completes what an HCA has to do, which here it has done at once.
    pub(crate) fn quiet_raw(&self) {}

    pub(crate) fn progress(&self) {
        thread::yield_now();
    }

    pub(crate) fn wait_for(&self, _what: impl Fn() -> Wait, mut ready: impl FnMut() -> bool) {
        while !ready() {
            memory::in_vain();
        }
    }

    pub(crate) fn in_collective(&self, _team: &Team) -> Wait {
        Wait::Init
    }

    pub(crate) fn scope(&self, _call: impl FnOnce() -> RecordedCall) -> Option<()> {
        None
    }

    pub(crate) fn send_blocks(
        &self,
        _who: (usize, usize),
        _pe: impl Fn(usize) -> usize,
        _dest: SymAddr,
        _source: SymAddr,
        _blocks: Blocks,
    ) {
        unreachable!("not modelled")
    }

    /// # Safety
    /// As for the library's.
    pub(crate) unsafe fn put_far(
        &self,
        _stream: (),
        dest: SymAddr,
        source: *const u8,
        bytes: usize,
        pe: usize,
        _until: Completion,
    ) -> bool {
        let to = memory::address(pe, dest.offset());
        // SAFETY: by the caller.
        unsafe { memory::hca_write(source, to, bytes) };
        false
    }
}

pub(crate) fn rt() -> &'static Runtime {
    unreachable!("models name the runtime that they mean")
}

pub(crate) struct Threads;

#[derive(PartialEq, PartialOrd)]
pub(crate) enum ThreadLevel {
    Single,
    Multiple,
}

impl Threads {
    pub(crate) fn level(&self) -> ThreadLevel {
        ThreadLevel::Single
    }
}

/// Nothing of it is modelled but what it writes.
pub(crate) struct Network {
    pub(crate) endpoint: Endpoint,
}
pub(crate) struct Endpoint;
impl Endpoint {
    pub(crate) fn connect_ahead(&self, _pes: impl Iterator<Item = u32>) {}
}

/// A context: that of a PE on the node of all others, or on one of its own.
#[derive(Clone, Copy)]
pub(crate) enum Ctx {
    Near,
    Far,
}

#[derive(Clone, Copy)]
pub(crate) enum Place {
    Near(Near),
    Far(usize),
}

#[derive(Clone, Copy)]
pub(crate) struct Near {
    pe: usize,
    offset: usize,
}

impl Near {
    pub(crate) fn at(self) -> *mut u8 {
        memory::address(self.pe, self.offset)
    }

    pub(crate) fn elsewhere(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// # Safety
    /// None; it is unsafe in the library.
    pub(crate) unsafe fn post(self, _width: Width, op: AtomicOp) {
        memory::post(self.at(), op);
    }
}

impl Ctx {
    pub(crate) fn default_ctx() -> Self {
        Self::Near
    }

    /// Of whatever PE calls: words and addresses tell all that these operations need.
    pub(crate) fn rt(&self) -> &'static Runtime {
        static ANY: Runtime = Runtime {
            me: 0,
            n_pes: 0,
            layout: Layout::Apart,
            threads: Threads,
            network: None,
        };
        &ANY
    }

    pub(crate) fn stream(&self) {}

    pub(crate) fn place(&self, pe: usize, offset: usize) -> Place {
        match self {
            Self::Near => Place::Near(Near { pe, offset }),
            Self::Far => Place::Far(pe),
        }
    }

    pub(crate) fn atomic(&self, at: SymAddr, _width: Width, op: AtomicOp, pe: usize) -> u64 {
        memory::atomic(memory::address(pe, at.offset()), op)
    }

    pub(crate) fn atomic_plain(&self, at: SymAddr, _width: Width, op: AtomicOp, pe: usize) {
        let to = memory::address(pe, at.offset());
        match self {
            Self::Near => memory::post(to, op),
            Self::Far => {
                memory::atomic(to, op);
            }
        }
    }

    pub(crate) fn release_sources_towards(&self, _rt: &Runtime, _pe: usize) {}
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    OnReturn,
    AtRelease,
    AtQuiet,
}

impl Completion {
    pub(crate) fn behind_others(self) -> Self {
        self
    }

    pub(crate) fn form(self, blocking: Routine, _other: Routine) -> Routine {
        blocking
    }
}

pub(crate) struct RecordedCall {
    pub(crate) at: usize,
}

impl RecordedCall {
    pub(crate) fn of(_routine: Routine) -> Self {
        Self { at: 0 }
    }

    pub(crate) fn on(_routine: Routine, _pe: usize, _bytes: usize, _at: SymAddr) -> Self {
        Self { at: 0 }
    }
}

#[derive(Clone, Copy)]
pub struct Blocks {
    pub count: usize,
    pub bytes: usize,
    pub dest_stride: usize,
    pub source_stride: usize,
}

/// # Safety
/// As for [`memory::copy`].
pub(crate) unsafe fn copy_blocks(from: *const u8, to: *mut u8, blocks: Blocks) {
    for i in 0..blocks.count {
        let (from, to) = (
            from.wrapping_add(i * blocks.source_stride),
            to.wrapping_add(i * blocks.dest_stride),
        );
        // SAFETY: by the caller.
        unsafe { memory::copy(from, to, blocks.bytes) };
    }
}

/// Of routines that are not modelled.
pub struct SymSlice<T>(std::marker::PhantomData<T>);

/// As [`SymSlice`].
pub trait Element<T> {
    fn one(self) -> SymSlice<T>;
}

impl<T> SymSlice<T> {
    pub(crate) fn as_ptr(&self) -> *const T {
        std::ptr::null()
    }
}

/// Where the team's slot is.
const SLOT: usize = 512 << 10;

/// The words of it that few leaders use.
pub(crate) fn slot_words() -> Vec<usize> {
    let flags = (0..2).flat_map(|k| [0, 8, 16].map(|of| slots::UP_FLAGS + k * slots::LINE + of));
    let counters = (0..4).map(|k| slots::COUNTERS + 8 * k);
    let staging = (0..2 * slots::PIECE)
        .step_by(8)
        .map(|at| slots::STAGING + at);
    let all = flags
        .chain(counters)
        .chain(staging)
        .chain([slots::DOWN_FLAG]);
    all.map(|at| SLOT + at).collect()
}

/// All PEs, each on a node of its own.
pub(crate) struct Team {
    pub(crate) me: usize,
    pub(crate) n: usize,
}

impl Team {
    pub(crate) fn n_pes(&self) -> usize {
        self.n
    }

    pub(crate) fn slot(&self, at: usize) -> usize {
        SLOT + at
    }

    /// A PE is a node here.
    pub(crate) fn mapping(&self) -> &Self {
        self
    }

    pub(crate) fn node(&self) -> usize {
        self.me
    }

    pub(crate) fn n_nodes(&self) -> usize {
        self.n
    }

    pub(crate) fn leader(&self, node: usize) -> usize {
        node
    }

    pub(crate) fn node_of(&self, rank: usize) -> usize {
        rank
    }

    pub(crate) fn n_here(&self) -> usize {
        1
    }

    pub(crate) fn local(&self, _i: usize) -> usize {
        0
    }
}

/// As the library's, with pieces of two words so that there are several.
pub(crate) mod slots {
    use crate::tree::MAX_CHILDREN;

    pub(crate) const LINE: usize = 64;
    pub(crate) const DOWN_FLAG: usize = 512;
    pub(crate) const UP_FLAGS: usize = DOWN_FLAG + LINE;
    pub(crate) const ARRIVED: usize = UP_FLAGS + 8;
    pub(crate) const ALLOWED: usize = UP_FLAGS + 16;
    pub(crate) const COUNTERS: usize = UP_FLAGS + MAX_CHILDREN * LINE;
    pub(crate) const STAGING: usize = 40 << 10;
    pub(crate) const PIECE: usize = 16;
}
