//! Signals: who sees one sees its data, and updates of both kinds exclude each other.

use shmem::raw;
use shmem::{
    Cmp, SignalOp, alloc, atomic_fetch, barrier_all, context, free, my_pe, n_pes, nbi, nbi_local,
    put_signal, quiet, signal_add, signal_fetch, signal_set, wait_until,
};

use crate::check::{Check, noise, usual_or};

pub(crate) const CHECKS: &[Check] = &[
    ("signal_after_data", signal_after_data),
    ("signals_of_all", signals_of_all),
    (
        "set_and_add_exclude_each_other",
        set_and_add_exclude_each_other,
    ),
    ("signal_without_data", signal_without_data),
];

/// Data of many lengths in a ring; whoever has the signal finds all of the data.
fn signal_after_data() {
    // Some of the data goes by streams.
    const ROOM: usize = 20_000;
    let (me, n) = (my_pe(), n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let data = alloc::<u32>(ROOM).unwrap();
    let signal = alloc::<u64>(2).unwrap();
    let seen = alloc::<u64>(1).unwrap();
    let ctx = context().create().unwrap();
    let mut random = noise(17);
    for round in 1..=usual_or(20, 40u64) {
        let len = match random() % 4 {
            0 => random() as usize % 4,
            1 => random() as usize % 64,
            2 => random() as usize % 3000,
            _ => random() as usize % ROOM,
        };
        let source = vec![(round * 1000 + me as u64) as u32; len];
        let (op, value) = match round % 2 {
            0 => (SignalOp::Add, 1),
            _ => (SignalOp::Set, round),
        };
        let word = signal.elem((round % 2) as usize);
        match round % 9 {
            0 => put_signal(data, &source, word, value, op, right),
            1 => ctx.put_signal(data, &source, word, value, op, right),
            2 => nbi(|ops| ops.put_signal(data, &source, word, value, op, right)),
            3 => ctx.nbi(|ops| ops.put_signal(data, &source, word, value, op, right)),
            4 => nbi_local(|ops| ops.put_signal(data, &source, word, value, op, right)),
            5 => ctx.nbi_local(|ops| ops.put_signal(data, &source, word, value, op, right)),
            // Every second one, in the end all of them.
            6 | 7 => {
                let (even, odd) = (len.div_ceil(2), len / 2);
                let (to, from) = (data.at(len.min(1)..), source.get(1..).unwrap_or_default());
                if round % 2 == 0 {
                    ctx.iput(to, from, 2, 2, odd, right);
                    ctx.iput_signal(data, &source, 2, 2, even, word, value, op, right);
                } else {
                    nbi_local(|ops| {
                        ops.iput(to, from, 2, 2, odd, right);
                        ops.iput_signal(data, &source, 2, 2, even, word, value, op, right);
                    });
                }
            }
            // SAFETY: the source lives until the quiet.
            _ => unsafe {
                let (ctx, from) = (raw::Ctx::default_ctx(), source.as_ptr().cast());
                let (at, until) = (word.addr(), raw::Completion::AtQuiet);
                let signal = raw::Signal { at, value, op };
                raw::put_signal(
                    ctx,
                    data.addr(),
                    from,
                    size_of_val(&source[..]),
                    signal,
                    right,
                    until,
                );
            },
        }
        let want = if round % 2 == 0 { round / 2 } else { round };
        wait_until(word, Cmp::Eq, want);
        assert_eq!(signal_fetch(word), want);
        let mut got = vec![0; len];
        data.read_to(&mut got);
        let value = (round * 1000 + left as u64) as u32;
        assert!(
            got.iter().all(|&v| v == value),
            "round {round}, {len} elements"
        );
        quiet();
        signal_set(seen, round, left);
        wait_until(seen, Cmp::Ge, round);
    }
    ctx.quiet();
    barrier_all();
    free(seen).unwrap();
    free(signal).unwrap();
    free(data).unwrap();
}

/// All PEs send to all, each into its own place, and count on one signal.
fn signals_of_all() {
    const LEN: usize = 50;
    let (me, n) = (my_pe(), n_pes());
    let board = alloc::<u64>(LEN * n).unwrap();
    let arrived = alloc::<u64>(1).unwrap();
    for round in 1..=10u64 {
        let block = [round * 100 + me as u64; LEN];
        for to in 0..n {
            let place = board.at(me * LEN..(me + 1) * LEN);
            put_signal(place, &block, arrived, 1, SignalOp::Add, (me + to) % n);
        }
        wait_until(arrived, Cmp::Ge, round * n as u64);
        for (i, got) in board.to_vec().into_iter().enumerate() {
            assert_eq!(got, round * 100 + (i / LEN) as u64, "round {round}");
        }
        barrier_all();
    }
    assert_eq!(signal_fetch(arrived), 10 * n as u64);
    barrier_all();
    free(arrived).unwrap();
    free(board).unwrap();
}

/// One PE sets the upper half, all others add to the lower one: no setting is lost.
fn set_and_add_exclude_each_other() {
    let (me, n) = (my_pe(), n_pes());
    let word = alloc::<u64>(1).unwrap();
    let rounds = 100u64;
    let owner = n / 2;
    for round in 1..=rounds {
        if me == n - 1 {
            signal_set(word, round << 32, owner);
            quiet();
            let now = atomic_fetch(word, owner);
            assert_eq!(now >> 32, round, "{now:#x}");
        } else {
            signal_add(word, 1, owner);
        }
    }
    barrier_all();
    let end = atomic_fetch(word, owner);
    assert_eq!(end >> 32, rounds);
    assert!(end & 0xffff_ffff <= rounds * (n as u64 - 1));
    barrier_all();
    free(word).unwrap();
}

fn signal_without_data() {
    let (me, n) = (my_pe(), n_pes());
    let nothing = alloc::<u8>(1).unwrap();
    let word = alloc::<u64>(n).unwrap();
    for pe in 0..n {
        put_signal(nothing.at(1..), &[], word.elem(me), 9, SignalOp::Set, pe);
        put_signal(nothing.at(..0), &[], word.elem(me), 1, SignalOp::Add, pe);
    }
    quiet();
    for pe in 0..n {
        assert_eq!(atomic_fetch(word.elem(me), pe), 10);
    }
    barrier_all();
    free(word).unwrap();
    free(nothing).unwrap();
}
