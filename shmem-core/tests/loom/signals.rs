//! Data and the word behind it that says that it has come: signals, and flags that programs put themselves.

use shmem_testkit::models::{model, noticed};

use crate::heap::address::SymAddr;
use crate::memory;
use crate::runtime::{Completion, Ctx, Layout, Runtime, job};
use crate::signal::{Signal, SignalOp};
use crate::sync::{Ordering, fence};

const DATA: usize = 4096;
const WORD: usize = 0;
const WORDS: [usize; 5] = [WORD, DATA, DATA + 8, DATA + 16, DATA + 24];

fn put_signal(ctx: Ctx, pe: usize, value: u64, op: SignalOp, at: usize) {
    let data = [value, value + 1];
    let signal = Signal {
        at: SymAddr::new(WORD),
        value: 1,
        op,
    };
    let (dest, source) = (SymAddr::new(at), data.as_ptr().cast());
    // SAFETY: two local words.
    unsafe { ctx.put_signal_bytes(dest, source, 16, signal, pe, Completion::OnReturn) };
}

fn expect(rt: &Runtime, at: usize, value: u64) {
    assert_eq!(
        [rt.get(rt.me, at), rt.get(rt.me, at + 8)],
        [value, value + 1]
    );
}

/// One writer, on the same node or on another.
fn one(ctx: Ctx, op: SignalOp) {
    job(2, Layout::Together, &WORDS, move |rt| match rt.me {
        0 => {
            rt.wait_until(WORD, 1);
            expect(rt, DATA, 30);
        }
        _ => put_signal(ctx, 0, 30, op, DATA),
    });
}

#[test]
fn who_sees_a_signal_sees_the_data() {
    for ctx in [Ctx::Near, Ctx::Far] {
        for op in [SignalOp::Set, SignalOp::Add] {
            model(3, move || one(ctx, op));
            noticed(3, Ordering::Acquire, Ordering::Relaxed, move || {
                one(ctx, op)
            });
        }
    }
    noticed(3, Ordering::Release, Ordering::Relaxed, || {
        one(Ctx::Near, SignalOp::Set);
    });
    for ctx in [Ctx::Near, Ctx::Far] {
        noticed(3, Ordering::AcqRel, Ordering::Relaxed, move || {
            one(ctx, SignalOp::Add);
        });
    }
}

/// A PE of the node and an HCA add to one signal: who sees both sees the data of both.
fn two_writers() {
    job(3, Layout::Together, &WORDS, |rt| match rt.me {
        0 => {
            rt.wait_until(WORD, 2);
            expect(rt, DATA, 30);
            expect(rt, DATA + 16, 40);
        }
        1 => put_signal(Ctx::Near, 0, 30, SignalOp::Add, DATA),
        _ => put_signal(Ctx::Far, 0, 40, SignalOp::Add, DATA + 16),
    });
}

#[test]
fn a_processor_and_an_hca_add_to_one_signal() {
    model(2, two_writers);
    noticed(2, Ordering::AcqRel, Ordering::Acquire, two_writers);
}

/// What most programs do: put, fence, put a flag. An HCA passes on to a PE what a PE of another node has put, and that
/// one passes it on in its node.
fn put_flag_wait() {
    job(3, Layout::Halves, &WORDS, |rt| match rt.me {
        // Alone on its node: by its HCA.
        2 => {
            rt.put(0, DATA, 50);
            rt.put(0, WORD, 1);
        }
        0 => {
            rt.wait_until(WORD, 1);
            let seen = rt.get(0, DATA);
            rt.put(1, DATA + 8, seen + 1);
            // As the library's fence.
            fence(Ordering::AcqRel);
            rt.put(1, WORD, 1);
        }
        _ => {
            rt.wait_until(WORD, 1);
            // Its own, and what the other had been sent.
            assert_eq!([rt.get(1, DATA + 8), rt.get(0, DATA)], [51, 50]);
        }
    });
}

#[test]
fn flags_follow_data_from_node_to_node() {
    model(3, put_flag_wait);
    for (weakened, weaker) in [
        (Ordering::Acquire, Ordering::Relaxed),
        (Ordering::Release, Ordering::Relaxed),
        (Ordering::AcqRel, Ordering::Relaxed),
    ] {
        noticed(3, weakened, weaker, put_flag_wait);
    }
}

/// That a quiet has to be a fence of this strength, and no less; which it is, `verbs/src/memory/machine` shows. Two PEs that each put, are quiet, and look at the other's word: one sees the other's at least.
fn both_quiet() {
    job(2, Layout::Together, &WORDS, |rt| {
        let other = 1 - rt.me;
        rt.put(other, DATA, 1);
        rt.quiet();
        let seen = rt.get(rt.me, DATA);
        rt.put(rt.me, DATA + 8, seen);
    });
    let seen = |pe: usize| {
        let mut value = 0u64;
        let at = memory::address(pe, DATA + 8);
        // SAFETY: a local word.
        unsafe { memory::copy(at, (&raw mut value).cast(), 8) };
        value
    };
    assert!(seen(0) + seen(1) > 0);
}

#[test]
fn a_quiet_is_between_a_put_and_the_next_look() {
    model(3, both_quiet);
    noticed(3, Ordering::SeqCst, Ordering::AcqRel, both_quiet);
}
