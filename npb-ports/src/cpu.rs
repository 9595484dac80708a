//! Runs a kernel as code for the best vector instructions of this processor.
//!
//! The workspace is built for the x86-64 baseline, which has 16-byte vectors and no fused
//! multiply-add. A kernel that implements [`Kernel`] with an `#[inline(always)]` method is
//! compiled once per [`Level`] and the choice among the copies is made at run time. But for this file
//! and messages that are read where they landed, the crate is plain safe Rust.

#![allow(unsafe_code)]

use crate::array::Array;
use std::fmt;
use std::ops::Range;

/// Work that profits from wide vectors.
pub trait Kernel {
    /// What the work yields.
    type Output;

    /// Does the work. `FMA` says whether a fused multiply-add is one instruction ([`mul_add`]
    /// takes it). The implementation must be `#[inline(always)]`, and so must what it calls in
    /// its inner loops, or it is compiled for the baseline.
    fn run<const FMA: bool>(self) -> Self::Output;
}

/// a * b + c, fused if `FMA` is set and in two roundings otherwise. (Without the instruction a
/// fused operation is a library call, a hundred times slower.)
#[inline(always)]
#[must_use]
pub fn mul_add<const FMA: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// Rows become columns: `transpose(rows)[c][r] == rows[r][c]`.
///
/// Left to the compiler, this is 64 single loads and 64 single stores; with shuffles it is 32 of
/// them, and 16 loads and stores of four numbers each. `FMA` is what [`Kernel::run`] has: without
/// it the level is the baseline, and shuffles are left out with all else that came with AVX2.
#[inline(always)]
#[must_use]
pub fn transpose<const FMA: bool>(rows: [&[f64; 8]; 8]) -> [[f64; 8]; 8] {
    #[cfg(target_arch = "x86_64")]
    if FMA && is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { transpose_avx2(rows) };
    }
    let mut columns = [[0.0; 8]; 8];
    for (r, row) in rows.into_iter().enumerate() {
        for (column, x) in columns.iter_mut().zip(row) {
            column[r] = *x;
        }
    }
    columns
}

/// Four blocks of 4 x 4.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn transpose_avx2(rows: [&[f64; 8]; 8]) -> [[f64; 8]; 8] {
    use std::arch::x86_64 as x86;
    let mut columns = [[0.0; 8]; 8];
    for r in [0, 4] {
        for c in [0, 4] {
            // SAFETY: c + 4 <= 8 numbers of a row are read.
            let load = |row: usize| unsafe { x86::_mm256_loadu_pd(rows[row].as_ptr().add(c)) };
            let rows = [load(r), load(r + 1), load(r + 2), load(r + 3)];
            let even = x86::_mm256_unpacklo_pd(rows[0], rows[1]);
            let odd = x86::_mm256_unpackhi_pd(rows[0], rows[1]);
            let even_below = x86::_mm256_unpacklo_pd(rows[2], rows[3]);
            let odd_below = x86::_mm256_unpackhi_pd(rows[2], rows[3]);
            let block = [
                x86::_mm256_permute2f128_pd::<0x20>(even, even_below),
                x86::_mm256_permute2f128_pd::<0x20>(odd, odd_below),
                x86::_mm256_permute2f128_pd::<0x31>(even, even_below),
                x86::_mm256_permute2f128_pd::<0x31>(odd, odd_below),
            ];
            for (column, half) in columns[c..].iter_mut().zip(block) {
                // SAFETY: r + 4 <= 8 numbers of a column are written.
                unsafe { x86::_mm256_storeu_pd(column.as_mut_ptr().add(r), half) };
            }
        }
    }
    columns
}

/// Positions in a slice, which are known to exist in every slice that is long enough: nobody needs to compare them with
/// its length again and again, as sparse matrices would at each of their numbers.
#[derive(Debug)]
pub struct Positions {
    /// All below `bound`.
    at: Array<u16>,
    bound: usize,
}

impl Positions {
    /// The positions `at`.
    ///
    /// # Panics
    /// If one of them is not below `bound`.
    #[must_use]
    pub fn new(at: Array<u16>, bound: usize) -> Self {
        assert!(at.iter().all(|at| usize::from(*at) < bound));
        Self { at, bound }
    }

    /// Passes through `chunks` of `N` positions each: gives the values there and the number of the chunk to `change`,
    /// and writes back what that returns. The positions of one chunk should differ: where they do not, the last one's
    /// value stays.
    ///
    /// # Panics
    /// If `values` has less than `bound` values, or there are not so many chunks.
    #[inline(always)]
    pub fn update<const N: usize, T: Copy>(
        &self,
        chunks: Range<usize>,
        values: &mut [T],
        mut change: impl FnMut(usize, [T; N]) -> [T; N],
    ) {
        assert!(values.len() >= self.bound);
        let (all, _) = self.at.as_chunks::<N>();
        for (chunk, at) in chunks.clone().zip(&all[chunks]) {
            // SAFETY: `new` has found all positions below `bound`, and nobody can have changed them since; so many
            // values there are.
            let old = at.map(|at| unsafe { *values.get_unchecked(usize::from(at)) });
            let new = change(chunk, old);
            for (at, new) in at.iter().zip(new) {
                // SAFETY: as above.
                unsafe { *values.get_unchecked_mut(usize::from(*at)) = new };
            }
        }
    }
}

/// Asks the processor to have the cache line of `values[at]` ready soon. `at` need not exist.
///
/// Sweeps through grids step from one short row to another, which hardware does not foresee.
#[inline(always)]
pub fn prefetch(values: &[f64], at: usize) {
    hint::<SOON>(values.as_ptr().wrapping_add(at));
}

/// Asks for `row` to be in the second-level cache later. For memory that is going to be read after
/// other work which needs none: processors fetch ahead by themselves within a stream, but not the
/// beginning of the next.
#[inline(always)]
pub fn prefetch_row(row: &[f64]) {
    for line in row.chunks(64 / size_of::<f64>()) {
        hint::<LATER>(line.as_ptr());
    }
}

#[cfg(target_arch = "x86_64")]
const SOON: i32 = std::arch::x86_64::_MM_HINT_T0;
#[cfg(target_arch = "x86_64")]
const LATER: i32 = std::arch::x86_64::_MM_HINT_T1;
#[cfg(not(target_arch = "x86_64"))]
const SOON: i32 = 0;
#[cfg(not(target_arch = "x86_64"))]
const LATER: i32 = 1;

#[inline(always)]
fn hint<const WHEN: i32>(address: *const f64) {
    // SAFETY: the instruction is a hint: nothing is read as far as the program can tell, whatever
    // the address, and every x86-64 processor has it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<WHEN>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// A set of vector instructions that this processor has. Values exist only for sets that were
/// detected, which is what makes [`Level::run`] safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(Isa);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// What the program was compiled for; on every processor.
    pub const BASELINE: Self = Self(Isa::Baseline);

    /// The levels of this processor, slowest first.
    #[must_use]
    pub fn supported() -> Vec<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut levels = vec![Self::BASELINE];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            levels.push(Self(Isa::Avx2));
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                levels.push(Self(Isa::Avx512));
            }
        }
        levels
    }

    /// The fastest level of this processor.
    #[must_use]
    pub fn best() -> Self {
        Self::supported().pop().unwrap_or(Self::BASELINE)
    }

    /// The level called `name` (`baseline`, `avx2`, `avx512`), if this processor has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::supported()
            .into_iter()
            .find(|level| level.name() == name)
    }

    /// The name that [`Level::named`] takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Isa::Baseline => "baseline",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
        }
    }

    /// Runs `kernel` as code for this level.
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Isa::Baseline => kernel.run::<false>(),
            // SAFETY: a `Level` with this value is only made by `supported`, after it has
            // detected each of the features that `avx2` enables.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2(kernel) },
            // SAFETY: as above, with the features of `avx512`.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { avx512(kernel) },
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<true>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq,avx512vl")]
fn avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<true>()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dot<'a>(&'a [f64], &'a [f64]);

    impl Kernel for Dot<'_> {
        type Output = f64;

        #[inline(always)]
        fn run<const FMA: bool>(self) -> f64 {
            self.0
                .iter()
                .zip(self.1)
                .fold(0.0, |sum, (a, b)| mul_add::<FMA>(*a, *b, sum))
        }
    }

    #[test]
    fn every_level_computes_the_same() {
        let a: Vec<f64> = (0..1001).map(f64::from).collect();
        let b: Vec<f64> = a.iter().map(|x| 2.0 * x + 1.0).collect();
        for level in Level::supported() {
            // 2 sum k^2 + sum k for k = 0..=1000: small integers, exact at every level.
            assert_eq!(level.run(Dot(&a, &b)), 667_667_000.0 + 500_500.0, "{level}");
        }
    }

    #[test]
    fn transposition_swaps_rows_and_columns() {
        let rows: [[f64; 8]; 8] =
            std::array::from_fn(|r| std::array::from_fn(|c| (10 * r + c) as f64));
        let columns = transpose::<true>(rows.each_ref());
        assert_eq!(transpose::<false>(rows.each_ref()), columns);
        for (c, column) in columns.iter().enumerate() {
            for (r, row) in rows.iter().enumerate() {
                assert_eq!(column[r], row[c]);
            }
        }
        assert_eq!(transpose::<true>(columns.each_ref()), rows);
    }

    #[test]
    fn positions_are_updated_in_chunks() {
        let mut at = Array::new(6).unwrap();
        at.copy_from_slice(&[0_u16, 3, 2, 4, 3, 1]);
        let positions = Positions::new(at, 5);
        let mut values = [10, 20, 30, 40, 50, 60];
        positions.update(1..3, &mut values, |chunk, [a, b]| [a + chunk, b + 5]);
        assert_eq!(values, [10, 25, 31, 42, 55, 60]);
    }

    #[test]
    #[should_panic(expected = "< bound")]
    fn a_position_that_may_not_exist_is_refused() {
        let mut at = Array::new(1).unwrap();
        at[0] = 5_u16;
        let _ = Positions::new(at, 5);
    }

    #[test]
    #[should_panic(expected = ">= self.bound")]
    fn a_slice_that_is_too_short_is_refused() {
        let positions = Positions::new(Array::new(1).unwrap(), 5);
        positions.update(0..1, &mut [1; 4], |_, old: [i32; 1]| old);
    }

    #[test]
    fn names_round_trip() {
        for level in Level::supported() {
            assert_eq!(Level::named(level.name()), Some(level));
        }
        assert_eq!(Level::named("mmx"), None);
        assert_eq!(Some(&Level::best()), Level::supported().last());
    }
}
