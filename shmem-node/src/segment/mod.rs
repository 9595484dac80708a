//! The node segment: made by the NLA ([`NodeSegment`]), mapped by the PEs ([`NodeView`]).

mod error;
pub mod tables;
mod view;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub use error::SegmentError;
pub use view::NodeView;

use crate::hca_address::HcaAddresses;
use crate::kvs::{self, StorePlan};
use crate::layout::HeapLayout;
use crate::pages;
use crate::pe_block::{PeBlock, PeState};
use crate::settings::{HeapCommit, HeapPages};
use crate::stats::PeStats;
use crate::sys::{self, Mapping};
use crate::template::marker::StaticsRoom;
use error::os;
use tables::{Header, KEY_AT};

/// What the NLA knows about the job when it makes the node segment.
#[derive(Debug, Clone)]
pub struct JobFacts<'a> {
    /// Random name of the job.
    pub job_id: [u8; 16],
    /// Random secret of the job: authenticates connection messages.
    pub job_key: [u8; 32],
    /// Node of each rank; its length is the number of PEs. Every node has at least one.
    pub node_of: &'a [u32],
    /// Number of nodes.
    pub n_nodes: u32,
    /// This node.
    pub node: u32,
    /// PEs of the job on this machine: those of all its emulated nodes.
    pub on_machine: u32,
    /// Bytes of each PE's symmetric heap.
    pub heap_size: u64,
    /// Room for each PE's symmetric static data. There is none on huge pages that are set aside: the
    /// pages of a program's data are smaller.
    pub statics: StaticsRoom,
    /// When the heaps get memory.
    pub heap_commit: HeapCommit,
    /// What pages they have.
    pub heap_pages: HeapPages,
    /// The key-value store.
    pub store: StorePlan,
    /// Addresses of the software HCAs.
    pub hca_addresses: HcaAddresses,
    /// Polls before a waiting PE sleeps: 0 where PEs outnumber cores.
    pub spins: u32,
    /// Whether PEs should measure what `--report` shows but costs time (memory).
    pub report: bool,
    /// Calls that each PE has room to record; 0 if it is not to.
    pub calls: u32,
}

/// The memories as the NLA holds them.
#[derive(Debug)]
pub struct NodeSegment {
    tables_fd: OwnedFd,
    heap_fd: OwnedFd,
    xrc_fd: OwnedFd,
    view: NodeView,
    has_writer: bool,
}

impl NodeSegment {
    /// Makes the memories of one node.
    ///
    /// # Errors
    /// When sizes overflow, or the kernel refuses memory (with `reserve`: when the heaps do not
    /// fit).
    ///
    /// # Panics
    /// If the facts contradict each other (no PE on this node, a node out of range).
    pub fn create(facts: &JobFacts<'_>) -> Result<Self, SegmentError> {
        let ranks: Vec<u32> = (0u32..)
            .zip(facts.node_of)
            .filter(|&(_, &node)| node == facts.node)
            .map(|(rank, _)| rank)
            .collect();
        let n_local = ranks.len();
        assert!(n_local > 0, "node {} has no PE", facts.node);
        let mut header = Header::new(facts, n_local)?;
        let layouts = header.tables_layout().zip(header.heap_layout());
        let (tl, hl) = layouts.ok_or(SegmentError::TooLarge {
            n_local,
            heap_size: facts.heap_size,
            statics: header.statics,
            limit: None,
        })?;

        let (tables_fd, tables) = tables_memory(tl.len)?;
        let (heap_fd, heap) = heap_memory(facts, n_local, &hl)?;
        header.heap_file =
            sys::file_id(heap_fd.as_fd()).map_err(os("look at the heap memory", hl.len))?;

        // Empty: the HCA of the first PE that uses it gives it a size. Not sealed for that reason.
        let xrc_fd = sys::memfd(c"shmem-xrc", 0).map_err(os("make the file of XRC", 0))?;

        let (local_of, leader_of) = places(facts);
        // SAFETY: the mapping is new and ours alone; the layout keeps the regions in bounds and
        // apart, and all of this is plain old data.
        unsafe {
            tables
                .at(0, size_of::<Header>())
                .cast::<Header>()
                .write(header);
            tables
                .at(KEY_AT, facts.job_key.len())
                .copy_from_nonoverlapping(facts.job_key.as_ptr(), facts.job_key.len());
            write_u32s(&tables, tl.node_of, facts.node_of);
            write_u32s(&tables, tl.local_of, &local_of);
            write_u32s(&tables, tl.leader_of, &leader_of);
            write_u32s(&tables, tl.ranks, &ranks);
        }
        let view = NodeView {
            header,
            tables,
            heap,
            tables_layout: tl,
            heap_layout: hl,
        };
        Ok(Self {
            tables_fd,
            heap_fd,
            xrc_fd,
            view,
            has_writer: false,
        })
    }

    /// Descriptor of the tables; PEs get it at [`crate::contract::Descriptors::tables`].
    pub fn tables_fd(&self) -> BorrowedFd<'_> {
        self.tables_fd.as_fd()
    }

    /// Descriptor of the heap; PEs get it at [`crate::contract::Descriptors::heap`].
    pub fn heap_fd(&self) -> BorrowedFd<'_> {
        self.heap_fd.as_fd()
    }

    /// Descriptor of the XRC domain's file; PEs get it at [`crate::contract::Descriptors::xrc`].
    pub fn xrc_fd(&self) -> BorrowedFd<'_> {
        self.xrc_fd.as_fd()
    }

    /// The mapped memories.
    pub fn view(&self) -> &NodeView {
        &self.view
    }

    /// Stores an allgather's result for the node's PEs; see [`Gather::publish`](crate::gather::Gather::publish).
    pub fn publish_gather(&self, request: u32, value_len: usize, values: &[u8]) {
        self.view.gather().publish(request, value_len, values);
    }

    /// The key-value store, for writing. There is one writer, so the second call gives `None`.
    pub fn kvs_writer(&mut self) -> Option<kvs::Writer> {
        let view = &self.view;
        let (kvs, locks) = (view.tables_layout.kvs, view.kvs_locks());
        (!std::mem::replace(&mut self.has_writer, true)).then(|| {
            // SAFETY: the layouts are those of the memories, and this mapping is writable.
            unsafe { kvs::Writer::new(view.tables, kvs, view.header.store(), locks) }
        })
    }

    /// How far a local PE has come.
    pub fn pe_state(&self, local: usize) -> PeState {
        self.view.pe_block(local).state()
    }

    /// A local PE's figures.
    pub fn pe_stats(&self, local: usize) -> PeStats {
        self.view.pe_block(local).stats.read()
    }
}

/// The position of each rank among the PEs of its node, and the lowest rank of each node.
fn places(facts: &JobFacts<'_>) -> (Vec<u32>, Vec<u32>) {
    let mut leader_of = vec![u32::MAX; facts.n_nodes as usize];
    let mut next_local = vec![0; facts.n_nodes as usize];
    let local_of = (0..).zip(facts.node_of).map(|(rank, &node)| {
        let leader = &mut leader_of[node as usize];
        *leader = rank.min(*leader);
        let next: &mut u32 = &mut next_local[node as usize];
        *next += 1;
        *next - 1
    });
    (local_of.collect(), leader_of)
}

/// Makes and maps the memory of a node's tables.
fn tables_memory(len: usize) -> Result<(OwnedFd, Mapping), SegmentError> {
    let fd = sys::memfd(c"shmem-tables", len as u64).map_err(os("make the tables memory", len))?;
    let tables = Mapping::new(fd.as_fd(), len, true).map_err(os("map the tables memory", len))?;
    tables.keep_from_cores();
    sys::seal(fd.as_fd(), true).map_err(os("seal the tables memory", len))?;
    Ok((fd, tables))
}

/// Makes and maps the memory of a node's heaps.
fn heap_memory(
    facts: &JobFacts<'_>,
    n_local: usize,
    layout: &HeapLayout,
) -> Result<(OwnedFd, Mapping), SegmentError> {
    let len = layout.len;
    let huge = facts.heap_pages == HeapPages::Huge;
    let make = if huge { sys::huge_memfd } else { sys::memfd };
    let fd = make(c"shmem-heap", len as u64).map_err(os("make the heap memory", len))?;
    sys::seal(fd.as_fd(), false).map_err(os("seal the heap memory", len))?;
    let heap = if huge {
        Mapping::reserving(fd.as_fd(), len).map_err(|e| match e.kind() {
            io::ErrorKind::OutOfMemory => pages::too_few(len).into(),
            _ => os("map the heap memory", len)(e),
        })?
    } else {
        Mapping::aligned(fd.as_fd(), len, layout.align).map_err(|e| match e.kind() {
            io::ErrorKind::OutOfMemory => SegmentError::TooLarge {
                n_local,
                heap_size: facts.heap_size,
                statics: facts.statics.bytes,
                limit: sys::address_limit(),
            },
            _ => os("map the heap memory", len)(e),
        })?
    };
    heap.keep_from_cores();
    if facts.heap_commit == HeapCommit::Reserve {
        let reserve = |from: usize, len: usize| {
            sys::reserve(fd.as_fd(), from as u64, len as u64)
                .map_err(os("reserve memory for the symmetric heaps", layout.len))
        };
        if huge {
            reserve(0, len)?;
        } else {
            // What lies between segments is never touched.
            reserve(0, layout.pe_blocks + n_local * size_of::<PeBlock>())?;
            for local in 0..n_local {
                let at = layout.segments + local * layout.segment_stride;
                reserve(at, layout.segment_len)?;
            }
        }
    }
    if facts.heap_pages == HeapPages::Transparent {
        heap.prefer_huge_pages();
    }
    Ok((fd, heap))
}

/// # Safety
/// Nobody else uses the region.
unsafe fn write_u32s(map: &Mapping, offset: usize, values: &[u32]) {
    let to = map.at(offset, size_of_val(values));
    // SAFETY: in bounds by `at`, exclusive by the caller.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), to, size_of_val(values)) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{AGREED_ALIGN, GATHER_SLOTS, INTERNAL_SIZE};
    use std::time::Duration;

    fn facts(node_of: &[u32], node: u32) -> JobFacts<'_> {
        JobFacts {
            job_id: [7; 16],
            job_key: [9; 32],
            node_of,
            n_nodes: 3,
            node,
            on_machine: 5,
            heap_size: 10_000,
            statics: StaticsRoom {
                bytes: 8192,
                layout: 77,
            },
            heap_commit: HeapCommit::Lazy,
            heap_pages: HeapPages::Default,
            store: StorePlan::NONE,
            hca_addresses: HcaAddresses::shared("127.3.2.1".parse().unwrap()),
            spins: 5,
            report: true,
            calls: 0,
        }
    }

    #[test]
    fn a_pe_sees_what_the_agent_made() {
        let node_of = [0, 1, 1, 2, 1];
        let seg = NodeSegment::create(&facts(&node_of, 1)).unwrap();
        let view = NodeView::attach(seg.tables_fd(), seg.heap_fd()).unwrap();
        assert_eq!(
            (view.n_pes(), view.n_nodes(), view.node(), view.n_local()),
            (5, 3, 1, 3)
        );
        assert_eq!(view.ranks(), [1, 2, 4]);
        assert_eq!(view.local_of(), [0, 0, 1, 0, 2]);
        assert_eq!(view.leader_of(), [0, 1, 3]);
        assert_eq!(view.node_of(), node_of);
        assert_eq!(view.hca_addresses(), Some(facts(&node_of, 1).hca_addresses));
        assert_eq!((view.job_id(), view.job_key()), ([7; 16], &[9; 32]));
        view.pe_block(2).set_state(PeState::Running);
        assert_eq!(seg.pe_state(2), PeState::Running);
        assert_eq!(seg.pe_state(1), PeState::Fresh);
        let gap = view.segment(1) as usize - view.segment(0) as usize;
        assert_eq!(
            gap,
            view.segment_in_file(1) as usize - view.segment_in_file(0) as usize
        );
        assert!(gap.is_multiple_of(view.segment_align()));
        assert_eq!(view.heap_start(), INTERNAL_SIZE + AGREED_ALIGN);
        assert_eq!(view.segment_len(), view.heap_start() + 10_000);
        assert_eq!(view.statics(), facts(&node_of, 1).statics);
        for view in [&view, seg.view()] {
            assert!((view.segment(2) as usize).is_multiple_of(view.segment_align()));
        }
    }

    #[test]
    fn an_allgather_result_reaches_waiting_readers() {
        let node_of = [0, 1, 2];
        let seg = NodeSegment::create(&facts(&node_of, 0)).unwrap();
        let view = NodeView::attach(seg.tables_fd(), seg.heap_fd()).unwrap();
        assert!(!view.gather().wait(0, Duration::from_millis(1)));
        std::thread::scope(|s| {
            s.spawn(|| assert!(view.gather().wait(0, Duration::from_secs(60))));
            s.spawn(|| seg.publish_gather(0, 2, b"aabbcc"));
        });
        assert_eq!(view.gather().value(0, 1), Some(&b"bb"[..]));
        assert_eq!(view.gather().value(0, 3), None);
        assert_eq!(view.gather().value(1, 0), None);
        seg.publish_gather(GATHER_SLOTS as u32, 1, b"xyz");
        assert_eq!(
            view.gather().value(0, 1),
            None,
            "the slot now holds a later request"
        );
        assert_eq!(view.gather().value(GATHER_SLOTS as u32, 2), Some(&b"z"[..]));

        let (agents, gather) = (seg.view().gather(), view.gather());
        let request = 2 * GATHER_SLOTS as u32;
        agents.begin(request, 2);
        assert!(
            !gather.is_done(GATHER_SLOTS as u32),
            "it is being overwritten"
        );
        agents.write(request, 0, b"aab");
        agents.write(request, 3, b"bcc");
        assert_eq!(gather.value(request, 1), None);
        agents.finish(request);
        assert_eq!(gather.value(request, 1), Some(&b"bb"[..]));
    }

    #[test]
    fn pes_cannot_map_the_tables_for_writing() {
        let node_of = [0];
        let mut f = facts(&node_of, 0);
        f.n_nodes = 1;
        let seg = NodeSegment::create(&f).unwrap();
        assert!(Mapping::new(seg.tables_fd(), 1, true).is_err());
    }

    #[test]
    fn something_else_is_not_taken_for_a_segment() {
        let fd = sys::memfd(c"other", 8192).unwrap();
        let err = NodeView::attach(fd.as_fd(), fd.as_fd()).unwrap_err();
        assert!(matches!(err, SegmentError::Foreign), "{err}");
        // The log of a script.
        let log = std::env::temp_dir().join(format!("shmem-node-log-{}", std::process::id()));
        std::fs::write(&log, [0; 8192]).unwrap();
        let writes = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        let err = NodeView::attach(writes.as_fd(), writes.as_fd()).unwrap_err();
        assert!(matches!(err, SegmentError::Foreign), "{err}");
    }

    #[test]
    fn files_that_are_too_short_are_refused() {
        let empty = sys::memfd(c"empty", 0).unwrap();
        let err = NodeView::attach(empty.as_fd(), empty.as_fd()).unwrap_err();
        assert!(matches!(err, SegmentError::Foreign), "{err}");
        let node_of = [0];
        let mut f = facts(&node_of, 0);
        f.n_nodes = 1;
        let seg = NodeSegment::create(&f).unwrap();
        // Of the same size, too.
        let len = sys::file_len(seg.heap_fd()).unwrap();
        let alike = sys::memfd(c"alike", len).unwrap();
        for other in [empty, alike] {
            let err = NodeView::attach(seg.tables_fd(), other.as_fd()).unwrap_err();
            assert!(matches!(err, SegmentError::ForeignHeap), "{err}");
        }
    }

    #[test]
    fn absurd_sizes_are_refused_with_advice() {
        let node_of = [0];
        let mut f = facts(&node_of, 0);
        f.n_nodes = 1;
        f.heap_size = 1 << 60;
        let text = NodeSegment::create(&f).unwrap_err().to_string();
        assert!(text.contains("SHMEM_SYMMETRIC_SIZE"), "{text}");
    }
}
