//! The matrix against its definition, iterations on several PEs in one process, and the order of their messages.

use super::decomposition::{Place, rule};
use super::params::{CONDITION, Params};
use super::share::{Pair, Share};
use super::solver::{Estimate, Solver};
use super::vectors::Vectors;
use crate::class::Class;
use crate::cpu::Level;
use crate::exchange::model::{Event, Mailboxes, scripts, simulate_orders};

/// A matrix of `n` rows with the numbers of class S.
fn params(n: usize) -> Params {
    Params {
        n,
        ..Params::of(Class::S)
    }
}

/// The whole matrix by its definition.
fn matrix(params: &Params) -> Vec<Vec<f64>> {
    let n = params.n;
    let mut matrix = vec![vec![0.0; n]; n];
    let mut vectors = Vectors::new(params);
    while let Some(vector) = vectors.draw() {
        let entries: Vec<_> = vector.positions.iter().zip(vector.values).collect();
        for (i, a) in &entries {
            for (j, b) in &entries {
                matrix[**i as usize][**j as usize] += *a * (vector.weight * *b);
            }
        }
    }
    for (i, row) in matrix.iter_mut().enumerate() {
        row[i] += CONDITION - params.shift;
    }
    matrix
}

fn vector(n: usize) -> Vec<f64> {
    (0..n).map(|i| 1.0 + (i as f64 * 0.7).sin()).collect()
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{a} and {b}");
}

#[test]
fn shares_of_all_pes_are_the_matrix() {
    for (n, counts) in [(100, [1, 2, 4, 8]), (1400, [1, 2, 16, 64])] {
        let params = params(n);
        let (matrix, x) = (matrix(&params), vector(n));
        for n_pes in counts {
            for level in Level::supported() {
                let mut found = vec![0.0; n];
                for pe in 0..n_pes {
                    let place = Place::new(n, pe, n_pes);
                    let region = place.region();
                    let mut pairs = vec![[0.0; 2]; place.part_len()];
                    // Where each number of the PE's part is in the whole.
                    let mut whole = vec![0; place.part_len()];
                    for (at, range) in [
                        (region.rows_at, region.rows.clone()),
                        (region.columns_at, region.columns.clone()),
                    ] {
                        for (k, i) in range.enumerate() {
                            pairs[at + k] = [x[i], 0.0];
                            whole[at + k] = i;
                        }
                    }
                    let share = Share::new(&params, region).unwrap();
                    share.product(&mut pairs, level);
                    for (i, [p, y]) in whole.into_iter().zip(pairs) {
                        assert_eq!(p, x[i]);
                        found[i] += y;
                    }
                }
                for (row, found) in matrix.iter().zip(found) {
                    let expected: f64 = row.iter().zip(&x).map(|(a, x)| a * x).sum();
                    close(found, expected);
                }
            }
        }
    }
}

/// Columns in more than one tile, of which the last one is narrower, against products of vectors.
#[test]
fn wide_blocks_are_cut_into_tiles() {
    let params = params(70_001);
    let n = params.n;
    let x = vector(n);
    let mut expected: Vec<f64> = x.iter().map(|x| (CONDITION - params.shift) * x).collect();
    let mut vectors = Vectors::new(&params);
    while let Some(vector) = vectors.draw() {
        let entries = || vector.positions.iter().zip(vector.values);
        let product: f64 = entries().map(|(&at, v)| v * x[at as usize]).sum();
        for (&at, v) in entries() {
            expected[at as usize] += vector.weight * product * v;
        }
    }
    let share = Share::new(&params, Place::new(n, 0, 1).region()).unwrap();
    for level in Level::supported() {
        let mut pairs: Vec<Pair> = x.iter().map(|x| [*x, 0.0]).collect();
        share.product(&mut pairs, level);
        for ([_, y], expected) in pairs.into_iter().zip(&expected) {
            close(y, *expected);
        }
    }
}

/// What the iterations on `n_pes` PEs find, which must be the same on all.
fn estimates(params: &Params, n_pes: usize, level: Level) -> Vec<Estimate> {
    let slots = Place::new(params.n, 0, n_pes).slots();
    let all = Mailboxes::new(n_pes, slots.sizes());
    let mut found = all.run(|pe, mut mailbox| {
        let place = Place::new(params.n, pe, n_pes);
        let mut solver = Solver::new(params, place, level).unwrap();
        // An iteration whose result is forgotten must leave nothing behind.
        solver.step(&mut mailbox);
        solver.initialize();
        let step = |_| solver.step(&mut mailbox);
        (0..params.iterations).map(step).collect::<Vec<_>>()
    });
    let first = found.swap_remove(0);
    assert!(found.iter().all(|other| *other == first));
    first
}

#[test]
fn class_s_verifies_on_any_number_of_pes_at_every_level() {
    let params = Params::of(Class::S);
    for level in Level::supported() {
        for n_pes in [1, 2, 4, 8, 16, 32, 64] {
            let estimates = estimates(&params, n_pes, level);
            let Estimate { residual, zeta } = *estimates.last().unwrap();
            let error = (zeta / params.zeta - 1.0).abs();
            assert!(error < 1e-13, "{level}, {n_pes} PEs: {zeta}");
            assert!(residual < 1e-12, "{residual}");
        }
    }
}

#[test]
fn blocks_need_not_be_of_one_size() {
    let params = params(1399);
    let expected = estimates(&params, 1, Level::best());
    for n_pes in [2, 8, 16, 64] {
        let found = estimates(&params, n_pes, Level::best());
        for (found, expected) in found.iter().zip(&expected) {
            close(found.zeta, expected.zeta);
        }
    }
}

#[test]
fn memory_is_foreseen() {
    for (class, n_pes) in [(Class::W, 1), (Class::A, 2), (Class::A, 16)] {
        let params = Params::of(class);
        for pe in [0, n_pes - 1] {
            let region = Place::new(params.n, pe, n_pes).region();
            let foreseen = Share::bytes(&params, &region) as f64;
            let bytes = Share::new(&params, region).unwrap().size() as f64;
            // Twice that, and parts of the same entry, and rows.
            assert!(
                (2.0..2.4).contains(&(foreseen / bytes)),
                "{bytes} {foreseen}"
            );
        }
    }
}

/// What each PE sends and waits for in some iterations.
fn messages(n: usize, n_pes: usize) -> Vec<Vec<Event>> {
    scripts(n_pes, |pe, recorder| {
        let place = Place::new(n, pe, n_pes);
        let mut solver = Solver::new(&params(n), place, Level::best()).unwrap();
        for _ in 0..2 {
            solver.step(recorder);
            solver.initialize();
        }
    })
}

#[test]
fn no_slot_is_overwritten_in_any_order() {
    for (n, n_pes) in [(40, 2), (40, 4), (70, 8), (70, 16), (130, 32), (130, 64)] {
        assert!(rule(n).allows(n_pes));
        simulate_orders(&messages(n, n_pes), 30);
    }
}

#[test]
fn one_pe_sends_nothing() {
    assert!(messages(40, 1)[0].is_empty());
}

/// Peers are those of the model, and no others.
#[test]
fn messages_go_where_the_model_says() {
    for n_pes in [2, 4, 8, 16, 32, 64] {
        let mut peers = vec![std::collections::BTreeSet::new(); n_pes];
        for (pe, script) in messages(130, n_pes).iter().enumerate() {
            for event in script {
                if let Event::Send { pe: other, .. } = *event {
                    peers[pe].insert(other);
                    peers[other].insert(pe);
                }
            }
        }
        let found = peers
            .iter()
            .map(std::collections::BTreeSet::len)
            .sum::<usize>() as f64;
        let model = crate::peers::Graph::conjugate_gradient(n_pes);
        assert_eq!(found / n_pes as f64, model.mean());
    }
}
