//! Root mean squares: of the residual, and of the difference to the exact solution.

use super::constants::EQUATIONS;
use super::directions::{X, Y, Z};
use super::exact::{coordinates, exact};
use super::field::Field;
use super::partition::Cell;

/// Adds the squares of `rhs` at the inner points of `cell`.
pub fn add_squares(sums: &mut [f64; EQUATIONS], rhs: &Field<EQUATIONS>, cell: &Cell) {
    add(sums, [X, Y, Z].map(|d| cell.interior(d)), |[i, j, k]| {
        rhs.get(i, j, k)
    });
}

/// Adds the squares of `u` - exact solution at the points of `cell`, for a grid of `n` points a
/// side.
pub fn add_errors(sums: &mut [f64; EQUATIONS], u: &Field<EQUATIONS>, cell: &Cell, n: usize) {
    add(sums, [X, Y, Z].map(|d| cell.points(d)), |local| {
        let [i, j, k] = local;
        let (value, solution) = (u.get(i, j, k), exact(coordinates(cell, n, local)));
        std::array::from_fn(|m| value[m] - solution[m])
    });
}

fn add(
    sums: &mut [f64; EQUATIONS],
    [is, js, ks]: [std::ops::Range<usize>; 3],
    at: impl Fn([usize; 3]) -> [f64; EQUATIONS],
) {
    for k in ks {
        for j in js.clone() {
            for i in is.clone() {
                for (sum, value) in sums.iter_mut().zip(at([i, j, k])) {
                    *sum += value * value;
                }
            }
        }
    }
}

/// The root mean square that belongs to `sum`: per inner point of a grid of `n` points a side.
#[must_use]
pub fn root_mean_square(sum: f64, n: usize) -> f64 {
    (sum / ((n - 2) as f64).powi(3)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adi::exact::fill;
    use crate::adi::partition::Partition;

    #[test]
    fn ghosts_and_boundary_do_not_count_as_residual() {
        let cell = Partition::new(6, 1).unwrap().cells(0)[0];
        let mut rhs = Field::new(cell.layout(), [f64::NAN; 5]).unwrap();
        let inner = [X, Y, Z].map(|d| cell.interior(d));
        fill(&mut rhs, inner, |_| [1.0, 2.0, 3.0, 4.0, 5.0]);
        let mut sums = [0.0; 5];
        add_squares(&mut sums, &rhs, &cell);
        assert_eq!(
            sums.map(|sum| root_mean_square(sum, 6)),
            [1.0, 2.0, 3.0, 4.0, 5.0]
        );
    }

    #[test]
    fn the_exact_solution_has_no_error() {
        for cell in Partition::new(7, 4).unwrap().cells(2) {
            let mut u = Field::new(cell.layout(), [f64::NAN; 5]).unwrap();
            fill(&mut u, [X, Y, Z].map(|d| cell.points(d)), |local| {
                let mut value = exact(coordinates(&cell, 7, local));
                value[3] += 2.0;
                value
            });
            let mut sums = [0.0; 5];
            add_errors(&mut sums, &u, &cell, 7);
            let points = cell.size.iter().product::<usize>() as f64;
            for (m, sum) in sums.into_iter().enumerate() {
                let expected = if m == 3 { 4.0 * points } else { 0.0 };
                assert!((sum - expected).abs() < 1e-9);
            }
        }
    }
}
