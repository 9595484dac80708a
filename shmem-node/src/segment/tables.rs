//! The tables memory of a node: its first page, and mapping it for reading.
//!
//! Apart from the heap memory, because a process that only speaks PMI has no heap.

use std::os::fd::BorrowedFd;

use super::JobFacts;
use super::error::{SegmentError, holds, of_tables, os};
use crate::gather::Gather;
use crate::hca_address::HcaAddresses;
use crate::kvs;
use crate::layout::{HeapLayout, Pages, REGION, TablesLayout};
use crate::pages;
use crate::recording;
use crate::settings::{HeapPages, StoreKind};
use crate::sys::{self, Mapping};
use crate::template::marker::StaticsRoom;

pub(crate) const MAGIC: u64 = 0x5348_4d45_4d4e_4f31; // "SHMEMNO1"

/// First page of the tables, but for the key behind it. Plain data: written before any PE exists.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) magic: u64,
    pub(crate) job_id: [u8; 16],
    pub(crate) n_pes: u32,
    pub(crate) n_nodes: u32,
    pub(crate) node: u32,
    pub(crate) n_local: u32,
    pub(crate) on_machine: u32,
    pub(crate) heap_size: u64,
    pub(crate) statics: u64,
    pub(crate) statics_layout: u64,
    /// Bytes of a page, and of one of the heaps, as far as their layout goes.
    pub(crate) page: u64,
    pub(crate) heap_page: u64,
    /// Which file the heap memory is.
    pub(crate) heap_file: sys::FileId,
    /// Whether to ask for huge pages.
    pub(crate) transparent: u32,
    pub(crate) spins: u32,
    pub(crate) report: u32,
    /// Calls that each PE has room to record; 0 where nobody does.
    pub(crate) calls: u32,
    /// A [`StoreKind`].
    pub(crate) store: u32,
    pub(crate) store_log: u64,
    pub(crate) hca_addresses: [u8; HcaAddresses::LEN],
}

/// Where the job's key lies: behind the header, of which there are copies, in a page that is in no
/// core file.
pub(crate) const KEY_AT: usize = size_of::<Header>();
const _: () = assert!(KEY_AT + size_of::<[u8; 32]>() <= REGION);

impl Header {
    /// What the facts say. The caller sets `heap_file` when it has made the heap memory.
    pub(super) fn new(facts: &JobFacts<'_>, n_local: usize) -> Result<Self, SegmentError> {
        let statics = match facts.heap_pages {
            HeapPages::Huge => StaticsRoom::default(),
            HeapPages::Default | HeapPages::Transparent => facts.statics,
        };
        Ok(Self {
            magic: MAGIC,
            job_id: facts.job_id,
            n_pes: facts.node_of.len() as u32,
            n_nodes: facts.n_nodes,
            node: facts.node,
            n_local: n_local as u32,
            on_machine: facts.on_machine,
            heap_size: facts.heap_size,
            statics: statics.bytes,
            statics_layout: statics.layout,
            page: sys::page_size() as u64,
            heap_page: pages::of_heaps(facts.heap_pages)? as u64,
            heap_file: [0; 2],
            transparent: u32::from(facts.heap_pages == HeapPages::Transparent),
            spins: facts.spins,
            report: u32::from(facts.report),
            calls: facts.calls,
            store: facts.store.kind as u32,
            store_log: facts.store.log_len,
            hca_addresses: facts.hca_addresses.to_bytes(),
        })
    }

    /// The sizes of pages, if they can be such.
    fn pages(&self) -> Option<Pages> {
        let size = |bytes: u64| {
            let size = usize::try_from(bytes).ok();
            size.filter(|size| size.is_power_of_two() && *size >= REGION)
        };
        let (usual, heap) = (size(self.page)?, size(self.heap_page)?);
        (heap >= usual).then_some(Pages { usual, heap })
    }

    /// The layout of the tables, if there can be such.
    pub(crate) fn tables_layout(&self) -> Option<TablesLayout> {
        Some(TablesLayout::new(
            self.n_pes as usize,
            self.n_nodes as usize,
            self.n_local as usize,
            self.store_log as usize,
            self.pages()?.usual,
        ))
    }

    /// The layout of the heap memory, if there can be such.
    pub(crate) fn heap_layout(&self) -> Option<HeapLayout> {
        let recording_len = match self.calls {
            0 => 0,
            calls => recording::room(self.n_pes as usize, calls as usize)?,
        };
        HeapLayout::new(
            self.n_local as usize,
            self.statics,
            self.heap_size,
            self.pages()?,
            recording_len,
        )
    }

    /// Whether a descriptor is that of the heap memory, which has `len` bytes or more.
    pub(crate) fn is_heap(&self, heap: BorrowedFd<'_>, len: usize) -> Result<(), SegmentError> {
        match sys::file_id(heap) {
            Ok(file) if file == self.heap_file => holds(heap, len),
            Ok(_) => Err(SegmentError::ForeignHeap),
            Err(e) => Err(os("look at the heap memory", len)(e)),
        }
    }

    /// How PEs read the key-value store. A number that this version does not know was refused before.
    pub(crate) fn store(&self) -> StoreKind {
        StoreKind::from_number(self.store).unwrap_or(StoreKind::Message)
    }
}

/// The tables of a node alone, mapped for reading: for a process that speaks PMI but has no
/// symmetric heap.
#[derive(Debug, Clone, Copy)]
pub struct NodeTables {
    pub(crate) header: Header,
    pub(crate) tables: Mapping,
    pub(crate) layout: TablesLayout,
}

impl NodeTables {
    /// Maps the tables that the NLA passed to this process.
    ///
    /// # Errors
    /// When the descriptor is not that of tables of this version, or cannot be mapped.
    pub fn attach(tables: BorrowedFd<'_>) -> Result<Self, SegmentError> {
        holds(tables, REGION)?;
        let first = Mapping::new(tables, REGION, false).map_err(of_tables(REGION))?;
        first.keep_from_cores();
        // SAFETY: the header was complete before this process existed and is never written again.
        let header = unsafe { *first.get::<Header>(0) };
        if header.magic != MAGIC || StoreKind::from_number(header.store).is_none() {
            return Err(SegmentError::Foreign);
        }
        let layout = header.tables_layout().ok_or(SegmentError::Foreign)?;
        holds(tables, layout.len)?;
        let tables = Mapping::new(tables, layout.len, false).map_err(of_tables(layout.len))?;
        tables.keep_from_cores();
        Ok(Self {
            header,
            tables,
            layout,
        })
    }

    /// Random name of the job.
    pub fn job_id(&self) -> [u8; 16] {
        self.header.job_id
    }

    /// Processes in the job.
    pub fn n_pes(&self) -> usize {
        self.header.n_pes as usize
    }

    /// Processes on this node.
    pub fn n_local(&self) -> usize {
        self.header.n_local as usize
    }

    /// Results of PMI allgathers.
    pub fn gather(&self) -> Gather {
        Gather::new(self.tables, self.layout.gather, self.n_pes())
    }

    /// The key-value store, for the process at position `local` of its node. `heap` is the heap
    /// memory's descriptor, of which only the beginning is mapped, and only if the store has locks,
    /// which lie there.
    ///
    /// # Errors
    /// When that memory cannot be mapped, or the node has no such process.
    pub fn kvs(&self, heap: BorrowedFd<'_>, local: usize) -> Result<kvs::Reader, SegmentError> {
        let n_local = self.header.n_local as usize;
        if local >= n_local {
            return Err(SegmentError::Foreign);
        }
        let kind = self.header.store();
        let locks = match kind {
            StoreKind::Shared | StoreKind::Message => None,
            StoreKind::RwLock | StoreKind::TwoN => {
                let pages = self.header.pages().ok_or(SegmentError::Foreign)?;
                let len = (HeapLayout::KVS_LOCKS + kvs::Locks::len(n_local))
                    .checked_next_multiple_of(pages.heap)
                    .ok_or(SegmentError::Foreign)?;
                self.header.is_heap(heap, len)?;
                let heap = Mapping::new(heap, len, true)
                    .map_err(os("map the locks of the key-value store", len))?;
                // SAFETY: the layout of the heap memory keeps that place for them.
                unsafe { kvs::Locks::new(kind, &heap, HeapLayout::KVS_LOCKS, n_local) }
            }
        };
        // SAFETY: the layouts are those of the memories.
        Ok(unsafe { kvs::Reader::new(self.tables, self.layout.kvs, kind, locks, local) })
    }
}
