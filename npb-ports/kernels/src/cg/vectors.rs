//! The sparse random vectors whose outer products the matrix is the sum of.
//!
//! Each vector takes as many numbers of the sequence as it takes to find its positions, some of which are
//! drawn in vain, so that nobody can know where in the sequence a vector begins without drawing those
//! before. So every PE draws the whole sequence, twice, and keeps what falls into its rows and columns. That takes less
//! than a tenth of a second for class C, and most of a minute for class F.

use super::params::{CONDITION, Params};
use crate::random::{Lcg, SEED};

/// Draws one vector after another.
#[derive(Clone, Debug)]
pub struct Vectors {
    random: Lcg,
    n: usize,
    nonzeros: usize,
    /// Positions are drawn below this power of two, and below `n` taken.
    range: f64,
    ratio: f64,
    weight: f64,
    /// How many were drawn.
    drawn: usize,
    positions: Vec<u32>,
    values: Vec<f64>,
}

/// A vector v with its weight w: w v v' is a part of the matrix.
#[derive(Clone, Copy, Debug)]
pub struct Vector<'a> {
    /// Its weight.
    pub weight: f64,
    /// Where it is not zero, each once, in no order.
    pub positions: &'a [u32],
    /// What it is there.
    pub values: &'a [f64],
}

impl Vectors {
    /// What a vector has at the position of its own number.
    const ON_DIAGONAL: f64 = 0.5;

    /// Before the first vector of the matrix of `params`.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        let mut random = Lcg::new(SEED);
        // The first number of the sequence is for nobody.
        random.next_f64();
        Self {
            random,
            n: params.n,
            nonzeros: params.nonzeros,
            range: params.n.next_power_of_two() as f64,
            ratio: CONDITION.powf(1.0 / params.n as f64),
            weight: 1.0,
            drawn: 0,
            positions: Vec::with_capacity(params.nonzeros + 1),
            values: Vec::with_capacity(params.nonzeros + 1),
        }
    }

    /// Draws the next vector; `None` after as many as the matrix has rows.
    pub fn draw(&mut self) -> Option<Vector<'_>> {
        if self.drawn == self.n {
            return None;
        }
        self.positions.clear();
        self.values.clear();
        while self.positions.len() < self.nonzeros {
            let value = self.random.next_f64();
            let position = (self.random.next_f64() * self.range) as usize;
            // All are compared, since that is vector code; there are few.
            let old = |positions: &[u32]| {
                let equal = |found, other: &u32| found | (*other as usize == position);
                positions.iter().fold(false, equal)
            };
            if position < self.n && !old(&self.positions) {
                self.positions.push(position as u32);
                self.values.push(value);
            }
        }
        let own = self.drawn as u32;
        match self.positions.iter().position(|at| *at == own) {
            Some(at) => self.values[at] = Self::ON_DIAGONAL,
            None => {
                self.positions.push(own);
                self.values.push(Self::ON_DIAGONAL);
            }
        }
        let weight = self.weight;
        self.weight *= self.ratio;
        self.drawn += 1;
        Some(Vector {
            weight,
            positions: &self.positions,
            values: &self.values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;

    #[test]
    fn as_many_vectors_as_rows_each_with_its_own_number() {
        let params = Params::of(Class::S);
        let mut vectors = Vectors::new(&params);
        let (mut count, mut last) = (0, 1.0);
        while let Some(Vector {
            weight,
            positions,
            values,
        }) = vectors.draw()
        {
            assert!((7..=8).contains(&positions.len()));
            assert_eq!(positions.len(), values.len());
            let own = positions.iter().position(|at| *at == count);
            assert_eq!(values[own.unwrap()], 0.5);
            let mut sorted = positions.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), positions.len());
            assert!(sorted.iter().all(|at| *at < 1400));
            (count, last) = (count + 1, weight);
        }
        assert_eq!(count, 1400);
        assert!((last - 0.1).abs() < 1e-3, "{last}");
    }
}
