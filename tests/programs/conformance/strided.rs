//! Copies of blocks that lie apart, against a model, in every shape that takes a way of its own.

use shmem::{
    Datum, alloc, barrier_all, context, free, get, ibget, ibput, iget, iput, my_pe, n_pes, nbi,
    put, quiet,
};

use crate::check::{Check, noise, thorough, usual_or};

pub(crate) const CHECKS: &[Check] = &[
    ("block_strided_puts", block_strided_puts),
    ("block_strided_gets", block_strided_gets),
    ("random_strides", random_strides),
    ("nothing_strided", nothing_strided),
    ("strided_in_scopes", strided_in_scopes),
];

/// Elements per block, blocks, and strides at the destination and the source: packed there, apart
/// there, long blocks, small gaps, gaps that are longer than what a read takes along.
const SHAPES: &[(usize, usize, usize, usize)] = &[
    (1, 1, 1, 1),
    (1, 300, 1, 1),
    (1, 300, 1, 3),
    (1, 300, 2, 1),
    (1, 100, 700, 2),
    (1, 100, 2, 700),
    (7, 40, 7, 9),
    (7, 40, 11, 7),
    (100, 20, 300, 400),
    (5000, 3, 5000, 5001),
    (5000, 3, 6000, 5000),
    (5000, 3, 5500, 9000),
    (20_000, 2, 20_001, 20_000),
    (3000, 30, 3001, 3007),
];

fn span((block, count, _, _): (usize, usize, usize, usize), stride: usize) -> usize {
    (count - 1) * stride + block
}

fn check_puts<T: Datum + PartialEq>(value: impl Fn(u64) -> T, blank: T) {
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    for &shape in SHAPES {
        let (block, count, dst, sst) = shape;
        let room = span(shape, dst) + 2;
        let there = alloc::<T>(room).unwrap();
        there.fill(blank);
        barrier_all();
        let source: Vec<T> = (0..span(shape, sst))
            .map(|i| value((i * 7 + me) as u64))
            .collect();
        ibput(
            there.at(1..room - 1),
            &source,
            dst,
            sst,
            (block, count),
            right,
        );
        quiet();
        let mut got = vec![blank; room];
        get(&mut got, there, right);
        let mut want = vec![blank; room];
        for b in 0..count {
            let to = 1 + b * dst;
            want[to..to + block].copy_from_slice(&source[b * sst..b * sst + block]);
        }
        assert!(got == want, "{shape:?}");
        barrier_all();
        free(there).unwrap();
    }
}

fn block_strided_puts() {
    check_puts(|i| i as u8, 0xee);
    if thorough() {
        check_puts(|i| i as u32 * 3, 0xdddd_dddd);
    }
    check_puts(|i| i as f64, -1.0);
}

fn block_strided_gets() {
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    for &shape in SHAPES {
        let (block, count, dst, sst) = shape;
        let value = |pe: usize, i: usize| (i * 11 + pe * 3 + 1) as u16;
        let len = span(shape, sst);
        let here = alloc::<u16>(len).unwrap();
        here.write_from(&(0..len).map(|i| value(me, i)).collect::<Vec<_>>());
        barrier_all();
        let mut got = vec![0xeeee; span(shape, dst) + 2];
        let room = got.len();
        ibget(&mut got[1..room - 1], here, dst, sst, (block, count), right);
        let mut want = vec![0xeeee; room];
        for b in 0..count {
            for i in 0..block {
                want[1 + b * dst + i] = value(right, b * sst + i);
            }
        }
        assert!(got == want, "{shape:?}");
        // The destination in symmetric memory, too.
        let to = alloc::<u16>(span(shape, dst)).unwrap();
        // SAFETY: nobody else touches this PE's copy.
        ibget(
            unsafe { to.as_mut_slice() },
            here,
            dst,
            sst,
            (block, count),
            right,
        );
        assert_eq!(to.read(0), value(right, 0));
        assert_eq!(to.read(to.len() - 1), value(right, len - 1));
        barrier_all();
        free(to).unwrap();
        free(here).unwrap();
    }
}

fn random_strides() {
    const ROOM: usize = 2000;
    let (me, n) = (my_pe(), n_pes());
    let area = alloc::<u64>(ROOM * n).unwrap();
    let mine = area.at(me * ROOM..(me + 1) * ROOM);
    let mut random = noise(me as u64);
    let ctx = context().create().unwrap();
    for _ in 0..usual_or(30, 60) {
        let pe = random() as usize % n;
        let (dst, sst) = (1 + random() as usize % 40, 1 + random() as usize % 40);
        let most = (ROOM - 1) / dst.max(sst) + 1;
        let count = random() as usize % most;
        let source: Vec<u64> = (0..ROOM).map(|_| random()).collect();
        put(mine, &vec![0; ROOM], pe);
        quiet();
        let mut want = vec![0; ROOM];
        (0..count).for_each(|i| want[i * dst] = source[i * sst]);
        ctx.iput(mine, &source, dst, sst, count, pe);
        ctx.quiet();
        let mut got = vec![0; ROOM];
        get(&mut got, mine, pe);
        assert_eq!(got, want, "{count} elements {dst} and {sst} apart");
        let mut back = vec![1; ROOM];
        iget(&mut back, mine, sst, dst, count, pe);
        for (i, &value) in back.iter().enumerate() {
            let copied = i % sst == 0 && i / sst < count;
            assert_eq!(value, if copied { source[i] } else { 1 });
        }
    }
    barrier_all();
    free(area).unwrap();
}

/// Strided copies together with each other, their elements interleaved.
fn strided_in_scopes() {
    const LANES: usize = 5;
    const EACH: usize = 300;
    let (me, n) = (my_pe(), n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let area = alloc::<u32>(LANES * EACH * 2).unwrap();
    let ctx = context().serialized().create().unwrap();
    for round in 0..usual_or(2, 4u32) {
        let value = |pe: usize, i: usize| (pe * 100_000 + i) as u32 + round;
        let source: Vec<u32> = (0..LANES * EACH).map(|i| value(me, i)).collect();
        let blocks = |i: usize| (area.at(LANES * EACH + 2 * i..), &source[2 * i..]);
        macro_rules! start {
            ($ops:ident) => {{
                for lane in 0..LANES {
                    let (to, from) = (area.at(lane..), &source[lane..]);
                    $ops.iput(to, from, LANES, LANES, EACH, right);
                }
                for lane in 0..LANES {
                    let (to, from) = blocks(lane);
                    let strides = 2 * LANES;
                    $ops.ibput(to, from, strides, strides, (2, EACH / 2), right);
                }
            }};
        }
        match round % 2 {
            0 => nbi(|ops| start!(ops)),
            _ => ctx.nbi_local(|ops| start!(ops)),
        }
        ctx.quiet();
        barrier_all();
        let want: Vec<u32> = (0..LANES * EACH).map(|i| value(left, i)).collect();
        assert_eq!(area.to_vec(), [&want[..], &want[..]].concat());
        let mut back = vec![0; LANES * EACH * 2];
        let (lanes, pairs) = back.split_at_mut(LANES * EACH);
        let mut lanes: Vec<&mut [u32]> = lanes.chunks_mut(EACH).collect();
        nbi(|ops| {
            for (lane, to) in lanes.iter_mut().enumerate() {
                ops.iget(to, area.at(lane..), 1, LANES, EACH, right);
            }
            // So far apart that they are read one by one.
            ops.ibget(pairs, area, 2, LANES * EACH, (2, 2), right);
        });
        for lane in 0..LANES {
            for i in 0..EACH {
                assert_eq!(back[lane * EACH + i], value(me, i * LANES + lane));
            }
        }
        let (first, second) = (value(me, 0), value(me, 1));
        assert_eq!(
            back[LANES * EACH..LANES * EACH + 4],
            [first, second, first, second]
        );
        barrier_all();
    }
    free(area).unwrap();
}

/// Copies of nothing go anywhere.
fn nothing_strided() {
    let n = n_pes();
    let cell = alloc::<u32>(1).unwrap();
    for pe in 0..n {
        put(cell.at(1..), &[], pe);
        get(&mut [], cell.at(..0), pe);
        iput(cell.at(1..), &[], 3, 4, 0, pe);
        iget(&mut [], cell.at(1..), 3, 4, 0, pe);
        ibput(cell, &[], 2, 2, (2, 0), pe);
        ibget(&mut [], cell, 9, 9, (0, 5), pe);
    }
    barrier_all();
    assert_eq!(cell.read(0), 0);
    barrier_all();
    free(cell).unwrap();
}
