//! Heat in a plate: a 2-D grid in blocks of rows, one block a PE. Each step needs a row from either
//! neighbour; both are put straight into place together, with a signal behind each, and nobody waits for
//! their delivery, so there is neither quiet nor barrier in the time loop.
//!
//! Two buffers alternate. A PE writes a neighbour's buffer for step `s + 1` only after it has that
//! neighbour's row of step `s`, and then the neighbour has finished with step `s - 1`.

use shmem::{
    Cmp, SignalOp, Sum, SymSlice, barrier_all, my_pe, n_pes, nbi_local, reduce, wait_until,
};

const WIDTH: usize = 32;
const ROWS: usize = 64;
const STEPS: usize = 50;

/// First row and number of rows of `pe`'s block.
fn block(pe: usize, n: usize) -> (usize, usize) {
    let (base, extra) = (ROWS / n, ROWS % n);
    (pe * base + pe.min(extra), base + usize::from(pe < extra))
}

fn start(row: usize, column: usize) -> f64 {
    if row == ROWS / 2 && column == WIDTH / 2 {
        1000.0
    } else {
        0.0
    }
}

/// One row of the next state. Outside of the plate it is cold.
fn relax(above: &[f64], row: &[f64], below: &[f64]) -> Vec<f64> {
    (0..WIDTH)
        .map(|c| {
            let left = if c > 0 { row[c - 1] } else { 0.0 };
            let right = if c + 1 < WIDTH { row[c + 1] } else { 0.0 };
            row[c] + 0.1 * (above[c] + below[c] + left + right - 4.0 * row[c])
        })
        .collect()
}

/// All steps on one PE, for comparison.
fn alone() -> Vec<Vec<f64>> {
    let cold = vec![0.0; WIDTH];
    let mut grid: Vec<Vec<f64>> = (0..ROWS)
        .map(|r| (0..WIDTH).map(|c| start(r, c)).collect())
        .collect();
    for _ in 0..STEPS {
        let at = |r: usize| grid.get(r).unwrap_or(&cold);
        grid = (0..ROWS)
            .map(|r| relax(at(r.wrapping_sub(1)), at(r), at(r + 1)))
            .collect();
    }
    grid
}

fn main() -> Result<(), shmem::Error> {
    let _world = shmem::init()?;
    let (me, n) = (my_pe(), n_pes());
    assert!(n <= ROWS, "heat2d has {ROWS} rows: use at most as many PEs");
    let (first, rows) = block(me, n);

    // Rows that come from above and from below, for even and odd steps, and the step of each.
    let halo: [[SymSlice<f64>; 2]; 2] = {
        let rows = shmem::alloc::<f64>(4 * WIDTH)?;
        let row = |i: usize| rows.at(i * WIDTH..(i + 1) * WIDTH);
        [[row(0), row(1)], [row(2), row(3)]]
    };
    let flags = shmem::alloc::<u64>(2)?;

    let mut grid: Vec<Vec<f64>> = (first..first + rows)
        .map(|r| (0..WIDTH).map(|c| start(r, c)).collect())
        .collect();
    let (up, down) = (me.checked_sub(1), (me + 1 < n).then_some(me + 1));
    for step in 1..=STEPS {
        let buffer = &halo[step % 2];
        // My first row is what comes from below for the PE above me, and so on.
        nbi_local(|puts| {
            for (to, slot, row) in [(up, 1, &grid[0]), (down, 0, &grid[rows - 1])] {
                if let Some(pe) = to {
                    let (flag, step) = (flags.elem(slot), step as u64);
                    puts.put_signal(buffer[slot], row, flag, step, SignalOp::Set, pe);
                }
            }
        });
        let mut outside = [vec![0.0; WIDTH], vec![0.0; WIDTH]];
        for (from, slot) in [(up, 0), (down, 1)] {
            if from.is_some() {
                wait_until(flags.elem(slot), Cmp::Ge, step as u64);
                buffer[slot].read_to(&mut outside[slot]);
            }
        }
        grid = (0..rows)
            .map(|r| {
                let above = if r > 0 { &grid[r - 1] } else { &outside[0] };
                let below = grid.get(r + 1).unwrap_or(&outside[1]);
                relax(above, &grid[r], below)
            })
            .collect();
    }

    assert_eq!(grid, alone()[first..first + rows], "block of PE {me}");
    let heat = shmem::alloc::<f64>(1)?;
    heat.write(0, grid.iter().flatten().sum());
    barrier_all();
    reduce(heat, heat, Sum);
    if me == 0 {
        println!(
            "after {STEPS} steps the plate holds {:.6} units of heat",
            heat.read(0)
        );
    }
    Ok(())
}
