//! A job that puts, gets and adds between all pairs of PEs for a while, and proves that nothing
//! was lost, nothing torn and nothing done twice. Its argument is the time in seconds.
//!
//! Every PE owns a row in the inbox of every PE and knows what must be in it. Gets compare with
//! that at once; at the end the owners of the inboxes compare checksums. Every PE counts its
//! additions to each counter; at the end the sums must be the counters' values.

use std::time::{Duration, Instant};

use shmem::{
    Sum, alloc, atomic_compare_swap, atomic_fetch_inc, atomic_inc, barrier_all, get, my_pe, n_pes,
    nbi, p, put, quiet, reduce,
};

/// Words of a row; a put of all of it is dozens of packets.
const ROW: usize = 4096;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A piece of a row: most often short.
    fn piece(&mut self) -> std::ops::Range<usize> {
        let most = [1, 8, 150, ROW][self.below(4)];
        let len = 1 + self.below(most);
        let start = self.below(ROW - len + 1);
        start..start + len
    }
}

/// Depends on every word and its place.
fn checksum(row: &[u64]) -> u64 {
    row.iter().fold(row.len() as u64, |sum, word| {
        (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

fn main() -> Result<(), shmem::Error> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(20));
    let _world = shmem::init()?;
    let (me, n) = (my_pe(), n_pes());
    let inbox = alloc::<u64>(n * ROW)?;
    let counter = alloc::<u64>(1)?;
    // A word per PE that only that PE swaps.
    let swapped = alloc::<u64>(n)?;
    // What every PE says at the end: additions, checksum of its row.
    let additions = alloc::<u64>(n)?;
    let sums = alloc::<u64>(n)?;
    let total = alloc::<u64>(1)?;
    barrier_all();

    let mut rng = Rng(me as u64 + 1);
    let mut rows = vec![vec![0_u64; ROW]; n];
    let mut added = vec![0_u64; n];
    let mut last_old = vec![None; n];
    let mut swaps = vec![0_u64; n];
    let mut ops = 0_u64;
    let began = Instant::now();
    while began.elapsed() < time {
        let pe = rng.below(n);
        let row = inbox.at(me * ROW..(me + 1) * ROW);
        match rng.below(8) {
            0 | 1 => {
                let piece = rng.piece();
                let mine = &mut rows[pe][piece.clone()];
                mine.iter_mut().for_each(|word| *word = rng.next());
                put(row.at(piece), mine, pe);
            }
            2 => {
                // A burst of puts, none of which waits for another; they do not overlap.
                let at = 16 * rng.below(ROW / 16 - 8);
                let mine = &mut rows[pe][at..at + 128];
                mine.iter_mut().for_each(|word| *word = rng.next());
                nbi(|nbi| {
                    for (i, piece) in mine.chunks(16).enumerate() {
                        nbi.put(row.at(at + 16 * i..at + 16 * (i + 1)), piece, pe);
                    }
                });
            }
            3 | 4 => {
                quiet();
                let piece = rng.piece();
                let mut got = vec![0; piece.len()];
                get(&mut got, row.at(piece.clone()), pe);
                assert!(
                    got == rows[pe][piece.clone()],
                    "PE {me}: words {piece:?} at PE {pe} are not what was put"
                );
            }
            5 => {
                for _ in 0..4 {
                    atomic_inc(counter, pe);
                }
                added[pe] += 4;
                ops += 3;
            }
            6 => {
                let old = atomic_fetch_inc(counter, pe);
                added[pe] += 1;
                let before = last_old[pe].replace(old);
                assert!(before < Some(old), "PE {me}: counter of PE {pe} went back");
            }
            _ => {
                let old = atomic_compare_swap(swapped.elem(me), swaps[pe], swaps[pe] + 1, pe);
                assert_eq!(old, swaps[pe], "PE {me}: swaps at PE {pe}");
                swaps[pe] += 1;
            }
        }
        ops += 1;
    }
    for pe in 0..n {
        p(additions.elem(me), added[pe], pe);
        p(sums.elem(me), checksum(&rows[pe]), pe);
    }
    barrier_all();

    let counted: u64 = additions.to_vec().iter().sum();
    assert_eq!(
        counter.read(0),
        counted,
        "PE {me}: additions to its counter"
    );
    for pe in 0..n {
        let row = inbox.at(pe * ROW..(pe + 1) * ROW).to_vec();
        assert!(
            checksum(&row) == sums.read(pe),
            "PE {me}: the row of PE {pe} is not what that one put"
        );
    }
    total.write(0, ops);
    reduce(total, total, Sum);
    if me == 0 {
        println!(
            "{n} PEs: {} operations, nothing lost or doubled",
            total.read(0)
        );
    }
    Ok(())
}
