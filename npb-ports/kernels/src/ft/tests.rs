//! Lines and blocks against their definitions.

use super::checksums::Complex;
use super::fft::{Fft, Strided, StridedMut};
use super::lanes::{Stored, ZERO, load_turned, store_turned};
use super::reference::by_definition;
use crate::cpu::Level;
use crate::cpu::vectors::{Vector, VectorKernel};
use crate::random::{Lcg, SEED};
use crate::simd::LANES;

/// Eight lines, transformed with points loaded one by one and by eight.
struct Lines<'a>(&'a Fft, &'a [Stored]);

impl VectorKernel for Lines<'_> {
    type Output = [Vec<Stored>; 2];

    #[inline(always)]
    fn run<V: Vector>(self) -> Self::Output {
        let Self(fft, from) = self;
        let n = from.len();
        let mut work = vec![ZERO; n];
        let mut results = [vec![ZERO; n], vec![ZERO; n]];
        for (way, result) in results.iter_mut().enumerate() {
            let points = Strided {
                points: from,
                stride: 1,
            };
            if way == 0 || n < 64 {
                fft.begin::<V>(&points, &mut work);
            } else {
                fft.begin_by_eight::<V>(&points, &mut work);
            }
            let mut results = StridedMut {
                points: result,
                stride: 1,
            };
            fft.finish::<V>(&mut work, &mut results);
        }
        results
    }
}

fn random(len: usize) -> Vec<Stored> {
    let mut random = Lcg::new(SEED);
    let mut x = vec![ZERO; len];
    random.fill(x.as_flattened_mut().as_flattened_mut());
    x
}

#[test]
fn lines_of_every_length_are_transformed() {
    for n in [32, 64, 128, 256, 512, 1024, 2048, 4096] {
        let from = random(n);
        let fft = Fft::new(n);
        assert_eq!(fft.len(), n);
        for level in Level::supported() {
            let results = level.run_vectors(Lines(&fft, &from));
            for lane in [0, 5] {
                let mut expected: Vec<Complex> =
                    from.iter().map(|x| x.map(|part| part[lane])).collect();
                by_definition(&mut expected, 0, 1, n, -1.0);
                for result in &results {
                    for (k, (x, expected)) in result.iter().zip(&expected).enumerate() {
                        for (part, expected) in x.iter().zip(expected) {
                            let error = (part[lane] - expected).abs();
                            assert!(error < 1e-13 * n as f64, "{level}: {k} of {n}: {error}");
                        }
                    }
                }
            }
        }
    }
}

struct Turned<'a>(&'a [Stored]);

impl VectorKernel for Turned<'_> {
    type Output = [Vec<Stored>; 2];

    #[inline(always)]
    fn run<V: Vector>(self) -> Self::Output {
        let x = load_turned::<V>(self.0);
        let mut once = vec![ZERO; LANES];
        for (x, to) in x.into_iter().zip(&mut once) {
            x.store(to);
        }
        let mut twice = vec![ZERO; LANES];
        store_turned::<V>(x, &mut twice);
        [once, twice]
    }
}

#[test]
fn vectors_and_lanes_are_exchanged() {
    let x = random(LANES);
    for level in Level::supported() {
        let [once, twice] = level.run_vectors(Turned(&x));
        assert_eq!(twice, x);
        for (i, vector) in once.iter().enumerate() {
            for (part, numbers) in vector.iter().enumerate() {
                for (lane, number) in numbers.iter().enumerate() {
                    assert_eq!(*number, x[lane][part][i]);
                }
            }
        }
    }
}
