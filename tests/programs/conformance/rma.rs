//! Put and get in all forms, between all pairs of PEs.

use shmem::{
    Datum, alloc, barrier_all, context, free, g, get, get_vec, iget, iput, my_pe, n_pes, nbi,
    nbi_local, p, put, quiet,
};

use crate::check::{Check, noise, thorough, usual_or};

pub(crate) const CHECKS: &[Check] = &[
    ("put_get_all_pairs", put_get_all_pairs),
    ("sizes_and_alignments", sizes_and_alignments),
    ("element_types", element_types),
    ("strided", strided),
    ("non_blocking", non_blocking),
    ("source_is_reusable", source_is_reusable),
    (
        "sources_are_released_together",
        sources_are_released_together,
    ),
];

/// Everybody writes a block of its own into everybody, and reads everybody's blocks.
fn put_get_all_pairs() {
    const BLOCK: usize = 37;
    let (me, n) = (my_pe(), n_pes());
    let board = alloc::<u64>(BLOCK * n).unwrap();
    let value = |from: usize, to: usize, i: usize| ((from * n + to) * BLOCK + i) as u64 + 1;
    for to in 0..n {
        let block: Vec<u64> = (0..BLOCK).map(|i| value(me, to, i)).collect();
        put(board.at(me * BLOCK..), &block, to);
    }
    barrier_all();
    let mut block = [0; BLOCK];
    for owner in 0..n {
        for from in 0..n {
            get(&mut block, board.at(from * BLOCK..), owner);
            for (i, &got) in block.iter().enumerate() {
                assert_eq!(
                    got,
                    value(from, owner, i),
                    "from {from} at {owner}, element {i}"
                );
            }
            let same = get_vec(board.at(from * BLOCK..(from + 1) * BLOCK), owner);
            assert_eq!(same, block, "from {from} at {owner}");
        }
    }
    let own: Vec<u64> = board.iter().collect();
    assert_eq!(own, board.to_vec());
    assert!(get_vec(board.at(..0), n - 1).is_empty());
    barrier_all();
    free(board).unwrap();
}

/// Lengths around every boundary there is, at odd addresses, with untouched neighbours.
fn sizes_and_alignments() {
    const ROOM: usize = 2 << 20;
    let (me, n) = (my_pe(), n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let area = alloc::<u8>(ROOM).unwrap();
    let mtu_and_more = [
        4095,
        4096,
        4097,
        8192,
        12_345,
        65_535,
        65_536,
        65_537,
        usual_or(200_001, (1 << 20) + 1),
    ];
    // Around the lengths of words, vectors and lines.
    let borders = |len: &usize| *len < 18 || [31, 32, 33, 47, 48, 49, 63, 64, 65].contains(len);
    let short = (0..70).filter(|len| thorough() || borders(len));
    for (round, len) in short.chain(mtu_and_more).enumerate() {
        let offset = 1 + round % 17;
        area.at(..offset + len + 1).fill(0xee);
        barrier_all();
        let bytes = |seed: usize| {
            let mut next = noise((seed * 1000 + round) as u64);
            (0..len).map(|_| next() as u8).collect::<Vec<u8>>()
        };
        put(area.at(offset..), &bytes(me), right);
        barrier_all();
        let mut got = vec![0; len];
        area.at(offset..).read_to(&mut got);
        assert!(got == bytes(left), "{len} bytes put at {offset}");
        assert_eq!(
            (area.read(offset - 1), area.read(offset + len)),
            (0xee, 0xee),
            "{len}"
        );
        let mut back = vec![0; len];
        get(&mut back, area.at(offset..), right);
        assert!(back == bytes(me), "{len} bytes got from {offset}");
        barrier_all();
    }
    free(area).unwrap();
}

fn element_types() {
    fn one<T: Datum + PartialEq>(values: [T; 2]) {
        let (me, n) = (my_pe(), n_pes());
        let cell = alloc::<T>(2).unwrap();
        p(cell.elem(1), values[me % 2], (me + 1) % n);
        barrier_all();
        let left = (me + n - 1) % n;
        assert_eq!(cell.read(1), values[left % 2]);
        assert_eq!(g(cell.elem(1), (me + 1) % n), values[me % 2]);
        barrier_all();
        free(cell).unwrap();
    }
    one([1u8, 255]);
    one([-1i8, 127]);
    one([1u16, 65_535]);
    one([-2i16, 3]);
    one([7u32, u32::MAX]);
    one([i32::MIN, 5]);
    one([7u64, u64::MAX]);
    one([i64::MIN, 5]);
    one([1u128 << 100, 3]);
    one([-1i128, 3]);
    one([1usize, usize::MAX]);
    one([-1isize, 1]);
    one([1.5f32, -0.25]);
    one([std::f64::consts::PI, f64::MIN_POSITIVE]);
    one([[1u8, 2, 3], [4, 5, 6]]);
}

fn strided() {
    const N: usize = 11;
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    let left = (me + n - 1) % n;
    let area = alloc::<i32>(3 * N).unwrap();
    let source: Vec<i32> = (0..2 * N as i32).map(|i| i + 1000 * me as i32).collect();
    iput(area, &source, 3, 2, N, right);
    barrier_all();
    for (i, v) in area.to_vec().into_iter().enumerate() {
        let want = if i % 3 == 0 {
            2 * (i as i32 / 3) + 1000 * left as i32
        } else {
            0
        };
        assert_eq!(v, want, "element {i}");
    }
    let mut back = [-1; 4 * N];
    iget(&mut back, area, 4, 3, N, right);
    for (i, v) in back.into_iter().enumerate() {
        let want = if i % 4 == 0 {
            2 * (i as i32 / 4) + 1000 * me as i32
        } else {
            -1
        };
        assert_eq!(v, want, "element {i}");
    }
    iput(area, &source, 1, 1, 0, right);
    iget(&mut back, area, 1, 1, 0, right);
    barrier_all();
    free(area).unwrap();
}

/// Many operations at once, small and large, to all PEs.
fn non_blocking() {
    const LEN: usize = 5000;
    let (me, n) = (my_pe(), n_pes());
    let area = alloc::<u32>(LEN * n).unwrap();
    let source: Vec<Vec<u32>> = (0..n)
        .map(|to| (0..LEN).map(|i| (me * 31 + to * 17 + i) as u32).collect())
        .collect();
    nbi(|ops| {
        for (to, data) in source.iter().enumerate() {
            let (small, large) = data.split_at(3);
            ops.put(area.at(me * LEN..), small, to);
            ops.put(area.at(me * LEN + 3..), large, to);
        }
    });
    barrier_all();
    let mut copies = vec![vec![0u32; LEN]; n];
    nbi(|ops| {
        for (owner, copy) in copies.iter_mut().enumerate() {
            ops.get(copy, area.at(me * LEN..), owner);
        }
    });
    assert!(copies == source);
    barrier_all();
    free(area).unwrap();
}

/// Sources of all lengths, inside of the heap and outside, may be changed after a scope that ends with
/// local completion, on contexts of all kinds.
fn sources_are_released_together() {
    let lengths = [
        1,
        8,
        40,
        700,
        5000,
        16_384,
        16_385,
        100_000,
        usual_or(150_000, 400_000),
    ];
    const SMALL: usize = 200;
    let (me, n) = (my_pe(), n_pes());
    let total: usize = lengths.iter().sum();
    let area = alloc::<u8>(2 * total + SMALL * 100).unwrap();
    let inside = alloc::<u8>(total).unwrap();
    let shareable = context().create().unwrap();
    let private = context().private().create().unwrap();
    let right = (me + 1) % n;
    for round in 0..3u8 {
        let value = |pe: usize, i: usize| (pe * 7 + i + usize::from(round) * 31) as u8;
        let mut outside: Vec<u8> = (0..total).map(|i| value(me, i)).collect();
        let mut small: Vec<[u8; 100]> = (0..SMALL).map(|i| [value(me, i); 100]).collect();
        inside.write_from(&outside);
        {
            // SAFETY: nobody touches this PE's copy within the scope.
            let inside = unsafe { inside.as_slice() };
            let (outside, small) = (&outside[..], &small[..]);
            macro_rules! start {
                ($ops:ident) => {{
                    let mut at = 0;
                    for len in lengths {
                        $ops.put(area.at(at..), &outside[at..at + len], right);
                        $ops.put(area.at(total + at..), &inside[at..at + len], right);
                        at += len;
                    }
                    for (i, small) in small.iter().enumerate() {
                        $ops.put(area.at(2 * total + 100 * i..), small, right);
                    }
                }};
            }
            match round % 3 {
                0 => nbi_local(|ops| start!(ops)),
                1 => shareable.nbi_local(|ops| start!(ops)),
                _ => private.nbi_local(|ops| start!(ops)),
            }
        }
        outside.fill(0xff);
        inside.fill(0xff);
        small.fill([0xff; 100]);
        quiet();
        shareable.quiet();
        private.quiet();
        barrier_all();
        let left = (me + n - 1) % n;
        let got = area.to_vec();
        let want: Vec<u8> = (0..total).map(|i| value(left, i)).collect();
        for half in got[..2 * total].chunks(total) {
            let wrong = half.iter().zip(&want).position(|(got, want)| got != want);
            assert_eq!(wrong, None, "round {round}");
        }
        for (i, &byte) in got[2 * total..].iter().enumerate() {
            assert_eq!(byte, value(left, i / 100), "round {round}, short put {i}");
        }
        barrier_all();
    }
    free(inside).unwrap();
    free(area).unwrap();
}

/// A blocking put may be followed by a change of its source at once.
fn source_is_reusable() {
    const ROUNDS: usize = 300;
    let (me, n) = (my_pe(), n_pes());
    let area = alloc::<u64>(ROUNDS * 8).unwrap();
    let right = (me + 1) % n;
    let mut source = [0u64; 8];
    for round in 0..ROUNDS {
        source.fill((me * ROUNDS + round) as u64);
        put(area.at(8 * round..), &source, right);
        source.fill(u64::MAX);
    }
    quiet();
    barrier_all();
    let left = (me + n - 1) % n;
    for round in 0..ROUNDS {
        let mut got = [0; 8];
        area.at(8 * round..).read_to(&mut got);
        assert_eq!(got, [(left * ROUNDS + round) as u64; 8]);
    }
    barrier_all();
    free(area).unwrap();
}
