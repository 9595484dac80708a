//! The key-value store of the node as the PMI server's memory: what a fence makes visible lies where
//! the PEs read it, and nowhere else.

use std::collections::HashSet;

use shmem_node::kvs::{self, StoreError, Writer};
use shmem_pmi::server::{NodeStore, StoreFull};
use shmem_pmi::wire::{MAX_KEY, MAX_VALUE};

const _: () = assert!(kvs::MAX_KEY == MAX_KEY && kvs::MAX_VALUE == MAX_VALUE);

/// The [`NodeStore`] of a node with a segment. Where the job has no store in memory it is always
/// full, and the server keeps everything by itself.
#[derive(Debug)]
pub(super) struct SharedStore {
    writer: Writer,
    /// Keys that have lost or changed their value since the store was closed, which cannot be
    /// changed any more. Its readers know that it is closed.
    outdated: HashSet<Box<[u8]>>,
    /// Whether the user was told that messages serve what the store does not.
    reported: bool,
}

impl SharedStore {
    pub(super) fn new(writer: Writer) -> Self {
        Self {
            writer,
            outdated: HashSet::new(),
            reported: false,
        }
    }

    fn cannot(&mut self, error: StoreError, key: &[u8]) {
        if error == StoreError::Closed {
            self.outdated.insert(key.into());
        }
        let intended = error == StoreError::None;
        if !intended && !std::mem::replace(&mut self.reported, true) {
            super::log_without_waiting(format_args!("shmrun: {error}"));
        }
    }
}

impl NodeStore for SharedStore {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreFull> {
        self.writer.insert(key, value).map_err(|error| {
            self.cannot(error, key);
            StoreFull
        })
    }

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let value = self.writer.get(key)?;
        (!self.outdated.contains(key)).then_some(value)
    }

    fn remove(&mut self, key: &[u8]) {
        if let Err(error) = self.writer.remove(key) {
            self.cannot(error, key);
        }
    }

    fn bytes(&self) -> usize {
        self.writer.bytes()
    }

    fn begin(&mut self, _pairs: usize) {
        // The insertions fail if this does.
        let _ = self.writer.begin();
    }

    fn end(&mut self) {
        self.writer.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmem_node::hca_address::HcaAddresses;
    use shmem_node::kvs::StorePlan;
    use shmem_node::segment::{JobFacts, NodeSegment};
    use shmem_node::settings::{HeapCommit, HeapPages, StoreKind};
    use shmem_node::template::marker::StaticsRoom;

    fn segment(kind: StoreKind, log_len: u64) -> NodeSegment {
        NodeSegment::create(&JobFacts {
            job_id: [1; 16],
            job_key: [2; 32],
            node_of: &[0, 0],
            n_nodes: 1,
            node: 0,
            on_machine: 2,
            heap_size: 4096,
            statics: StaticsRoom::default(),
            heap_commit: HeapCommit::Lazy,
            heap_pages: HeapPages::Default,
            store: StorePlan { kind, log_len },
            hca_addresses: HcaAddresses::shared("127.0.0.1".parse().unwrap()),
            spins: 0,
            report: false,
            calls: 0,
        })
        .unwrap()
    }

    #[test]
    fn server_and_pes_see_the_same() {
        for kind in [StoreKind::Shared, StoreKind::RwLock, StoreKind::TwoN] {
            let mut segment = segment(kind, 8192);
            let mut store = SharedStore::new(segment.kvs_writer().unwrap());
            let reader = segment.view().kvs(1);
            store.begin(2);
            store.insert(b"a", b"1").unwrap();
            store.insert(b"b", b"2").unwrap();
            store.end();
            assert_eq!(store.get(b"a"), Some(&b"1"[..]));
            assert_eq!(reader.get_vec(b"b").unwrap(), b"2");
            let full = (0..20u8).any(|n| store.insert(&[b'k', n], &[n; 1000]).is_err());
            assert!(full);
            store.remove(b"a");
            assert_eq!((store.get(b"a"), reader.get_vec(b"a")), (None, None));
        }
    }

    #[test]
    fn a_closed_store_tells_the_server_nothing_outdated() {
        let mut segment = segment(StoreKind::TwoN, 8192);
        let mut store = SharedStore::new(segment.kvs_writer().unwrap());
        store.insert(b"a", b"1").unwrap();
        store.insert(b"b", b"2").unwrap();
        let reader = segment.view().kvs(1);
        // A reader that does not leave.
        reader.read(b"a", |_| {
            assert_eq!(store.insert(b"a", b"new"), Err(StoreFull));
        });
        assert_eq!((store.get(b"a"), store.get(b"b")), (None, Some(&b"2"[..])));
        store.remove(b"b");
        assert_eq!((store.get(b"b"), reader.get_vec(b"b")), (None, None));
    }

    #[test]
    fn without_a_store_it_is_full() {
        let mut segment = segment(StoreKind::Message, 0);
        let mut store = SharedStore::new(segment.kvs_writer().unwrap());
        assert_eq!(store.insert(b"a", b"1"), Err(StoreFull));
        store.remove(b"a");
        assert_eq!(store.get(b"a"), None);
    }
}
