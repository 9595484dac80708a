//! Memory that is registered while connections exist.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shmem_ib::connect::endpoint::{ConnError, ContextId, Source};
use shmem_ib::soft::Faults;

use shmem_ib_kit::job::{Job, Pe, Plain};

fn memory() -> Vec<AtomicU64> {
    (0..1024).map(|_| AtomicU64::new(0)).collect()
}

/// Registers memory that outlives the job.
fn register(pe: &Pe, id: u8, memory: &[AtomicU64]) {
    let base = memory.as_ptr().cast_mut().cast();
    // SAFETY: the tests drop the job before the memory, which is accessed by atomics only.
    unsafe { pe.endpoint.register_segment(id, base, 8192).unwrap() };
}

fn put(pe: &Pe, to: u32, segment: u8, offset: u64, value: u64) -> Result<(), ConnError> {
    let src = std::ptr::from_ref(&value).cast();
    // SAFETY: the source may go as soon as this returns.
    unsafe {
        pe.endpoint.context(ContextId::DEFAULT).put(
            to,
            segment,
            offset,
            src,
            8,
            Source::UntilReturn,
        )
    }
    .map(drop)
}

fn get(pe: &Pe, from: u32, segment: u8, offset: u64) -> Result<u64, ConnError> {
    let mut value = 0u64;
    let dst = std::ptr::from_mut(&mut value).cast();
    // SAFETY: blocking, so the destination lives long enough.
    unsafe {
        pe.endpoint
            .context(ContextId::DEFAULT)
            .get(from, segment, offset, dst, 8, true)?
    };
    Ok(value)
}

#[test]
fn a_segment_that_comes_later_is_used_over_the_same_connection() {
    for (loss, seed) in [(0, 1), (100_000, 2)] {
        let late: Vec<_> = (0..3).map(|_| memory()).collect();
        let job = Job::with(3, |_, soft| {
            soft.faults = Faults {
                drop: loss,
                seed,
                ..Faults::default()
            };
        });
        for to in [1, 2] {
            job.pes[0].put_word(to, 0, 1);
        }
        job.pes[0].endpoint.quiet().unwrap();
        for (pe, memory) in job.pes.iter().zip(&late) {
            register(pe, 7, memory);
        }
        job.run(|pe| {
            let me = u64::from(pe.number);
            for to in (0..3).filter(|to| *to != pe.number) {
                put(pe, to, 7, 64 + me * 8, me + 100).unwrap();
                pe.endpoint.fetch_add_in(to, 7, 0, 1).unwrap();
                assert_eq!(get(pe, to, 7, 64 + me * 8).unwrap(), me + 100);
            }
            pe.endpoint.quiet().unwrap();
        });
        for (me, memory) in (0..3u64).zip(&late) {
            assert_eq!(memory[0].load(Ordering::Relaxed), 2);
            for from in (0..3).filter(|from| *from != me) {
                assert_eq!(
                    memory[8 + from as usize].load(Ordering::Relaxed),
                    from + 100
                );
            }
        }
        // No new queue pair was needed for that.
        assert_eq!(job.pes[0].endpoint.stats().queue_pairs_created, 2);
        assert!(job.pes[0].endpoint.stats().connect.segments_received > 0);
        drop(job);
    }
}

#[test]
fn a_segment_that_does_not_exist_is_named() {
    let extra = memory();
    let job = Job::with(2, |config, _| {
        config.connect_deadline = Duration::from_millis(600);
    });
    let error = put(&job.pes[0], 1, 3, 0, 1).unwrap_err();
    assert!(
        matches!(error, ConnError::NoSegment { segment: 3, .. }),
        "{error:?}"
    );
    register(&job.pes[1], 3, &extra);
    put(&job.pes[0], 1, 3, 0, 1).unwrap();
    job.pes[0].endpoint.quiet().unwrap();
    let error = put(&job.pes[0], 1, 3, 8185, 1).unwrap_err();
    assert!(
        matches!(error, ConnError::OutOfRange { size: 8192, .. }),
        "{error:?}"
    );
    for id in 10..15 {
        register(&job.pes[0], id, &extra);
    }
    let base = extra.as_ptr().cast_mut().cast();
    // SAFETY: it is refused.
    let error = unsafe { job.pes[0].endpoint.register_segment(15, base, 8) }.unwrap_err();
    assert!(
        matches!(error, ConnError::TooManySegments { .. }),
        "{error:?}"
    );
    // SAFETY: it is refused.
    let error = unsafe { job.pes[0].endpoint.register_segment(14, base, 8) }.unwrap_err();
    assert_eq!(error.to_string(), "segment 14 is registered already");
    drop(job);
}

#[test]
fn segments_are_added_while_connections_make_room() {
    let memories: Vec<[Vec<AtomicU64>; 5]> =
        (0..4).map(|_| std::array::from_fn(|_| memory())).collect();
    let job = Job::with(4, |config, _| config.max_qps = 1);
    job.run(|pe| {
        for (id, memory) in (1..).zip(&memories[pe.number as usize]) {
            register(pe, id, memory);
            for to in (0..4).filter(|to| *to != pe.number) {
                pe.endpoint.fetch_add_in(to, id, 0, 1).unwrap();
            }
        }
    });
    for word in memories.iter().flatten().map(|memory| &memory[0]) {
        assert_eq!(word.load(Ordering::Relaxed), 3);
    }
    drop(job);
}

/// More peers are to be told of new memory than datagrams may be on their way; those of the others are
/// dropped, and only a timer sends them again. The owner computes, and nobody wakes its progress
/// thread: the peers that were told stand still.
#[test]
fn whoever_was_not_told_of_memory_is_told_while_the_owner_computes() {
    const PEERS: u32 = 20;
    let late = memory();
    let mut job = Job::with(PEERS + 1, |config, _| {
        config.connect_deadline = Duration::from_secs(60);
    });
    // The peers use the connections, and need not ask for anything later.
    for pe in &job.pes[1..] {
        pe.put_word(0, 0, 1);
        pe.endpoint.quiet().unwrap();
    }
    // Asleep for long, as in a process that serves its peers and does nothing else.
    job.pes[0].sleep_at_most(Duration::from_secs(3600));
    for pe in &mut job.pes[1..] {
        pe.pause();
    }
    while job.pes[0].endpoint.progress() {}
    // The progress thread stands back for a moment after that.
    std::thread::sleep(Duration::from_millis(50));
    let before = job.pes[0].endpoint.stats();
    register(&job.pes[0], 7, &late);
    let dropped = job.pes[0].endpoint.stats().messages_dropped - before.messages_dropped;
    assert!(dropped > 0, "everybody was told at once");
    put(&job.pes[PEERS as usize], 0, 7, 0, 5).unwrap();
    job.pes[PEERS as usize].endpoint.quiet().unwrap();
    assert_eq!(late[0].load(Ordering::Relaxed), 5);
    for pe in &mut job.pes[1..] {
        pe.resume();
    }
    drop(job);
}
