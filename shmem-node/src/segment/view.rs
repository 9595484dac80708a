//! Both memories of a node as a process maps them: what lies where, by name.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::error::{SegmentError, os};
use super::tables::{Header, KEY_AT, NodeTables};
use crate::absence::Absence;
use crate::address::{ADDRESS_LEN, Addresses, GROUP};
use crate::alike::Alike;
use crate::barrier::NodeBarrier;
use crate::gather::Gather;
use crate::hca_address::HcaAddresses;
use crate::kvs;
use crate::layout::{HeapLayout, INTERNAL_SIZE, REGION, TablesLayout};
use crate::pe_block::PeBlock;
use crate::recording::Recorder;
use crate::settings::CoreFile;
use crate::sys::Mapping;
use crate::template::marker::StaticsRoom;
use crate::traces::Traces;
use crate::turns::Turns;

/// Both memories of a node, mapped.
#[derive(Debug, Clone, Copy)]
pub struct NodeView {
    pub(super) header: Header,
    pub(super) tables: Mapping,
    pub(super) heap: Mapping,
    pub(super) tables_layout: TablesLayout,
    pub(super) heap_layout: HeapLayout,
}

impl NodeView {
    /// Maps the memories that the NLA passed to this PE.
    ///
    /// # Errors
    /// When the descriptors are not a node segment of this version, or cannot be mapped.
    pub fn attach(tables: BorrowedFd<'_>, heap: BorrowedFd<'_>) -> Result<Self, SegmentError> {
        let NodeTables {
            header,
            tables,
            layout: tl,
        } = NodeTables::attach(tables)?;
        let hl = header.heap_layout().ok_or(SegmentError::Foreign)?;
        header.is_heap(heap, hl.len)?;
        let heap =
            Mapping::aligned(heap, hl.len, hl.align).map_err(os("map the heap memory", hl.len))?;
        heap.keep_from_cores();
        if header.transparent != 0 {
            heap.prefer_huge_pages();
        }
        Ok(Self {
            header,
            tables,
            heap,
            tables_layout: tl,
            heap_layout: hl,
        })
    }

    fn u32s(&self, offset: usize, n: usize) -> &'static [u32] {
        // SAFETY: the NLA wrote these before any PE existed and nobody writes them again.
        unsafe { self.tables.slice(offset, n) }
    }

    /// The whole heap memory as this process maps it: the same bytes for all PEs of the node, at
    /// addresses that may differ.
    pub fn heap_window(&self) -> (*mut u8, usize) {
        let len = self.heap_layout.len;
        (self.heap.at(0, len), len)
    }

    /// Random name of the job.
    pub fn job_id(&self) -> [u8; 16] {
        self.header.job_id
    }

    /// Secret of the job, in memory that no core file holds.
    pub fn job_key(&self) -> &'static [u8; 32] {
        // SAFETY: the NLA wrote it before any PE existed and nobody writes it again.
        unsafe { self.tables.get(KEY_AT) }
    }

    /// Says what of the node's memory a core file of this process holds, which is the one at position
    /// `local`: at first nothing. The job's key is never in it.
    pub fn let_into_cores(&self, what: CoreFile, local: usize) {
        match what {
            CoreFile::None => {}
            CoreFile::Own => self.let_segment_into_cores(local),
            // A room that was made for what is in it.
            CoreFile::All if self.header.statics_layout != 0 || self.header.statics == 0 => {
                self.heap.let_into_cores(0, self.heap_layout.len);
                self.let_tables_into_cores();
            }
            CoreFile::All => {
                self.heap.let_into_cores(0, self.heap_layout.segments);
                (0..self.n_local()).for_each(|local| self.let_segment_into_cores(local));
                self.let_tables_into_cores();
            }
        }
    }

    /// But for the first page, which has the key.
    fn let_tables_into_cores(&self) {
        let first = self.tables_layout.node_of;
        self.tables.let_into_cores(first, self.tables.len() - first);
    }

    /// A segment without the room for static data: a core file takes what is empty for zeros, and what is in
    /// use of this process's own is in it at the program's addresses.
    fn let_segment_into_cores(&self, local: usize) {
        let at = self.heap_layout.segments + local * self.heap_layout.segment_stride;
        let (heap, len) = (self.heap_start(), self.segment_len());
        if heap == INTERNAL_SIZE {
            return self.heap.let_into_cores(at, len);
        }
        self.heap.let_into_cores(at, INTERNAL_SIZE);
        self.heap.let_into_cores(at + heap, len - heap);
    }

    /// PEs in the job.
    pub fn n_pes(&self) -> usize {
        self.header.n_pes as usize
    }

    /// Nodes in the job.
    pub fn n_nodes(&self) -> usize {
        self.header.n_nodes as usize
    }

    /// This node.
    pub fn node(&self) -> usize {
        self.header.node as usize
    }

    /// PEs on this node.
    pub fn n_local(&self) -> usize {
        self.header.n_local as usize
    }

    /// Bytes of each symmetric heap.
    pub fn heap_size(&self) -> usize {
        self.header.heap_size as usize
    }

    /// Where the user's heap begins in a segment.
    #[inline]
    pub fn heap_start(&self) -> usize {
        self.heap_layout.heap_start
    }

    /// The room for symmetric static data, which begins at [`INTERNAL_SIZE`].
    pub fn statics(&self) -> StaticsRoom {
        StaticsRoom {
            bytes: self.header.statics,
            layout: self.header.statics_layout,
        }
    }

    /// Where in the file of the heap memory a local PE's segment begins.
    pub fn segment_in_file(&self, local: usize) -> u64 {
        debug_assert!(local < self.n_local());
        (self.heap_layout.segments + local * self.heap_layout.segment_stride) as u64
    }

    /// Addresses of the software HCAs; `None` if the launcher wrote what this version cannot read.
    pub fn hca_addresses(&self) -> Option<HcaAddresses> {
        HcaAddresses::from_bytes(&self.header.hca_addresses)
    }

    /// PEs of the job on this machine, also those of other emulated nodes.
    pub fn on_machine(&self) -> usize {
        self.header.on_machine as usize
    }

    /// Polls before a waiting PE sleeps.
    pub fn spins(&self) -> u32 {
        self.header.spins
    }

    /// Whether a report was asked for.
    pub fn report(&self) -> bool {
        self.header.report != 0
    }

    /// The room in which a local PE records what it calls, if it is to.
    pub fn recorder(&self, local: usize) -> Option<Recorder> {
        assert!(local < self.n_local(), "local PE {local}");
        let HeapLayout {
            recordings,
            recording_len,
            ..
        } = self.heap_layout;
        let (at, n) = (
            recordings + local * recording_len,
            recording_len / size_of::<AtomicU64>(),
        );
        // SAFETY: the layout has a room there, which is nothing else's; it consists of atomics.
        let words = (n > 0).then(|| unsafe { self.heap.slice(at, n) })?;
        Some(Recorder::new(
            words,
            self.n_pes(),
            self.header.calls as usize,
        ))
    }

    /// Node of each rank.
    #[inline]
    pub fn node_of(&self) -> &'static [u32] {
        self.u32s(self.tables_layout.node_of, self.n_pes())
    }

    /// Position of each rank among its node's PEs.
    #[inline]
    pub fn local_of(&self) -> &'static [u32] {
        self.u32s(self.tables_layout.local_of, self.n_pes())
    }

    /// Lowest rank of each node.
    pub fn leader_of(&self) -> &'static [u32] {
        self.u32s(self.tables_layout.leader_of, self.n_nodes())
    }

    /// Ranks of this node, ascending.
    pub fn ranks(&self) -> &'static [u32] {
        self.u32s(self.tables_layout.ranks, self.n_local())
    }

    /// Results of PMI's allgathers.
    pub fn gather(&self) -> Gather {
        Gather::new(self.tables, self.tables_layout.gather, self.n_pes())
    }

    /// The UD addresses of all PEs, as far as they have come.
    pub fn addresses(&self) -> Gather {
        Gather::new(self.tables, self.tables_layout.addresses, self.n_pes())
    }

    pub(super) fn kvs_locks(&self) -> Option<kvs::Locks> {
        let (kind, at) = (self.header.store(), HeapLayout::KVS_LOCKS);
        // SAFETY: the layout keeps that place for them.
        unsafe { kvs::Locks::new(kind, &self.heap, at, self.n_local()) }
    }

    /// The key-value store, for the PE at position `local` of its node.
    ///
    /// # Panics
    /// If the node has no such PE.
    pub fn kvs(&self, local: usize) -> kvs::Reader {
        assert!(local < self.n_local(), "local PE {local}");
        let (kvs, locks) = (self.tables_layout.kvs, self.kvs_locks());
        // SAFETY: the layouts are those of the memories.
        unsafe { kvs::Reader::new(self.tables, kvs, self.header.store(), locks, local) }
    }

    /// The meeting point of the node's PEs.
    pub fn barrier(&self) -> &'static NodeBarrier {
        // SAFETY: the layout keeps the first region for it; it consists of atomics and zero is its
        // initial state.
        unsafe { self.heap.get(0) }
    }

    /// Where in the first region of the heap memory they are noted.
    const ABSENCE: usize = size_of::<NodeBarrier>();

    /// PEs of the node that ended without initialising.
    pub fn absence(&self) -> &'static Absence {
        // SAFETY: behind the barrier in the first region, aligned as the barrier is; it consists of
        // atomics and zero is its initial state.
        unsafe { self.heap.get(Self::ABSENCE) }
    }

    /// Where in the first region of the heap memory their turns are told.
    const TURNS: usize = Self::ABSENCE + size_of::<Absence>();

    /// Whether the static data of all PEs of the node is laid out alike.
    pub fn alike(&self) -> &'static Alike {
        const AT: usize =
            (NodeView::TURNS + size_of::<AtomicU32>()).next_multiple_of(align_of::<Alike>());
        const { assert!(AT + size_of::<Alike>() + size_of::<Traces>() <= REGION) };
        // SAFETY: behind the turns in the first region, aligned; it consists of atomics and zero is its initial state.
        unsafe { self.heap.get(AT) }
    }

    /// At which times the sleepers of the node look.
    pub fn turns(&self) -> Turns<'static> {
        const AT: usize = NodeView::TURNS;
        let nodes = self.on_machine().div_ceil(self.n_local());
        // SAFETY: behind the note of who is absent, which is a word; it is an atomic, and zero is its
        // initial state.
        Turns::new(unsafe { self.heap.get(AT) }, nodes as u32)
    }

    /// Backtraces that the node's PEs have told.
    pub fn traces(&self) -> &'static Traces {
        const AT: usize = REGION - size_of::<Traces>();
        // SAFETY: at the end of the region of whose beginning the others take a little; it consists of
        // atomics, and zero is its initial state.
        unsafe { self.heap.get(AT) }
    }

    /// Block of a local PE.
    #[inline]
    pub fn pe_block(&self, local: usize) -> &'static PeBlock {
        assert!(
            local < self.n_local(),
            "local PE {local} of {}",
            self.n_local()
        );
        // SAFETY: the layout has a block there; it consists of atomics and zero is its initial
        // state.
        unsafe {
            self.heap
                .get(self.heap_layout.pe_blocks + local * size_of::<PeBlock>())
        }
    }

    /// Leaves the address of the PE at position `local` for its `life`th life, counted from 1. Gives those of
    /// its group, if it is the last one.
    ///
    /// Nobody leaves an address of the next life before all have left theirs of this one and the agent has read
    /// them: the end of a life of a job of several nodes takes the addresses of all.
    pub fn leave_address(
        &self,
        local: usize,
        life: u32,
        address: &[u8; ADDRESS_LEN],
    ) -> Option<Addresses> {
        self.pe_block(local).address.set(address);
        let first = local / GROUP * GROUP;
        let count = GROUP.min(self.n_local() - first);
        let left = self.pe_block(first).address.count();
        (left == life.wrapping_mul(count as u32)).then(|| Addresses {
            first,
            count,
            bytes: (first..first + count)
                .flat_map(|pe| self.pe_block(pe).address.bytes())
                .collect(),
        })
    }

    /// First byte of a local PE's symmetric segment: [`INTERNAL_SIZE`] bytes of the runtime's own,
    /// then static data, then the heap.
    #[inline]
    pub fn segment(&self, local: usize) -> *mut u8 {
        debug_assert!(local < self.n_local());
        let at = self.heap_layout.segments + local * self.heap_layout.segment_stride;
        self.heap.at(at, self.segment_len())
    }

    /// The bits of an aligned word of a local PE's segment, of 2, 4 or 8 bytes, whoever writes it; `None` if
    /// there is no such word.
    pub fn peek(&self, local: usize, at: u64, size: usize) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(size)?;
        if local >= self.n_local() || end > self.segment_len() || !at.is_multiple_of(size) {
            return None;
        }
        let word = self.segment(local).wrapping_add(at);
        // SAFETY: mapped and aligned, as was checked: segments are aligned to more than a word. Others
        // write it, so it is loaded as an atomic.
        unsafe {
            Some(match size {
                2 => AtomicU16::from_ptr(word.cast())
                    .load(Ordering::Relaxed)
                    .into(),
                4 => AtomicU32::from_ptr(word.cast())
                    .load(Ordering::Relaxed)
                    .into(),
                8 => AtomicU64::from_ptr(word.cast()).load(Ordering::Relaxed),
                _ => return None,
            })
        }
    }

    /// What every PE's segment is aligned to, in this process too.
    pub fn segment_align(&self) -> usize {
        self.heap_layout.align
    }

    /// Bytes of a symmetric segment.
    #[inline]
    pub fn segment_len(&self) -> usize {
        self.heap_layout.segment_len
    }
}
