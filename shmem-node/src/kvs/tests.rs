use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{KvsLayout, Locks, MAX_KEY, MAX_VALUE, Reader, Store, StoreError, StorePlan, Writer};
use crate::hca_address::HcaAddresses;
use crate::layout::REGION;
use crate::segment::{JobFacts, NodeSegment, NodeView};
use crate::settings::{HeapCommit, HeapPages, StoreKind};
use crate::sys::{self, Mapping};
use crate::tables::NodeTables;
use crate::template::marker::StaticsRoom;

const KINDS: [StoreKind; 3] = [StoreKind::Shared, StoreKind::RwLock, StoreKind::TwoN];
const READERS: usize = 3;

/// A store in memories of its own.
struct Made {
    layout: KvsLayout,
    kind: StoreKind,
    locks: Option<Locks>,
    /// As the agent maps it, and as PEs do.
    writable: Mapping,
    readable: Mapping,
}

impl Made {
    fn new(kind: StoreKind, log_len: usize) -> Self {
        let layout = KvsLayout::new(0, log_len);
        let tables = sys::memfd(c"tables", layout.end as u64).unwrap();
        let heap = sys::memfd(c"heap", REGION as u64).unwrap();
        let heap = Mapping::new(heap.as_fd(), REGION, true).unwrap();
        // SAFETY: nothing else is in there.
        let locks = unsafe { Locks::new(kind, &heap, 0, READERS) };
        Self {
            layout,
            kind,
            locks,
            writable: Mapping::new(tables.as_fd(), layout.end, true).unwrap(),
            readable: Mapping::new(tables.as_fd(), layout.end, false).unwrap(),
        }
    }

    fn writer(&self) -> Writer {
        // SAFETY: the layout is that of the memory.
        unsafe { Writer::new(self.writable, self.layout, self.kind, self.locks) }
    }

    fn reader(&self, local: usize) -> Reader {
        // SAFETY: as above.
        unsafe { Reader::new(self.readable, self.layout, self.kind, self.locks, local) }
    }
}

fn key(n: usize) -> Vec<u8> {
    format!("key-{n}").into_bytes()
}

#[test]
fn what_was_inserted_is_found_and_nothing_else() {
    for kind in KINDS {
        let made = Made::new(kind, 1 << 20);
        let (mut writer, reader) = (made.writer(), made.reader(1));
        assert_eq!(reader.get_vec(b"k"), None);
        writer.insert(b"k", b"first").unwrap();
        writer.insert(b"empty", b"").unwrap();
        assert_eq!(reader.get_vec(b"k").unwrap(), b"first");
        assert_eq!(reader.get_vec(b"empty").unwrap(), b"");
        assert_eq!(reader.get_vec(b"kk"), None);
        for value in [
            &b"second"[..],
            b"2",
            b"a third one that is longer than all before",
        ] {
            writer.insert(b"k", value).unwrap();
            assert_eq!(reader.get_vec(b"k").unwrap(), value);
            assert_eq!(writer.get(b"k"), Some(value));
        }
        assert_eq!(writer.keys(), 2);
        assert_eq!(writer.remove(b"k"), Ok(true));
        assert_eq!(writer.remove(b"k"), Ok(false));
        assert_eq!(reader.get_vec(b"k"), None);
        assert_eq!(reader.get_vec(b"empty").unwrap(), b"");
        writer.insert(b"k", b"again").unwrap();
        let mut value = [0; MAX_VALUE];
        assert_eq!(reader.get(b"k", &mut value), Some(5));
        assert_eq!(&value[..5], b"again");
    }
}

#[test]
fn lengths_are_bounded() {
    let made = Made::new(StoreKind::Shared, 1 << 20);
    let (mut writer, reader) = (made.writer(), made.reader(0));
    let (long_key, long_value) = ([7; MAX_KEY], [9; MAX_VALUE]);
    writer.insert(&long_key, &long_value).unwrap();
    assert_eq!(reader.get_vec(&long_key).unwrap(), long_value);
    let refused = |key: &[u8], value: &[u8], writer: &mut Writer| {
        let error = writer.insert(key, value).unwrap_err();
        assert!(matches!(error, StoreError::Length { .. }), "{error}");
    };
    refused(&[7; MAX_KEY + 1], b"", &mut writer);
    refused(b"k", &[9; MAX_VALUE + 1], &mut writer);
    refused(b"", b"", &mut writer);
    assert_eq!(reader.get_vec(&[7; MAX_KEY + 1]), None);
    assert_eq!(reader.get_vec(b""), None);
}

#[test]
fn the_index_grows_while_its_keys_stay() {
    const KEYS: usize = 20_000;
    for kind in KINDS {
        let made = Made::new(kind, 4 << 20);
        let (mut writer, reader) = (made.writer(), made.reader(2));
        writer.begin().unwrap();
        for n in 0..KEYS {
            writer.insert(&key(n), &n.to_ne_bytes()).unwrap();
        }
        writer.end();
        assert_eq!(writer.keys(), KEYS);
        for n in 0..KEYS {
            assert_eq!(reader.get_vec(&key(n)).unwrap(), n.to_ne_bytes(), "{n}");
        }
        assert_eq!(reader.get_vec(&key(KEYS)), None);
    }
}

/// What does not fit is not there, not even as it was before, and the store goes on.
#[test]
fn a_full_store_says_so_and_tells_nothing_old() {
    for kind in KINDS {
        let made = Made::new(kind, 2 * REGION);
        let (mut writer, reader) = (made.writer(), made.reader(0));
        writer.insert(b"k", b"old").unwrap();
        let fits = (0..).take_while(|&n| writer.insert(&key(n), &[1; 500]).is_ok());
        let fits = fits.count();
        assert!((10..16).contains(&fits), "{fits}");
        assert_eq!(reader.get_vec(b"k").unwrap(), b"old");
        let text = writer.insert(b"k", &[2; 500]).unwrap_err().to_string();
        for part in ["8192 bytes", "SHMEM_PMI_STORE_SIZE"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(reader.get_vec(b"k"), None);
        assert_eq!(reader.get_vec(&key(fits - 1)).unwrap(), [1; 500]);
        // Equal values need no room.
        writer.insert(&key(0), &[1; 500]).unwrap();
    }
    // More keys than the largest index is for.
    let made = Made::new(StoreKind::Shared, 64 * REGION);
    let mut writer = made.writer();
    let all = (0..)
        .map(|n: u16| writer.insert(&n.to_ne_bytes(), b""))
        .find(Result::is_err);
    assert!(matches!(all, Some(Err(StoreError::Full { .. }))), "{all:?}");
    assert_eq!(made.reader(0).get_vec(&5u16.to_ne_bytes()).unwrap(), b"");
}

#[test]
fn without_a_store_everything_is_a_miss() {
    let made = Made::new(StoreKind::Message, 0);
    let (mut writer, reader) = (made.writer(), made.reader(0));
    assert_eq!(writer.insert(b"k", b"v"), Err(StoreError::None));
    assert_eq!((reader.get_vec(b"k"), writer.get(b"k")), (None, None));
}

/// Values that are replaced all the time are never seen half old and half new, nor older than one
/// that was seen before.
#[test]
fn readers_see_whole_values_in_order() {
    const ROUNDS: u64 = 3_000;
    for kind in KINDS {
        let made = Made::new(kind, 16 << 20);
        let mut writer = made.writer();
        let value = |round: u64| {
            let mut value = Vec::new();
            for _ in 0..4 + round % 20 {
                value.extend_from_slice(&round.to_ne_bytes());
            }
            value
        };
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            for local in 0..READERS {
                let reader = made.reader(local);
                let done = &done;
                s.spawn(move || {
                    let mut last = 0;
                    while !done.load(Ordering::Relaxed) {
                        let Some(found) = reader.get_vec(b"changing") else {
                            assert_eq!(last, 0);
                            continue;
                        };
                        let round = u64::from_ne_bytes(found[..8].try_into().unwrap());
                        assert_eq!(found, value(round), "torn");
                        assert!(round >= last, "{round} after {last}");
                        last = round;
                    }
                });
            }
            for round in 1..=ROUNDS {
                writer.insert(b"changing", &value(round)).unwrap();
                // The index grows meanwhile.
                writer.insert(&key(round as usize), b"").unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(made.reader(0).get_vec(b"changing").unwrap(), value(ROUNDS));
    }
}

/// Runs `child` in a process of its own, which ends without any of Rust's or C's farewells.
fn fork(child: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child makes no use of locks that other threads may hold: it only reads memory,
    // locks what is in shared memory, and leaves.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(i32::from(!child())),
            pid => pid,
        }
    }
}

fn exit_status(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: it is a child of this process; `status` is writable.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status
}

#[test]
fn another_process_reads_what_is_inserted_after_it_began() {
    for kind in KINDS {
        let made = Made::new(kind, 1 << 20);
        let mut writer = made.writer();
        let reader = made.reader(1);
        let pid = fork(|| {
            let mut value = [0; MAX_VALUE];
            let end = sys::monotonic_ns() + 60_000_000_000;
            while sys::monotonic_ns() < end {
                if reader.get(b"last", &mut value) == Some(3) {
                    return reader.get(b"first", &mut value) == Some(5) && &value[..5] == b"value";
                }
            }
            false
        });
        writer.insert(b"first", b"value").unwrap();
        writer.insert(b"last", b"end").unwrap();
        assert_eq!(exit_status(pid), 0, "{kind:?}");
    }
}

/// A reader that dies inside a lock costs the store, not the agent.
#[test]
fn a_reader_that_was_killed_closes_the_store() {
    for kind in [StoreKind::RwLock, StoreKind::TwoN] {
        let made = Made::new(kind, 1 << 20);
        let short = Duration::from_millis(100);
        let mut writer = made.writer();
        writer.insert(b"k", b"old").unwrap();
        writer.patience = short;
        let reader = made.reader(1);
        let pid = fork(|| {
            // SAFETY: plain system calls.
            let dies = reader.read(b"k", |_| unsafe {
                libc::kill(libc::getpid(), libc::SIGKILL)
            });
            dies.is_none()
        });
        assert_eq!(exit_status(pid), libc::SIGKILL);
        assert_eq!(writer.insert(b"k", b"new"), Err(StoreError::Closed));
        assert_eq!(writer.begin(), Err(StoreError::Closed), "at once");
        // Nobody may find the old value now; readers that can enter see that it is closed.
        for local in [0, 2] {
            assert_eq!(made.reader(local).get_vec(b"k"), None);
        }
        // The dead reader's successor has to wait where it died, but only once.
        let mut successor = made.reader(1);
        successor.patience = short;
        assert_eq!(
            (successor.get_vec(b"k"), successor.get_vec(b"k")),
            (None, None)
        );
    }
}

/// In the memories of a node, for those who map both of them and for those who have no heap.
#[test]
fn fenced_keys_reach_both_kinds_of_process() {
    let segment = |kind| {
        let log_len = if kind == StoreKind::Message {
            0
        } else {
            1 << 20
        };
        NodeSegment::create(&JobFacts {
            job_id: [7; 16],
            job_key: [9; 32],
            node_of: &[1, 0, 1, 1],
            n_nodes: 2,
            node: 1,
            on_machine: 3,
            heap_size: 10_000,
            statics: StaticsRoom::default(),
            heap_commit: HeapCommit::Lazy,
            heap_pages: HeapPages::Default,
            store: StorePlan { kind, log_len },
            hca_addresses: HcaAddresses::shared("127.3.2.1".parse().unwrap()),
            spins: 5,
            report: true,
            calls: 0,
        })
        .unwrap()
    };
    for kind in KINDS {
        let mut segment = segment(kind);
        let mut writer = segment.kvs_writer().unwrap();
        assert!(segment.kvs_writer().is_none(), "there is one writer");
        writer.insert(b"ep-3", b"address").unwrap();
        let view = NodeView::attach(segment.tables_fd(), segment.heap_fd()).unwrap();
        assert_eq!(view.kvs(1).get_vec(b"ep-3").unwrap(), b"address");
        let tables = NodeTables::attach(segment.tables_fd()).unwrap();
        let reader = tables.kvs(segment.heap_fd(), 2).unwrap();
        assert_eq!(reader.get_vec(b"ep-3").unwrap(), b"address");
        assert_eq!(reader.get_vec(b"ep-2"), None);
        assert!(tables.kvs(segment.heap_fd(), 3).is_err());
    }
    let segment = segment(StoreKind::Message);
    let tables = NodeTables::attach(segment.tables_fd()).unwrap();
    let reader = tables.kvs(segment.heap_fd(), 0).unwrap();
    assert_eq!(reader.get_vec(b"ep-3"), None);
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Get(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few different keys, so that they meet again.
    let key = || vec(prop_oneof![Just(b'a'), Just(b'b')], 1..6);
    let step = prop_oneof![
        4 => (key(), vec(any::<u8>(), 0..60)).prop_map(|(k, v)| Step::Insert(k, v)),
        1 => key().prop_map(Step::Remove),
        3 => key().prop_map(Step::Get),
    ];
    vec(step, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_is_a_map(steps in steps(), kind in 0..KINDS.len(), pages in 1..8usize) {
        let made = Made::new(KINDS[kind], pages * REGION);
        let (mut writer, reader) = (made.writer(), made.reader(0));
        let mut model = HashMap::new();
        for step in steps {
            match step {
                Step::Insert(key, value) => match writer.insert(&key, &value) {
                    Ok(()) => { model.insert(key, value); }
                    Err(error) => {
                        prop_assert!(matches!(error, StoreError::Full { .. }), "{}", error);
                        model.remove(&key);
                    }
                },
                Step::Remove(key) => {
                    prop_assert_eq!(writer.remove(&key), Ok(model.remove(&key).is_some()));
                }
                Step::Get(key) => {
                    prop_assert_eq!(reader.get_vec(&key), model.get(&key).cloned());
                    prop_assert_eq!(writer.get(&key), model.get(&key).map(Vec::as_slice));
                }
            }
            prop_assert_eq!(writer.keys(), model.len());
        }
    }

    /// Whatever lies in the memory, a reader answers and reads nothing outside of it: the memory ends
    /// where the mapping does.
    #[test]
    fn a_damaged_store_does_no_harm(
        seed in any::<u64>(),
        level in prop_oneof![0..4u32, any::<u32>()],
        closed in prop_oneof![9 => Just(0), 1 => any::<u32>()],
        small in any::<bool>(),
    ) {
        let made = Made::new(StoreKind::Shared, 4 * REGION);
        let mut state = seed | 1;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let key = b"some key";
        let tag = super::hash(key) & !0xffff_ffff;
        for at in (0..made.layout.end).step_by(8) {
            let word = match (at < made.layout.log, small) {
                // Slots that look right, with places in and around the log.
                (true, true) => tag | (random() % (made.layout.log_len as u64 / 8 + 4)),
                (true, false) => tag | random() & 0xffff_ffff,
                // Lengths that look right, every now and then.
                (false, true) => random() & 0x03ff_07ff_007f,
                (false, false) => random(),
            };
            // SAFETY: in bounds, aligned, and nobody else uses it.
            unsafe { made.writable.at(at, 8).cast::<u64>().write(word) };
        }
        // SAFETY: as above.
        unsafe {
            made.writable.at(made.layout.head, 4).cast::<u32>().write(level);
            made.writable.at(made.layout.head + 4, 4).cast::<u32>().write(closed);
        }
        let reader = made.reader(0);
        let mut value = [0; MAX_VALUE];
        let found = reader.get(key, &mut value);
        prop_assert!(found.is_none_or(|len| len <= MAX_VALUE));
        reader.get_vec(b"another");
    }
}

#[test]
fn hashes_spread() {
    let mut low = [0u32; 256];
    let mut high = std::collections::HashSet::new();
    for n in 0..25_600 {
        let hash = super::hash(&key(n));
        low[hash as usize % 256] += 1;
        high.insert(hash >> 32);
    }
    assert!(low.iter().all(|&n| (40..200).contains(&n)), "{low:?}");
    assert!(high.len() > 25_500);
    assert_ne!(super::hash(b"a"), super::hash(b"a\0"));
}
