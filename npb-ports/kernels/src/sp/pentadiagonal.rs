//! Penta-diagonal systems of equations, eight at a time: one system a line of the grid, one lane a
//! line.
//!
//! Along a line, SP solves for five unknowns a point. Each has a scalar system in which point i
//! is tied to i-2 .. i+2. Those of the first three unknowns have equal coefficients and are
//! eliminated together; those of the other two differ by plus or minus the speed of sound.
//!
//! Elimination goes up the line and needs only the two rows below ([`Carry`]), so a line that is
//! cut between PEs is eliminated piece by piece, the carry being the message. No row is special:
//! before the first row the carry is zero, which says that the unknowns beyond the ends are.
//! Substitution goes down in the same manner ([`substitute`]).

use crate::simd::F64x8;

/// Unknowns of a point.
pub const UNKNOWNS: usize = 5;

/// The unknowns whose systems have the same coefficients; the others have one each.
const SHARING: usize = 3;

/// Systems of a line that differ in their coefficients.
pub const SYSTEMS: usize = UNKNOWNS - SHARING + 1;

/// Numbers of a line that are kept per row for the substitution: two coefficients a system.
pub const KEPT: usize = 2 * SYSTEMS;

/// One row: `a x[i-2] + b x[i-1] + c x[i] + d x[i+1] + e x[i+2]`.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Coefficient of `x[i-2]`.
    pub a: F64x8,
    /// Coefficient of `x[i-1]`.
    pub b: F64x8,
    /// Coefficient of `x[i]`.
    pub c: F64x8,
    /// Coefficient of `x[i+1]`.
    pub d: F64x8,
    /// Coefficient of `x[i+2]`.
    pub e: F64x8,
}

impl Row {
    /// The row with `below` added to `b` and `above` to `d`.
    #[inline(always)]
    #[must_use]
    pub fn shifted(self, below: F64x8, above: F64x8) -> Self {
        Self {
            b: self.b + below,
            d: self.d + above,
            ..self
        }
    }
}

/// What elimination makes of a row for `N` right-hand sides:
/// `x[i] + d x[i+1] + e x[i+2] = r`.
#[derive(Clone, Copy, Debug)]
struct Eliminated<const N: usize> {
    d: F64x8,
    e: F64x8,
    r: [F64x8; N],
}

impl<const N: usize> Eliminated<N> {
    /// Says that `x[i]` is zero.
    const ZERO: Self = Self {
        d: F64x8::splat(0.0),
        e: F64x8::splat(0.0),
        r: [F64x8::splat(0.0); N],
    };

    /// Eliminates `x[i-2]` and `x[i-1]` from `row` with the two rows before it, the nearer one last.
    #[inline(always)]
    fn of<const FMA: bool>(row: Row, mut r: [F64x8; N], [far, near]: &[Self; 2]) -> Self {
        let b = row.a.neg_mul_add::<FMA>(far.d, row.b);
        let pivot = row.a.neg_mul_add::<FMA>(far.e, row.c);
        let scale = b.neg_mul_add::<FMA>(near.d, pivot).recip();
        for ((r, far), near) in r.iter_mut().zip(&far.r).zip(&near.r) {
            let partly = row.a.neg_mul_add::<FMA>(*far, *r);
            *r = b.neg_mul_add::<FMA>(*near, partly) * scale;
        }
        Self {
            d: b.neg_mul_add::<FMA>(near.e, row.d) * scale,
            e: row.e * scale,
            r,
        }
    }
}

/// The last two rows eliminated, of all systems: what the rows after them need.
#[derive(Clone, Copy, Debug)]
pub struct Carry {
    shared: [Eliminated<SHARING>; 2],
    plus: [Eliminated<1>; 2],
    minus: [Eliminated<1>; 2],
}

impl Default for Carry {
    /// Before the first row: the unknowns there are zero.
    #[inline(always)]
    fn default() -> Self {
        Self {
            shared: [Eliminated::ZERO; 2],
            plus: [Eliminated::ZERO; 2],
            minus: [Eliminated::ZERO; 2],
        }
    }
}

impl Carry {
    /// Numbers a line.
    pub const WORDS: usize = 2 * (KEPT + UNKNOWNS);

    /// Eliminates the next row: `row` for the first three unknowns, `plus` and `minus` for the
    /// fourth and fifth, with right-hand sides `r`. Returns what [`substitute`] takes.
    #[inline(always)]
    #[must_use]
    pub fn eliminate<const FMA: bool>(
        &mut self,
        row: Row,
        plus: Row,
        minus: Row,
        r: [F64x8; UNKNOWNS],
    ) -> ([F64x8; KEPT], [F64x8; UNKNOWNS]) {
        let shared = Eliminated::of::<FMA>(row, [r[0], r[1], r[2]], &self.shared);
        let plus = Eliminated::of::<FMA>(plus, [r[3]], &self.plus);
        let minus = Eliminated::of::<FMA>(minus, [r[4]], &self.minus);
        self.shared = [self.shared[1], shared];
        self.plus = [self.plus[1], plus];
        self.minus = [self.minus[1], minus];
        (
            [shared.d, shared.e, plus.d, plus.e, minus.d, minus.e],
            [shared.r[0], shared.r[1], shared.r[2], plus.r[0], minus.r[0]],
        )
    }

    /// The carry as numbers, for the PE that has the rest of the lines.
    #[inline(always)]
    #[must_use]
    pub fn to_words(&self) -> [F64x8; Self::WORDS] {
        let mut words = [F64x8::default(); Self::WORDS];
        for row in 0..2 {
            let (shared, plus, minus) = (self.shared[row], self.plus[row], self.minus[row]);
            let [s0, s1, s2] = shared.r;
            let of_row = [
                shared.d, shared.e, s0, s1, s2, plus.d, plus.e, plus.r[0], minus.d, minus.e,
                minus.r[0],
            ];
            words[row * of_row.len()..][..of_row.len()].copy_from_slice(&of_row);
        }
        words
    }

    /// The carry that became `words`.
    #[inline(always)]
    #[must_use]
    pub fn from_words(words: &[F64x8; Self::WORDS]) -> Self {
        let mut carry = Self::default();
        for row in 0..2 {
            let w = &words[row * (KEPT + UNKNOWNS)..][..KEPT + UNKNOWNS];
            carry.shared[row] = Eliminated {
                d: w[0],
                e: w[1],
                r: [w[2], w[3], w[4]],
            };
            carry.plus[row] = Eliminated {
                d: w[5],
                e: w[6],
                r: [w[7]],
            };
            carry.minus[row] = Eliminated {
                d: w[8],
                e: w[9],
                r: [w[10]],
            };
        }
        carry
    }
}

/// The unknowns of the two rows after the one to be substituted, the nearer one first.
pub type Solved = [[F64x8; UNKNOWNS]; 2];

/// The unknowns of a row, from what [`Carry::eliminate`] returned for it.
#[inline(always)]
#[must_use]
pub fn substitute<const FMA: bool>(
    kept: &[F64x8; KEPT],
    r: &[F64x8; UNKNOWNS],
    [near, far]: &Solved,
) -> [F64x8; UNKNOWNS] {
    let mut x = *r;
    for (m, x) in x.iter_mut().enumerate() {
        let system = m.saturating_sub(SHARING - 1);
        let partly = kept[2 * system].neg_mul_add::<FMA>(near[m], *x);
        *x = kept[2 * system + 1].neg_mul_add::<FMA>(far[m], partly);
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Kernel, Level};
    use crate::random::Lcg;
    use crate::simd::LANES;
    use proptest::prelude::*;

    /// Systems of all kinds over `n` rows, diagonally dominant as those of SP are.
    struct Lines {
        rows: Vec<[Row; SYSTEMS]>,
        r: Vec<[F64x8; UNKNOWNS]>,
    }

    impl Lines {
        fn random(n: usize, seed: u64) -> Self {
            let mut random = Lcg::new(seed);
            let mut lanes =
                |centre: f64| F64x8(std::array::from_fn(|_| centre + random.next_f64() - 0.5));
            let rows = (0..n).map(|_| {
                std::array::from_fn(|_| Row {
                    a: lanes(0.3),
                    b: lanes(-1.0),
                    c: lanes(6.0),
                    d: lanes(-1.0),
                    e: lanes(0.3),
                })
            });
            let rows = rows.collect();
            let r = (0..n).map(|_| std::array::from_fn(|_| lanes(0.0)));
            let r = r.collect();
            Self { rows, r }
        }
    }

    /// Solves with the elimination cut before each of the rows in `cuts`: there both the carry
    /// and the solved rows travel as numbers.
    struct Solve<'a>(&'a Lines, &'a [usize]);

    impl Kernel for Solve<'_> {
        type Output = Vec<[F64x8; UNKNOWNS]>;

        #[inline(always)]
        fn run<const FMA: bool>(self) -> Self::Output {
            let Self(lines, cuts) = self;
            let mut carry = Carry::default();
            let mut eliminated = Vec::new();
            for (i, (row, r)) in lines.rows.iter().zip(&lines.r).enumerate() {
                if cuts.contains(&i) {
                    let words = carry.to_words();
                    carry = Carry::from_words(&words);
                }
                eliminated.push(carry.eliminate::<FMA>(row[0], row[1], row[2], *r));
            }
            let mut solved = Solved::default();
            let mut x = Vec::new();
            for (kept, r) in eliminated.iter().rev() {
                let here = substitute::<FMA>(kept, r, &solved);
                solved = [here, solved[0]];
                x.push(here);
            }
            x.reverse();
            x
        }
    }

    /// One lane and unknown by Gauss elimination with row exchange on the full matrix.
    fn dense(lines: &Lines, lane: usize, unknown: usize) -> Vec<f64> {
        let n = lines.rows.len();
        let mut matrix = vec![vec![0.0; n + 1]; n];
        for i in 0..n {
            let row = lines.rows[i][unknown.saturating_sub(SHARING - 1)];
            for (k, coefficient) in [row.a, row.b, row.c, row.d, row.e].into_iter().enumerate() {
                if (2..n + 2).contains(&(i + k)) {
                    matrix[i][i + k - 2] = coefficient.0[lane];
                }
            }
            matrix[i][n] = lines.r[i][unknown].0[lane];
        }
        for i in 0..n {
            let largest = (i..n)
                .max_by(|&p, &q| matrix[p][i].abs().total_cmp(&matrix[q][i].abs()))
                .unwrap();
            matrix.swap(i, largest);
            let pivot = matrix[i].clone();
            for row in &mut matrix[i + 1..] {
                let factor = row[i] / pivot[i];
                row.iter_mut()
                    .zip(&pivot)
                    .for_each(|(x, p)| *x -= factor * p);
            }
        }
        let mut x = vec![0.0; n];
        for i in (0..n).rev() {
            let known: f64 = (i + 1..n).map(|k| matrix[i][k] * x[k]).sum();
            x[i] = (matrix[i][n] - known) / matrix[i][i];
        }
        x
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn solves_what_a_dense_solver_solves(n in 1usize..40, seed in any::<u32>()) {
            let lines = Lines::random(n, u64::from(seed) | 1);
            for level in Level::supported() {
                let x = level.run(Solve(&lines, &[]));
                for lane in 0..LANES {
                    for unknown in 0..UNKNOWNS {
                        let expected = dense(&lines, lane, unknown);
                        for (x, expected) in x.iter().zip(expected) {
                            let x = x[unknown].0[lane];
                            prop_assert!((x - expected).abs() <= 1e-12, "{x} {expected} {level}");
                        }
                    }
                }
            }
        }

        #[test]
        fn cutting_lines_changes_nothing(
            n in 1usize..40,
            cuts in proptest::collection::vec(0usize..40, 0..5),
            seed in any::<u32>(),
        ) {
            let lines = Lines::random(n, u64::from(seed) | 1);
            let level = Level::best();
            prop_assert_eq!(level.run(Solve(&lines, &cuts)), level.run(Solve(&lines, &[])));
        }
    }

    #[test]
    fn the_carry_is_all_that_is_needed_and_nothing_twice() {
        assert_eq!(Carry::WORDS, 22);
        let words = std::array::from_fn(|i| F64x8::splat(i as f64));
        assert_eq!(Carry::from_words(&words).to_words(), words);
    }
}
