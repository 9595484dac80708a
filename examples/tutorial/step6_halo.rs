//! Step 6: a halo exchange. Heat in a ring of cells, in blocks: each step needs the outermost cells of both
//! neighbours, which put them straight into place.
//!
//! Two halves of the halo are used in turn. A neighbour writes one for step `s + 2` only after it has
//! seen this PE's signal of step `s + 1`, which comes after this PE has read it in step `s`.

use shmem::{Cmp, SignalOp::Set};

const CELLS: usize = 24;
const STEPS: u64 = 100;

/// The cells after a step, with those on either side of them.
fn relax(left: f64, cells: &[f64], right: f64) -> Vec<f64> {
    let around: Vec<_> = [&[left], cells, &[right]].concat();
    around
        .windows(3)
        .map(|w| w[1] + 0.25 * (w[0] - 2.0 * w[1] + w[2]))
        .collect()
}

/// The beginning: one hot cell.
fn start(cell: usize) -> f64 {
    if cell == 0 { 240.0 } else { 0.0 }
}

fn main() {
    shmem::run(|world| {
        let (me, n) = (world.my_pe(), world.n_pes());
        let (before, after) = ((me + n - 1) % n, (me + 1) % n);
        // From the left and from the right, for odd and even steps; and the steps that have come.
        let halo = shmem::alloc::<f64>(4)?.grid(2, 2);
        let step_of = shmem::alloc::<u64>(2)?;
        let mut cells: Vec<_> = (me * CELLS..(me + 1) * CELLS).map(start).collect();
        for step in 1..=STEPS {
            let (first, last) = ([cells[0]], [cells[CELLS - 1]]);
            let half = halo.row(step as usize % 2);
            // Both are under way at once; `first` and `last` are borrowed until they may be used again.
            shmem::nbi_local(|puts| {
                puts.put_signal(half.elem(0), &last, step_of.elem(0), step, Set, after);
                puts.put_signal(half.elem(1), &first, step_of.elem(1), step, Set, before);
            });
            shmem::wait_until_all(step_of, None, Cmp::Ge, step);
            cells = relax(half.read(0), &cells, half.read(1));
        }

        let all = world.all_gather_parts(&cells);
        let mut alone: Vec<_> = (0..n * CELLS).map(start).collect();
        for _ in 0..STEPS {
            alone = relax(alone[n * CELLS - 1], &alone, alone[0]);
        }
        assert_eq!(all[..], alone);
        if me == 0 {
            println!(
                "after {STEPS} steps the ring holds {:.1}",
                all.iter().sum::<f64>()
            );
        }
        Ok(())
    });
}
