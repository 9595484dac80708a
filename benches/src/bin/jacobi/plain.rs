//! As one would write it in C: the field lies in symmetric memory, and neighbours put rows beside it.

use shmem::{Cmp, Error, SignalOp, Sum, World, alloc, free};

use crate::{relax, timed};

pub(crate) fn run(world: &World, rows: usize, cols: usize) -> Result<(Vec<f64>, f64), Error> {
    let (me, n) = (world.my_pe(), world.n_pes());
    let (above, below) = ((me + n - 1) % n, (me + 1) % n);
    // Two grids with a ghost row above and below, used in turn; the steps that have come from either side.
    let size = (rows + 2) * cols;
    let grids = alloc::<f64>(2 * size)?;
    let (mut now, mut next) = (grids.at(..size), grids.at(size..));
    let come = alloc::<u64>(2)?;
    let mut step = 0;
    for (row, pe) in [(0, above), (rows + 1, below)] {
        now.at(row * cols..(row + 1) * cols)
            .fill(f64::from(u8::from(pe == 0)));
    }
    now.at(cols..(rows + 1) * cols)
        .fill(f64::from(u8::from(me == 0)));
    world.barrier();
    let took = timed(|| {
        // SAFETY: neighbours have written their rows of this grid, and write them again after the next signal.
        let at = unsafe { now.as_slice() };
        // SAFETY: nobody writes to these rows of the other grid, and nobody reads it.
        let to = unsafe { next.at(cols..size - cols).as_mut_slice() };
        for (i, to) in to.chunks_exact_mut(cols).enumerate() {
            let row = |i: usize| &at[i * cols..(i + 1) * cols];
            relax(row(i), row(i + 1), row(i + 2), to);
        }
        step += 1;
        let ghost = |i: usize| next.at(i * cols..(i + 1) * cols);
        shmem::put_signal(
            ghost(rows + 1),
            &to[..cols],
            come.elem(1),
            step,
            SignalOp::Set,
            above,
        );
        shmem::put_signal(
            ghost(0),
            &to[(rows - 1) * cols..],
            come.elem(0),
            step,
            SignalOp::Set,
            below,
        );
        shmem::wait_until_all(come, None, Cmp::Ge, step);
        (now, next) = (next, now);
    });
    let sums = alloc::<f64>(2)?;
    // SAFETY: the neighbours' last rows have come.
    let field = unsafe { now.at(cols..size - cols).as_slice() };
    sums.write(0, field.iter().sum());
    shmem::reduce(sums.elem(1), sums.elem(0), Sum);
    let sum = sums.read(1);
    free(sums)?;
    free(come)?;
    free(grids)?;
    Ok((took, sum))
}
