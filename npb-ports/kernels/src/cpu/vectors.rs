//! Vectors of eight numbers as registers: for kernels whose operations are shuffled numbers, long
//! chains of sums or stores past the caches, of which the compiler does not make vector code by itself.
//!
//! A kernel that implements [`VectorKernel`] is compiled for each [`Level`] with a [`Vector`] of that level: one register of
//! AVX-512, two of AVX2, four of AArch64's, an array for the baseline of others. The types have no name outside of this file: whoever has one got it
//! from `Level::run_vectors`, so the processor has its instructions.

use super::{Isa, Level};
use std::ops::{Add, Mul, Sub};

/// Eight `f64`. All arithmetic is by lane.
pub trait Vector: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {
    /// The same number in all lanes.
    fn splat(x: f64) -> Self;

    /// Eight numbers from memory.
    fn load(from: &[f64; 8]) -> Self;

    /// To memory.
    fn store(self, to: &mut [f64; 8]);

    /// To memory that is not read for long, past the caches if it is aligned to 64 bytes: the processor does not
    /// read first what is to be overwritten. Others see it when the kernel has returned.
    fn stream(self, to: &mut [f64; 8]);

    /// self * b + c.
    fn mul_add(self, b: Self, c: Self) -> Self;

    /// c - self * b.
    fn neg_mul_add(self, b: Self, c: Self) -> Self;

    /// Rows become columns.
    fn transpose(rows: [Self; 8]) -> [Self; 8];
}

/// Work that is written with vectors.
pub trait VectorKernel {
    /// What the work yields.
    type Output;

    /// Does the work. The implementation must be `#[inline(always)]`, and so must what it calls in its inner loops; closures are not.
    fn run<V: Vector>(self) -> Self::Output;
}

impl Level {
    /// Runs `kernel` as code for this level. Only this crate may call it, as [`Level::run`].
    pub(crate) fn run_vectors<K: VectorKernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Isa::Baseline => baseline(kernel),
            // SAFETY: a `Level` with this value is only made by `supported`, after it has
            // detected each of the features that `avx2` enables.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { x86::avx2(kernel) },
            // SAFETY: as above, with the features of `avx512`.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { x86::avx512(kernel) },
        }
    }
}

/// As in [`Level::run`].
#[inline(never)]
fn baseline<K: VectorKernel>(kernel: K) -> K::Output {
    kernel.run::<Baseline>()
}

#[cfg(target_arch = "aarch64")]
type Baseline = neon::Neon;
#[cfg(not(target_arch = "aarch64"))]
type Baseline = crate::simd::F64x8;

/// Any other processor: arrays, of which the compiler makes what it can.
#[cfg(not(target_arch = "aarch64"))]
mod plain {
    use super::Vector;
    use crate::simd::F64x8;

    impl Vector for F64x8 {
        #[inline(always)]
        fn splat(x: f64) -> Self {
            Self([x; 8])
        }

        #[inline(always)]
        fn load(from: &[f64; 8]) -> Self {
            Self(*from)
        }

        #[inline(always)]
        fn store(self, to: &mut [f64; 8]) {
            *to = self.0;
        }

        #[inline(always)]
        fn stream(self, to: &mut [f64; 8]) {
            self.store(to);
        }

        #[inline(always)]
        fn mul_add(self, b: Self, c: Self) -> Self {
            self.mul_add::<false>(b, c)
        }

        #[inline(always)]
        fn neg_mul_add(self, b: Self, c: Self) -> Self {
            c - self * b
        }

        #[inline(always)]
        fn transpose(rows: [Self; 8]) -> [Self; 8] {
            let mut columns = [Self([0.0; 8]); 8];
            for (r, row) in rows.into_iter().enumerate() {
                for (column, x) in columns.iter_mut().zip(row.0) {
                    column.0[r] = x;
                }
            }
            columns
        }
    }
}

/// AArch64: every processor has registers of two numbers.
#[cfg(target_arch = "aarch64")]
mod neon {
    use super::Vector;
    use std::arch::aarch64::*;
    use std::ops::{Add, Mul, Sub};

    #[derive(Clone, Copy)]
    pub(super) struct Neon([float64x2_t; 4]);

    impl Neon {
        #[inline(always)]
        fn each(f: impl Fn(usize) -> float64x2_t) -> Self {
            Self([f(0), f(1), f(2), f(3)])
        }
    }

    macro_rules! by_register {
        ($($trait:ident $method:ident $intrinsic:ident;)*) => {$(
            impl $trait for Neon {
                type Output = Self;
                #[inline(always)]
                fn $method(self, other: Self) -> Self {
                    // SAFETY: every AArch64 processor has the instruction.
                    Self::each(|i| unsafe { $intrinsic(self.0[i], other.0[i]) })
                }
            }
        )*};
    }

    by_register! {
        Add add vaddq_f64;
        Sub sub vsubq_f64;
        Mul mul vmulq_f64;
    }

    impl Vector for Neon {
        #[inline(always)]
        fn splat(x: f64) -> Self {
            // SAFETY: every AArch64 processor has the instruction, as below.
            Self([unsafe { vdupq_n_f64(x) }; 4])
        }

        #[inline(always)]
        fn load(from: &[f64; 8]) -> Self {
            // SAFETY: two of the eight numbers.
            Self::each(|i| unsafe { vld1q_f64(from.as_ptr().add(2 * i)) })
        }

        #[inline(always)]
        fn store(self, to: &mut [f64; 8]) {
            for (i, two) in self.0.into_iter().enumerate() {
                // SAFETY: two of the eight numbers.
                unsafe { vst1q_f64(to.as_mut_ptr().add(2 * i), two) };
            }
        }

        #[inline(always)]
        fn stream(self, to: &mut [f64; 8]) {
            self.store(to);
        }

        #[inline(always)]
        fn mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: as above.
            Self::each(|i| unsafe { vfmaq_f64(c.0[i], self.0[i], b.0[i]) })
        }

        #[inline(always)]
        fn neg_mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: as above.
            Self::each(|i| unsafe { vfmsq_f64(c.0[i], self.0[i], b.0[i]) })
        }

        #[inline(always)]
        fn transpose(rows: [Self; 8]) -> [Self; 8] {
            let mut columns = rows;
            for r in 0..4 {
                for c in 0..4 {
                    let (above, below) = (rows[2 * r].0[c], rows[2 * r + 1].0[c]);
                    // SAFETY: as above.
                    unsafe {
                        columns[2 * c].0[r] = vtrn1q_f64(above, below);
                        columns[2 * c + 1].0[r] = vtrn2q_f64(above, below);
                    }
                }
            }
            columns
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Vector, VectorKernel};
    use std::arch::x86_64::*;
    use std::ops::{Add, Mul, Sub};

    /// Orders streamed stores before all that follow, so that others do not see them late.
    #[inline(always)]
    fn finish_streams() {
        #[allow(
            unused_unsafe,
            reason = "only older versions of Rust take this for unsafe"
        )]
        // SAFETY: every processor of x86-64 has the instruction.
        unsafe {
            _mm_sfence();
        }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn avx2<K: VectorKernel>(kernel: K) -> K::Output {
        let output = kernel.run::<Avx2>();
        finish_streams();
        output
    }

    #[target_feature(enable = "avx2,fma,avx512f,avx512dq,avx512vl")]
    pub(super) fn avx512<K: VectorKernel>(kernel: K) -> K::Output {
        let output = kernel.run::<Avx512>();
        finish_streams();
        output
    }

    /// Lanes 0 to 3, and the others.
    #[derive(Clone, Copy)]
    pub(super) struct Avx2(__m256d, __m256d);

    #[derive(Clone, Copy)]
    pub(super) struct Avx512(__m512d);

    /// Operators of both types.
    macro_rules! operators {
        ($($trait:ident $method:ident $half:ident $whole:ident;)*) => {$(
            impl $trait for Avx2 {
                type Output = Self;
                #[inline(always)]
                fn $method(self, other: Self) -> Self {
                    // SAFETY: who has such a vector is run by `avx2`, on a processor with its features.
                    unsafe { Self($half(self.0, other.0), $half(self.1, other.1)) }
                }
            }
            impl $trait for Avx512 {
                type Output = Self;
                #[inline(always)]
                fn $method(self, other: Self) -> Self {
                    // SAFETY: who has such a vector is run by `avx512`, on a processor with its features.
                    unsafe { Self($whole(self.0, other.0)) }
                }
            }
        )*};
    }

    operators! {
        Add add _mm256_add_pd _mm512_add_pd;
        Sub sub _mm256_sub_pd _mm512_sub_pd;
        Mul mul _mm256_mul_pd _mm512_mul_pd;
    }

    // SAFETY, of all blocks below: `Vector`s of these types are made in kernels that `avx2` and
    // `avx512` run, on a processor with their features; four or eight numbers are read or written of eight.

    impl Vector for Avx2 {
        #[inline(always)]
        fn splat(x: f64) -> Self {
            // SAFETY: see above.
            let x = unsafe { _mm256_set1_pd(x) };
            Self(x, x)
        }

        #[inline(always)]
        fn load(from: &[f64; 8]) -> Self {
            let from = from.as_ptr();
            // SAFETY: see above.
            unsafe { Self(_mm256_loadu_pd(from), _mm256_loadu_pd(from.add(4))) }
        }

        #[inline(always)]
        fn store(self, to: &mut [f64; 8]) {
            let to = to.as_mut_ptr();
            // SAFETY: see above.
            unsafe {
                _mm256_storeu_pd(to, self.0);
                _mm256_storeu_pd(to.add(4), self.1);
            }
        }

        #[inline(always)]
        fn stream(self, to: &mut [f64; 8]) {
            let start = to.as_mut_ptr();
            if start.align_offset(64) > 0 {
                return self.store(to);
            }
            // SAFETY: see above, and the address is aligned.
            unsafe {
                _mm256_stream_pd(start, self.0);
                _mm256_stream_pd(start.add(4), self.1);
            }
        }

        #[inline(always)]
        fn mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: see above.
            unsafe {
                Self(
                    _mm256_fmadd_pd(self.0, b.0, c.0),
                    _mm256_fmadd_pd(self.1, b.1, c.1),
                )
            }
        }

        #[inline(always)]
        fn neg_mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: see above.
            unsafe {
                Self(
                    _mm256_fnmadd_pd(self.0, b.0, c.0),
                    _mm256_fnmadd_pd(self.1, b.1, c.1),
                )
            }
        }

        #[inline(always)]
        fn transpose(r: [Self; 8]) -> [Self; 8] {
            let [a, b] = [
                quarter(r[0].0, r[1].0, r[2].0, r[3].0),
                quarter(r[4].0, r[5].0, r[6].0, r[7].0),
            ];
            let [c, d] = [
                quarter(r[0].1, r[1].1, r[2].1, r[3].1),
                quarter(r[4].1, r[5].1, r[6].1, r[7].1),
            ];
            [
                Self(a[0], b[0]),
                Self(a[1], b[1]),
                Self(a[2], b[2]),
                Self(a[3], b[3]),
                Self(c[0], d[0]),
                Self(c[1], d[1]),
                Self(c[2], d[2]),
                Self(c[3], d[3]),
            ]
        }
    }

    /// Transposes 4 x 4 numbers.
    #[inline(always)]
    fn quarter(a: __m256d, b: __m256d, c: __m256d, d: __m256d) -> [__m256d; 4] {
        // SAFETY: see above.
        unsafe {
            let (even, odd) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            let (even_below, odd_below) = (_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
            [
                _mm256_permute2f128_pd::<0x20>(even, even_below),
                _mm256_permute2f128_pd::<0x20>(odd, odd_below),
                _mm256_permute2f128_pd::<0x31>(even, even_below),
                _mm256_permute2f128_pd::<0x31>(odd, odd_below),
            ]
        }
    }

    impl Vector for Avx512 {
        #[inline(always)]
        fn splat(x: f64) -> Self {
            // SAFETY: see above.
            unsafe { Self(_mm512_set1_pd(x)) }
        }

        #[inline(always)]
        fn load(from: &[f64; 8]) -> Self {
            // SAFETY: see above.
            unsafe { Self(_mm512_loadu_pd(from.as_ptr())) }
        }

        #[inline(always)]
        fn store(self, to: &mut [f64; 8]) {
            // SAFETY: see above.
            unsafe { _mm512_storeu_pd(to.as_mut_ptr(), self.0) }
        }

        #[inline(always)]
        fn stream(self, to: &mut [f64; 8]) {
            let start = to.as_mut_ptr();
            if start.align_offset(64) > 0 {
                return self.store(to);
            }
            // SAFETY: see above, and the address is aligned.
            unsafe { _mm512_stream_pd(start, self.0) }
        }

        #[inline(always)]
        fn mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: see above.
            unsafe { Self(_mm512_fmadd_pd(self.0, b.0, c.0)) }
        }

        #[inline(always)]
        fn neg_mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: see above.
            unsafe { Self(_mm512_fnmadd_pd(self.0, b.0, c.0)) }
        }

        #[inline(always)]
        fn transpose(r: [Self; 8]) -> [Self; 8] {
            let [a, b, c, d, e, f, g, h] = r;
            let [even, odd] = [
                [
                    pair::<false>(a, b),
                    pair::<false>(c, d),
                    pair::<false>(e, f),
                    pair::<false>(g, h),
                ],
                [
                    pair::<true>(a, b),
                    pair::<true>(c, d),
                    pair::<true>(e, f),
                    pair::<true>(g, h),
                ],
            ];
            let [a, c, e, g] = quarters(even);
            let [b, d, f, h] = quarters(odd);
            [a, b, c, d, e, f, g, h]
        }
    }

    /// Even (odd) lanes of `a` and `b` in turn.
    #[inline(always)]
    fn pair<const ODD: bool>(a: Avx512, b: Avx512) -> Avx512 {
        // SAFETY: see above.
        unsafe {
            Avx512(if ODD {
                _mm512_unpackhi_pd(a.0, b.0)
            } else {
                _mm512_unpacklo_pd(a.0, b.0)
            })
        }
    }

    /// Transposes 4 x 4 pairs of lanes.
    #[inline(always)]
    fn quarters([a, b, c, d]: [Avx512; 4]) -> [Avx512; 4] {
        let [low, low_below] = [alternate::<0x88>(a, b), alternate::<0x88>(c, d)];
        let [high, high_below] = [alternate::<0xdd>(a, b), alternate::<0xdd>(c, d)];
        [
            alternate::<0x88>(low, low_below),
            alternate::<0x88>(high, high_below),
            alternate::<0xdd>(low, low_below),
            alternate::<0xdd>(high, high_below),
        ]
    }

    /// Pairs 0 and 2 of `a` and of `b` (0x88), or pairs 1 and 3 (0xdd).
    #[inline(always)]
    fn alternate<const WHICH: i32>(a: Avx512, b: Avx512) -> Avx512 {
        // SAFETY: see above.
        unsafe { Avx512(_mm512_shuffle_f64x2::<WHICH>(a.0, b.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Everything<'a>(&'a [[f64; 8]; 8]);

    impl VectorKernel for Everything<'_> {
        type Output = [[f64; 8]; 14];

        #[inline(always)]
        fn run<V: Vector>(self) -> Self::Output {
            let mut rows = [V::splat(0.0); 8];
            for (row, from) in rows.iter_mut().zip(self.0) {
                *row = V::load(from);
            }
            let mut out = [[0.0; 8]; 14];
            for (column, to) in V::transpose(rows).into_iter().zip(&mut out) {
                column.store(to);
            }
            let [a, b, c, ..] = rows;
            (a + b).store(&mut out[8]);
            (a - b).store(&mut out[9]);
            (a * b).store(&mut out[10]);
            a.mul_add(b, c).stream(&mut out[11]);
            a.neg_mul_add(b, c).stream(&mut out[12]);
            V::splat(3.0).stream(&mut out[13]);
            out
        }
    }

    #[test]
    fn every_level_computes_the_same() {
        let rows: [[f64; 8]; 8] =
            std::array::from_fn(|r| std::array::from_fn(|c| (10 * r + c) as f64));
        for level in Level::supported() {
            let out = level.run_vectors(Everything(&rows));
            for lane in 0..8 {
                for row in 0..8 {
                    assert_eq!(out[lane][row], rows[row][lane], "{level}");
                }
                let [a, b, c] = [0, 1, 2].map(|row| rows[row][lane]);
                let results = [a + b, a - b, a * b, a * b + c, c - a * b, 3.0];
                for (result, out) in results.into_iter().zip(&out[8..]) {
                    assert_eq!(out[lane], result, "{level}");
                }
            }
        }
    }
}
