//! The transform against its definition, on several PEs in one process, and the order of messages.

use super::checksums::Complex;
use super::lanes::Stored;
use super::params::{ALPHA, POINTS, Params, TOLERANCE};
use super::reference::by_definition;
use super::slab::{NUMBERS, Slab};
use super::solver::Solver;
use super::{memory, rule};
use crate::class::Class;
use crate::cpu::Level;
use crate::exchange::Slots;
use crate::exchange::model::{Mailboxes, scripts, simulate_orders};
use crate::random::{Lcg, SEED};
use crate::verify::Verification;
use std::f64::consts::PI;

fn whole_by_definition(x: &mut [Complex], n: [usize; 3], sign: f64) {
    let mut apart = 1;
    for n in n {
        for start in (0..x.len()).filter(|i| i / apart % n == 0) {
            by_definition(x, start, apart, n, sign);
        }
        apart *= n;
    }
}

/// Checksums after 1 step, 2 steps, and so on, as the definition has them.
fn checksums_by_definition(n: [usize; 3], steps: u32) -> Vec<Complex> {
    let points: usize = n.iter().product();
    let mut random = Lcg::new(SEED);
    let mut field = vec![[0.0; 2]; points];
    random.fill(field.as_flattened_mut());
    whole_by_definition(&mut field, n, 1.0);
    let at = |i: usize| [i % n[0], i / n[0] % n[1], i / (n[0] * n[1])];
    let square = |i: usize| {
        let waves = [0, 1, 2].map(|d| {
            let k = at(i)[d];
            if k >= n[d] / 2 { n[d] - k } else { k }
        });
        waves.iter().map(|k| (k * k) as f64).sum::<f64>()
    };
    (1..=steps)
        .map(|step| {
            let mut evolved = field.clone();
            for (i, x) in evolved.iter_mut().enumerate() {
                let decay = (-4.0 * ALPHA * PI * PI * f64::from(step) * square(i)).exp();
                *x = x.map(|part| part * decay);
            }
            whole_by_definition(&mut evolved, n, -1.0);
            let mut sum = [0.0; 2];
            for j in 1..=POINTS {
                let point = evolved[j % n[0] + n[0] * (3 * j % n[1] + n[1] * (5 * j % n[2]))];
                sum = [sum[0] + point[0], sum[1] + point[1]];
            }
            sum.map(|part| part / points as f64)
        })
        .collect()
}

/// What the PEs compute together.
fn checksums(
    n: [usize; 3],
    n_pes: usize,
    parts: Option<usize>,
    steps: u32,
    level: Level,
) -> Vec<Complex> {
    let slab = |pe| {
        let slab = Slab::new(n, pe, n_pes);
        let parts = parts.unwrap_or(slab.parts);
        Slab { parts, ..slab }
    };
    let mailboxes = Mailboxes::new(n_pes, &slab(0).slot_sizes());
    let sums = mailboxes.run(|pe, mut mailbox| {
        let mut solver = Solver::new(slab(pe), level).unwrap();
        // Twice, as the benchmark.
        solver.initialize(&mut mailbox);
        solver.initialize(&mut mailbox);
        let checksum = |step| solver.checksum(step, &mut mailbox);
        (1..=steps).map(checksum).collect::<Vec<_>>()
    });
    let mut total = vec![[0.0; 2]; steps as usize];
    for sums in sums {
        for (total, sum) in total.iter_mut().zip(sums) {
            *total = [total[0] + sum[0], total[1] + sum[1]];
        }
    }
    total
}

#[test]
fn any_number_of_pes_and_parts_finds_the_checksums() {
    let n = [64, 32, 128];
    let expected = checksums_by_definition(n, 2);
    for (n_pes, parts) in [
        (1, vec![1, 4, 256]),
        (2, vec![1, 2, 16, 64, 128]),
        (4, vec![1, 8, 64]),
        (16, vec![1, 2, 16]),
        (32, vec![1, 4, 8]),
    ] {
        for parts in parts {
            let sums = checksums(n, n_pes, Some(parts), 2, Level::best());
            let verification = Verification::of_checksums(Class::S, 1e-13, &sums, &expected);
            assert!(
                verification.successful(),
                "{n_pes} PEs, {parts} parts: {sums:?}, {expected:?}"
            );
        }
    }
}

#[test]
fn class_s_verifies_with_all_instructions() {
    let params = Params::of(Class::S);
    for level in Level::supported() {
        let sums = checksums(params.n, 1, None, params.iterations(), level);
        let all = Verification::of_checksums(Class::S, TOLERANCE, &sums, params.checksums);
        assert!(all.successful(), "{level}: {sums:?}");
    }
}

#[test]
fn class_w_verifies_on_several_pes() {
    let params = Params::of(Class::W);
    for n_pes in [2, 8] {
        let sums = checksums(params.n, n_pes, None, params.iterations(), Level::best());
        let all = Verification::of_checksums(Class::W, TOLERANCE, &sums, params.checksums);
        assert!(all.successful(), "{sums:?}");
    }
}

#[test]
fn no_slot_is_written_before_its_message_was_taken() {
    for (n_pes, parts, ahead) in [
        (2, 1, 1),
        (2, 2, 4),
        (2, 8, 1),
        (2, 8, 2),
        (4, 1, 4),
        (4, 4, 1),
        (8, 4, 2),
    ] {
        let scripts = scripts(n_pes, |pe, recorder| {
            let slab = Slab {
                parts,
                ahead,
                ..Slab::new([64, 32, 32], pe, n_pes)
            };
            let mut solver = Solver::new(slab, Level::best()).unwrap();
            solver.initialize(recorder);
            for step in 1..=3 {
                solver.checksum(step, recorder);
            }
        });
        let messages = 4 * parts * (n_pes - 1);
        assert!(
            scripts.iter().all(|s| s.len() == 2 * messages),
            "{n_pes} {parts} {ahead}"
        );
        simulate_orders(&scripts, 50);
    }
}

#[test]
fn slabs_are_whole_and_messages_fit() {
    for class in Class::ALL {
        let n = Params::of(class).n;
        for n_pes in (0..13).map(|k| 1 << k).filter(|p| rule(n).allows(*p)) {
            let slab = Slab::new(n, n_pes - 1, n_pes);
            assert_eq!(slab.part_lines() * slab.parts, slab.lines());
            assert_eq!(
                slab.part_rows() * slab.parts,
                slab.planes() * slab.vectors()
            );
            // Rows have as many vectors as lines.
            assert_eq!(slab.part_rows() * slab.ys(), slab.message());
            let sizes = slab.slot_sizes();
            assert_eq!(sizes.len(), 2 * slab.ahead * (n_pes - 1));
            assert!(sizes.iter().all(|size| *size == slab.message() * NUMBERS));
            let slab_bytes = slab.lines() * n[2] * size_of::<Stored>();
            if class >= Class::A && n_pes <= 16 {
                assert!(
                    Slots::<f64>::bytes(&sizes) <= slab_bytes / 2 + (64 << 10),
                    "{class} {n_pes}"
                );
            }
            assert!(memory(&slab) < 6 * slab_bytes as u64 + (64 << 20));
        }
    }
}
