//! The transform by its definition: what tests compare with.

use super::checksums::Complex;
use std::f64::consts::TAU;

fn times(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// The points of `x` that are `apart`, from `start` on, transformed as the definition says; `sign` is that of
/// the exponent.
pub fn by_definition(x: &mut [Complex], start: usize, apart: usize, n: usize, sign: f64) {
    let line: Vec<Complex> = (0..n).map(|j| x[start + j * apart]).collect();
    let root = |k: usize| {
        let (sin, cos) = (sign * TAU * k as f64 / n as f64).sin_cos();
        [cos, sin]
    };
    let roots: Vec<Complex> = (0..n).map(root).collect();
    for k in 0..n {
        let mut sum = [0.0; 2];
        for (j, point) in line.iter().enumerate() {
            let term = times(*point, roots[j * k % n]);
            sum = [sum[0] + term[0], sum[1] + term[1]];
        }
        x[start + k * apart] = sum;
    }
}
