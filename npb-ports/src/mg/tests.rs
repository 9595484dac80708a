//! Whole runs in one process: PEs are threads, or take turns as a simulation says.

use super::charges::Extremes;
use super::decomposition::Decomposition;
use super::halo::Slots;
use super::memory_per_pe;
use super::params::Params;
use super::vcycle::Multigrid;
use crate::class::Class;
use crate::cpu::Level;
use crate::exchange::model::{Event, Mailboxes, Recorder, simulate_orders};
use crate::verify::Check;

/// The square sums of the first and the last residual of class S, over all of `n_pes` threads.
fn solve(n_pes: usize, simd: Level) -> [f64; 2] {
    let params = Params::of(Class::S);
    let whole = [params.cells(); 3];
    let charges = Extremes::of_block(&params, [0; 3], whole);
    let slots = Slots::new(&Decomposition::new(params.levels, 0, n_pes));
    let all = Mailboxes::new(n_pes, slots.words());
    let sums = all.run(|pe, mail| {
        let place = Decomposition::new(params.levels, pe, n_pes);
        let first = place.first_cell();
        let mut grids = Multigrid::new(place, simd, params.smoother, mail).unwrap();
        charges.place(&params, first, grids.rhs());
        grids.start();
        grids.cycle(true);
        grids.reset();
        let before = grids.start();
        let cycles = 1..=params.iterations;
        [
            before,
            cycles.map(|i| grids.cycle(i == params.iterations)).sum(),
        ]
    });
    [0, 1].map(|which| sums.iter().map(|sum| sum[which]).sum())
}

#[test]
fn class_s_verifies_at_every_number_of_pes_and_level() {
    let params = Params::of(Class::S);
    let most = Level::supported();
    for (n_pes, levels) in [1, 2, 4, 8, 16, 32, 64, 512]
        .into_iter()
        .zip(std::iter::once(&most[..]).chain(std::iter::repeat(&most[most.len() - 1..])))
    {
        for &simd in levels {
            let [first, last] = solve(n_pes, simd);
            // The first residual is the right-hand side, 20 charges of 1.
            assert_eq!(first, 20.0);
            let check = Check {
                name: "norm",
                value: (last / params.points()).sqrt(),
                reference: params.norm,
                tolerance: 1e-8,
            };
            let error = check.relative_error();
            assert!(check.passes(), "{n_pes} PEs, {simd}: error {error:e}");
        }
    }
}

/// What a PE does in two runs of three cycles each.
fn events(levels: usize, pe: usize, n_pes: usize) -> Vec<Event> {
    let place = Decomposition::new(levels, pe, n_pes);
    let smoother = Params::of(Class::S).smoother;
    let recorder = Recorder::default();
    let mut grids = Multigrid::new(place, Level::best(), smoother, recorder).unwrap();
    for _ in 0..2 {
        grids.start();
        for last in [false, false, true] {
            grids.cycle(last);
        }
    }
    grids.into_partners().0
}

#[test]
fn no_slot_is_overwritten_before_it_is_taken() {
    for (levels, n_pes, orders) in [
        (5, 2, 200),
        (5, 4, 200),
        (3, 8, 100),
        (4, 16, 50),
        (4, 32, 20),
        (3, 64, 10),
        (5, 64, 10),
        (4, 256, 1),
    ] {
        let scripts: Vec<_> = (0..n_pes).map(|pe| events(levels, pe, n_pes)).collect();
        simulate_orders(&scripts, orders);
    }
}

#[test]
fn memory_is_that_of_the_grids_and_a_little() {
    let bytes = |grids: f64, n: f64| grids * 8.0 * n.powi(3);
    for (class, n) in [(Class::A, 256.0), (Class::C, 512.0), (Class::D, 1024.0)] {
        for (n_pes, grids) in [(1, 2.0), (2, 2.0), (4, 2.0), (64, 3.0)] {
            let needed = memory_per_pe(class, n_pes) as f64 * n_pes as f64;
            let ratio = needed / bytes(grids, n);
            assert!((1.0..1.7).contains(&ratio), "{class}, {n_pes} PEs: {ratio}");
        }
    }
}
