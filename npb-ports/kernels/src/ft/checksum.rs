//! The points of which the checksum is made, of one PE's planes.

use super::lanes::Stored;
use super::params::POINTS;
use super::slab::Slab;
use crate::simd::LANES;

/// Where the points are in a plane whose transform back is complete: the result (x, y) is in vector
/// (x % vectors, y with x / vectors as its last digit), lane y % 8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Points {
    /// Vector and lane, by plane of the PE.
    planes: Vec<Vec<(usize, usize)>>,
}

impl Points {
    /// The points in the planes of `slab`.
    #[must_use]
    pub fn new(slab: &Slab) -> Self {
        let [nx, ny, nz] = slab.n;
        let mut planes = vec![Vec::new(); slab.planes()];
        let first = slab.pe * slab.planes();
        for j in 1..=POINTS {
            let [x, y, z] = [j % nx, 3 * j % ny, 5 * j % nz];
            if let Some(plane) = z.checked_sub(first).and_then(|z| planes.get_mut(z)) {
                let (vector, digit) = (x % slab.vectors(), x / slab.vectors());
                let row = vector * ny;
                plane.push((row + y / LANES * LANES + digit, y % LANES));
            }
        }
        Self { planes }
    }

    /// Adds the points of plane number `plane` of the PE to `sum`, real and imaginary part, as they are stored.
    pub fn add(&self, plane: usize, values: &[Stored], sum: &mut [f64; 2]) {
        for &(vector, lane) in &self.planes[plane] {
            let [re, im] = &values[vector];
            sum[0] += re[lane];
            sum[1] += im[lane];
        }
    }
}
