//! Runs a kernel as code for the best vector instructions of this processor.
//!
//! The workspace is built for the baseline: of x86-64, which has 16-byte vectors and no fused
//! multiply-add, or of AArch64, which has both. A kernel that implements [`Kernel`] with an `#[inline(always)]` method is
//! compiled once per [`Level`] and the choice among the copies is made at run time. [`vectors`] is for
//! kernels that say their vectors themselves. But for these two files the crate is plain safe Rust.

#![allow(unsafe_code)]

pub mod vectors;

use crate::array::Array;
use std::fmt;

/// Bytes of a cache line.
pub const LINE: usize = 64;

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

/// Whether the baseline has it.
const FUSED: bool = cfg!(target_arch = "aarch64");

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

/// Positions of pairs in a slice, which are known to exist in every slice that is long enough: nobody needs to compare
/// them with its length again and again, as sparse matrices would at each of their numbers.
#[derive(Debug)]
pub struct Positions {
    /// Where pairs begin in numbers, which is as processors address them: even, and below `2 * bound`.
    at: Array<u16>,
    bound: usize,
}

impl Positions {
    /// There can't be positions from here on.
    pub const MOST: usize = 1 << 15;

    /// The positions `at`.
    ///
    /// # Panics
    /// If one of them is not below `bound`, or that is more than [`Positions::MOST`].
    #[must_use]
    pub fn new(mut at: Array<u16>, bound: usize) -> Self {
        assert!(bound <= Self::MOST);
        for at in at.iter_mut() {
            assert!(usize::from(*at) < bound, "{at} in {bound} pairs");
            *at *= 2;
        }
        Self { at, bound }
    }

    /// A row of a symmetric matrix, times a vector, in both directions: `entries` are those in the columns that follow from
    /// chunk `first` of the positions on, `pairs` a number of the vector and one of the product for each column. Gives
    /// the sum of entries times numbers of the vector, and adds to the product each entry times `own`.
    ///
    /// Two columns are one vector of 32 bytes with AVX2 (left to the compiler, it is two, or pieces of both, and slower by
    /// a quarter).
    ///
    /// Entries and positions are fetched `ahead` of their use, which need not exist.
    ///
    /// The columns of a chunk should differ: where they do not, only the last one's entry is added to the product.
    ///
    /// # Panics
    /// If there are less than `bound` pairs, or less chunks than `entries`.
    #[inline(always)]
    pub fn row_and_columns<const FMA: bool>(
        &self,
        first: usize,
        entries: &[Entries],
        pairs: &mut [[f64; 2]],
        own: f64,
        ahead: usize,
    ) -> f64 {
        assert!(pairs.len() >= self.bound, "{} pairs", pairs.len());
        let numbers = pairs.as_flattened_mut();
        let (chunks, _) = self.at.as_chunks::<COLUMNS>();
        let chunks = &chunks[first..first + entries.len()];
        #[cfg(target_arch = "x86_64")]
        if FMA && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has the instructions. `new` has found all positions below `bound`, and nobody can have
            // changed them since; so many pairs there are.
            return unsafe { row_and_columns_avx2(chunks, entries, numbers, own, ahead) };
        }
        let own = [0.0, own];
        let mut sums = [[0.0; 2]; COLUMNS];
        for (at, entries) in chunks.iter().zip(entries) {
            hint::<SOON>(entries.as_ptr().wrapping_add(ahead));
            hint::<SOON>(at.as_ptr().wrapping_add(ahead).cast());
            let at = at.map(usize::from);
            let mut new = [[0.0; 2]; COLUMNS];
            for c in 0..COLUMNS {
                // SAFETY: `new` has found all positions below `bound`, and so many pairs there are.
                let old = unsafe {
                    [
                        *numbers.get_unchecked(at[c]),
                        *numbers.get_unchecked(at[c] + 1),
                    ]
                };
                for side in 0..2 {
                    sums[c][side] = mul_add::<FMA>(entries[c], old[side], sums[c][side]);
                    // The vector's number stays as it is.
                    new[c][side] = mul_add::<FMA>(entries[c], own[side], old[side]);
                }
            }
            for c in 0..COLUMNS {
                // SAFETY: as above.
                unsafe {
                    *numbers.get_unchecked_mut(at[c]) = new[c][0];
                    *numbers.get_unchecked_mut(at[c] + 1) = new[c][1];
                }
            }
        }
        (sums[0][0] + sums[2][0]) + (sums[1][0] + sums[3][0])
    }
}

/// Columns in a chunk of a [row](Positions::row_and_columns).
pub const COLUMNS: usize = 4;

/// The entries of a chunk.
pub type Entries = [f64; COLUMNS];

/// [`Positions::row_and_columns`] with vectors of two pairs.
///
/// # Safety
/// There are numbers at all positions, and after them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn row_and_columns_avx2(
    chunks: &[[u16; COLUMNS]],
    entries: &[Entries],
    numbers: &mut [f64],
    own: f64,
    ahead: usize,
) -> f64 {
    use std::arch::x86_64 as x86;
    let own = x86::_mm256_setr_pd(0.0, own, 0.0, own);
    let (mut even, mut odd) = (x86::_mm256_setzero_pd(), x86::_mm256_setzero_pd());
    let numbers = numbers.as_mut_ptr();
    for (at, entries) in chunks.iter().zip(entries) {
        hint::<SOON>(entries.as_ptr().wrapping_add(ahead));
        hint::<SOON>(at.as_ptr().wrapping_add(ahead).cast());
        // SAFETY: the caller has promised that these are there.
        let [a, b, c, d] = at.map(|at| unsafe { numbers.add(usize::from(at)) });
        // SAFETY: as above.
        let load = |low, high| unsafe { x86::_mm256_loadu2_m128d(high, low) };
        // SAFETY: as above.
        let store = |low, high, pairs| unsafe { x86::_mm256_storeu2_m128d(high, low, pairs) };
        // SAFETY: these are four numbers.
        let entries = unsafe { x86::_mm256_loadu_pd(entries.as_ptr()) };
        let (first, second) = (
            x86::_mm256_movedup_pd(entries),
            x86::_mm256_permute_pd::<0b1111>(entries),
        );
        let (old, others) = (load(a, c), load(b, d));
        even = x86::_mm256_fmadd_pd(first, old, even);
        odd = x86::_mm256_fmadd_pd(second, others, odd);
        store(a, c, x86::_mm256_fmadd_pd(first, own, old));
        store(b, d, x86::_mm256_fmadd_pd(second, own, others));
    }
    let sums = x86::_mm256_add_pd(even, odd);
    let [low, high] = [
        x86::_mm256_castpd256_pd128(sums),
        x86::_mm256_extractf128_pd::<1>(sums),
    ];
    x86::_mm_cvtsd_f64(x86::_mm_add_sd(low, high))
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
pub fn prefetch_row<T>(row: &[T]) {
    for line in row.chunks(LINE / size_of::<T>()) {
        hint::<LATER>(line.as_ptr().cast());
    }
}

/// When the line is wanted.
const SOON: i32 = 0;
const LATER: i32 = 1;

#[inline(always)]
fn hint<const WHEN: i32>(address: *const f64) {
    // SAFETY: the instruction is a hint: nothing is read as far as the program can tell, whatever
    // the address, and every x86-64 processor has it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match WHEN {
            SOON => _mm_prefetch::<_MM_HINT_T0>(address.cast()),
            _ => _mm_prefetch::<_MM_HINT_T1>(address.cast()),
        }
    }
    // SAFETY: as above, of AArch64.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        use std::arch::asm;
        match WHEN {
            SOON => {
                asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags))
            }
            _ => {
                asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags))
            }
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// A set of vector instructions that this processor has. Values exist only for sets that were
/// detected, which is what makes `Level::run` safe.
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
                && is_x86_feature_detected!("popcnt")
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

    /// Whether [`keep`](Self::keep) is one instruction for many numbers.
    #[inline]
    #[must_use]
    pub fn compresses(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => true,
            _ => false,
        }
    }

    /// Copies those of `values` that are at least `low`, and less than `width` more, to the front of `kept`, in
    /// their order; what follows there may change, too. Gives how many they are.
    ///
    /// # Panics
    /// If `kept` has no room for all of `values`.
    pub fn keep(self, values: &[u32], low: u32, width: u32, kept: &mut [u32]) -> usize {
        let kept = &mut kept[..values.len()];
        let (vectors, rest) = values.as_chunks::<16>();
        let mut count = match self.0 {
            // SAFETY: as in `run`.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { keep_avx512(vectors, low, width, kept) },
            _ => keep(vectors.as_flattened(), low, width, kept),
        };
        count += keep(rest, low, width, &mut kept[count..]);
        count
    }

    /// Runs `kernel` as code for this level. Only this crate may call it: a caller elsewhere would compile the kernel again.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Isa::Baseline => baseline(kernel),
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

/// Adds a method `at` to each of these kernels, which other crates call to run it. The method has no type parameters, so
/// that this crate compiles the code of all levels.
macro_rules! entries {
    ($trait:path, $run:ident: $($kernel:ty),+ $(,)?) => {$(
        impl $kernel {
            /// Runs this as code for `level`.
            pub fn at(self, level: $crate::cpu::Level) -> <Self as $trait>::Output {
                level.$run(self)
            }
        }
    )+};
}
pub(crate) use entries;

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// A function for each kernel and level, which `tests/code` finds by name.

#[inline(never)]
fn baseline<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<FUSED>()
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

/// [`Level::keep`] without a branch that depends on the numbers.
fn keep(values: &[u32], low: u32, width: u32, kept: &mut [u32]) -> usize {
    let mut count = 0;
    for &value in values {
        kept[count] = value;
        count += usize::from(value.wrapping_sub(low) < width);
    }
    count
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,popcnt")]
fn keep_avx512(vectors: &[[u32; 16]], low: u32, width: u32, kept: &mut [u32]) -> usize {
    use std::arch::x86_64 as x86;
    assert!(kept.len() >= 16 * vectors.len());
    let lows = x86::_mm512_set1_epi32(low.cast_signed());
    let widths = x86::_mm512_set1_epi32(width.cast_signed());
    let mut count = 0;
    for vector in vectors {
        // SAFETY: a vector is 16 numbers.
        let values = unsafe { x86::_mm512_loadu_epi32(vector.as_ptr().cast()) };
        let inside = x86::_mm512_cmplt_epu32_mask(x86::_mm512_sub_epi32(values, lows), widths);
        let front = x86::_mm512_maskz_compress_epi32(inside, values);
        // SAFETY: of the vectors before this one 16 numbers each were kept at most, so that there are 16 places left.
        unsafe { x86::_mm512_storeu_epi32(kept.as_mut_ptr().add(count).cast(), front) };
        count += inside.count_ones() as usize;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_range_are_kept_in_order() {
        for len in [0, 1, 15, 16, 17, 100, 1000] {
            // A sequence that visits all of 0..1009, and the ends of what there is.
            let mut values: Vec<u32> = (0..len).map(|i| i * 611 % 1009).collect();
            if let [first, .., last] = &mut values[..] {
                (*first, *last) = (0, u32::MAX);
            }
            for (low, width) in [
                (0, 0),
                (0, 1),
                (0, 500),
                (400, 609),
                (300, 1),
                (7, u32::MAX - 6),
            ] {
                let inside = |v: &&u32| **v >= low && **v - low < width;
                let expected: Vec<u32> = values.iter().filter(inside).copied().collect();
                for level in Level::supported() {
                    let mut kept = vec![5; values.len() + 3];
                    let count = level.keep(&values, low, width, &mut kept);
                    assert_eq!(kept[..count], expected, "{level}: {low} {width}");
                    assert_eq!(kept[values.len()..], [5; 3]);
                }
            }
        }
    }

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

    struct Row<'a>(&'a Positions, [Entries; 2], &'a mut [[f64; 2]]);

    impl Kernel for Row<'_> {
        type Output = f64;

        #[inline(always)]
        fn run<const FMA: bool>(self) -> f64 {
            self.0.row_and_columns::<FMA>(1, &self.1, self.2, 3.0, 64)
        }
    }

    #[test]
    fn a_row_takes_from_columns_and_gives_to_them() {
        let mut at = Array::new(12).unwrap();
        at.copy_from_slice(&[0_u16, 0, 0, 0, 5, 1, 2, 0, 3, 1, 5, 2]);
        let positions = Positions::new(at, 6);
        let entries = [[1.0, 10.0, 100.0, 1000.0], [2.0, 20.0, 200.0, 0.0]];
        for level in Level::supported() {
            let mut pairs: Vec<_> = (0..8).map(|i| [f64::from(i), 0.5]).collect();
            let sum = level.run(Row(&positions, entries, &mut pairs));
            assert_eq!(sum, 5.0 + 10.0 + 200.0 + 6.0 + 20.0 + 1000.0, "{level}");
            let products = [3000.0, 90.0, 300.0, 6.0, 0.0, 603.0, 0.0, 0.0];
            for (i, (pair, product)) in pairs.into_iter().zip(products).enumerate() {
                assert_eq!(pair, [i as f64, 0.5 + product], "{level}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "5 in 5 pairs")]
    fn a_position_that_may_not_exist_is_refused() {
        let mut at = Array::new(1).unwrap();
        at[0] = 5_u16;
        let _ = Positions::new(at, 5);
    }

    #[test]
    #[should_panic(expected = "4 pairs")]
    fn a_slice_that_is_too_short_is_refused() {
        let positions = Positions::new(Array::new(1).unwrap(), 5);
        positions.row_and_columns::<false>(0, &[], &mut [[1.0; 2]; 4], 1.0, 64);
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
